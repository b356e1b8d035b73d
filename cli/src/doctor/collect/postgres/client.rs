//! The client's configuration and TLS for a URL that the library accepts.

use std::fs;

use anyhow::{Context, Result, ensure};
use lambda_once::store::postgres::tokio_postgres::{
    Config,
    config::{SslMode, SslNegotiation},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Options of libpq that the library leaves out, because they have no effect.
const IGNORED: [&str; 4] = ["pgbouncer", "gssencmode", "sslsni", "uselibpqcompat"];

/// Returns the configuration for a URL, and the connector that trusts the root certificates of its `sslrootcert`, else the public
/// ones. Both are the same as in [`lambda_once::store::postgres::Config::from_url`], which has accepted the URL.
///
/// # Errors
///
/// Returns an error if the root certificates or the URL cannot be read. Neither quotes the URL.
pub(super) fn client(url: &str) -> Result<(Config, MakeRustlsConnect)> {
    let (text, root_certificates) = translated(url);
    let mut config = text.parse::<Config>().ok().context("the URL of PostgreSQL cannot be read")?;
    let roots = match root_certificates {
        Some(file) => {
            config.ssl_mode(SslMode::Require);
            trusted(&file)?
        }
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
    };
    let tls = tls(&config, roots)?;
    Ok((config, tls))
}

/// Returns the URL in the client's form, and the file of root certificates that it names.
fn translated(url: &str) -> (String, Option<String>) {
    // As in the client, credentials end at the first `@`, and may contain a question mark.
    let after_credentials = url.find('@').unwrap_or_default();
    let Some(start) = url[after_credentials..].find('?').map(|place| after_credentials + place + 1) else {
        return (url.to_owned(), None);
    };
    let (mut kept, mut root_certificates) = (Vec::new(), None);
    for option in url[start..].split('&') {
        match option.split_once('=') {
            Some(("sslmode", "verify-full" | "verify-ca")) => kept.push("sslmode=require"),
            Some(("sslmode", "allow")) => kept.push("sslmode=prefer"),
            Some(("sslrootcert", "system")) => {}
            Some(("sslrootcert", file)) => root_certificates = Some(decoded(file)),
            Some((name, _)) if IGNORED.contains(&name) => {}
            _ => kept.push(option),
        }
    }
    (format!("{}{}", &url[..start], kept.join("&")), root_certificates)
}

/// Returns a value without percent-encoding. Invalid encodings are left unchanged.
fn decoded(value: &str) -> String {
    let mut parts = value.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn trusted(file: &str) -> Result<RootCertStore> {
    let pem = fs::read(file).with_context(|| format!("the file {file} of `sslrootcert` cannot be read"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots
            .add(certificate.with_context(|| format!("{file} is not PEM"))?)
            .context("a root certificate cannot be read")?;
    }
    ensure!(!roots.is_empty(), "there is no certificate in {file}");
    Ok(roots)
}

fn tls(connection: &Config, roots: RootCertStore) -> Result<MakeRustlsConnect> {
    let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .context("the TLS client cannot be built")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if connection.get_ssl_negotiation() == SslNegotiation::Direct {
        // The server rejects a direct handshake without it.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use lambda_once::store::postgres;

    use super::*;

    const BASE: &str = "postgresql://once:p%3F%40@db.example.com:6432/orders";

    /// Self-signed. It has expired, which matters only to a connection.
    const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBfTCCASOgAwIBAgIUCYQch2RjjQFaeKED9KJjAtyP9gAwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJb25jZSB0ZXN0MB4XDTI2MTEyNTE1NTAyM1oXDTI2MTEyNjE1
NTAyM1owFDESMBAGA1UEAwwJb25jZSB0ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAE/aXisKLCVEB3e4CVuxvgQuq//KycMy2qNkRYc1JJkNTvoxHH1u+1hRHy
UH+nRfm+EDdwMPACScYZKEtT1A4b4aNTMFEwHQYDVR0OBBYEFGEBb3Z686b2BkHu
Jc32I67UKbcyMB8GA1UdIwQYMBaAFGEBb3Z686b2BkHuJc32I67UKbcyMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgWKHbdZd56ef3Rxem7bH1bN+4
xGamCtVARFoFBLOAzMICIQCK3yQK1CE2tqm7/UMGjjDjZ08UZSqRe7+lusuT64hx
SA==
-----END CERTIFICATE-----
";

    #[test]
    fn urls_of_the_library_are_accepted() {
        for (options, mode) in [
            ("sslmode=verify-full", SslMode::Require),
            ("sslmode=verify-ca&connect_timeout=3", SslMode::Require),
            ("sslmode=allow", SslMode::Prefer),
            ("sslmode=disable&gssencmode=disable&sslsni=1", SslMode::Disable),
            ("sslmode=require&pgbouncer=true&uselibpqcompat=true", SslMode::Require),
            ("sslmode=verify-full&sslrootcert=system", SslMode::Require),
        ] {
            let url = format!("{BASE}?{options}");
            assert!(postgres::Config::from_url(&url).is_ok(), "{url}");
            let (config, _) = client(&url).unwrap();
            assert_eq!(config.get_ssl_mode(), mode, "{url}");
            assert_eq!((config.get_password(), config.get_dbname()), (Some(&b"p?@"[..]), Some("orders")), "{url}");
        }
        assert!(client(BASE).is_ok());
    }

    #[test]
    fn the_file_of_root_certificates_is_read() {
        let (text, file) = translated(&format!("{BASE}?sslmode=verify-full&sslrootcert=%2Fno%20where%2"));
        assert_eq!((text, file.as_deref()), (format!("{BASE}?sslmode=require"), Some("/no where%2")));
        let file = std::env::temp_dir().join(format!("once-doctor-{}.pem", std::process::id()));
        let url = format!("{BASE}?sslrootcert={}", file.display());
        let read = |text: &str| {
            fs::write(&file, text).unwrap();
            let found = client(&url).map(|(config, _)| config.get_ssl_mode());
            fs::remove_file(&file).unwrap();
            found
        };
        assert_eq!(read(CERTIFICATE).unwrap(), SslMode::Require);
        assert!(read("").is_err());
        let error = client(&format!("{BASE}?sslrootcert=/nowhere/rds.pem")).err().unwrap();
        assert!(error.to_string().starts_with("the file /nowhere/rds.pem"), "{error:#}");
    }

    #[test]
    fn an_unreadable_url_is_not_quoted() {
        let error = client("postgresql://once:pass@h/d?hunter2=1").err().unwrap();
        assert!(!format!("{error:#?}").contains("hunter2"), "{error:#?}");
    }
}
