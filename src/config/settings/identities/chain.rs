//! Chain certificates that have not signed the certificate before them.

use super::written::{WrittenCertificate, WrittenIdentity};
use crate::config::report::{Code, Details as _, Findings};
use crate::tls::ServerIdentity;

/// Notes the first certificate that is out of place.
pub(super) fn note_chain(
    written: &WrittenIdentity<'_>,
    identity: &ServerIdentity,
    found: &mut Findings,
) {
    let (WrittenCertificate::Files { cert, .. }, Some(behind)) =
        (&written.certificate, identity.out_of_place())
    else {
        return;
    };
    let message = format!(
        "certificate {} of {}, `{}`, has not signed the one before it",
        behind.position, written.subject, behind.subject
    );
    found
        .warning(Code::CertificateOutOfPlace, message)
        .at(&cert.span, "some clients refuse such a chain")
        .help("write the certificate itself first, then the one that signed it, and so on, as in `fullchain.pem`");
}
