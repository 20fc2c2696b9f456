//! Warnings about the validity time of a certificate. The gateway serves the certificate anyway: the client decides
//! about trust.

use super::written::{WrittenCertificate, WrittenIdentity};
use crate::clock;
use crate::config::input::At;
use crate::config::presentation::describe::show_instant;
use crate::config::report::{Code, Details as _, Findings};
use crate::tls::{CertificateFacts, ServerIdentity};

/// A part of a certificate's validity time.
#[derive(Debug, Clone, Copy)]
struct PartOfLife {
    divisor: i64,
    words: &'static str,
}

/// A certificate from files ends soon if less than this is left.
const LEFT_OF_FILE: PartOfLife = PartOfLife {
    divisor: 3,
    words: "a third",
};
/// An ordered certificate is renewed when a third is left: if less than this is left, the renewal fails.
const LEFT_OF_ORDERED: PartOfLife = PartOfLife {
    divisor: 6,
    words: "a sixth",
};
/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// Notes a certificate that has expired, expires soon, or is not valid yet.
pub(super) fn note_life(
    written: &WrittenIdentity<'_>,
    identity: &ServerIdentity,
    found: &mut Findings,
) {
    let now = i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX);
    let facts = identity.facts();
    if identity.is_pending() {
        return;
    }
    let cert = match &written.certificate {
        WrittenCertificate::Files { cert, .. } => cert,
        WrittenCertificate::Ordered { acme, .. } => {
            return unrenewed(written, acme, facts, now, found);
        }
    };
    let subject = &written.subject;
    if facts.not_before > now {
        let message = format!(
            "the certificate of {subject} is not valid before {}",
            show_instant(facts.not_before)
        );
        found
            .warning(Code::CertificateNotYetValid, message)
            .at(&cert.span, "clients refuse it until then")
            .help("is the clock of this machine right?");
        return;
    }
    let Some(label) = ending(facts, now, LEFT_OF_FILE) else {
        return;
    };
    let verb = if facts.not_after < now {
        "has ended"
    } else {
        "ends"
    };
    let message = format!(
        "the certificate of {subject} {verb} at {}",
        show_instant(facts.not_after)
    );
    found
        .warning(Code::CertificateEndsSoon, message)
        .at(&cert.span, label)
        .help("write a new certificate and its key over the files: they are taken over without a restart");
}

/// Notes a certificate that should have been renewed.
fn unrenewed(
    written: &WrittenIdentity<'_>,
    acme: &At<String>,
    facts: &CertificateFacts,
    now: i64,
    found: &mut Findings,
) {
    let Some(label) = ending(facts, now, LEFT_OF_ORDERED) else {
        return;
    };
    let message = format!(
        "the certificate of {} is not renewed, and ends at {}",
        written.subject,
        show_instant(facts.not_after)
    );
    found
        .warning(Code::CertificateEndsSoon, message)
        .at(&acme.span, label)
        .help("the log of the gateway says why its renewal fails; a gateway that does not run renews nothing");
}

/// Words about a certificate that has expired, or that has less than this part of its validity time left.
fn ending(facts: &CertificateFacts, now: i64, part: PartOfLife) -> Option<String> {
    let left = facts.not_after.saturating_sub(now);
    let life = facts.not_after.saturating_sub(facts.not_before);
    if left < 0 {
        return Some("clients refuse it".to_owned());
    }
    (left < life / part.divisor).then(|| match left / DAY {
        0 => "less than a day is left".to_owned(),
        1 => format!("1 day is left, less than {} of its life", part.words),
        days => format!("{days} days are left, less than {} of its life", part.words),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn a_third_of_the_life_is_soon() {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 31);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let facts = CertificateFacts::read(certificate.der()).unwrap();
        let before_its_end = |seconds: i64| ending(&facts, facts.not_after - seconds, LEFT_OF_FILE);
        assert_eq!(before_its_end(10 * DAY), None);
        assert_eq!(
            before_its_end(10 * DAY - 1).unwrap(),
            "9 days are left, less than a third of its life"
        );
        assert_eq!(before_its_end(DAY - 1).unwrap(), "less than a day is left");
        let ordered = |seconds: i64| ending(&facts, facts.not_after - seconds, LEFT_OF_ORDERED);
        assert_eq!(ordered(5 * DAY), None);
        assert_eq!(
            ordered(5 * DAY - 1).unwrap(),
            "4 days are left, less than a sixth of its life"
        );
        assert_eq!(before_its_end(-1).unwrap(), "clients refuse it");
    }
}
