//! A queue whose traces are exported to an OpenTelemetry collector, such as the one in AWS's layer for Lambda (ADOT).

use lambda_once::{DynamoDbStore, Failure, Idempotency, Key};
use lambda_runtime::{
    Runtime,
    layers::{OpenTelemetryFaasTrigger, OpenTelemetryLayer},
};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{filter::Targets, fmt, prelude::*, registry};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
}

async fn ship(order: Order) -> Result<String, Failure> {
    Ok(format!("shipped {}", order.id))
}

/// Logs from *info* on. Traces have the library's spans at *debug* as well.
fn telemetry(exporter: SpanExporter) -> (SdkTracerProvider, impl Subscriber + Send + Sync) {
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let traced = Targets::new().with_default(LevelFilter::INFO).with_target("lambda_once", LevelFilter::DEBUG);
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop")).with_filter(traced);
    let logs = fmt::layer().json().with_filter(LevelFilter::INFO);
    (provider, registry().with(traces).with(logs))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    // It sends to OTEL_EXPORTER_OTLP_ENDPOINT, by default http://localhost:4318.
    let (provider, subscriber) = telemetry(SpanExporter::builder().with_http().build()?);
    tracing::subscriber::set_global_default(subscriber)?;
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    // Before an invocation ends: Lambda may freeze the execution environment after it.
    let flush = move || provider.force_flush().unwrap_or_else(|error| tracing::warn!(%error, "traces are late"));
    let layer = OpenTelemetryLayer::new(flush).with_trigger(OpenTelemetryFaasTrigger::PubSub);
    Runtime::new(once.sqs(Key::pointer("/id"), ship).validate()?).layer(layer).run().await
}

#[cfg(test)]
mod tests {
    use lambda_once::testing;
    use opentelemetry_otlp::WithExportConfig;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message;
    use tokio::{net::TcpListener, sync::mpsc};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collector_receives_the_batch_its_record_and_the_calls() -> Result<(), Box<dyn std::error::Error>> {
        let (sender, mut received) = mpsc::unbounded_channel();
        let receive = async move |body: axum::body::Bytes| sender.send(body).map_err(|_| "nobody waits");
        let collector = axum::Router::new().route("/v1/traces", axum::routing::post(receive));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}/v1/traces", listener.local_addr()?);
        tokio::spawn(async { axum::serve(listener, collector).await });

        let batch = testing::sqs::batch([testing::record(&Order { id: "7".to_owned() })]);
        let service = testing::engine().sqs(Key::pointer("/id"), ship);
        let (provider, subscriber) = telemetry(SpanExporter::builder().with_http().with_endpoint(endpoint).build()?);
        let _guard = tracing::subscriber::set_default(subscriber);
        testing::deliver_twice(&service, &batch).await.assert_once();
        provider.force_flush()?;

        let request = ExportTraceServiceRequest::decode(received.recv().await.ok_or("nothing came")?)?;
        let spans =
            request.resource_spans.iter().flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
        let mut names: Vec<_> = spans.map(|span| &*span.name).collect();
        names.sort_unstable();
        // Of two deliveries, one ran the handler.
        let calls = ["claim memory", "claim memory", "complete memory"];
        assert_eq!(names, [&calls[..], &["process orders", "process sqs", "process sqs", "record"]].concat());
        Ok(())
    }
}
