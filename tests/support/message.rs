//! HTTP messages as tests write and read them: heads, fields, whole answers.

use bytes::Bytes;
use std::fmt::Write as _;

/// Header or trailer fields in the order of the wire, names in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The value of a field that occurs at most once.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(
            all.len() < 2,
            "{name} stands there {} times: {self:?}",
            all.len()
        );
        all.first().copied()
    }

    /// Every value of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The names, in their order.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Does the field occur?
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }
}

/// A request's or response's first line and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The request line or status line.
    pub(crate) line: String,
    /// The fields below it.
    pub(crate) fields: Fields,
}

impl Head {
    /// Reads a head without its empty line.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        Self {
            line,
            fields: fields(lines),
        }
    }

    /// Status of a response's head.
    pub(crate) fn status(&self) -> u16 {
        self.part(1)
            .parse()
            .unwrap_or_else(|_| panic!("no status in {:?}", self.line))
    }

    /// Method of a request's head.
    pub(crate) fn method(&self) -> &str {
        self.part(0)
    }

    /// Target of a request's head.
    pub(crate) fn target(&self) -> &str {
        self.part(1)
    }

    fn part(&self, nth: usize) -> &str {
        self.line.split(' ').nth(nth).unwrap_or_default()
    }

    /// Is the body framed by chunks?
    pub(crate) fn chunked(&self) -> bool {
        self.fields
            .all("transfer-encoding")
            .iter()
            .any(|value| value.eq_ignore_ascii_case("chunked"))
    }

    /// The body's length, if the head has it.
    pub(crate) fn length(&self) -> Option<usize> {
        self.fields.get("content-length").map(|value| {
            value
                .parse()
                .unwrap_or_else(|_| panic!("content-length: {value}"))
        })
    }
}

/// Reads `name: value` lines.
pub(crate) fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Fields {
    Fields(
        lines
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .unwrap_or_else(|| panic!("no field: {line:?}"));
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect(),
    )
}

/// A whole response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Its status.
    pub(crate) status: u16,
    /// Its header fields.
    pub(crate) fields: Fields,
    /// Its body.
    pub(crate) body: Bytes,
    /// Its trailer fields.
    pub(crate) trailers: Fields,
}

impl Answer {
    /// This answer, after a check that it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:?} {}", self.fields, self.text());
        self
    }

    /// The value of a field that must occur exactly once.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The value of a field that must occur, as a number.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.field(name);
        value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The value of `r=` for `limit` in `RateLimit`.
    #[track_caller]
    pub(crate) fn remaining(&self, limit: &str) -> u64 {
        self.parameter("ratelimit", limit, "r")
    }

    /// The parameter `name` of the item `limit` in `field`, which is a list of Strings with parameters.
    #[track_caller]
    pub(crate) fn parameter(&self, field: &str, limit: &str, name: &str) -> u64 {
        let list = self.fields.all(field).join(", ");
        list.split(',')
            .map(str::trim)
            .filter_map(|item| item.strip_prefix(&format!("\"{limit}\"")))
            .flat_map(|parameters| parameters.split(';'))
            .find_map(|parameter| parameter.trim().strip_prefix(&format!("{name}=")))
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no {name} of {limit} in {field}: {list:?}; {self:?}"))
    }

    /// The request that the echo upstream received.
    #[track_caller]
    pub(crate) fn echoed(&self) -> Echoed {
        let json = self.json();
        let pairs = |name: &str| {
            let list = json[name]
                .as_array()
                .unwrap_or_else(|| panic!("no echo: {json}"));
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            Fields(
                list.iter()
                    .map(|pair| (text(&pair[0]), text(&pair[1])))
                    .collect(),
            )
        };
        Echoed {
            line: json["line"].as_str().unwrap_or_default().to_owned(),
            fields: pairs("fields"),
            trailers: pairs("trailers"),
            body: json["body"].as_str().unwrap_or_default().to_owned(),
            port: json["port"].as_u64().unwrap_or_default(),
        }
    }
}

/// A request as the echo upstream received it.
#[derive(Debug, Clone)]
pub(crate) struct Echoed {
    /// The request line.
    pub(crate) line: String,
    /// The header fields.
    pub(crate) fields: Fields,
    /// The trailer fields.
    pub(crate) trailers: Fields,
    /// The body.
    pub(crate) body: String,
    /// The port of the upstream that answered.
    pub(crate) port: u64,
}

/// A request without a body, for `Host: gateway.test` unless `fields` has another host.
pub(crate) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    if !fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        text.push_str("Host: gateway.test\r\n");
    }
    for (name, value) in fields {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    text
}

/// A GET of `target`.
pub(crate) fn get(target: &str) -> String {
    request("GET", target, &[])
}
