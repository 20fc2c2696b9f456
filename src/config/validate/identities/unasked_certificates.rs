//! Settings that depend on clients' certificates, in a file that requests no client certificates.

use crate::config::document::Document;
use crate::config::input::Span;
use crate::config::report::{Code, Details as _, Findings};
use crate::key::KeyPart;

/// Notes limits, groups and upstreams that need a client certificate which no request ever has.
pub(in crate::config::validate) fn note_unasked(document: &Document, found: &mut Findings) {
    let is_asked = document
        .identities
        .iter()
        .any(|one| !one.client.is_absent());
    let all_read = document.lost.is_empty() && document.torn.is_empty();
    if is_asked || !all_read {
        return;
    }
    for limit in &document.limits {
        let mut parts = limit.by.entries().iter();
        if let Some(by) = parts.find(|at| is_of_certificate(at.value.as_ref())) {
            let label = "no request has it: `missing` decides for all";
            warn(format!("{limit} counts by"), &by.span, label, found);
        }
    }
    for group in &document.groups {
        let by = group.by.at();
        if let Some(by) = by.filter(|at| is_of_certificate(Some(&at.value))) {
            let label = "no request shows that it is a member's";
            warn(format!("{group} uses"), &by.span, label, found);
        }
    }
    for upstream in &document.upstreams {
        let forwards = upstream.forward_client_cert.at();
        if let Some(forwards) = forwards.filter(|at| at.value) {
            let user = format!("{upstream} forwards");
            warn(user, &forwards.span, "there is none to forward", found);
        }
    }
}

fn is_of_certificate(part: Option<&KeyPart>) -> bool {
    part.is_some_and(KeyPart::is_of_certificate)
}

fn warn(user: String, span: &Span, label: &str, found: &mut Findings) {
    let message = format!("{user} certificates, and no client is asked for one");
    found
        .warning(Code::UnaskedCertificate, message)
        .at(span, label)
        .help("write `client` in a table `[tls.NAME]`, with the authorities of your clients");
}
