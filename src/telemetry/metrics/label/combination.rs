//! Method, status and source of a request as label values, in four bytes.

use super::{AnswerSource, Labels, OTHER};
use http::Method;
use std::borrow::Cow;

/// The methods of the standards. The position is the code; the code after the last is [`OTHER`].
static METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::CONNECT,
    Method::OPTIONS,
    Method::TRACE,
    Method::PATCH,
];

/// Method, status and source of a request, in four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::telemetry::metrics) struct Combination {
    /// The position among [`METHODS`].
    method: u8,
    /// The status, 0 if it was dropped.
    status: u16,
    source: AnswerSource,
}

impl Combination {
    pub(in crate::telemetry::metrics) fn new(
        method: &Method,
        status: u16,
        source: AnswerSource,
    ) -> Self {
        let known = METHODS.iter().position(|known| known == method);
        Self {
            method: known.unwrap_or(METHODS.len()) as u8,
            status,
            source,
        }
    }

    /// This combination without its status.
    pub(in crate::telemetry::metrics) const fn any_status(self) -> Self {
        Self { status: 0, ..self }
    }

    pub(in crate::telemetry::metrics) fn method(self) -> &'static str {
        let method = METHODS.get(usize::from(self.method));
        method.map_or(OTHER, Method::as_str)
    }

    /// The status in digits, or [`OTHER`].
    pub(in crate::telemetry::metrics) fn code(self) -> Cow<'static, str> {
        match self.status {
            0 => OTHER.into(),
            status => status.to_string().into(),
        }
    }

    /// The status' first digit: `2xx`.
    pub(in crate::telemetry::metrics) const fn class(self) -> &'static str {
        CLASSES[class_position(self.status)]
    }
}

/// A request's labels in addition to its route.
impl From<(Labels, Combination)> for Labels {
    fn from((route, seen): (Labels, Combination)) -> Self {
        route
            .and("method", seen.method())
            .and("code", seen.code())
            .and("source", seen.source.as_str())
    }
}

/// The classes of statuses, at the positions that [`class_position`] gives.
pub(in crate::telemetry::metrics) const CLASSES: [&str; 6] =
    [OTHER, "1xx", "2xx", "3xx", "4xx", "5xx"];

pub(in crate::telemetry::metrics) const fn class_position(status: u16) -> usize {
    match status / 100 {
        hundreds @ 1..=5 => hundreds as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_gives_back_what_went_in() {
        for method in &METHODS {
            let seen = Combination::new(method, 429, AnswerSource::Gateway);
            assert_eq!(seen.method(), method.as_str());
            assert_eq!(seen.code(), "429");
            assert_eq!(seen.class(), "4xx");
            assert_eq!(seen.source.as_str(), "gateway");
        }
    }

    #[test]
    fn a_strange_method_and_a_strange_status_have_a_common_name() {
        let method = Method::from_bytes(b"BREW").unwrap();
        let seen = Combination::new(&method, 999, AnswerSource::Upstream);
        assert_eq!(seen.method(), "_OTHER");
        assert_eq!(seen.class(), "_OTHER");
        assert_eq!(seen.code(), "999");
        assert_eq!(seen.any_status().code(), "_OTHER");
        assert_eq!(seen.any_status().source.as_str(), "upstream");
    }
}
