//! Compiles groups with their members: lists and files are read, and each member is kept as a digest. No message shows
//! a member that may be secret.

mod customer_lines;
mod customers;
mod passwords;
mod warnings;

use super::file_lines::lines;
use super::number_files::NumberFiles;
use crate::client::Nat64;
use crate::config::document::{CustomerList, Document, GroupTable};
use crate::config::input::{At, Reference, SideFiles, Span};
use crate::config::presentation::NamedLines;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::{network, quoted};
use crate::key::{
    CustomerIndex, Customers, Digest, Group, KeyPart, MemberForm, NAME_FORM, NamedMembers, cookie,
    credential, is_name,
};
use crate::tls::canonical_subject;
pub use customer_lines::ShownCredentials;
pub(in crate::config) use customer_lines::{CustomerFile, customer_files, line_of};
use customers::CustomerReader;
use ipnet::IpNet;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use warnings::{warn_of_bits, warn_of_empty_group, warn_of_repeat, warn_of_say_so};

/// The largest file of members.
const MOST_BYTES: u64 = 128 * 1024 * 1024;
/// The most members of one group.
const MOST_MEMBERS: usize = 1_000_000;
/// The longest member; no field of a request is longer.
const LONGEST: usize = 8 * 1024;
/// The prefix of a digest.
const MARK: &[u8] = b"sha256:";
/// The number of mistakes of one group that are shown; further mistakes are counted.
const SHOWN: usize = 5;

/// All groups of a file, in the order of the file.
#[derive(Debug, Default)]
pub(in crate::config) struct Groups {
    pub(in crate::config) all: Vec<Arc<Group>>,
    positions: HashMap<Arc<str>, usize>,
    /// The customers that groups name, if any do.
    pub(in crate::config) customers: Option<Arc<Customers>>,
    /// Members that are written as customers are.
    pub(in crate::config) named_members: Vec<NamedLines>,
}

impl Groups {
    /// The group with this name, and its position.
    pub(in crate::config) fn find(&self, name: &str) -> Option<(usize, &Arc<Group>)> {
        let at = *self.positions.get(name)?;
        Some((at, self.all.get(at)?))
    }
}

/// A group as written, with the content of its files.
struct GroupText<'a> {
    written: &'a GroupTable,
    by: &'a KeyPart,
    files: Vec<(&'a At<String>, Vec<u8>)>,
    customer_files: Vec<(&'a At<String>, Vec<u8>)>,
    /// Has a mistake of the group been noted?
    is_noted: bool,
}

/// Reads the members of all groups. Customers with numbers of their own are known by name, too.
pub(in crate::config) fn read_groups(
    document: &Document,
    numbers: &NumberFiles,
    side_files: &mut SideFiles<'_>,
) -> Groups {
    let mut texts = texts(document, side_files);
    let (nat64, found) = (document.server.translators(), &mut *side_files.found);
    let mut reader = CustomerReader::default();
    let mut names: Vec<Vec<CustomerIndex>> = Vec::with_capacity(texts.len());
    let mut noted = Vec::with_capacity(texts.len());
    for text in &texts {
        let before = found.len();
        names.push(reader.read(text, &nat64, found));
        noted.push(found.len() > before);
        let is_wrong = text.is_noted || found.has_error_since(before);
        reader.is_broken |= is_wrong && !text.written.customers.is_absent();
    }
    reader.builder.end_credentials();
    for ((text, names), noted) in texts.iter().zip(&mut names).zip(&mut noted) {
        if text.by.is_customer() {
            let before = found.len();
            let listed = gather(text.written, &text.files, one_name, found);
            names.extend(reader.names(text, &listed, found));
            *noted |= found.len() > before;
        }
    }
    numbers
        .all()
        .for_each(|file| reader.add_numbered(file, found));
    // Customers that could not be read are not taken for none.
    let names_some = reader.is_broken || !reader.builder.is_empty();
    let mut groups = Groups {
        customers: names_some.then(|| Arc::new(reader.builder.build())),
        ..Groups::default()
    };
    for ((text, names), noted) in texts.iter_mut().zip(names).zip(noted) {
        let before = found.len();
        let group = compile(text, &names, groups.customers.as_ref(), &nat64, found);
        text.is_noted |= noted || found.len() > before;
        note_mistakes(text, &group, document, groups.customers.is_some(), found);
        groups.named_members.extend(named_lines(text));
        if groups.find(&group.name).is_none() {
            let at = groups.all.len();
            groups.positions.insert(Arc::clone(&group.name), at);
            groups.all.push(Arc::new(group));
        }
    }
    groups
}

/// The members of a group that have a name in front of a digest.
fn named_lines(text: &GroupText<'_>) -> Option<NamedLines> {
    let listed = text.written.members.entries().iter();
    let listed = listed.map(|at| (MemberPlace::Listed(&at.span), at.value.as_bytes()));
    let lines = text.files.iter().flat_map(|(file, content)| {
        lines(content).map(|(line, text)| (MemberPlace::Line(file, line), text))
    });
    let all = listed.chain(lines);
    let mut named = all.filter(|(_, text)| has_name_and_digest(text.trim_ascii()));
    let (first, _) = named.next()?;
    Some(NamedLines {
        group: text.written.name.value.as_str().into(),
        place: first.to_string(),
        many: 1 + named.count(),
    })
}

fn has_name_and_digest(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    end.is_some_and(|end| is_name(&text[..end]) && is_digest(text[end..].trim_ascii()))
}

/// Reads the files of all groups.
fn texts<'a>(document: &'a Document, side_files: &mut SideFiles<'_>) -> Vec<GroupText<'a>> {
    let mut texts = Vec::new();
    for written in &document.groups {
        let Some(by) = written.by.get() else { continue };
        let before = side_files.found.len();
        let mut read = |files: &'a [At<String>]| -> Vec<(&'a At<String>, Vec<u8>)> {
            let files = files.iter();
            files
                .filter_map(|file| Some((file, content(written, file, side_files)?)))
                .collect()
        };
        let files = read(written.file.entries());
        let customer_files = match written.customers.get() {
            Some(CustomerList::Files(files)) => read(files),
            _ => Vec::new(),
        };
        texts.push(GroupText {
            written,
            by,
            files,
            customer_files,
            is_noted: side_files.found.len() > before,
        });
    }
    texts
}

