//! The files of one identity: their contents and their faults.

use super::client_files::{ClientFiles, NamedFile};
use super::written::{WrittenCertificate, WrittenIdentity};
use crate::acme;
use crate::config::input::{At, Files, SideFiles};
use crate::config::report::{Code, Details as _, Diagnostic};
use crate::config::value::quoted;
use crate::tls::{ClientParts, IdentityMistake, IdentityParts};
use std::io;

/// The largest file of certificates or keys.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// The largest file of revocation lists.
const MOST_LIST_BYTES: u64 = 64 * 1024 * 1024;

/// The fault of a file.
pub(super) struct PemFileFault {
    pub(super) part: FaultyPart,
    pub(super) diagnostic: Diagnostic,
}

/// The part of an identity that has a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultyPart {
    /// The certificate and its key.
    Pair,
    /// The client check.
    Client,
}

/// The role of a file in an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PemRole {
    Certificate,
    Key,
    Authorities,
    RevocationLists,
}

impl PemRole {
    fn noun(self) -> &'static str {
        match self {
            Self::Certificate => "the certificate",
            Self::Key => "the key",
            Self::Authorities => "authorities",
            Self::RevocationLists => "revocation lists",
        }
    }

    fn part(self) -> FaultyPart {
        match self {
            Self::Certificate | Self::Key => FaultyPart::Pair,
            Self::Authorities | Self::RevocationLists => FaultyPart::Client,
        }
    }

    fn most_bytes(self) -> u64 {
        match self {
            Self::RevocationLists => MOST_LIST_BYTES,
            _ => MOST_BYTES,
        }
    }
}

/// A file of an identity.
struct PemFile<'a> {
    role: PemRole,
    path: &'a At<String>,
    named: NamedFile,
    read: io::Result<Vec<u8>>,
}

/// The files of one identity, as they were read.
pub(super) struct IdentityFiles<'a> {
    written: &'a WrittenIdentity<'a>,
    files: Vec<PemFile<'a>>,
    /// The issued certificate and its key.
    issued: Vec<u8>,
}

impl<'a> IdentityFiles<'a> {
    pub(super) fn read(written: &'a WrittenIdentity<'a>, side_files: &mut SideFiles<'_>) -> Self {
        let (authorities, lists) = match written.client {
            Some(client) => (client.ca.entries(), client.crl.entries()),
            None => Default::default(),
        };
        let pair = match &written.certificate {
            WrittenCertificate::Files { cert, key } => {
                vec![(PemRole::Certificate, *cert), (PemRole::Key, *key)]
            }
            WrittenCertificate::Ordered { .. } => Vec::new(),
        };
        let authorities = authorities.iter().map(|path| (PemRole::Authorities, path));
        let lists = lists.iter().map(|path| (PemRole::RevocationLists, path));
        let all = pair.into_iter().chain(authorities).chain(lists);
        let files = all.map(|(role, path)| {
            let named = NamedFile {
                path: side_files.source.resolve_path(path.span.start, &path.value),
                fence: side_files.source.fence(path.span.start),
                most: role.most_bytes(),
            };
            PemFile {
                read: named.read(side_files.files),
                role,
                path,
                named,
            }
        });
        Self {
            written,
            files: files.collect(),
            issued: issued(written),
        }
    }

    /// Reads the files again; files that have changed in between are not settled, and count as unreadable.
    pub(super) fn compare_reread(&mut self) {
        for file in &mut self.files {
            // A reload compares files with the first reading, so that it notices later changes.
            let reread = file.named.read(&mut Files::default());
            if let (Ok(first), Ok(second)) = (&file.read, &reread)
                && first != second
            {
                file.read = Err(io::Error::other("it is being written"));
            } else if reread.is_err() {
                file.read = reread;
            }
        }
    }

    /// Can all files be read, and do they have the same content as `parts`?
    pub(super) fn are_those_of(&self, parts: &IdentityParts) -> bool {
        let now = self.parts();
        self.files.iter().all(|file| file.read.is_ok())
            && now.cert_pem == parts.cert_pem
            && now.key_pem == parts.key_pem
            && now.client == parts.client
    }

    /// The files by which clients are checked.
    pub(super) fn of_clients(&self) -> ClientFiles {
        let of = |role| {
            let files = self.files.iter().filter(move |file| file.role == role);
            files.map(|file| file.named.clone()).collect()
        };
        ClientFiles {
            authorities: of(PemRole::Authorities),
            lists: of(PemRole::RevocationLists),
        }
    }

