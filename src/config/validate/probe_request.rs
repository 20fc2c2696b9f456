//! A request that a route would take, used to find the other routes that would take it.

use crate::route::{Condition, HostPattern, RequestView, Rule, Segment, host_key, path};
use http::{HeaderMap, HeaderValue, Method};
use std::sync::Arc;

/// A path that `rule` takes, in the form in which routes are matched.
#[must_use]
pub fn example_path(rule: &Rule) -> String {
    let mut example = String::new();
    for segment in &rule.path.segments {
        let segment = match segment {
            Segment::Literal(text) | Segment::Folded(text) if text.is_empty() => continue,
            Segment::Literal(text) | Segment::Folded(text) => {
                path::literal(text).unwrap_or(text.as_ref().into())
            }
            Segment::Parameter(_) | Segment::Rest(_) => "x".into(),
        };
        example.push('/');
        example.push_str(&segment);
    }
    if example.is_empty() {
        example.push('/');
    }
    example
}

/// A request that meets every condition of `rule`.
#[derive(Debug)]
pub struct ProbeRequest {
    /// Its host in the form in which routes are matched; the host is empty if the route takes any host.
    pub host: String,
    /// The first of the route's methods.
    pub method: Method,
    fields: HeaderMap,
    query: String,
    https: bool,
    groups: Vec<Arc<str>>,
}

impl ProbeRequest {
    /// A request that `rule` takes, with an example path of the rule.
    #[must_use]
    pub fn of(rule: &Rule) -> Self {
        let host = match rule.hosts.first() {
            None => String::new(),
            Some(HostPattern::Exact(host)) => host_key(host).into_owned(),
            Some(HostPattern::Suffix(suffix)) => format!("x{}", host_key(suffix)),
        };
        let mut request = Self {
            host,
            method: rule.methods.first().cloned().unwrap_or(Method::GET),
            fields: HeaderMap::new(),
            query: String::new(),
            https: false,
            groups: Vec::new(),
        };
        let mut query = form_urlencoded::Serializer::new(String::new());
        for condition in &rule.conditions {
            match condition {
                Condition::Field(name, value) => {
                    let any = || HeaderValue::from_static("x");
                    let value = value.clone().unwrap_or_else(any);
                    request.fields.insert(name.clone(), value);
                }
                Condition::Query(name, value) => {
                    query.append_pair(name, value.as_deref().unwrap_or("x"));
                }
                Condition::Https(https) => request.https = *https,
                Condition::Groups(groups) => request.groups.extend(groups.first().cloned()),
            }
        }
        request.query = query.finish();
        request
    }

    /// The same request with `method`, from a client that is in no group.
    #[must_use]
    pub fn anonymous(rule: &Rule, method: Method) -> Self {
        Self {
            method,
            groups: Vec::new(),
            ..Self::of(rule)
        }
    }
}

impl RequestView for ProbeRequest {
    fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    fn query(&self) -> Option<&str> {
        Some(&self.query)
    }

    fn is_https(&self) -> bool {
        self.https
    }

    fn is_member(&self, groups: &[Arc<str>]) -> bool {
        self.groups.iter().any(|group| groups.contains(group))
    }
}