/// Compiles one group with its members and the names of its customers.
fn compile(
    text: &GroupText<'_>,
    names: &[CustomerIndex],
    customers: Option<&Arc<Customers>>,
    nat64: &Nat64,
    found: &mut Findings,
) -> Group {
    let (written, by) = (text.written, text.by);
    let name: Arc<str> = written.name.value.as_str().into();
    let group = match by {
        by if by.is_by_address() => {
            let members = gather(written, &text.files, one_network, found);
            warn_of_bits(&members, found);
            let counted = members.into_keys();
            let counted = counted.flat_map(|network| nat64.networks(network));
            Group::of_networks(name, by.clone(), counted)
        }
        by if by.is_customer() => Group::of_values(name, by.clone(), []),
        by => {
            let read = |text: &[u8]| one_value(text, by);
            let members = gather(written, &text.files, read, found);
            Group::of_values(name, by.clone(), members.into_keys())
        }
    };
    let names_some = by.is_customer() || !written.customers.is_absent();
    match customers.filter(|_| names_some) {
        Some(all) => {
            let is_open = matches!(written.customers.get(), Some(CustomerList::Verified));
            group.naming(NamedMembers::new(all, names.iter().copied(), is_open))
        }
        None => group,
    }
}

/// Notes a group without members, a group that any client can enter, and a group by customers whom no group names.
fn note_mistakes(
    text: &GroupText<'_>,
    group: &Group,
    document: &Document,
    has_customers: bool,
    found: &mut Findings,
) {
    let written = text.written;
    let all = [
        written.members.is_absent(),
        written.file.is_absent(),
        written.customers.is_absent(),
    ];
    let is_verified = matches!(written.customers.get(), Some(CustomerList::Verified));
    let is_bad = written.members.is_bad() || written.customers.is_bad();
    let is_written = all.contains(&false) && !is_verified && !is_bad;
    if group.is_empty() && is_written && !text.is_noted {
        warn_of_empty_group(written, found);
    }
    if text.by.is_customer()
        && let Some(by) = written.by.at()
        && !(has_customers && document.groups.iter().any(GroupTable::names_customers))
    {
        no_customers(&written.to_string(), &by.span, found);
    }
    warn_of_say_so(text, document, found);
}

