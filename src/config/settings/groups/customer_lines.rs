//! Finds the line that names a customer: `explain` reads the file once more, so that a running gateway keeps no lines.

use super::{MOST_BYTES, one_network, one_value};
use crate::config::document::{CustomerList, Document};
use crate::config::input::{Files, Source};
use crate::config::settings::file_lines::lines;
use crate::key::{Digest, Group, KeyPart};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// A file with names of customers.
#[derive(Debug)]
pub(in crate::config) struct CustomerFile {
    group: Arc<str>,
    /// The path as written.
    shown: String,
    path: PathBuf,
}

/// The credentials that a request shows for a group.
#[derive(Debug, Default)]
pub struct ShownCredentials {
    /// The digests of its values.
    pub digests: Vec<Digest>,
    /// The client's address.
    pub address: Option<IpAddr>,
}

/// The files with names of customers, in their order.
pub(in crate::config) fn customer_files(document: &Document, source: &Source) -> Vec<CustomerFile> {
    let mut all = Vec::new();
    for group in &document.groups {
        let files = match group.customers.get() {
            Some(CustomerList::Files(files)) => files.as_slice(),
            _ if group.by.get().is_some_and(KeyPart::is_customer) => group.file.entries(),
            _ => &[],
        };
        all.extend(files.iter().map(|file| CustomerFile {
            group: group.name.value.as_str().into(),
            shown: file.value.clone(),
            path: source.resolve_path(file.span.start, &file.value),
        }));
    }
    all
}

/// The line of `group` that has the name with a credential of the request, `pro-keys.txt:17`; else the first line that
/// has the name. `None` if no file has it.
pub(in crate::config) fn line_of(
    files: &[CustomerFile],
    group: &Group,
    name: &str,
    shown: &ShownCredentials,
) -> Option<String> {
    let mut first = None;
    for file in files.iter().filter(|file| file.group == group.name) {
        let Ok(content) = Files::default().read(&file.path, MOST_BYTES) else {
            continue;
        };
        for (line, text) in lines(&content) {
            let Some(credential) = behind_name(text, name.as_bytes()) else {
                continue;
            };
            let place = || format!("{}:{line}", file.shown);
            if shown.have(credential, &group.by) {
                return Some(place());
            }
            first = first.or_else(|| Some(place()));
        }
    }
    first
}

/// The rest of the line behind the name, if the line is the name's.
fn behind_name<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.first() {
        None | Some(b' ' | b'\t') => Some(rest.trim_ascii()),
        Some(_) => None,
    }
}

impl ShownCredentials {
    fn have(&self, credential: &[u8], by: &KeyPart) -> bool {
        if by.is_by_address() {
            let network = one_network(credential);
            let address = self.address.map(|address| address.to_canonical());
            return network.is_ok_and(|network| address.is_some_and(|at| network.contains(&at)));
        }
        one_value(credential, by).is_ok_and(|digest| self.digests.contains(&digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_the_name_before_its_first_blank() {
        let rest = |line: &'static str| behind_name(line.as_bytes(), b"acme");
        assert_eq!(rest("acme\t key 1"), Some(&b"key 1"[..]));
        assert_eq!(rest("acme"), Some(&b""[..]));
        assert_eq!((rest("acme2 key"), rest("beta acme")), (None, None));
    }
}
