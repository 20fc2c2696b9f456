//! A logged request: what a replay knows of it, from whichever kind of line.

mod format;
mod limits;

pub use format::LogFormat;
pub(super) use format::ProxyFields;

use super::json::{JsonText, Value};
use super::{Fault, instant};
use crate::clock::Timestamp;
use crate::key::address::read_address;
use crate::limit::verdict::INLINE_LIMITS;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::IpAddr;

/// A request as its line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedRequest<'a> {
    /// The instant of its head.
    pub(super) ts: Timestamp,
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// `GET` where the line has none. UTF-8, as the next two are.
    pub(super) method: Cow<'a, [u8]>,
    /// Empty where the line has none.
    pub(super) host: Cow<'a, [u8]>,
    /// Path, with or without a query; or a whole URI.
    pub(super) target: Cow<'a, [u8]>,
    /// An object of fields, as it stands there; empty where the line has none.
    pub(super) headers: &'a [u8],
    /// Where a log has it outside of the fields.
    pub(super) user_agent: Option<Cow<'a, str>>,
    /// Where a log has it outside of the fields.
    pub(super) referer: Option<Cow<'a, str>>,
    /// Keys by limit, as the access log writes them.
    pub(super) keys: SmallVec<[(JsonText<'a>, Value<'a>); INLINE_LIMITS]>,
    /// An object of costs by limit, as the access log writes it.
    pub(super) costs: &'a [u8],
    /// An object of groups by limit, as the access log writes it.
    pub(super) groups: &'a [u8],
    /// What it takes from limits that read their cost from it.
    pub(super) cost: Option<u32>,
    /// How long it lasted, in microseconds.
    pub(super) duration: u64,
    /// How many requests the line stands for.
    pub(super) times: u64,
    /// The status of the answer; 0 where the line has none.
    pub(super) status: u16,
    /// The access log's word for why; empty where the line has none.
    pub(super) reason: &'a [u8],
    /// The limit that refused or held it; empty where the line names none.
    pub(super) limit: &'a [u8],
    /// It went on to a server.
    pub(super) reached: bool,
    /// Was it held before?
    pub(super) was_held: bool,
    /// The line says what was asked for.
    pub(super) names_path: bool,
    /// How the line is written.
    pub(super) format: LogFormat,
    /// What only other servers' logs have. With it, `client` is the peer of that server, and the client behind the peer is
    /// found as the gateway finds it.
    pub(super) proxy_fields: Option<Box<ProxyFields<'a>>>,
}

impl<'a> LoggedRequest<'a> {
    /// A request of which only the time is known.
    pub(super) fn at(ts: Timestamp) -> Self {
        Self {
            ts,
            client: None,
            method: Cow::Borrowed(b"GET"),
            host: Cow::Borrowed(b""),
            target: Cow::Borrowed(b"/"),
            headers: b"",
            user_agent: None,
            referer: None,
            keys: SmallVec::new(),
            costs: b"",
            groups: b"",
            cost: None,
            duration: 0,
            times: 1,
            status: 0,
            reason: b"",
            limit: b"",
            reached: false,
            was_held: false,
            names_path: false,
            format: LogFormat::Own,
            proxy_fields: None,
        }
    }

    /// Is its end a server's error, for which limits may give back what they took? An answer that is the gateway's own
    /// word about itself is none.
    pub(super) fn failed(&self) -> bool {
        let own: [&[u8]; 4] = [b"store_down", b"too_many_held", b"busy", b"draining"];
        (500..600).contains(&self.status) && !own.contains(&self.reason)
    }

    /// Did the client leave before anything was forwarded, or would it have, being held for `wait`?
    pub(super) fn left_within(&self, wait: u64) -> bool {
        let left = self.reason == b"client_gone" && !self.reached;
        left && (wait > self.duration || !self.was_held)
    }

    /// The path as it came, without query and fragment, and the host where the target names one.
    pub(super) fn path(&self) -> (&[u8], Option<&[u8]>) {
        let target = &*self.target;
        let end = memchr::memchr2(b'?', b'#', target);
        let target = &target[..end.unwrap_or(target.len())];
        if target.first() == Some(&b'/') {
            return (target, None);
        }
        let whole = target
            .strip_prefix(b"http://")
            .or_else(|| target.strip_prefix(b"https://"));
        match whole {
            None => (target, None),
            Some(rest) => match rest.iter().position(|byte| *byte == b'/') {
                Some(slash) => (&rest[slash..], Some(&rest[..slash])),
                None => (b"/", Some(rest)),
            },
        }
    }

    /// The query, if the line tells one.
    pub(super) fn query(&self) -> Option<&str> {
        let (_, behind) = str::from_utf8(&self.target).ok()?.split_once('?')?;
        behind.split('#').next()
    }

    /// Takes the client from a list of addresses. A `-` is no client.
    pub(super) fn put_client_list(&mut self, list: Cow<'a, str>) -> Result<(), Fault> {
        if matches!(list.trim_ascii(), "" | "-" | "unknown") {
            return Ok(());
        }
        let (peer, before) = chain(&list).ok_or(Fault::BadClient)?;
        self.client = Some(peer);
        let before = before.map(str::len);
        if let Some(length) = before {
            let proxy_fields = self.proxy_fields.get_or_insert_default();
            proxy_fields.forwarded_for = Some(match list {
                Cow::Borrowed(list) => Cow::Borrowed(&list[..length]),
                Cow::Owned(mut list) => {
                    list.truncate(length);
                    Cow::Owned(list)
                }
            });
        }
        Ok(())
    }
}

/// The right end of a list of addresses, which is the peer of the server that wrote it, and what stands before.
fn chain(list: &str) -> Option<(IpAddr, Option<&str>)> {
    match list.rsplit_once(',') {
        Some((before, last)) => Some((read_address(last)?, Some(before))),
        None => Some((read_address(list)?, None)),
    }
}

/// A number without sign; whole where it has no `places`.
pub(super) fn number<T: TryFrom<u64>>(
    value: Value<'_>,
    places: u32,
    name: &'static str,
) -> Result<T, Fault> {
    let Value::Number(digits) = value else {
        return Err(Fault::BadMember(name));
    };
    let whole = places > 0 || !digits.contains(&b'.');
    let number = instant::decimal(digits, places).filter(|_| whole);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or(Fault::BadMember(name))
}
