//! The time for which a certificate is valid, as far as it is a cause for a warning. A gateway serves it all the same: the
//! client judges.

use super::written::{WrittenCertificate, WrittenIdentity};
use crate::clock;
use crate::config::describe::show_instant;
use crate::config::diagnostic::{Code, Details as _, Findings};
use crate::tls::{CertificateFacts, ServerIdentity};

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// Notes a certificate that has ended, ends soon, or is not valid yet.
pub(super) fn note(written: &WrittenIdentity<'_>, identity: &ServerIdentity, found: &mut Findings) {
    let now = i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX);
    let facts = identity.facts();
    let WrittenCertificate::Files { cert, .. } = &written.certificate else {
        // It is renewed by itself, and failures of that are logged and counted.
        return;
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
    let Some(label) = ending(facts, now) else {
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

/// Words about a certificate that has ended, or has less than a third of its life left.
fn ending(facts: &CertificateFacts, now: i64) -> Option<String> {
    let left = facts.not_after.saturating_sub(now);
    let life = facts.not_after.saturating_sub(facts.not_before);
    if left < 0 {
        return Some("clients refuse it".to_owned());
    }
    (left < life / 3).then(|| match left / DAY {
        0 => "less than a day is left".to_owned(),
        1 => "1 day is left, less than a third of its life".to_owned(),
        days => format!("{days} days are left, less than a third of its life"),
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
        let before_its_end = |seconds: i64| ending(&facts, facts.not_after - seconds);
        assert_eq!(before_its_end(10 * DAY), None);
        assert_eq!(
            before_its_end(10 * DAY - 1).unwrap(),
            "9 days are left, less than a third of its life"
        );
        assert_eq!(before_its_end(DAY - 1).unwrap(), "less than a day is left");
        assert_eq!(before_its_end(-1).unwrap(), "clients refuse it");
    }
}
