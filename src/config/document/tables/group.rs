//! `[groups.NAME]`. [`crate::config::settings::groups`] reads the members, since it knows the part of a request that is
//! looked up.

use crate::config::document::{
    Emptiness, Fields, Items, Section as _, Setting, ValueShape, any, custom, table, texts_as,
};
use crate::config::input::At;
use crate::config::presentation::show;
use crate::config::report::{Code, Details as _};
use crate::config::value::group_part;
use crate::key::{KeyPart, Mask, MemberForm, SourceRow};
use toml::de::{DeTable, DeValue};

table! {
    /// Clients that belong together, for `tiers`, `exempt` and `unknown` of limits. The gateway reads the members
    /// itself, at most 1000000: from a list, from files, or as networks. A request in several groups has the tier of
    /// the first of them in this file. The log of a reload gives the number of members that came and went; no member is
    /// shown.
    GroupTable { name, place } = GROUPS, "groups", "a group", named true;

    /// The part of a request that is looked up among the members, as in a limit's `by`. It is `header:NAME`,
    /// `cookie:NAME`, `query:NAME`, `path:NAME`, `jwt:CLAIM`, `tls:subject`, `tls:fingerprint`, `basic` for users with
    /// their passwords (RFC 7617), `host`, `customer` for names of customers, or `ip` for networks.
    by: KeyPart = custom(ValueShape::Text, by), Required, "\"header:x-api-key\"", Group(|group| show(&group.by));

    /// The members: values, or `sha256:HEX` of a value. Blanks around a claim, a query's value, a cookie or a part of
    /// the path count. With `by = "ip"` members are addresses and networks, with `tls:fingerprint` SHA-256 of
    /// certificates, with `tls:subject` subjects as the access log writes them, with `basic` digests of `user:password`
    /// (`printf %s 'anna:PASSWORD' | sha256sum`). Make such passwords of 128 random bits: a digest of a chosen one can
    /// be guessed.
    members: Items<String> = texts_as(ValueShape::Members, any), Words("none, beside those of `file`"), "[\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"]";

    /// Files with one member on a line, written as in `members`. Empty lines and blanks at either end do not count, nor
    /// does a comment: a `#` at the start of a line or after a blank, and the text after it. Paths start at this file's
    /// folder. The files are watched as this file is; a file that is gone or has a mistake changes nothing.
    file: Items<String> = texts_as(ValueShape::Files, any), Words("none, beside `members`"), "\"gold-keys.txt\"";

    /// Names behind the credentials that are members, beside `members` and `file`, whose members have none. A file has
    /// a name and a credential on each line, with blanks between; a table has credentials by names; `true`, for
    /// `jwt:CLAIM` and `tls:`, takes the verified value as the name. A name is 1 to 128 letters, digits and `. _ - @ +
    /// : /`. One name is one customer in all groups, whichever credential a request shows, and is a member of each
    /// group with a line of that name. A credential that two customers have is an error. Limits count customers with
    /// `by = "customer"`.
    customers: CustomerList = custom(ValueShape::Customers, customers), Words("none: members have no names"), "\"pro-keys.txt\"";
}

/// The customers of a group, as written.
#[derive(Debug, Clone)]
pub(in crate::config) enum CustomerList {
    /// Files with a name and a credential on each line.
    Files(Items<String>),
    /// Names with their credentials.
    Listed(Items<ListedCustomer>),
    /// The verified value is the name.
    Verified,
}

/// A name with its credentials.
#[derive(Debug, Clone)]
pub(in crate::config) struct ListedCustomer {
    /// The name.
    pub(in crate::config) name: String,
    /// The credentials.
    pub(in crate::config) credentials: Items<String>,
}

/// The report on a table without customers.
const NO_CUSTOMER: Emptiness = Emptiness {
    message: "names no customer",
    label: "at least one",
    help: "leave it out, or write `customers = { acme = \"sha256:...\" }`",
};

