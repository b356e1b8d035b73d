//! The HTTP client for the library's own DynamoDB clients.

use aws_sdk_dynamodb::config::SharedHttpClient;
use aws_smithy_http_client::{
    ConnectorBuilder,
    proxy::ProxyConfig,
    tls::{self, rustls_provider::CryptoMode},
};

#[cfg(feature = "ring")]
const CRYPTO: CryptoMode = CryptoMode::Ring;
#[cfg(not(feature = "ring"))]
const CRYPTO: CryptoMode = CryptoMode::AwsLc;

/// Returns the SDK's default client with the library's TLS. Proxies are taken from the environment.
pub(super) fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_with_connector_fn(|settings, components| {
        let mut connector = ConnectorBuilder::default().tls_provider(tls::Provider::Rustls(CRYPTO));
        connector.set_connector_settings(settings.cloned());
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector.build()
    })
}
