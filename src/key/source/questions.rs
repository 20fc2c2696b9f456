//! Questions of other rooms about a part of a key: each is answered by the part's row, or by the part's own data.

use super::{InLog, KeyPart, KnownAt, MemberForm, Provenance};
use crate::key::{Mask, credential};
use http::HeaderName;
use std::fmt;

/// As the file writes it.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        match (self, self.name()) {
            (Self::Ip(mask), _) if *mask != Mask::DEFAULT => {
                write!(f, "ip/{},{}", mask.v4, mask.v6)
            }
            (_, Some(name)) => write!(f, "{}:{name}", row.kind()),
            (_, None) => f.write_str(row.form),
        }
    }
}

/// The own data of a part.
impl KeyPart {
    /// The name after the colon.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Header { name, .. } => Some(name.as_str()),
            Self::Cookie(name) | Self::Query { name, .. } | Self::Path(name) => Some(name),
            Self::Jwt { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// The bits of addresses that count, for a part by address.
    #[must_use]
    pub fn mask(&self) -> Option<Mask> {
        match self {
            Self::Ip(mask) => Some(*mask),
            _ => None,
        }
    }

    /// The field of the part; `None` for a cookie.
    #[must_use]
    pub fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Header { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The parameter of the route's path.
    #[must_use]
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Self::Path(name) => Some(name),
            _ => None,
        }
    }

    /// The claim of the request's token.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        match self {
            Self::Jwt { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// Does the value leave the process as a digest only?
    fn is_secret(&self) -> bool {
        match self {
            Self::Header { secret, .. } | Self::Query { secret, .. } | Self::Jwt { secret, .. } => {
                *secret
            }
            _ => matches!(self, Self::Cookie(_) | Self::Basic),
        }
    }
}

/// The data of the part's row.
impl KeyPart {
    /// Can a request lack the part?
    #[must_use]
    pub fn can_be_absent(&self) -> bool {
        matches!(
            self.row().provenance,
            Provenance::Statement | Provenance::Proof
        )
    }

    /// Does a client that shows a member's value of this part prove its membership? A token and a certificate are
    /// proofs, and so is a secret. An address, a host or a plain field is not a proof.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        match self.row().provenance {
            Provenance::Proof => true,
            Provenance::Statement => self.is_secret(),
            Provenance::Target | Provenance::Address => false,
        }
    }

    /// May any client state a member's value of this part, since the value is not secret?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.row().is_stated() && !self.is_secret()
    }

    /// Has a client exactly one value of the part, which it cannot choose? With `is_known` only values that a group
    /// knows count.
    #[must_use]
    pub fn is_of_one_client(&self, is_known: bool) -> bool {
        match self.row().provenance {
            Provenance::Proof => true,
            Provenance::Statement => is_known,
            Provenance::Address => self.mask().is_some_and(|mask| mask.v6 <= Mask::DEFAULT.v6),
            Provenance::Target => false,
        }
    }

    /// Is it the client's address?
    #[must_use]
    pub fn is_by_address(&self) -> bool {
        self.row().provenance == Provenance::Address
    }

    /// Is it the method?
    #[must_use]
    pub fn is_method(&self) -> bool {
        *self == Self::Method
    }

    /// Is it the name of the customer?
    #[must_use]
    pub fn is_customer(&self) -> bool {
        *self == Self::Customer
    }

    /// Is it a user with a password?
    #[must_use]
    pub fn is_password(&self) -> bool {
        self.members() == MemberForm::Password
    }

    /// Is it a user whose password is not verified?
    #[must_use]
    pub fn is_unverified_user(&self) -> bool {
        *self == Self::BasicUser
    }

    /// Is it the name of the route?
    #[must_use]
    pub fn is_route(&self) -> bool {
        *self == Self::Route
    }

    /// Is it a part of the client's certificate?
    #[must_use]
    pub fn is_of_certificate(&self) -> bool {
        self.row().known_at == KnownAt::Handshake
    }

    /// Does the value depend on the route of the request?
    #[must_use]
    pub fn is_of_route(&self) -> bool {
        self.row().known_at == KnownAt::Route
    }

    /// Is it a field with a client's credential, which has one spelling?
    #[must_use]
    pub fn is_credential(&self) -> bool {
        self.field().is_some_and(credential::is_in)
    }

    /// Do several values that differ count as none? Browsers send several cookies of one name that were set for several
    /// paths.
    pub(in crate::key) fn may_repeat(&self) -> bool {
        matches!(self, Self::Cookie(_))
    }

    /// The place of the value in a logged request.
    #[must_use]
    pub fn in_log(&self) -> InLog {
        self.row().in_log
    }

    /// The form of members of a group by this part.
    #[must_use]
    pub fn members(&self) -> MemberForm {
        self.row().members
    }
}

/// The part's words.
impl KeyPart {
    /// The property that a limit counts by: `query parameter key`.
    #[must_use]
    pub fn counted(&self) -> String {
        match self {
            Self::Ip(Mask { v4, v6 }) if self.mask() != Some(Mask::DEFAULT) => {
                format!("client network (/{v4} of IPv4, /{v6} of IPv6)")
            }
            _ => self.filled(self.row().counted),
        }
    }

    /// The property that a request may lack: "query parameter `key`".
    #[must_use]
    pub fn lacked(&self) -> String {
        self.filled(self.row().lacked)
    }

    /// The property that a client should have sent: `the query parameter key`.
    #[must_use]
    pub fn sent(&self) -> String {
        match self.row().sent {
            "" => format!("its {self}"),
            sent => self.filled(sent),
        }
    }

    /// The challenge to a client of `host` that has not identified itself by the part: `ApiKey query="key"`.
    #[must_use]
    pub fn challenge(&self, host: &str) -> String {
        match self.row().challenge.split_once("HOST") {
            Some((front, behind)) => format!("{front}{host}{behind}"),
            None => self.filled(self.row().challenge),
        }
    }

    fn filled(&self, text: &str) -> String {
        match text.split_once("NAME") {
            Some((front, behind)) => format!("{front}{}{behind}", self.name().unwrap_or_default()),
            None => text.to_owned(),
        }
    }
}
