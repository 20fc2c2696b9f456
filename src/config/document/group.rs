//! `[groups.NAME]` as written. What its members are is read by [`super::super::groups`], which knows what they are looked
//! up by.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::part;
use super::fields::Fields;
use super::{List, Setting};
use crate::key::{KeyPart, Mask};

/// `[groups.NAME]`.
#[derive(Debug)]
pub(in crate::config) struct GroupTable {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    pub(in crate::config) by: Setting<KeyPart>,
    pub(in crate::config) members: List<String>,
    pub(in crate::config) file: List<String>,
}

pub(super) fn read(name: At<String>, mut fields: Fields<'_>) -> GroupTable {
    let by = by(&mut fields);
    let group = GroupTable {
        place: fields.place(),
        name,
        by,
        members: fields.texts("members", |text| Ok(text.to_owned())),
        file: fields.texts("file", |text| Ok(text.to_owned())),
    };
    if group.members.is_absent() && group.file.is_absent() {
        fields.note(
            Diagnostic::error(
                Code::MissingKey,
                format!("`{}` does not say who its members are", fields.title()),
            )
            .at(&group.place, "neither `members` nor `file`")
            .help("add `file = \"gold-keys.txt\"`, one member on a line, or `members = [\"...\"]`"),
        );
    }
    group
}

/// One part of a request, of which there can be members.
fn by(fields: &mut Fields<'_>) -> Setting<KeyPart> {
    let by = match fields.text("by", part) {
        Setting::Valid(by) => by,
        Setting::Absent => return Setting::Absent,
        Setting::Partial(_) | Setting::Invalid => return Setting::Invalid,
    };
    let (label, help) = match by.value {
        Some(KeyPart::Ip(mask)) if mask != Mask::DEFAULT => (
            "a network is written as the member",
            "write `by = \"ip\"`, and members as `\"198.51.100.0/24\"`",
        ),
        Some(KeyPart::Method | KeyPart::Route) | None => (
            "tells no clients apart",
            "write `by = \"header:x-api-key\"`, `by = \"ip\"`, or another part of a request that says who asks",
        ),
        Some(part) => return Setting::Valid(At::new(part, by.span)),
    };
    let message = format!("nobody is a member of `{}` by this", fields.title());
    fields.note(
        Diagnostic::error(Code::BadKey, message)
            .at(&by.span, label)
            .help(help),
    );
    Setting::Invalid
}
