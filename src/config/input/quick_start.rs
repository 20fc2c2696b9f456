//! `tollgate run --to HOST:PORT --limit 10/s`: a gateway without a file.

use super::source::Source;
use crate::config::report::{Code, Diagnostic, Report};
use crate::config::value::{ValueError, with_valid_offers};
use crate::config::{Compiled, parse, value};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

/// The name of the flags in messages.
const NAME: &str = "command line";

/// A gateway without a file, as the flags describe it.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuickStart<'a> {
    /// The server that every request goes to.
    pub to: &'a str,
    /// The rate of the limit for each client address.
    pub limit: Option<&'a str>,
    /// The address to listen on.
    pub listen: Option<&'a str>,
    /// The Redis through which gateways share counters.
    pub redis: Option<&'a str>,
    /// The files of a certificate and of its key, separated by a comma.
    pub tls: Option<&'a str>,
}

/// The default address with TLS. The default address without TLS is the default of the file.
const TLS_LISTEN: &str = ":8443";

impl QuickStart<'_> {
    /// Writes the flags as the equivalent file, and reads this file like any other file.
    ///
    /// # Errors
    /// The mistakes of the flags, which messages show as given.
    pub fn compile(self) -> Result<Compiled, Report> {
        self.check()?;
        let mut text = String::new();
        let quoted = |written: &str| toml::Value::from(written);
        let pair = self.tls.and_then(|tls| value::pem_pair(tls).ok());
        if let Some([cert, key]) = pair {
            let listen = quoted(self.listen.unwrap_or(TLS_LISTEN));
            let (cert, key) = (quoted(&cert), quoted(&key));
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "server.listen = {{ address = {listen}, tls = {{ cert = {cert}, key = {key} }} }}"
            );
        }
        let mut line = |key: &str, written: &str| {
            let _ = writeln!(text, "{key} = {}", quoted(written));
        };
        if let Some(listen) = self.listen.filter(|_| self.tls.is_none()) {
            line("server.listen", listen);
        }
        if let Some(redis) = self.redis {
            line("store.url", redis);
        }
        line("upstreams.to.servers", self.to);
        line("routes.all.upstream", "to");
        if let Some(limit) = self.limit {
            line("routes.all.limits", "per-ip");
            line("limits.per-ip.by", "ip");
            line("limits.per-ip.rate", limit);
        }
        let mut compiled = parse(NAME, &text)?;
        // The warning about a password in the file does not apply, since there is no file.
        let is_meant = |one: &Diagnostic| one.code != Code::SecretInFile;
        compiled.warnings.retain(is_meant);
        Ok(compiled)
    }

    /// Reads each flag separately, so that messages show the flags and not the text made from them.
    fn check(self) -> Result<(), Report> {
        let mut shown = String::from("tollgate run");
        let mut found: Vec<Diagnostic> = Vec::new();
        let mut flag =
            |name: &str, written: Option<&str>, wrong: fn(&str) -> Option<ValueError>| {
                let Some(written) = written else { return };
                let _ = write!(shown, " --{name} ");
                let start = shown.len();
                shown.push_str(&starred(written));
                found.extend(wrong(written).map(|wrong| wrong.at(&(start..shown.len()))));
            };
        flag("to", Some(self.to), |text| wrong(text, value::server));
        flag("limit", self.limit, |text| wrong(text, value::rate));
        flag("listen", self.listen, |text| {
            wrong(text, value::listen_address)
        });
        flag("tls", self.tls, |text| wrong(text, value::pem_pair));
        flag("redis", self.redis, |text| wrong(text, value::store));
        if found.is_empty() {
            return Ok(());
        }
        Err(Report::new(Arc::new(Source::new(NAME, shown)), found))
    }
}

fn wrong<T>(text: &str, read: impl Fn(&str) -> Result<T, ValueError>) -> Option<ValueError> {
    with_valid_offers(text, read).err()
}

/// The flag with stars before an `@`: a password may be there, even if other parts are missing.
fn starred(written: &str) -> Cow<'_, str> {
    let Some((user, place)) = written.rsplit_once('@') else {
        return Cow::Borrowed(written);
    };
    let start = user.find("://").map_or(0, |at| at + "://".len());
    let (scheme, user) = user.split_at(start);
    let stars = if user.is_empty() { "" } else { "***" };
    Cow::Owned(format!("{scheme}{stars}@{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::report::render::Colour;
    use crate::listen::listener::{ListenAddress, Listener};
    use crate::store::Backend as Counters;

    #[test]
    fn the_flags_make_a_gateway() {
        let compiled = QuickStart {
            to: "127.0.0.1:3000",
            limit: Some("10/s"),
            listen: Some(":0"),
            redis: Some("redis://:p\"w@h"),
            tls: None,
        }
        .compile()
        .unwrap();
        let listener = Listener::plain(ListenAddress::EveryAddress(0));
        assert_eq!(compiled.boot.listen.listeners, [listener]);
        assert!(compiled.boot.admin.is_none() && compiled.warnings.is_empty());
        let Counters::Redis(target) = &compiled.boot.store.source else {
            panic!("redis");
        };
        assert_eq!(target.password.as_ref().unwrap().expose(), "p\"w");
        let service = &compiled.snapshot.services[0];
        assert_eq!(
            (&*service.limits[0].name, service.limits.len()),
            ("per-ip", 1)
        );
        assert!(
            QuickStart {
                to: "localhost:3000",
                ..QuickStart::default()
            }
            .compile()
            .unwrap()
            .snapshot
            .services[0]
                .limits
                .is_empty()
        );
    }

    #[test]
    fn a_certificate_makes_a_listener_with_tls() {
        crate::config::fixtures::set_modes_of_keys();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/tls");
        let compile = |tls: &str| {
            QuickStart {
                to: "localhost:3000",
                tls: Some(tls),
                ..QuickStart::default()
            }
            .compile()
        };
        let compiled = compile(&format!("{folder}/api.pem,{folder}/api.key")).unwrap();
        let listener = &compiled.boot.listen.listeners[0];
        assert_eq!(listener.to_string(), ":8443 with TLS");
        assert!(
            compiled.offers[0]
                .as_ref()
                .unwrap()
                .default_identity()
                .is_some()
        );
        let old = compile(&format!("{folder}/old.pem,{folder}/old.key")).unwrap();
        assert_eq!(old.warnings[0].code, Code::CertificateEndsSoon);
        let report = compile(&format!("{folder}/api.pem,{folder}/shop.key")).unwrap_err();
        assert_eq!(report.diagnostics[0].code, Code::CertificateKeyMismatch);
    }

    #[test]
    fn mistakes_are_shown_in_the_flags() {
        let report = QuickStart {
            to: "localhost",
            limit: Some("10"),
            redis: Some("redis://u:secret@h/x"),
            listen: None,
            tls: Some("cert.pem"),
        }
        .compile()
        .unwrap_err();
        let text = report.human(Colour::Off);
        assert_eq!(report.errors(), 4, "{text}");
        assert!(text.contains("write `--tls cert.pem,key.pem`"), "{text}");
        assert!(text.contains("--limit 10"), "{text}");
        assert!(text.contains("write `\"10/s\"`"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn a_password_without_a_scheme_is_not_shown_either() {
        for redis in [":secret@h:1", "secret@h", "u:secret@h/x", "redi://secret@h"] {
            let report = QuickStart {
                to: "h:1",
                redis: Some(redis),
                ..QuickStart::default()
            }
            .compile()
            .unwrap_err();
            let text = report.human(Colour::Off);
            assert!(text.contains("*@h") && !text.contains("secret"), "{text}");
        }
    }
}
