//! The cryptography provider of TLS, which a server recognizes by the offered key exchange groups.
//!
//! rustls has one provider per process. Each case therefore runs this test binary again, as the process that connects.

use std::{env, fs, path::Path, process::Command};

use aws_sdk_dynamodb::Client;
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use lambda_once::{
    DynamoDbStore, Store,
    store::{dynamodb, postgres, redis},
};
use tokio::task::block_in_place;
use tokio_rustls::rustls::{
    NamedGroup,
    crypto::{CryptoProvider, aws_lc_rs, ring},
};

use crate::support::{
    self, dynamodb_endpoint, server,
    tls::{Certificates, Groups, TlsProxy},
    unique_name,
    wire::{Protocol, host_and_port},
};

/// The environment variable with the provider to install, for the process that connects.
const INSTALLED: &str = "LAMBDA_ONCE_TEST_INSTALLED";
const REDIS: &str = "LAMBDA_ONCE_TEST_REDIS";
const POSTGRES: &str = "LAMBDA_ONCE_TEST_POSTGRES";
/// The environment variable with the SDK's root certificates, instead of the system's.
const AUTHORITY: &str = "SSL_CERT_FILE";

/// The only test that the process runs.
const TEST: &str = "cryptography::an_installed_provider_is_used_before_the_one_of_the_features";

/// The provider that the application installs for its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Installed {
    Nothing,
    /// A custom provider with a single group, as a validated one could be.
    Custom,
    /// AWS-LC, with a DynamoDB client on AWS-LC.
    AwsLc,
}

impl Installed {
    const ALL: [Self; 3] = [Self::Nothing, Self::Custom, Self::AwsLc];

    fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|installed| format!("{installed:?}") == name).unwrap()
    }

    fn install(self) {
        let provider = match self {
            Self::Nothing => return,
            Self::Custom => CryptoProvider { kx_groups: vec![ring::kx_group::SECP384R1], ..ring::default_provider() },
            Self::AwsLc => aws_lc_rs::default_provider(),
        };
        provider.install_default().unwrap();
    }
}

/// Connects once to each server.
async fn connect(installed: Installed) {
    installed.install();
    // Only a URL with TLS needs a provider.
    redis::Config::new("redis://127.0.0.1").build().unwrap();
    assert_eq!(CryptoProvider::get_default().is_some(), installed != Installed::Nothing);
    let authority = fs::read(env::var(AUTHORITY).unwrap()).unwrap();
    let config = postgres::Config::from_url(&env::var(POSTGRES).unwrap()).unwrap();
    config.root_certificates(authority.clone()).build().unwrap().warm_up().await.unwrap();
    let config = redis::Config::new(env::var(REDIS).unwrap()).root_certificates(authority);
    config.build().unwrap().warm_up().await.unwrap();
    let dynamodb = match installed {
        Installed::AwsLc => {
            let provider = tls::Provider::Rustls(CryptoMode::AwsLc);
            let https = aws_smithy_http_client::Builder::new().tls_provider(provider).build_https();
            let client = Client::new(&dynamodb::Config::sdk_config_with(https).await);
            dynamodb::Config::from_env().unwrap().build(client).unwrap()
        }
        Installed::Nothing | Installed::Custom => DynamoDbStore::from_env().await.unwrap(),
    };
    dynamodb.warm_up().await.unwrap();
}

/// The groups offered to each server, in one connection.
#[derive(Debug, PartialEq, Eq)]
struct Offers {
    dynamodb: Groups,
    redis: Groups,
    postgres: Groups,
}

/// Runs the process that connects, and asserts its success.
async fn offers_with(installed: Installed) -> Offers {
    let certificates = Certificates::new();
    let authority = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique_name("authority"));
    fs::write(&authority, &certificates.authority).unwrap();

    let table = unique_name("records");
    let store = DynamoDbStore::new(support::client(&dynamodb_endpoint()).await, &table);
    store.create_table().await.unwrap();
    let postgres = support::postgres::connection().await;
    let (user, database) = (postgres.get_user().unwrap(), postgres.get_dbname().unwrap_or("postgres"));

    let behind = |protocol, url: String| {
        let certificates = &certificates;
        async move { TlsProxy::start(certificates, protocol, host_and_port(&url)).await }
    };
    let dynamodb_proxy = behind(Protocol::DynamoDb, dynamodb_endpoint()).await;
    let redis_proxy = behind(Protocol::Resp, server("REDIS_URL")).await;
    let postgres_proxy = behind(Protocol::Postgres, support::postgres::url()).await;

    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", TEST, "--nocapture"])
        .env(INSTALLED, format!("{installed:?}"))
        .env(AUTHORITY, &authority)
        .env(REDIS, format!("rediss://{}", redis_proxy.address))
        .env(POSTGRES, format!("postgresql://{user}@{}/{database}", postgres_proxy.address))
        .env("IDEMPOTENCY_TABLE", &table)
        .env("AWS_ENDPOINT_URL", format!("https://{}", dynamodb_proxy.address))
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("NO_PROXY", "127.0.0.1");
    let output = block_in_place(|| command.output()).unwrap();
    fs::remove_file(&authority).unwrap();
    assert!(output.status.success(), "{installed:?}: {}", String::from_utf8_lossy(&output.stderr));

    // A busy machine may open a second connection, with the same offer.
    let offer = |proxy: TlsProxy| {
        let offers = proxy.offers();
        assert!(offers.iter().all(|offer| *offer == offers[0]), "{offers:?}");
        offers[0].clone()
    };
    Offers { dynamodb: offer(dynamodb_proxy), redis: offer(redis_proxy), postgres: offer(postgres_proxy) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installed_provider_is_used_before_the_one_of_the_features() {
    if let Ok(installed) = env::var(INSTALLED) {
        return connect(Installed::named(&installed)).await;
    }
    // AWS-LC offers one more group than ring, ML-KEM.
    let ring = vec![NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];
    let aws_lc = [vec![NamedGroup::X25519MLKEM768], ring.clone()].concat();
    // With both features, ring is used.
    let own = if cfg!(feature = "ring") { ring } else { aws_lc.clone() };
    let custom = vec![NamedGroup::secp384r1];
    for (installed, expected) in [
        (Installed::Nothing, Offers { dynamodb: own.clone(), redis: own.clone(), postgres: own.clone() }),
        (Installed::Custom, Offers { dynamodb: own, redis: custom.clone(), postgres: custom }),
        (Installed::AwsLc, Offers { dynamodb: aws_lc.clone(), redis: aws_lc.clone(), postgres: aws_lc }),
    ] {
        assert_eq!(offers_with(installed).await, expected, "{installed:?}");
    }
}
