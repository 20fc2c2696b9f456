//! Reads the customers that groups name, and finds credentials that two of them have.

use super::passwords::{is_hash, note_hash};
use super::{
    GroupText, LONGEST, MOST_MEMBERS, MemberPlace, RepeatedMember, SHOWN, as_listed, one_network,
    one_value, plain, warn_of_bits, warn_of_repeat,
};
use crate::client::Nat64;
use crate::config::document::CustomerList;
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Findings, counted};
use crate::config::settings::file_lines::lines;
use crate::config::settings::number_files::{NumberFile, warn_of_strange_names};
use crate::config::value::quoted;
use crate::key::{CustomerIndex, CustomersBuilder, Digest, KeyPart, NAME_FORM, is_name};
use foldhash::fast::RandomState;
use ipnet::IpNet;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// The customers of all groups, and the place of each credential.
#[derive(Default)]
pub(super) struct CustomerReader<'a> {
    pub(super) builder: CustomersBuilder,
    values: HashMap<(&'a KeyPart, Digest), Holder<'a>, RandomState>,
    networks: HashMap<IpNet, Holder<'a>, RandomState>,
    /// Can customers have names that no line has?
    is_open: bool,
    /// Has a mistake been noted in the customers of a group? Then it is not known which names have a credential.
    pub(super) is_broken: bool,
}

/// The customer of a credential, and the credential's place.
#[derive(Debug, Clone, Copy)]
struct Holder<'a> {
    customer: CustomerIndex,
    place: MemberPlace<'a>,
}

/// One customer's credential as written.
struct CredentialLine<'a> {
    place: MemberPlace<'a>,
    name: &'a [u8],
    credential: &'a [u8],
}

/// The credential as a lookup finds it.
enum Credential {
    Value(Digest),
    Networks(Vec<IpNet>),
}

/// What a group's lines come to.
#[derive(Default)]
struct Progress<'a> {
    names: Vec<CustomerIndex>,
    wrong: usize,
    credentials: usize,
    repeat: Option<RepeatedMember<'a>>,
    /// Networks with bits outside their prefix.
    odd: HashMap<IpNet, MemberPlace<'a>>,
}

impl<'a> CustomerReader<'a> {
    /// Reads the customers that the group names; returns their names.
    pub(super) fn read(
        &mut self,
        group: &'a GroupText<'a>,
        nat64: &Nat64,
        found: &mut Findings,
    ) -> Vec<CustomerIndex> {
        if let Some(CustomerList::Verified) = group.written.customers.get() {
            // A part without proof is a mistake, which has been noted.
            let is_proof = group.by.claim().is_some() || group.by.is_of_certificate();
            self.is_open |= is_proof;
            self.builder.verified(group.by);
        }
        let mut progress = Progress::default();
        for (place, line) in group.customer_lines() {
            let read = split(place, line).and_then(|line| {
                let credential = read_credential(&line, group.by, nat64)?;
                Ok((line, credential))
            });
            match read {
                Ok((line, credential)) => self.add(group, &line, credential, &mut progress, found),
                Err(why) => {
                    progress.wrong += 1;
                    if progress.wrong > SHOWN {
                        continue;
                    }
                    if is_hash(line.text(), group.by) {
                        note_hash(group.written, place, found);
                    } else {
                        bad_line(group, place, &why, found);
                    }
                }
            }
            if progress.credentials > MOST_MEMBERS {
                let why = format!("beyond the {MOST_MEMBERS} credentials that a group has at most");
                bad_line(group, place, &why, found);
                break;
            }
        }
        if let (Some(last), Some(more @ 1..)) =
            (found.last_mut(), progress.wrong.checked_sub(SHOWN))
        {
            last.note = Some(format!("and {more} more like this"));
        }
        if let Some(repeat) = progress.repeat {
            warn_of_repeat(group.written, &repeat, found);
        }
        warn_of_bits(&progress.odd, found);
        progress.names
    }

