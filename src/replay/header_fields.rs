//! The header fields of a logged request, from whichever members its line has them in.

use super::Fault;
use super::json::{self, Value};
use super::request::{LoggedRequest, ProxyFields};
use http::{HeaderMap, HeaderName, HeaderValue, header};

impl LoggedRequest<'_> {
    /// Puts its fields into `fields`, which is empty.
    pub(super) fn fields(&self, fields: &mut HeaderMap) -> Result<(), Fault> {
        const WRONG: Fault = Fault::BadMember("headers");
        let mut add = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value.trim_ascii())
                .or_else(|_| HeaderValue::from_bytes(value.trim_ascii().as_bytes()));
            fields.append(name, value.map_err(|_| WRONG)?);
            Ok(())
        };
        if let Some(referer) = &self.referer {
            add(header::REFERER, referer)?;
        }
        if let Some(proxy) = &self.proxy_fields {
            return proxy_fields(self, proxy, fields);
        }
        if !self.headers.is_empty() {
            json::members(self.headers, |name, value| {
                let name = HeaderName::from_bytes(&name.bytes()?).map_err(|_| WRONG)?;
                match value {
                    Value::Null => Ok(()),
                    Value::Text(text) => add(name, &text.read()?),
                    Value::Number(digits) => {
                        add(name, std::str::from_utf8(digits).map_err(|_| WRONG)?)
                    }
                    Value::List(list) => json::entries(list, |value| match value {
                        Value::Text(text) => add(name.clone(), &text.read()?),
                        _ => Err(WRONG),
                    }),
                    Value::Bool(_) | Value::Object(_) => Err(WRONG),
                }
            })?;
        }
        if let Some(user_agent) = &self.user_agent
            && !fields.contains_key(header::USER_AGENT)
            && let Ok(value) = HeaderValue::from_str(user_agent)
        {
            fields.insert(header::USER_AGENT, value);
        }
        Ok(())
    }
}

/// The fields of a line that is not ours into `fields`. What a log has instead of a secret is none.
fn proxy_fields(
    request: &LoggedRequest<'_>,
    proxy_fields: &ProxyFields<'_>,
    fields: &mut HeaderMap,
) -> Result<(), Fault> {
    let mut add = |name: &[u8], value: &str| {
        let value = value.trim_ascii();
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value.as_bytes()),
        ) else {
            return;
        };
        if value != "REDACTED" && value != "[REDACTED]" {
            fields.append(name, value);
        }
    };
    let mut take = |name: &[u8], value: Value<'_>| match value {
        Value::Text(text) => text.read().map(|text| add(name, &text)),
        Value::Number(digits) => {
            add(name, str::from_utf8(digits).unwrap_or_default());
            Ok(())
        }
        Value::List(list) => json::entries(list, |value| match value {
            Value::Text(text) => text.read().map(|text| add(name, &text)),
            _ => Ok(()),
        }),
        Value::Null | Value::Bool(_) | Value::Object(_) => Ok(()),
    };
    if !request.headers.is_empty() {
        json::members(request.headers, |name, value| take(&name.bytes()?, value))?;
    }
    for (name, value) in &proxy_fields.fields {
        take(name.as_bytes(), *value)?;
    }
    if let Some(agent) = &request.user_agent
        && !fields.contains_key(header::USER_AGENT)
        && let Ok(value) = HeaderValue::from_str(agent)
    {
        fields.insert(header::USER_AGENT, value);
    }
    if let Some(list) = &proxy_fields.forwarded_for
        && !fields.contains_key("x-forwarded-for")
        && let Ok(value) = HeaderValue::from_str(list)
    {
        fields.insert("x-forwarded-for", value);
    }
    Ok(())
}
