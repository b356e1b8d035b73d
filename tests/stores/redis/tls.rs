//! TLS, on a node and on the nodes of a cluster.

use lambda_once::{ErrorKind, ErrorStatus, store::redis::Config};

use crate::support::{
    requests::{claim, claim_one, is_granted},
    server,
    tls::{Certificates, TlsProxy},
    wire::{Protocol, host_and_port},
};

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified_by_the_given_root_certificates() {
    let certificates = Certificates::new();
    let url = server("REDIS_URL");
    let proxy = TlsProxy::start(&certificates, Protocol::Resp, host_and_port(&url)).await;
    let url = format!("rediss://{}", proxy.address);
    let trusting = Config::new(&url).root_certificates(certificates.authority.clone()).build().unwrap();
    assert!(is_granted(&claim_one(&trusting, &claim()).await));

    let misnamed = format!("rediss://localhost:{}", proxy.address.port());
    for (distrusting, names_the_setting) in [
        (Config::new(&url).root_certificates(Certificates::new().authority), true),
        // The public authorities do not include it.
        (Config::new(&url), true),
        // The certificate is for another name.
        (Config::new(misnamed).root_certificates(certificates.authority), false),
    ] {
        let error = claim_one(&distrusting.build().unwrap(), &claim()).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
        assert_eq!(error.to_string().contains("`root_certificates`"), names_the_setting, "{error}");
    }
}

#[test]
fn invalid_certificates_and_certificates_without_tls_are_refused() {
    for config in [Config::new("rediss://localhost"), Config::new("redis://localhost")] {
        let error = config.root_certificates("-----BEGIN CERTIFICATE-----\n!\n").build().unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Config, ErrorStatus::Permanent), "{error}");
    }
}
