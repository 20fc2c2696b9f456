//! Files of other programs, recognised by their lines, so that each is one mistake and not one for each line.

use crate::config::SMALLEST;
use crate::config::input::Span;
use crate::config::report::{Code, Details as _, Findings};

/// A file in the language of another program.
pub(super) struct ForeignFile {
    /// What the file is.
    language: &'static str,
    /// The first line with anything but a comment.
    first: Span,
}

impl ForeignFile {
    /// Notes the mistake, and shows how a file begins.
    pub(super) fn note(&self, found: &mut Findings) {
        let message = format!("this is {}, not TOML", self.language);
        found
            .error(Code::Syntax, message)
            .at(&self.first, "")
            .help(format!("begin with a file in TOML; {SMALLEST}"))
            .note("a limit is a table `[limits.NAME]` with `by = \"ip\"` and `rate = \"10/s\"`, and `limits = [\"NAME\"]` of a route names it");
    }
}

/// Words of a line that only one program writes, and what the file is then.
const MARKS: &[(&str, &str)] = &[
    ("_format_version", "a file of Kong"),
    ("#END", "a file of APISIX"),
    ("static_resources", "a file of Envoy"),
    ("\"@type\"", "a file of Envoy"),
    ("@type:", "a file of Envoy"),
    ("apiVersion:", "an object of Kubernetes"),
    ("\"apiVersion\"", "an object of Kubernetes"),
    ("entryPoints:", TRAEFIK),
];

const TRAEFIK: &str = "a file of Traefik";

/// Words that others use, too. Only Traefik has two of them in one file.
const MARKS_OF_TRAEFIK: [&str; 4] = ["routers:", "middlewares:", "rule:", "loadBalancer:"];

/// Sections of HAProxy.
const SECTIONS: [&str; 5] = ["global", "defaults", "frontend", "backend", "listen"];

/// Directives of Caddy.
const DIRECTIVES: [&str; 7] = [
    "reverse_proxy",
    "handle",
    "handle_path",
    "encode",
    "file_server",
    "rate_limit",
    "respond",
];

/// The language of `text`, which is not TOML; `None` if any line of the text looks like TOML.
pub(super) fn find(text: &str) -> Option<ForeignFile> {
    let is_comment = |line: &str| line.is_empty() || line.starts_with(['#', '!']);
    let lines = || {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !is_comment(line) || line.starts_with("#END"))
    };
    let first = lines().next()?;
    let start = first.as_ptr() as usize - text.as_ptr() as usize;
    // A line of JSON may look like the header of a table: `["GET"]`.
    let is_json = is_json(&text[start..]);
    if !is_json && lines().any(is_toml) {
        return None;
    }
    let has = |what: &dyn Fn(&str) -> bool| lines().any(what);
    let has_mark = |mark: &str| has(&|line| line.trim_start_matches("- ").starts_with(mark));
    let mark = MARKS.iter().find(|(mark, _)| has_mark(mark));
    let of_traefik = MARKS_OF_TRAEFIK.iter().filter(|mark| has_mark(mark));
    let begins =
        |words: &[&str], line: &str| word(line, 0).is_some_and(|word| words.contains(&word));
    let language = if let Some((_, language)) = mark {
        language
    } else if is_json {
        "JSON"
    } else if of_traefik.count() > 1 {
        TRAEFIK
    } else if has(&is_directive) {
        "a file of nginx"
    } else if has(&|line| begins(&SECTIONS, line) && !line.contains([':', '{'])) {
        "a file of HAProxy"
    } else if has(&|line| begins(&DIRECTIVES, line))
        || (first.ends_with('{') && !first.contains(['"', ':', '=']))
    {
        "a Caddyfile"
    } else if first == "---" || lines().all(is_yaml) {
        "YAML"
    } else {
        return None;
    };
    Some(ForeignFile {
        language,
        first: start..start + first.len(),
    })
}

/// The beginning of an object, or of a list of objects. No file in TOML begins so, nor does a Caddyfile.
fn is_json(text: &str) -> bool {
    let object = text.strip_prefix('[').map_or(text, str::trim_start);
    let inside = object.strip_prefix('{').map(str::trim_start);
    inside.is_some_and(|inside| inside.starts_with(['"', '}']))
}

/// A table header, or a key with a value.
fn is_toml(line: &str) -> bool {
    let is_key = |key: &str| {
        let key = key.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.\"'".contains(c);
        !key.is_empty() && key.chars().all(is_name)
    };
    let inside = line
        .strip_prefix('[')
        .and_then(|line| line.split_once(']'))
        .map(|(inside, _)| inside.trim_start_matches('['));
    inside.is_some_and(is_key) || line.split_once('=').is_some_and(|(key, _)| is_key(key))
}