    /// Is the certificate ordered?
    pub(super) fn is_ordered(&self) -> bool {
        self.written.is_ordered()
    }

    /// The parts of the identity; a part is empty if its file cannot be read.
    pub(super) fn parts(&self) -> IdentityParts {
        let of = |role| {
            let files = self.files.iter().filter(move |file| file.role == role);
            files.map(|file| file.read.as_ref().map(Vec::clone).unwrap_or_default())
        };
        let WrittenIdentity { client, .. } = self.written;
        IdentityParts {
            name: self.written.name.clone(),
            cert_pem: of(PemRole::Certificate)
                .next()
                .unwrap_or(self.issued.clone()),
            key_pem: of(PemRole::Key).next().unwrap_or(self.issued.clone()),
            hosts: self.written.named_hosts(),
            is_default: self.written.is_default,
            least_version: self.written.least_version,
            alpn: self.written.alpn.clone(),
            client: client.map(|client| ClientParts {
                ca_pem: of(PemRole::Authorities).collect(),
                verify: client.verify(),
                crl_pem: of(PemRole::RevocationLists).collect(),
            }),
        }
    }

    fn unread(&self, file: &PemFile<'_>) -> Option<PemFileFault> {
        let error = file.read.as_ref().err()?;
        let (path, noun) = (quoted(&file.path.value), file.role.noun());
        let message = format!(
            "cannot read {path}, {noun} of {}: {error}",
            self.written.subject
        );
        Some(PemFileFault {
            part: file.role.part(),
            diagnostic: Diagnostic::error(Code::CertificateUnreadable, message)
                .at(&file.path.span, noun),
        })
    }

    /// The faults of all files: unreadable files, and the `mistakes` of the other files.
    pub(super) fn faults(&self, mistakes: Vec<IdentityMistake>) -> Vec<PemFileFault> {
        let unread = self.files.iter().filter_map(|file| self.unread(file));
        let mistakes = mistakes.into_iter();
        let faulty = mistakes.filter_map(|mistake| self.fault(mistake));
        unread.chain(faulty).collect()
    }

    /// The fault of the file that has a mistake; `None` if the file could not be read.
    fn fault(&self, mistake: IdentityMistake) -> Option<PemFileFault> {
        let (role, at, why) = match mistake {
            IdentityMistake::KeyMismatch => return self.mismatch(),
            IdentityMistake::Certificate(why) => (PemRole::Certificate, 0, why),
            IdentityMistake::Key(why) => (PemRole::Key, 0, why),
            IdentityMistake::Authority(at, why) => (PemRole::Authorities, at, why),
            IdentityMistake::RevocationList(at, why) => (PemRole::RevocationLists, at, why),
            IdentityMistake::Client(why) => (PemRole::Authorities, 0, why),
        };
        let mut files = self.files.iter().filter(|file| file.role == role);
        let path = files.nth(at).filter(|file| file.read.is_ok())?.path;
        let (shown, noun, subject) = (quoted(&path.value), role.noun(), &self.written.subject);
        let message = format!("{shown} cannot be used as {noun} of {subject}: {why}");
        Some(PemFileFault {
            part: role.part(),
            diagnostic: Diagnostic::error(Code::CertificateUnreadable, message)
                .at(&path.span, noun),
        })
    }

    fn mismatch(&self) -> Option<PemFileFault> {
        let WrittenCertificate::Files { cert, key } = &self.written.certificate else {
            return None;
        };
        let message = format!(
            "{} is not the key of the certificate in {}",
            quoted(&key.value),
            quoted(&cert.value)
        );
        Some(PemFileFault {
            part: FaultyPart::Pair,
            diagnostic: Diagnostic::error(Code::CertificateKeyMismatch, message)
                .at(&key.span, "the key of another certificate")
                .and(&cert.span, "the certificate: the first one in this file"),
        })
    }
}

/// The stored certificate that was issued for an identity; it is empty if no stored certificate is usable.
fn issued(written: &WrittenIdentity<'_>) -> Vec<u8> {
    let kept = written.order().and_then(|order| {
        let kept = acme::read_bundle(&order.authority.storage, &order.name)?;
        // A certificate that lacks a new host serves the other hosts until the next certificate arrives.
        kept.covers_any(&order.hosts).then_some(kept)
    });
    kept.map(|kept| kept.pem().into()).unwrap_or_default()
}
