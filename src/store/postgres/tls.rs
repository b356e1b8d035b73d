//! TLS for connections, by rustls with the feature `postgres-tls`.

#[cfg(feature = "postgres-tls")]
pub(super) use with_rustls::{Connector, connector};
#[cfg(not(feature = "postgres-tls"))]
pub(super) use without::{Connector, connector};

#[cfg(feature = "postgres-tls")]
mod with_rustls {
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, pem::PemObject},
    };
    use tokio_postgres::config::SslNegotiation;
    use tokio_postgres_rustls::MakeRustlsConnect;

    use crate::{error::Error, store::remote::tls::provider};

    pub(in super::super) type Connector = MakeRustlsConnect;

    /// Returns a connector that trusts the certificates given in PEM, or without any the public ones that Mozilla
    /// trusts.
    pub(in super::super) fn connector(
        connection: &tokio_postgres::Config,
        root_certificates: Option<&[u8]>,
    ) -> Result<Connector, Error> {
        let roots = match root_certificates {
            Some(pem) => parsed(pem)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let mut config = ClientConfig::builder_with_provider(provider()?)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config("the TLS client cannot be built").with_source(error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        if connection.get_ssl_negotiation() == SslNegotiation::Direct {
            // The server rejects a direct handshake without it.
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(MakeRustlsConnect::new(config))
    }

    fn parsed(pem: &[u8]) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|error| Error::config("the root certificates are not PEM").with_source(error))?;
            roots
                .add(certificate)
                .map_err(|error| Error::config("a root certificate cannot be read").with_source(error))?;
        }
        if roots.is_empty() {
            return Err(Error::config("there is no certificate among the root certificates"));
        }
        Ok(roots)
    }
}

#[cfg(not(feature = "postgres-tls"))]
mod without {
    use tokio_postgres::{NoTls, config::SslMode};

    use crate::error::Error;

    pub(in super::super) type Connector = NoTls;

    pub(in super::super) fn connector(
        connection: &tokio_postgres::Config,
        _root_certificates: Option<&[u8]>,
    ) -> Result<Connector, Error> {
        match connection.get_ssl_mode() {
            SslMode::Disable | SslMode::Prefer => Ok(NoTls),
            _ => Err(Error::config("`sslmode` asks for TLS: build with the feature `postgres-tls`")),
        }
    }
}
