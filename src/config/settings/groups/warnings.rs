//! Warnings about the members of a group.

use super::{GroupText, MemberPlace, RepeatedMember, SHOWN, is_digest, lines};
use crate::config::document::{Document, GroupTable};
use crate::config::report::{Code, Details as _, Findings};
use ipnet::IpNet;
use std::collections::HashMap;

/// Notes networks with bits outside their prefix, as in `trust`.
pub(super) fn warn_of_bits(members: &HashMap<IpNet, MemberPlace<'_>>, found: &mut Findings) {
    let mut odd: Vec<_> = members
        .iter()
        .filter(|(network, _)| network.addr() != network.network())
        .collect();
    odd.sort_by_key(|(network, _)| **network);
    for (network, place) in odd.into_iter().take(SHOWN) {
        let (whole, one) = (network.trunc(), network.addr());
        let place_of = match place {
            MemberPlace::Listed(_) => String::new(),
            MemberPlace::Line(..) => format!("{place}: "),
        };
        let message = format!("{place_of}{network} is more than one address");
        found
            .warning(Code::HostBits, message)
            .at(place.span(), format!("all of {whole}"))
            .help(format!(
                "write `{whole}` for the network, or `{one}` for the address alone"
            ));
    }
}

pub(super) fn warn_of_repeat(
    written: &GroupTable,
    repeat: &RepeatedMember<'_>,
    found: &mut Findings,
) {
    let RepeatedMember { first, second, .. } = repeat;
    let more = match repeat.many - 1 {
        0 => String::new(),
        more => format!(", and {more} more that are there already"),
    };
    if let (MemberPlace::Listed(one), MemberPlace::Listed(other)) = (first, second) {
        let message = format!("{written} lists a member twice{more}");
        found
            .warning(Code::Duplicate, message)
            .at(other, "the second time")
            .and(one, "the first time");
    } else {
        let message = format!("{written} has a member twice: {first} and {second}{more}");
        found
            .warning(Code::Duplicate, message)
            .at(second.span(), "it counts once");
    }
}

pub(super) fn warn_of_empty_group(written: &GroupTable, found: &mut Findings) {
    let place = match (written.file.entries(), written.members.at()) {
        ([file, ..], _) => &file.span,
        (_, Some(members)) => &members.span,
        _ => &written.place,
    };
    found
        .warning(Code::EmptyGroup, format!("{written} has no members"))
        .at(place, "no members here")
        .help(if written.customers.is_absent() {
            "write one member on a line; lines that begin with `#` are comments"
        } else {
            "write `NAME CREDENTIAL` on a line; lines that begin with `#` are comments"
        });
}

/// Warns of a group by a field that any client can write, unless the file names a proxy in `trust`, which may set the
/// field.
pub(super) fn warn_of_say_so(text: &GroupText<'_>, document: &Document, found: &mut Findings) {
    let written = text.written;
    let Some(at) = written.by.at() else { return };
    if !text.by.is_open() || !document.server.trust.is_absent() {
        return;
    }
    let mut listed = written.members.entries().iter();
    let mut lines = text.files.iter().flat_map(|(_, content)| lines(content));
    let all_hashed = listed.all(|at| is_digest(at.value.trim_ascii().as_bytes()))
        && lines.all(|(_, text)| is_digest(text))
        && text.has_only_digests();
    if all_hashed {
        return;
    }
    let message = format!("any client that knows the name of a member is in {written}");
    let help = "use something that only a member knows or has: an API key in `header:x-api-key`, or `ip`; where a proxy in front writes this field, name the proxy in `[server] trust`";
    found
        .warning(Code::SaySo, message)
        .at(&at.span, "any client may write this")
        .help(help);
}