    fn add(
        &mut self,
        group: &'a GroupText<'a>,
        line: &CredentialLine<'a>,
        credential: Credential,
        progress: &mut Progress<'a>,
        found: &mut Findings,
    ) {
        // Names are ASCII.
        let name = str::from_utf8(line.name).unwrap_or_default();
        let Some(customer) = self.builder.name(name) else {
            return bad_line(
                group,
                line.place,
                "the names of the file are longer than 4 GiB",
                found,
            );
        };
        progress.names.push(customer);
        progress.credentials += 1;
        let this = Holder {
            customer,
            place: line.place,
        };
        let first = match credential {
            Credential::Value(digest) => {
                self.builder.value(group.by, digest, customer);
                earlier(&mut self.values, (group.by, digest), this)
            }
            Credential::Networks(networks) => self.add_networks(networks, this, progress),
        };
        let Some(first) = first else { return };
        if first.customer != customer {
            progress.wrong += 1;
            if progress.wrong <= SHOWN {
                two_customers(line.place, first.place, found);
            }
        } else {
            match &mut progress.repeat {
                Some(repeat) => repeat.many += 1,
                None => {
                    progress.repeat = Some(RepeatedMember {
                        first: first.place,
                        second: line.place,
                        many: 1,
                    });
                }
            }
        }
    }

    /// Adds the networks of one credential; returns the earlier holder of one of them.
    fn add_networks(
        &mut self,
        networks: Vec<IpNet>,
        this: Holder<'a>,
        progress: &mut Progress<'a>,
    ) -> Option<Holder<'a>> {
        let mut first = None;
        for network in networks {
            if network.addr() != network.network() {
                progress.odd.insert(network, this.place);
            }
            self.builder.network(network, this.customer);
            let before = earlier(&mut self.networks, network.trunc(), this);
            first = first.or(before);
        }
        first
    }

    /// Reads the names that are the members of a group by `customer`.
    pub(super) fn names(
        &mut self,
        group: &'a GroupText<'a>,
        members: &HashMap<&'a [u8], MemberPlace<'a>>,
        found: &mut Findings,
    ) -> Vec<CustomerIndex> {
        let names = members
            .iter()
            .filter_map(|(name, place)| Some((str::from_utf8(name).ok()?, *place)));
        let names: Vec<(&str, MemberPlace<'_>)> = names.collect();
        let is_strange = |(name, _): &&(&str, MemberPlace<'_>)| !self.builder.has_credential(name);
        let many = names.iter().filter(is_strange).count();
        let strange = names.iter().filter(is_strange);
        let strange = strange.min_by_key(|(_, place)| place.order());
        if let Some((name, place)) = strange.filter(|_| self.tells_strange_names()) {
            warn_of_strange_name(group, name, *place, many - 1, found);
        }
        let known = names.iter().filter_map(|(name, _)| self.builder.name(name));
        known.collect()
    }
}

impl CustomerReader<'_> {
    /// Reads the names of customers with numbers of their own.
    pub(super) fn add_numbered(&mut self, file: &NumberFile, found: &mut Findings) {
        if self.tells_strange_names() {
            let is_known = |name: &str| self.builder.has_credential(name);
            warn_of_strange_names(file, is_known, found);
        }
        for line in &file.lines {
            // Names of more than 4 GiB in all have been reported.
            let _ = self.builder.name(&line.name);
        }
    }

    /// Can only a line have a name, and does any line have one?
    fn tells_strange_names(&self) -> bool {
        !self.is_open && !self.is_broken && !self.builder.is_empty()
    }
}

/// Notes a member of a group by `customer` whom no line names. A name is no secret.
fn warn_of_strange_name(
    group: &GroupText<'_>,
    name: &str,
    place: MemberPlace<'_>,
    more: usize,
    found: &mut Findings,
) {
    let at = match place {
        MemberPlace::Listed(_) => String::new(),
        MemberPlace::Line(..) => format!("{place}: "),
    };
    let more = match more {
        0 => String::new(),
        more => format!(", and {} more", counted(more, "name")),
    };
    let (written, name) = (group.written, quoted(name));
    found
        .warning(
            Code::UnknownCustomer,
            format!("{at}no group names the customer {name} of {written}{more}"),
        )
        .at(place.span(), "no credential has this name")
        .help("write `NAME CREDENTIAL` in a file of `customers`, or correct the name");
}

/// The earlier holder of the same credential; the first one stays.
fn earlier<'a, K: Hash + Eq>(
    holders: &mut HashMap<K, Holder<'a>, RandomState>,
    key: K,
    this: Holder<'a>,
) -> Option<Holder<'a>> {
    match holders.entry(key) {
        Entry::Occupied(entry) => Some(*entry.get()),
        Entry::Vacant(entry) => {
            entry.insert(this);
            None
        }
    }
}

