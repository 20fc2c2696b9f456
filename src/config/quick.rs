//! `tollgate run --to HOST:PORT --limit 10/s`: a gateway without a file.

use super::diagnostic::{Diagnostic, Report};
use super::source::Source;
use super::value::{self, Wrong};
use super::{Compiled, parse};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

/// What messages call the flags.
const NAME: &str = "command line";

/// Everything goes to the server `to`, held to `limit` by client address where there is one.
///
/// The flags are written as the file they stand for and read like any other, so that there is one way in.
///
/// # Errors
/// All that is wrong with the flags, shown as they were given.
pub fn quick(
    to: &str,
    limit: Option<&str>,
    listen: Option<&str>,
    redis: Option<&str>,
) -> Result<Compiled, Report> {
    check(to, limit, listen, redis)?;
    let mut text = String::new();
    let mut line = |key: &str, written: &str| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{key} = {}", toml::Value::from(written));
    };
    if let Some(listen) = listen {
        line("server.listen", listen);
    }
    if let Some(redis) = redis {
        line("store.url", redis);
    }
    line("upstreams.to.servers", to);
    line("routes.all.upstream", "to");
    if let Some(limit) = limit {
        line("routes.all.limits", "per-ip");
        line("limits.per-ip.by", "ip");
        line("limits.per-ip.rate", limit);
    }
    let mut compiled = parse(NAME, &text)?;
    // The one possible warning is about a password in the file, and there is no file.
    compiled.warnings.clear();
    Ok(compiled)
}

/// Reads each flag once on its own, for messages that show the flags instead of the text made from them.
fn check(
    to: &str,
    limit: Option<&str>,
    listen: Option<&str>,
    redis: Option<&str>,
) -> Result<(), Report> {
    let mut shown = String::from("tollgate run");
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut flag = |name: &str, written: Option<&str>, wrong: &dyn Fn(&str) -> Option<Wrong>| {
        let Some(written) = written else {
            return;
        };
        let _ = write!(shown, " --{name} ");
        let start = shown.len();
        shown.push_str(&starred(written));
        if let Some(wrong) = wrong(written) {
            found.push(wrong.at(&(start..shown.len())));
        }
    };
    flag("to", Some(to), &|text| value::server(text).err());
    flag("limit", limit, &|text| value::rate(text).err());
    flag("listen", listen, &|text| value::address(text).err());
    flag("redis", redis, &|text| value::store(text).err());
    if found.is_empty() {
        return Ok(());
    }
    Err(Report::new(Arc::new(Source::new(NAME, shown)), found))
}

/// What stands in front of an `@` may be a password, whatever else is missing there.
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
        let compiled = quick(
            "127.0.0.1:3000",
            Some("10/s"),
            Some(":0"),
            Some("redis://:p\"w@h"),
        )
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
            quick("localhost:3000", None, None, None)
                .unwrap()
                .snapshot
                .services[0]
                .limits
                .is_empty()
        );
    }

    #[test]
    fn mistakes_are_shown_in_the_flags() {
        let report =
            quick("localhost", Some("10"), None, Some("redis://u:secret@h/x")).unwrap_err();
        let text = report.human(Colour::Off);
        assert_eq!(report.errors(), 3, "{text}");
        assert!(text.contains("--limit 10"), "{text}");
        assert!(text.contains("write `\"10/s\"`"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn a_password_without_a_scheme_is_not_shown_either() {
        for redis in [":secret@h:1", "secret@h", "u:secret@h/x", "redi://secret@h"] {
            let report = quick("h:1", None, None, Some(redis)).unwrap_err();
            let text = report.human(Colour::Off);
            assert!(text.contains("*@h") && !text.contains("secret"), "{text}");
        }
    }
}
