//! Explains connections that fail because of the server's certificate.

use std::error::Error;

use crate::error::root_cause;

/// The names that rustls gives a certificate without a signature of a trusted authority.
const UNTRUSTED: [&str; 2] = ["invalid peer certificate: UnknownIssuer", "invalid peer certificate: BadSignature"];

/// Returns the root cause of a failed connection and, if the certificate is untrusted, the setting that helps.
pub(in crate::store) fn connection_cause(error: &(dyn Error + 'static)) -> String {
    let cause = root_cause(error);
    if UNTRUSTED.iter().any(|text| cause.contains(text)) {
        return cause + "; `root_certificates` sets the authorities to trust";
    }
    cause
}