impl<'a> GroupText<'a> {
    /// The lines about customers: each credential of the table, behind its name, and the lines of files.
    fn customer_lines(&'a self) -> impl Iterator<Item = (MemberPlace<'a>, WrittenLine<'a>)> {
        let listed = match self.written.customers.get() {
            Some(CustomerList::Listed(customers)) => customers.as_slice(),
            _ => &[],
        };
        let listed = listed.iter().flat_map(|customer| {
            customer.value.credentials.iter().map(|at: &At<String>| {
                let text = as_listed(at.value.as_bytes(), Some(self.by));
                let name = customer.value.name.as_bytes();
                (
                    MemberPlace::Listed(&at.span),
                    WrittenLine::Entry(name, text),
                )
            })
        });
        let lines = self.customer_files.iter().flat_map(|(file, content)| {
            lines(content)
                .map(|(line, text)| (MemberPlace::Line(file, line), WrittenLine::Line(text)))
        });
        listed.chain(lines)
    }

    /// Are all credentials written as digests?
    pub(super) fn has_only_digests(&'a self) -> bool {
        let mut lines = self
            .customer_lines()
            .filter_map(|(place, line)| split(place, line).ok());
        lines.all(|line| super::is_digest(line.credential))
    }
}

/// A name with a credential, as an entry of the table or as a line of a file.
#[derive(Debug, Clone, Copy)]
enum WrittenLine<'a> {
    Entry(&'a [u8], &'a [u8]),
    Line(&'a [u8]),
}

impl<'a> WrittenLine<'a> {
    /// The line, or the credential of the entry.
    fn text(self) -> &'a [u8] {
        match self {
            Self::Entry(_, text) | Self::Line(text) => text,
        }
    }
}

/// Divides a line into a name and a credential; a credential may have blanks.
fn split<'a>(place: MemberPlace<'a>, line: WrittenLine<'a>) -> Result<CredentialLine<'a>, String> {
    let (name, credential) = match line {
        WrittenLine::Entry(name, credential) => (name, credential),
        WrittenLine::Line(text) => {
            let end = text.iter().position(|byte| matches!(byte, b' ' | b'\t'));
            let end = end.ok_or("a line is `NAME CREDENTIAL`, with blanks between")?;
            (&text[..end], text[end..].trim_ascii())
        }
    };
    if !is_name(name) {
        return Err(NAME_FORM.to_owned());
    }
    Ok(CredentialLine {
        place,
        name,
        credential: plain(credential)?,
    })
}

fn read_credential(
    line: &CredentialLine<'_>,
    by: &KeyPart,
    nat64: &Nat64,
) -> Result<Credential, String> {
    debug_assert!(line.credential.len() <= LONGEST, "checked before");
    if by.is_by_address() {
        let networks = nat64.networks(one_network(line.credential)?);
        return Ok(Credential::Networks(networks.into_iter().collect()));
    }
    one_value(line.credential, by).map(Credential::Value)
}

/// Notes a line without a customer's credential; the line is not shown, since it may have a secret.
fn bad_line(group: &GroupText<'_>, place: MemberPlace<'_>, why: &str, found: &mut Findings) {
    let written = group.written;
    let (message, label) = match place {
        MemberPlace::Listed(_) => (format!("{written} has a text that is no credential"), why),
        MemberPlace::Line(..) => (
            format!("{place} is no credential of a customer of {written}: {why}"),
            "in this file",
        ),
    };
    found
        .error(Code::BadCustomer, message)
        .at(place.span(), label);
}

fn two_customers(this: MemberPlace<'_>, first: MemberPlace<'_>, found: &mut Findings) {
    let message = match (this, first) {
        (MemberPlace::Listed(_), MemberPlace::Listed(_)) => {
            "one credential is written for two customers".to_owned()
        }
        _ => format!("one credential is written for two customers: {first} and {this}"),
    };
    let error = found.error(Code::CustomerTwice, message);
    error.at(this.span(), "the second customer");
    if this.span() != first.span() {
        error.and(first.span(), "the first customer");
    }
    error.help(
        "a credential is one customer's: remove one of the two lines, or write one name in both",
    );
}