/// `true`, a file, a list of files, or a table of names with their credentials.
fn customers(key: &'static str, fields: &mut Fields<'_>) -> Setting<CustomerList> {
    match fields.value(key).map(toml::Spanned::get_ref) {
        Some(DeValue::Boolean(_)) => {
            let flag = fields.typed(key, DeValue::as_bool);
            flag.and_then(|is_on, span| {
                if !is_on {
                    fields
                        .wrong(key, Code::BadChoice, "is `false`, which names no customer")
                        .at(span, "leave it out");
                }
                is_on.then_some(CustomerList::Verified)
            })
        }
        Some(DeValue::Table(_)) => {
            let listed = fields.named(key, |fields, name, value| {
                let items = match value.get_ref() {
                    DeValue::Array(items) => items.iter().collect(),
                    _ => vec![value],
                };
                let texts = items.into_iter().map(|item| {
                    let text = item.get_ref().as_str().map(str::to_owned);
                    let text = text.or_else(|| fields.wrong_type(key, item))?;
                    Some(At::new(text, item.span()))
                });
                let credentials: Option<Items<String>> = texts.collect();
                let listed = ListedCustomer {
                    name: name.value,
                    credentials: credentials?,
                };
                Some(At::new(listed, value.span()))
            });
            let listed = fields.filled(key, listed, &NO_CUSTOMER);
            listed.map(CustomerList::Listed)
        }
        _ => fields.texts(key, any).map(CustomerList::Files),
    }
}

impl GroupTable {
    /// Does the group say which credentials are a customer's?
    pub(in crate::config) fn names_customers(&self) -> bool {
        let is_other = self.by.get().is_none_or(|by| !by.is_customer());
        !self.customers.is_absent() && is_other
    }
}

/// Notes `customers` of a group that cannot name any.
fn note_customers(group: &GroupTable, fields: &mut Fields<'_>) {
    let (Some(by), Some(customers)) = (group.by.at(), group.customers.at()) else {
        return;
    };
    let is_proof = by.value.claim().is_some() || by.value.is_of_certificate();
    let title = fields.title().to_owned();
    if by.value.is_customer() {
        fields
            .error(
                Code::Conflict,
                format!("`{title}` goes by `customer`, and names customers itself"),
            )
            .at(
                &customers.span,
                "another group says which credentials are whose",
            )
            .and(&by.span, "members are names")
            .help("write the names under `members`, or in a `file`");
    } else if matches!(customers.value, CustomerList::Verified) && !is_proof {
        fields
            .error(
                Code::BadCustomer,
                format!("`{title}` takes as a name what a client has not proved"),
            )
            .at(
                &customers.span,
                "only for a claim of a token, or a certificate",
            )
            .and(&by.span, "any client may write this")
            .help("write `customers = \"pro-keys.txt\"`, with `NAME CREDENTIAL` on a line");
    }
}

pub(in crate::config::document) fn read_group(mut fields: Fields<'_>) -> GroupTable {
    let group = GroupTable::read(&mut fields);
    note_customers(&group, &mut fields);
    let names_none = group.customers.is_absent();
    if group.members.is_absent() && group.file.is_absent() && names_none {
        let message = format!("`{}` does not say who its members are", fields.title());
        fields
            .error(Code::MissingKey, message)
            .at(&group.place, "none of `members`, `file` and `customers`")
            .help("add `file = \"gold-keys.txt\"`, one member on a line, or `members = [\"...\"]`");
    }
    group
}

/// One part of a request by which a group can have members.
fn by(key: &'static str, fields: &mut Fields<'_>) -> Setting<KeyPart> {
    let by = fields.text(key, group_part);
    by.and_then(|by, span| {
        let (label, help) = match by {
            Some(part) if part.mask().is_some_and(|mask| mask != Mask::DEFAULT) => (
                "a network is written as the member",
                "write `by = \"ip\"`, and members as `\"198.51.100.0/24\"`",
            ),
            Some(part) if part.members() != MemberForm::None => return Some(part),
            Some(part) if part.is_unverified_user() => (
                "the password is not verified",
                "write `by = \"basic\"`, and members as `sha256:HEX` of `user:password`",
            ),
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
    let Some(by) = group.get("by").and_then(|by| by.get_ref().as_str()) else {
        return false;
    };
    let row = match by.split_once(':') {
        Some((kind, _)) => SourceRow::of_kind(kind),
        None => SourceRow::of_word(by),
    };
    row.is_some_and(SourceRow::is_stated)
}
