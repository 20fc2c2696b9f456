//! An identity that was made from its files, or kept from before.

use super::pem_files::{FaultyPart, IdentityFiles, PemFileFault};
use super::written::{WrittenCertificate, WrittenIdentity};
use super::{Identities, LoadedIdentity};
use crate::config::input::{SideFiles, Source};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::tls::{IdentityParts, ServerIdentity};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

/// Two readings with this time between them must agree before a changed file is used.
const SETTLE: Duration = Duration::from_millis(50);

/// The loading of all identities of a file.
#[derive(Clone, Copy)]
pub(super) struct Loading<'b> {
    /// The identities in force; `None` at start and in a check.
    pub(super) before: Option<&'b Identities>,
    /// May files be absent? Files may be absent during a mere check: keys are seldom on other machines.
    pub(super) may_lack: bool,
}

impl Loading<'_> {
    /// Each identity; `None` if the identity has a mistake, which has been noted.
    pub(super) fn all(
        self,
        written: &[WrittenIdentity<'_>],
        side_files: &mut SideFiles<'_>,
    ) -> Vec<Option<LoadedIdentity>> {
        let mut read: Vec<IdentityFiles<'_>> = written
            .iter()
            .map(|one| IdentityFiles::read(one, side_files))
            .collect();
        self.settle(written, &mut read);
        let all = written.iter().zip(&read);
        all.map(|(written, files)| {
            let loaded = self.one(written, files, side_files.found)?;
            readable_key(written, side_files.source, side_files.found);
            Some(loaded)
        })
        .collect()
    }

    /// Reads changed files a second time. The caller's thread must be allowed to block, as a reload's thread is.
    fn settle(self, written: &[WrittenIdentity<'_>], read: &mut [IdentityFiles<'_>]) {
        let Some(before) = self.before else { return };
        let both = written.iter().zip(read);
        let changed = both.filter(|(written, files)| {
            let held = before.named(&written.name);
            held.is_some_and(|held| !files.are_those_of(&held.parts))
        });
        let mut changed: Vec<_> = changed.map(|(_, files)| files).collect();
        if !changed.is_empty() {
            std::thread::sleep(SETTLE);
        }
        for files in &mut changed {
            files.compare_reread();
        }
    }

    fn one(
        self,
        written: &WrittenIdentity<'_>,
        files: &IdentityFiles<'_>,
        found: &mut Findings,
    ) -> Option<LoadedIdentity> {
        let held = self.before.and_then(|before| before.named(&written.name));
        let made = made(files.parts(), held, files);
        let faults = match made {
            Ok(made) => return Some(made),
            Err(faults) => faults,
        };
        if let Some(held) = held
            && let Some(parts) = parts_to_keep(&faults, held, files)
            && let Ok(mut kept) = self::made(parts, Some(held), files)
        {
            let reasons: Vec<&str> = faults
                .iter()
                .map(|fault| fault.diagnostic.message.as_str())
                .collect();
            kept.kept = Some(reasons.join("; "));
            return Some(kept);
        }
        if !self.may_lack {
            found.extend(faults.into_iter().map(|fault| fault.diagnostic));
        }
        None
    }
}

/// An identity of these parts: the identity in force, if it has the same parts.
fn made(
    parts: IdentityParts,
    held: Option<&LoadedIdentity>,
    files: &IdentityFiles<'_>,
) -> Result<LoadedIdentity, Vec<PemFileFault>> {
    let identity = match held.filter(|held| held.parts == parts) {
        Some(held) => Arc::clone(&held.identity),
        None => {
            let made = ServerIdentity::new(parts.clone());
            Arc::new(made.map_err(|mistakes| files.faults(mistakes))?)
        }
    };
    Ok(LoadedIdentity {
        identity,
        parts,
        kept: None,
        is_ordered: files.is_ordered(),
        client_files: files.of_clients(),
    })
}

/// The parts that stay in force when files are broken. A broken pair is replaced by the previous pair, under the new
/// settings. If the files of the client check are broken, everything stays as before; if no client check existed
/// before, nothing can stay.
fn parts_to_keep(
    faults: &[PemFileFault],
    held: &LoadedIdentity,
    files: &IdentityFiles<'_>,
) -> Option<IdentityParts> {
    let is_of_client = faults.iter().any(|fault| fault.part == FaultyPart::Client);
    if is_of_client {
        return held.parts.client.is_some().then(|| held.parts.clone());
    }
    Some(IdentityParts {
        cert_pem: held.parts.cert_pem.clone(),
        key_pem: held.parts.key_pem.clone(),
        ..files.parts()
    })
}

/// Notes a key that every user of the machine can read.
fn readable_key(written: &WrittenIdentity<'_>, source: &Source, found: &mut Findings) {
    const OTHERS_READ: u32 = 0o004;
    let WrittenCertificate::Files { key, .. } = &written.certificate else {
        return;
    };
    let path = source.resolve_path(key.span.start, &key.value);
    let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode());
    if mode & OTHERS_READ == 0 {
        return;
    }
    let shown = quoted(&key.value);
    let message = format!(
        "every user of this machine can read {shown}, the key of {}",
        written.subject
    );
    found
        .warning(Code::KeyReadable, message)
        .at(&key.span, format!("its mode is {:04o}", mode & 0o7777))
        .help("let only its owner and group read it: `chmod o= FILE`");
}
