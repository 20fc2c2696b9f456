//! The data that a gateway hands to its successor beside sockets: the number of gateways that count together, and its
//! certificates. The data is one line of JSON, and is sent on the channel between the two processes only, since it
//! contains private keys.
//!
//! Any part may be missing, and unknown parts are ignored: the two processes may be of different versions.

use super::channel::MOST_BEQUEATHED;
use crate::acme::HandedCertificate;
use serde_json::{Map, Value, json};
use std::num::NonZeroU32;

/// The room in the line for everything but certificates.
const BESIDE_CERTIFICATES: usize = 4096;

/// The data that is handed over beside sockets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::app) struct Bequest {
    /// The number of gateways that count together, as Redis last reported it; `None` if Redis has reported none.
    pub(in crate::app) gateways: Option<NonZeroU32>,
    /// The certificates that were ordered.
    pub(in crate::app) certificates: Vec<HandedCertificate>,
}

impl Bequest {
    /// The line, without its end. Certificates that do not fit are left out.
    pub(super) fn line(&self) -> String {
        let mut room = MOST_BEQUEATHED - BESIDE_CERTIFICATES;
        let certificates = self.certificates.iter().map(HandedCertificate::to_json);
        let certificates: Vec<Value> = certificates
            .take_while(|one| {
                let length = one.to_string().len() + 1;
                room = room.saturating_sub(length);
                room > 0
            })
            .collect();
        let mut all = Map::new();
        if let Some(gateways) = self.gateways {
            all.insert("gateways".into(), json!(gateways.get()));
        }
        all.insert("certificates".into(), certificates.into());
        Value::Object(all).to_string()
    }

    /// Reads a line. Parts that cannot be read are missing.
    pub(in crate::app) fn read(line: &str) -> Self {
        let read = serde_json::from_str::<Value>(line).unwrap_or_default();
        let gateways = read["gateways"].as_u64();
        let gateways = gateways.and_then(|count| u32::try_from(count).ok());
        let certificates = read["certificates"].as_array();
        let certificates = certificates.into_iter().flatten();
        Self {
            gateways: gateways.and_then(NonZeroU32::new),
            certificates: certificates
                .filter_map(HandedCertificate::from_json)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_other_versions_may_say_more_or_less() {
        let certificate = |identity: &str, version| HandedCertificate {
            identity: identity.into(),
            pem: "-----BEGIN\nabc\n".into(),
            version,
        };
        let bequest = Bequest {
            gateways: NonZeroU32::new(3),
            certificates: vec![
                certificate("shop", Some(("shop:00ff".into(), u64::MAX))),
                certificate("b\u{e9}\n", None),
            ],
        };
        let line = bequest.line();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(Bequest::read(&line), bequest);
        let more = line.replacen('{', "{\"later\":[1],", 1);
        assert_eq!(Bequest::read(&more), bequest);
        for odd in [
            "",
            "serve",
            "[]",
            "{}",
            "{\"gateways\":0,\"certificates\":7}",
            "{\"gateways\":-1,\"certificates\":[{},null,{\"identity\":\"a\"}]}",
            "{\"gateways\":4294967296}",
        ] {
            assert_eq!(Bequest::read(odd), Bequest::default(), "{odd}");
        }
        let shown = format!("{bequest:?}");
        assert!(!shown.contains("BEGIN"), "{shown}");
    }

    #[test]
    fn a_line_has_a_bound() {
        let pem = "x".repeat(1 << 20);
        let one = |number: usize| HandedCertificate {
            identity: number.to_string(),
            pem: pem.clone().into(),
            version: None,
        };
        let bequest = Bequest {
            gateways: None,
            certificates: (0..40).map(one).collect(),
        };
        let line = bequest.line();
        assert!(line.len() < MOST_BEQUEATHED, "{}", line.len());
        assert_eq!(Bequest::read(&line).certificates.len(), 31);
    }
}