fn word(line: &str, at: usize) -> Option<&str> {
    line.split_whitespace().nth(at)
}

/// `listen 80;`, `server {`, `location / {`.
fn is_directive(line: &str) -> bool {
    let is_block = |line: &str| {
        let name = word(line, 0).unwrap_or_default();
        ["server", "http", "location", "upstream", "events", "stream"].contains(&name)
            && line.ends_with('{')
    };
    let is_name = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_block(line)
        || (line.ends_with(';') && word(line, 1).is_some() && word(line, 0).is_some_and(is_name))
}

/// `key: value`, `key:`, `- item`.
fn is_yaml(line: &str) -> bool {
    let line = line.trim_start_matches("- ");
    let key = line
        .split_once(": ")
        .map(|(key, _)| key)
        .or(line.strip_suffix(':'));
    line == "---"
        || line.starts_with('-')
        || key.is_some_and(|key| !key.contains(['{', '(', ';', '=']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn a_whole_file_of_another_program_is_one_error() {
        for (text, language) in [
            (
                "# a comment\nserver {\n  listen 80;\n  location / { proxy_pass http://a; }\n}\n",
                "a file of nginx",
            ),
            (
                "limit_req_zone $binary_remote_addr zone=a:10m rate=10r/s;\n",
                "a file of nginx",
            ),
            (
                "example.com {\n  reverse_proxy localhost:3000\n}\n",
                "a Caddyfile",
            ),
            (":8080\n\nreverse_proxy 127.0.0.1:9000\n", "a Caddyfile"),
            (
                "global\n  daemon\n\nfrontend web\n  bind *:80\n  default_backend app\n",
                "a file of HAProxy",
            ),
            (
                "static_resources:\n  listeners:\n  - address: a\n",
                "a file of Envoy",
            ),
            (
                "{\"static_resources\": {}, \"x\": {\"@type\": \"y\"}}",
                "JSON",
            ),
            (
                "_format_version: \"3.0\"\nservices:\n- name: a\n",
                "a file of Kong",
            ),
            ("routes:\n  - uri: /a\n#END\n", "a file of APISIX"),
            ("apiVersion: v1\nkind: Service\n", "an object of Kubernetes"),
            (
                "http:\n  routers:\n    a:\n      rule: x\n",
                "a file of Traefik",
            ),
            (
                "entryPoints:\n  web:\n    address: \":80\"\n",
                "a file of Traefik",
            ),
            (
                "http:\n  middlewares:\n    a:\n      x: 1\n  services:\n    b:\n      loadBalancer:\n        x: 1\n",
                "a file of Traefik",
            ),
            (
                "resources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n",
                "a file of Envoy",
            ),
            (
                "typed_config:\n  @type: type.googleapis.com/x\n",
                "a file of Envoy",
            ),
            (
                "{\n  \"a\": {\n    \"@type\": \"x\",\n    \"methods\":\n    [\"GET\"]\n  }\n}\n",
                "a file of Envoy",
            ),
            (
                "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Service\"\n}\n",
                "an object of Kubernetes",
            ),
            (
                "# a comment\n{\n  \"routes\": [{ \"methods\":\n    [\"GET\"]\n  }]\n}\n",
                "JSON",
            ),
            ("[{ \"uri\": \"/a\" }]\n", "JSON"),
            (
                "listen app\n  bind *:80\n  server a 127.0.0.1:3000\n",
                "a file of HAProxy",
            ),
            (
                "{\n  email a@example.com\n}\nexample.com {\n  respond \"a\"\n}\n",
                "a Caddyfile",
            ),
            ("events {\n}\nhttp {\n}\n", "a file of nginx"),
            ("middlewares:\n  a: 1\n", "YAML"),
            ("routers:\n  - name: a\n", "YAML"),
            ("---\nlimits:\n  a: 1\n", "YAML"),
            ("limits:\n  l:\n    by: ip\n    rate: 10/s\n", "YAML"),
            ("{\n  \"limits\": {}\n}\n", "JSON"),
        ] {
            let report = parse("gateway.toml", text).unwrap_err();
            let messages: Vec<&str> = report
                .diagnostics
                .iter()
                .map(|one| one.message.as_str())
                .collect();
            assert_eq!(
                messages,
                [format!("this is {language}, not TOML")],
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_with_lines_of_toml_keeps_its_own_mistakes() {
        for text in [
            "[limits.a]\nby: ip\n",
            "// a comment\n[limits.a]\nby = \"ip\"\n",
            "rate = 10/s\n",
            "[limits.a\n",
            "[\"limits\".a]\nby: ip\n",
            "\u{0}",
            "x",
        ] {
            assert!(find(text).is_none(), "{text}");
        }
    }
}
