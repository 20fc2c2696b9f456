//! `[groups.NAME]`. [`crate::config::settings::groups`] reads the members, since it knows the part of a request that is
//! looked up.

use crate::config::document::{
    Fields, Items, Section as _, Setting, ValueShape, any, custom, table, texts_as,
};
use crate::config::presentation::show;
use crate::config::report::{Code, Details as _};
use crate::config::value::part;
use crate::key::{KeyPart, Mask, MemberForm, SourceRow};
use toml::de::DeTable;

table! {
    /// Clients that belong together, for `tiers`, `exempt` and `unknown` of limits. The gateway reads the members
    /// itself, at most 1000000: from a list, from files, or as networks. A request in several groups has the tier of
    /// the first of them in this file. The log of a reload gives the number of members that came and went; no member is
    /// shown.
    GroupTable { name, place } = GROUPS, "groups", "a group", named true;

    /// The part of a request that is looked up among the members, as in a limit's `by`. It is `header:NAME`,
    /// `cookie:NAME`, `query:NAME`, `path:NAME`, `jwt:CLAIM`, `tls:subject`, `tls:fingerprint`, `host`, or `ip` for
    /// networks.
    by: KeyPart = custom(ValueShape::Text, by), Required, "\"header:x-api-key\"", Group(|group| show(&group.by));

    /// The members: values, or `sha256:HEX` of a value. Blanks around a claim, a query's value, a cookie or a part of
    /// the path count. With `by = "ip"` members are addresses and networks, with `tls:fingerprint` SHA-256 of
    /// certificates, with `tls:subject` subjects as the access log writes them.
    members: Items<String> = texts_as(ValueShape::Members, any), Words("none, beside those of `file`"), "[\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"]";

    /// Files with one member on a line, written as in `members`. Empty lines and blanks at either end do not count, nor
    /// does a comment: a `#` at the start of a line or after a blank, and the text after it. Paths start at this file's
    /// folder. The files are watched as this file is; a file that is gone or has a mistake changes nothing.
    file: Items<String> = texts_as(ValueShape::Files, any), Words("none, beside `members`"), "\"gold-keys.txt\"";
}

pub(in crate::config::document) fn read_group(mut fields: Fields<'_>) -> GroupTable {
    let group = GroupTable::read(&mut fields);
    if group.members.is_absent() && group.file.is_absent() {
        let message = format!("`{}` does not say who its members are", fields.title());
        fields
            .error(Code::MissingKey, message)
            .at(&group.place, "neither `members` nor `file`")
            .help("add `file = \"gold-keys.txt\"`, one member on a line, or `members = [\"...\"]`");
    }
    group
}

/// One part of a request by which a group can have members.
fn by(key: &'static str, fields: &mut Fields<'_>) -> Setting<KeyPart> {
    let by = fields.text(key, part);
    by.and_then(|by, span| {
        let (label, help) = match by {
            Some(part) if part.mask().is_some_and(|mask| mask != Mask::DEFAULT) => (
                "a network is written as the member",
                "write `by = \"ip\"`, and members as `\"198.51.100.0/24\"`",
            ),
            Some(part) if part.members() != MemberForm::None => return Some(part),
            _ => (
                "tells no clients apart",
                "write `by = \"header:x-api-key\"`, `by = \"ip\"`, or another part of a request that identifies the client",
            ),
        };
        let message = format!("no client is a member of `{}` by this", fields.title());
        fields
            .error(Code::BadKey, message)
            .at(span, label)
            .help(help);
        None
    })
}

/// Are the members of a group secrets? Such members are shown by their digests.
pub(in crate::config) fn are_keys(group: &DeTable<'_>) -> bool {
    let by = group.get("by").and_then(|by| by.get_ref().as_str());
    let kind = by.and_then(|by| Some(by.split_once(':')?.0));
    kind.and_then(SourceRow::of_kind)
        .is_some_and(SourceRow::is_stated)
}
