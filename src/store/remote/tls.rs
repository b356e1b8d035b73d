//! The cryptography that rustls uses for connections to Redis and PostgreSQL.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use crate::error::Error;

/// Returns the provider that the application has installed for its process, or else the provider of the feature `ring`
/// or `aws-lc`.
///
/// # Errors
///
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is neither.
pub(in crate::store) fn provider() -> Result<Arc<CryptoProvider>, Error> {
    chosen(CryptoProvider::get_default(), built_in())
}

/// Installs [`provider`] for the process, for a client that accepts no other and panics without one.
#[cfg(feature = "redis-tls")]
pub(in crate::store) fn install_provider() -> Result<(), Error> {
    if CryptoProvider::get_default().is_none() {
        // The error means that another thread has installed one meanwhile, which is as good.
        let _ = CryptoProvider::clone(&*provider()?).install_default();
    }
    Ok(())
}

fn chosen(
    installed: Option<&Arc<CryptoProvider>>,
    built_in: Option<CryptoProvider>,
) -> Result<Arc<CryptoProvider>, Error> {
    installed.cloned().or_else(|| built_in.map(Arc::new)).ok_or_else(|| {
        Error::config(
            "TLS needs a cryptography provider: enable the feature `ring` or `aws-lc`, or install one by \
             `rustls::crypto::CryptoProvider::install_default` before the store is built",
        )
    })
}

// rustls itself chooses none if both are compiled in.
#[cfg(feature = "ring")]
fn built_in() -> Option<CryptoProvider> {
    Some(rustls::crypto::ring::default_provider())
}

#[cfg(all(feature = "aws-lc", not(feature = "ring")))]
fn built_in() -> Option<CryptoProvider> {
    Some(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(not(any(feature = "ring", feature = "aws-lc")))]
fn built_in() -> Option<CryptoProvider> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, ErrorStatus};

    #[test]
    fn the_error_without_a_provider_names_the_remedies() {
        let error = chosen(None, None).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Config, ErrorStatus::Permanent), "{error}");
        for remedy in ["`ring`", "`aws-lc`", "install_default"] {
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
