//! The pages of the diagnostics' codes: the meaning of each, a wrong example, and a right one.
//!
//! A page is a file in `pages/` with words, the wrong example, more words, and the right example. The tests parse both
//! examples, with a route and an upstream added if an example has none.

use super::diagnostic::Code;
use super::suggest::nearest;
use std::fmt::Write as _;

/// The page of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The code.
    pub code: Code,
    /// The meaning of the code.
    pub meaning: &'static str,
    /// A part of a file that has this mistake and no other mistake.
    pub wrong: &'static str,
    /// The advice, in words.
    pub instead: &'static str,
    /// The same part without the mistake.
    pub right: &'static str,
}

impl Page {
    /// The page of `code`.
    #[must_use]
    pub fn of(code: Code) -> Self {
        let mut parts = code.page().split("```").map(str::trim);
        let mut next = || parts.next().unwrap_or_default();
        let (meaning, wrong, instead, right) = (next(), next(), next(), next());
        let example = |part: &'static str| part.strip_prefix("toml\n").unwrap_or(part);
        Self {
            code,
            meaning,
            wrong: example(wrong),
            instead,
            right: example(right),
        }
    }

    /// The page as Markdown, for docs/diagnostics.md.
    #[must_use]
    pub fn markdown(&self) -> &'static str {
        self.code.page().trim()
    }

    /// The page as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { code, meaning, .. } = self;
        let mut out = format!("{code}: {}\n\n{meaning}\n\n", code.about());
        indented(self.wrong, &mut out);
        let _ = write!(out, "\n{}\n\n", self.instead);
        indented(self.right, &mut out);
        out
    }
}

fn indented(example: &str, out: &mut String) {
    for line in example.lines() {
        let margin = if line.is_empty() { "" } else { "    " };
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{margin}{line}");
    }
}

impl Code {
    /// The code with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|code| code.as_str() == name).copied()
    }

    /// The code that `word` most likely means.
    #[must_use]
    pub fn nearest(word: &str) -> Option<Self> {
        nearest(word, Self::ALL.iter().map(|code| code.as_str())).and_then(Self::named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixtures::set_modes_of_keys;
    use crate::config::load;
    use crate::config::report::render::Colour;
    use std::fmt::Write;
    use std::fs;

    /// The entry of the included file in an example.
    const INCLUDE: &str = "include = { files = \"routes.d/*.toml\", upstreams = [\"api\"] }";

    /// The example, completed with a route and an upstream.
    fn whole(code: Code, example: &str) -> String {
        let mut text = format!("{example}\n");
        if [Code::EmptyFile, Code::NoRoutes].contains(&code) {
            return text;
        }
        if !example.contains("[upstreams.") {
            text.push_str("\n[upstreams.api]\nservers = \"127.0.0.1:3000\"\n");
        }
        if !example.contains("[routes.") {
            let names = example.lines().filter_map(|line| {
                line.strip_prefix("[limits.")?
                    .strip_suffix(']')
                    .map(|name| name.trim_matches('"'))
            });
            let names: Vec<&str> = names.collect();
            write!(
                text,
                "\n[routes.api]\nupstream = \"api\"\nlimits = {names:?}\n"
            )
            .unwrap();
        }
        text
    }

    #[test]
    fn every_example_has_its_mistake_and_no_other_and_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("redis-password"), "correct horse\n").unwrap();
        fs::write(folder.path().join("own-numbers.txt"), "acme 500/min\n").unwrap();
        let included = folder.path().join("routes.d/orders.toml");
        fs::create_dir(included.parent().unwrap()).unwrap();
        fs::write(folder.path().join("routes.d/orders.key"), "key\n").unwrap();
        let pem = include_str!("../../../tests/config/jwt/rsa.pem");
        fs::write(folder.path().join("issuer.pem"), pem).unwrap();
        for (name, letter) in [("admin.token", "a"), ("ben.token", "b")] {
            fs::write(folder.path().join(name), letter.repeat(32)).unwrap();
        }
        let pair = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
        fs::write(folder.path().join("redis-ca.pem"), pair.cert.pem()).unwrap();
        fs::write(folder.path().join("short.secret"), "short\n").unwrap();
        set_modes_of_keys();
        for (from, to) in [
            ("api.pem", "api.pem"),
            ("api.key", "api.key"),
            ("chain.pem", "chain.pem"),
            ("open.key", "open.key"),
            ("shop.key", "other.key"),
            ("shop.key", "shop.key"),
            ("shop.pem", "shop.pem"),
            ("old.pem", "old.pem"),
            ("old.key", "old.key"),
            ("early.pem", "early.pem"),
            ("early.key", "early.key"),
            ("authority.pem", "partners-ca.pem"),
            ("authority.pem", "internal-ca.pem"),
            ("clients.pem", "clients-ca.pem"),
            ("list.pem", "list.pem"),
            ("old-list.pem", "old-list.pem"),
        ] {
            fs::copy(format!("tests/config/tls/{from}"), folder.path().join(to)).unwrap();
        }
        let file = folder.path().join("gateway.toml");
        let mut wrong = Vec::new();
        for code in Code::ALL {
            let page = Page::of(*code);
            let expected = if code.is_found_later() {
                &[][..]
            } else {
                &[*code][..]
            };
            for (example, expected) in [(page.wrong, expected), (page.right, &[])] {
                let mut text = whole(*code, example);
                if example.contains("an included file") {
                    let upstream = text.find("[upstreams.").unwrap();
                    let rest = text.split_off(upstream);
                    fs::write(&included, text).unwrap();
                    text = format!("{INCLUDE}\n{rest}");
                } else {
                    fs::write(&included, "").unwrap();
                }
                fs::write(&file, text).unwrap();
                let report = match load(&file) {
                    Ok(compiled) => compiled.report(),
                    Err(report) => report,
                };
                let mut codes: Vec<Code> = report.diagnostics.iter().map(|one| one.code).collect();
                codes.dedup();
                if codes != expected {
                    wrong.push(format!("{code}: {}", report.human(Colour::Off)));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_page_has_its_four_parts() {
        for code in Code::ALL {
            let page = Page::of(*code);
            assert_eq!(code.page().matches("```toml\n").count(), 2, "{code}");
            assert_eq!(code.page().matches("```").count(), 4, "{code}");
            for part in [page.meaning, page.wrong, page.instead, page.right] {
                assert!(
                    !part.is_empty() && part.lines().all(|line| line.len() <= 130),
                    "{code}: {part}"
                );
            }
            assert_ne!(page.wrong, page.right);
        }
    }

    #[test]
    fn a_misspelt_code_is_guessed() {
        assert_eq!(Code::named("bad-rate"), Some(Code::BadRate));
        assert_eq!(Code::nearest("bad_raet"), Some(Code::BadRate));
        assert_eq!(Code::nearest("GET"), None);
    }
}