/// Notes a use of customers where no group names any.
pub(in crate::config) fn no_customers(user: &str, place: &Span, found: &mut Findings) {
    found
        .error(
            Code::NoCustomers,
            format!("{user} asks for the customer, and no group names customers"),
        )
        .at(place, "no credential has a name")
        .help("name them: `customers = \"pro-keys.txt\"` of a group, with `NAME CREDENTIAL` on a line");
}

/// Reads one file of the group.
fn content(
    written: &GroupTable,
    file: &At<String>,
    side_files: &mut SideFiles<'_>,
) -> Option<Vec<u8>> {
    let shown = quoted(&file.value);
    let at = Reference {
        span: &file.span,
        failure: &format!("cannot read {shown}, the members of {written}"),
        label: "a file with one member on a line",
    };
    side_files.list(&file.value, MOST_BYTES, at)
}

/// The place of a member: the list, or a line of a file.
#[derive(Debug, Clone, Copy)]
enum MemberPlace<'a> {
    Listed(&'a Span),
    Line(&'a At<String>, usize),
}

impl MemberPlace<'_> {
    /// The order of places in reports.
    fn order(&self) -> (usize, usize) {
        match self {
            Self::Listed(span) => (span.start, 0),
            Self::Line(file, line) => (file.span.start, *line),
        }
    }

    fn span(&self) -> &Span {
        match self {
            Self::Listed(span) => span,
            Self::Line(file, _) => &file.span,
        }
    }
}

/// `gold-keys.txt:17`.
impl fmt::Display for MemberPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(_) => f.write_str("the list"),
            Self::Line(file, line) => write!(f, "{}:{line}", file.value),
        }
    }
}

/// The first member that is written twice, and the number of such members.
struct RepeatedMember<'a> {
    first: MemberPlace<'a>,
    second: MemberPlace<'a>,
    many: usize,
}

/// Reads the members of the list and of all files; `read` reads each member. The error of `read` is the reason why a
/// text is not a member.
fn gather<'a, T: Hash + Eq + Copy>(
    written: &'a GroupTable,
    files: &'a [(&At<String>, Vec<u8>)],
    read: impl Fn(&'a [u8]) -> Result<T, String>,
    found: &mut Findings,
) -> HashMap<T, MemberPlace<'a>> {
    let mut members: HashMap<T, MemberPlace<'_>> = HashMap::new();
    let mut repeat: Option<RepeatedMember<'_>> = None;
    let mut wrong = 0;
    let (listed, by) = (written.members.entries().iter(), written.by.get());
    let listed = listed.map(|at| {
        let text = as_listed(at.value.as_bytes(), by);
        (MemberPlace::Listed(&at.span), text)
    });
    let lines = files.iter().flat_map(|(file, content)| {
        lines(content).map(|(line, text)| (MemberPlace::Line(file, line), text))
    });
    for (place, text) in listed.chain(lines) {
        let member = match plain(text).and_then(&read) {
            Ok(member) => member,
            Err(why) => {
                wrong += 1;
                if wrong <= SHOWN {
                    no_member(written, place, text, &why, found);
                }
                continue;
            }
        };
        match members.entry(member) {
            Entry::Vacant(entry) => {
                entry.insert(place);
            }
            Entry::Occupied(entry) => match &mut repeat {
                Some(repeat) => repeat.many += 1,
                None => {
                    repeat = Some(RepeatedMember {
                        first: *entry.get(),
                        second: place,
                        many: 1,
                    });
                }
            },
        }
        if members.len() > MOST_MEMBERS {
            let why = format!("beyond the {MOST_MEMBERS} members that a group has at most");
            bad_member(written, place, &why, found);
            break;
        }
    }
    if let (Some(last), Some(more @ 1..)) = (found.last_mut(), wrong.checked_sub(SHOWN)) {
        last.note = Some(format!("and {more} more like this"));
    }
    if let Some(repeat) = repeat {
        warn_of_repeat(written, &repeat, found);
    }
    members
}

/// A member of the list without surrounding blanks. Fields, hosts, networks and digests have no such blanks. A decoded
/// or claimed value may begin with a blank, which stays.
fn as_listed<'t>(text: &'t [u8], by: Option<&KeyPart>) -> &'t [u8] {
    let trimmed = text.trim_ascii();
    match by.map(KeyPart::members) {
        Some(MemberForm::Exact | MemberForm::Cookie) if !is_digest(trimmed) => text,
        _ => trimmed,
    }
}

