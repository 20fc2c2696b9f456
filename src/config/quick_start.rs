//! `tollgate run --to HOST:PORT --limit 10/s`: a gateway without a file.

use super::diagnostic::Diagnostic;
use super::report::Report;
use super::source::Source;
use super::value::{self, ValueError};
use super::{Compiled, parse};
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
    /// The rate that each client address is held to.
    pub limit: Option<&'a str>,
    /// The address to listen on.
    pub listen: Option<&'a str>,
    /// The Redis that counts are shared through.
    pub redis: Option<&'a str>,
}

impl QuickStart<'_> {
    /// Writes the flags as the file that they stand for, and reads this file like any other.
    ///
    /// # Errors
    /// The mistakes of the flags, which are shown as they were given.
    pub fn compile(self) -> Result<Compiled, Report> {
        self.check()?;
        let mut text = String::new();
        let mut line = |key: &str, written: &str| {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{key} = {}", toml::Value::from(written));
        };
        if let Some(listen) = self.listen {
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
        // The one possible warning is about a password in the file, and there is no file.
        compiled.warnings.clear();
        Ok(compiled)
    }

    /// Reads each flag on its own, for messages that show the flags instead of the text made from them.
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
        flag("to", Some(self.to), |text| value::server(text).err());
        flag("limit", self.limit, |text| value::rate(text).err());
        flag("listen", self.listen, |text| value::address(text).err());
        flag("redis", self.redis, |text| value::store(text).err());
        if found.is_empty() {
            return Ok(());
        }
        Err(Report::new(Arc::new(Source::new(NAME, shown)), found))
    }
}

/// The flag with stars in front of an `@`: a password may stand there, whatever else is missing.
fn starred(written: &str) -> Cow<'_, str> {
    let Some((user, place)) = written.rsplit_once('@') else {
        return Cow::Borrowed(written);
    };
    let start = user.find("://").map_or(0, |at| at + "://".len());
    let (scheme, user) = user.split_at(start);
    Cow::Owned(format!("{scheme}{}@{place}", "*".repeat(user.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::render::Colour;
    use crate::store::Backend as Counters;

    #[test]
    fn the_flags_make_a_gateway() {
        let compiled = QuickStart {
            to: "127.0.0.1:3000",
            limit: Some("10/s"),
            listen: Some(":0"),
            redis: Some("redis://:p\"w@h"),
        }
        .compile()
        .unwrap();
        assert_eq!(compiled.boot.listen.addresses[0].port(), 0);
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
    fn mistakes_are_shown_in_the_flags() {
        let report = QuickStart {
            to: "localhost",
            limit: Some("10"),
            redis: Some("redis://u:secret@h/x"),
            listen: None,
        }
        .compile()
        .unwrap_err();
        let text = report.human(Colour::Off);
        assert_eq!(report.errors(), 3, "{text}");
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
