//! Members of groups by `basic`, which are digests of `user:password`, and lines of password files in their place.

use super::MemberPlace;
use crate::config::document::GroupTable;
use crate::config::report::{Code, Details as _, Findings};
use crate::key::KeyPart;

/// The reason why a text that is no digest is not a member.
pub(super) const NO_DIGEST: &str = "no digest: a member is `sha256:` and 64 hexadecimal digits, as `printf %s 'anna:PASSWORD' | sha256sum` writes them";

/// Is the text a hash from another program's password file, with or without its user, as a member of a group by `by`?
pub(super) fn is_hash(text: &[u8], by: &KeyPart) -> bool {
    let is_end = |byte: &u8| matches!(byte, b':' | b' ' | b'\t');
    by.is_password() && text.split(is_end).any(begins_hash)
}

/// Does the text begin as `$2y$..`, `$apr1$..` or `{SHA}..`?
fn begins_hash(text: &[u8]) -> bool {
    let (rest, end) = match text {
        [b'$', rest @ ..] => (rest, b'$'),
        [b'{', rest @ ..] => (rest, b'}'),
        _ => return false,
    };
    let mut words = rest.splitn(2, |byte| *byte == end);
    let scheme = words.next().unwrap_or_default();
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    !scheme.is_empty() && scheme.iter().all(is_of_scheme) && words.next().is_some()
}

/// Notes such a hash; it is not shown.
pub(super) fn note_hash(written: &GroupTable, place: MemberPlace<'_>, found: &mut Findings) {
    let (message, label) = match place {
        MemberPlace::Listed(_) => (
            format!("{written} has a hash of a password file"),
            "no digest of `user:password`",
        ),
        MemberPlace::Line(..) => (
            format!("{place} is a hash of a password file, and no member of {written}"),
            "in this file",
        ),
    };
    found
        .error(Code::PasswordHash, message)
        .at(place.span(), label)
        .help(
            "make a password of 128 random bits (`openssl rand -hex 16`), and write `sha256:` and what `printf %s 'anna:PASSWORD' | sha256sum` prints; passwords that people choose belong to a service that verifies them",
        );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_password_files_are_known() {
        for text in [
            "anna:$2y$05$1KWRoOcC0GFEhpaGlmuCnO",
            "$2b$12$abc",
            "anna:$apr1$salt$hash",
            "anna $apr1$salt$hash",
            "anna\t anna:$6$salt$hash",
            "anna:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=",
            "{SSHA}x",
            "anna:{PLAIN}secret",
            "anna:$argon2id$v=19$m=65536",
        ] {
            assert!(is_hash(text.as_bytes(), &KeyPart::Basic), "{text}");
            assert!(!is_hash(text.as_bytes(), &KeyPart::Customer), "{text}");
        }
        for text in [
            "",
            "$",
            "{",
            "{}",
            "$$x",
            "sha256:00",
            "anna:secret",
            "anna:pa$$word",
            "a:${X}",
        ] {
            assert!(!is_hash(text.as_bytes(), &KeyPart::Basic), "{text}");
        }
    }
}
