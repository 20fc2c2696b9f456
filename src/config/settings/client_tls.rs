//! TLS of connections that the gateway opens: certificates and keys, read from the files that a table names.

use crate::config::document::Setting;
use crate::config::input::{At, Reference, SideFiles, Span};
use crate::config::report::{Code, Details as _};
use crate::config::value::quoted;
use crate::tls::{ClientTls, Mistake, PemFiles};

/// The largest file of certificates.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// The TLS settings of a table, and the words of messages about them.
pub(super) struct WrittenTls<'a> {
    pub(super) ca: &'a Setting<String>,
    pub(super) cert: &'a Setting<String>,
    pub(super) key: &'a Setting<String>,
    pub(super) server_name: Option<&'a str>,
    pub(super) insecure: bool,
    /// The address that needs TLS, with words beside the caret.
    pub(super) url: Option<(&'a Span, &'a str)>,
    /// The advice if the system has no authorities.
    pub(super) name_authority: &'a str,
}

impl WrittenTls<'_> {
    /// The TLS of connections. `None` if its settings have a mistake, which has been noted.
    pub(super) fn read(&self, side_files: &mut SideFiles<'_>) -> Option<ClientTls> {
        let before = side_files.found.len();
        let [ca, cert, key] = [self.ca, self.cert, self.key]
            .map(|file| pem(file.at()?, "a certificate or its key", side_files));
        let made = ClientTls::new(PemFiles {
            ca: ca.as_deref(),
            identity: cert.as_deref().zip(key.as_deref()),
            server_name: self.server_name,
            insecure: self.insecure,
        });
        match made {
            Ok(tls) => (side_files.found.len() == before).then_some(tls),
            Err(mistakes) => {
                for mistake in mistakes {
                    self.note(mistake, side_files);
                }
                None
            }
        }
    }

    fn note(&self, mistake: Mistake, side_files: &mut SideFiles<'_>) {
        let (file, why) = match mistake {
            Mistake::Ca(why) => (self.ca.at(), why),
            Mistake::Cert(why) => (self.cert.at(), why),
            Mistake::Key(why) => (self.key.at(), why),
            // The name was checked when the name was read.
            Mistake::Name => return,
            // `ca` names the authorities, or could not be read, which has been noted.
            Mistake::System(_) if !self.ca.is_absent() => return,
            Mistake::System(why) => {
                let message = format!("this system has no certificate authorities: {why}");
                let wrong = side_files.found.error(Code::BadCertificate, message);
                let wrong = wrong.help(self.name_authority);
                if let Some((url, label)) = self.url {
                    wrong.at(url, label);
                }
                return;
            }
        };
        if let Some(file) = file {
            note_unusable(file, &why, side_files);
        }
    }
}

/// The authorities for a server that the gateway itself contacts: the file `ca`, or else the system's authorities.
/// `label` names the owner of the authorities in messages.
pub(super) fn trusted_servers(
    ca: &Setting<String>,
    label: &str,
    side_files: &mut SideFiles<'_>,
) -> Option<ClientTls> {
    let Some(ca) = ca.at() else {
        // The system's authorities are read when a connection is opened: a check does not need them.
        return (!ca.is_bad()).then(ClientTls::of_system);
    };
    let pem = pem(ca, label, side_files)?;
    let made = ClientTls::new(PemFiles {
        ca: Some(&pem),
        ..PemFiles::default()
    });
    let note = |mistakes: Vec<Mistake>| {
        let why = mistakes.into_iter().find_map(|mistake| match mistake {
            Mistake::Ca(why) => Some(why),
            _ => None,
        });
        let why = why.unwrap_or_else(|| "it has no usable certificate".to_owned());
        note_unusable(ca, &why, side_files);
    };
    made.map_err(note).ok()
}

fn pem(file: &At<String>, label: &str, side_files: &mut SideFiles<'_>) -> Option<Vec<u8>> {
    let at = Reference {
        span: &file.span,
        failure: &format!("cannot read {}", quoted(&file.value)),
        label,
    };
    side_files.bytes(&file.value, MOST_BYTES, at)
}

fn note_unusable(file: &At<String>, why: &str, side_files: &mut SideFiles<'_>) {
    let message = format!("{} cannot be used for TLS: {why}", quoted(&file.value));
    side_files
        .found
        .error(Code::BadCertificate, message)
        .at(&file.span, "in this file");
}
