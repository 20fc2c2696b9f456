//! The header fields of a logged request, from all members of its line that have some.

use super::Fault;
use super::json::{self, Value};
use super::request::LoggedRequest;
use crate::intake::stripped_fields::{FieldTrust, tidy};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Writes the fields of one line.
struct FieldWriter<'a> {
    fields: &'a mut HeaderMap,
    /// Is the line from the gateway's own log? An invalid field makes such a line unreadable. In another server's log
    /// an invalid field is skipped, and so is the placeholder of a secret.
    is_gateway_log: bool,
}

impl LoggedRequest<'_> {
    /// Has the line any field?
    #[inline]
    pub(super) fn has_fields(&self) -> bool {
        self.headers.len() > 2
            || self.user_agent.is_some()
            || self.referer.is_some()
            || self.proxy_fields.is_some()
    }

    /// Fills `LoggedRequest::fields`, which is empty, from the members of the line.
    #[inline(never)]
    pub(super) fn fill_fields(&mut self) -> Result<(), Fault> {
        let proxy = self.proxy_fields.as_deref();
        let mut writer = FieldWriter {
            fields: &mut self.fields,
            is_gateway_log: proxy.is_none(),
        };
        if let Some(referer) = &self.referer {
            writer.add(header::REFERER, referer)?;
        }
        for member in json::members(self.headers) {
            let (name, value) = member?;
            match HeaderName::from_bytes(name.read()?.as_bytes()) {
                Ok(name) => writer.take(name, value)?,
                Err(_) => writer.pass_over()?,
            }
        }
        for (name, value) in proxy.iter().flat_map(|proxy| &proxy.fields) {
            writer.take(name.clone(), *value)?;
        }
        let forwarded_for = proxy.and_then(|proxy| proxy.forwarded_for.as_ref());
        for (name, value) in [
            (header::USER_AGENT, self.user_agent.as_ref()),
            (HeaderName::from_static("x-forwarded-for"), forwarded_for),
        ] {
            if let Some(value) = value
                && !writer.fields.contains_key(&name)
                && let Ok(value) = HeaderValue::from_str(value)
            {
                writer.fields.insert(name, value);
            }
        }
        if !self.fields.is_empty() {
            tidy(&mut self.fields, &FieldTrust::all(), |_, _| ());
        }
        Ok(())
    }
}

impl FieldWriter<'_> {
    /// Adds all lines of a field.
    fn take(&mut self, name: HeaderName, value: Value<'_>) -> Result<(), Fault> {
        match value {
            Value::Null => Ok(()),
            Value::Text(text) => self.add(name, &text.read()?),
            Value::Number(digits) => self.add(name, digits),
            Value::List(list) => json::entries(list).try_for_each(|entry| match entry? {
                Value::Text(text) => self.add(name.clone(), &text.read()?),
                _ => self.pass_over(),
            }),
            Value::Bool(_) | Value::Object(_) => self.pass_over(),
        }
    }

    fn add(&mut self, name: HeaderName, value: &str) -> Result<(), Fault> {
        let value = value.trim_ascii();
        let is_secret = !self.is_gateway_log && matches!(value, "REDACTED" | "[REDACTED]");
        match HeaderValue::from_bytes(value.as_bytes()) {
            Ok(value) if !is_secret => {
                self.fields.append(name, value);
                Ok(())
            }
            _ => self.pass_over(),
        }
    }

    fn pass_over(&self) -> Result<(), Fault> {
        if self.is_gateway_log {
            Err(Fault::BadMember("headers"))
        } else {
            Ok(())
        }
    }
}