/// Is the member written as a digest?
fn is_digest(text: &[u8]) -> bool {
    matches!(text.get(..MARK.len()), Some(mark) if mark.eq_ignore_ascii_case(MARK))
}

/// The text, if it can be a member.
fn plain(text: &[u8]) -> Result<&[u8], String> {
    match text {
        [] => Err("empty".into()),
        _ if text.len() > LONGEST => Err(format!("longer than {LONGEST} bytes")),
        _ if text.iter().any(u8::is_ascii_control) => {
            Err("not a text: it has control characters".into())
        }
        _ => Ok(text),
    }
}

/// The name of a customer.
fn one_name(text: &[u8]) -> Result<&[u8], String> {
    if is_name(text) {
        Ok(text)
    } else {
        Err(NAME_FORM.to_owned())
    }
}

fn one_network(text: &[u8]) -> Result<IpNet, String> {
    let text = String::from_utf8_lossy(text);
    // The text is not shown, since it may be a secret in the wrong file.
    network(&text)
        .map_err(|_| "it is not a network; write `10.0.0.0/8`, or an address alone".into())
}

fn one_value(text: &[u8], by: &KeyPart) -> Result<Digest, String> {
    if by.members() == MemberForm::Fingerprint {
        return fingerprint(text);
    }
    if !is_digest(text) {
        // Hosts are compared in lower case.
        return Ok(match by.members() {
            MemberForm::Host => Group::digest(&text.to_ascii_lowercase()),
            MemberForm::Cookie => Group::digest(&cookie::cookie_value(text)),
            MemberForm::Subject => Group::digest(subject(text)?.as_bytes()),
            MemberForm::Password => return Err(passwords::NO_DIGEST.into()),
            MemberForm::Field if by.is_credential() => Group::digest(&credential::spelled(text)),
            _ => Group::digest(text),
        });
    }
    let rest = &text[MARK.len()..];
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let digits: Option<Vec<u32>> = rest.iter().map(digit).collect();
    let digits = digits.filter(|digits| digits.len() == 64);
    let digits = digits.ok_or("no digest: `sha256:` is followed by 64 hexadecimal digits, as `printf %s KEY | sha256sum` writes them")?;
    let mut sha256 = [0; 32];
    for (byte, pair) in sha256.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).unwrap_or_default();
    }
    Ok(Group::shortened(&sha256))
}

/// A subject in the canonical spelling of keys.
fn subject(text: &[u8]) -> Result<String, String> {
    let text = str::from_utf8(text).ok();
    text.and_then(canonical_subject).ok_or_else(|| {
        "no subject: it is written as in the access log's `client_subject`, or as `openssl x509 -noout -subject -nameopt RFC2253` writes it after `subject=`".into()
    })
}

/// A fingerprint as programs write it: with or without colons, in letters of any case, with or without the prefix
/// `sha256:`.
fn fingerprint(text: &[u8]) -> Result<Digest, String> {
    let digits = if is_digest(text) {
        &text[MARK.len()..]
    } else {
        text
    };
    let digits: Vec<u8> = digits
        .iter()
        .copied()
        .filter(|byte| *byte != b':')
        .collect();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("no fingerprint: it is 64 hexadecimal digits, as `openssl x509 -noout -fingerprint -sha256` writes them".into());
    }
    Ok(Group::digest(&digits.to_ascii_lowercase()))
}

/// Notes a text that is no member, and the reason.
fn no_member(
    written: &GroupTable,
    place: MemberPlace<'_>,
    text: &[u8],
    why: &str,
    found: &mut Findings,
) {
    let by = written.by.get();
    if by.is_some_and(|by| passwords::is_hash(text, by)) {
        passwords::note_hash(written, place, found);
    } else {
        bad_member(written, place, why, found);
    }
}

fn bad_member(written: &GroupTable, place: MemberPlace<'_>, why: &str, found: &mut Findings) {
    let (message, label) = match place {
        MemberPlace::Listed(_) => (format!("{written} lists a text that is no member"), why),
        MemberPlace::Line(..) => {
            let message = format!("{place} is no member of {written}: {why}");
            (message, "in this file")
        }
    };
    found
        .error(Code::BadMember, message)
        .at(place.span(), label);
}

#[cfg(test)]
mod tests;
