//! The sources of keys, one row each: the origin of the value, its relation to the client, the step at which it is
//! known, its form in a log and in the file, and its words. The reading and writing of a request's value is in
//! `key/part`.
//!
//! ```text
//! name       reads the name that the file writes behind a source's word
//! questions  what the rooms ask of a part, answered by its row
//! ```

mod name;
mod questions;

pub use name::field_name;

use super::Mask;
use http::HeaderName;
use std::sync::Arc;

/// The challenge for a user and a password (RFC 7617, sections 2 and 2.1). `HOST` is the request's host.
const BASIC: &str = "Basic realm=\"HOST\", charset=\"UTF-8\"";

/// Declares every source once: its part of a key, and its row.
macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident $(($($place:tt)*))? $({$($field:tt)*})? = $row:expr;)*) => {
        /// One part of a key.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum KeyPart {
            $($(#[$doc])* $name $(($($place)*))? $({$($field)*})?,)*
        }

        /// The rows of all sources, in the order in which messages list them.
        pub static SOURCES: &[SourceRow] = &[$($row),*];

        impl KeyPart {
            fn row(&self) -> &'static SourceRow {
                match self {
                    $(Self::$name { .. } => const { &$row },)*
                }
            }
        }
    };
}

/// The properties of all parts of one source. In the words, `NAME` is a placeholder for the part's name.
#[derive(Debug)]
pub struct SourceRow {
    /// As the file writes it: a word, or a kind followed by a colon and a name.
    pub form: &'static str,
    /// Reads the name, which is not empty; a word has none.
    pub read: fn(&str) -> Option<KeyPart>,
    /// The fault if no name is written; empty for a word.
    pub unnamed: &'static str,
    /// Help for a name that cannot be read.
    pub example: &'static str,
    provenance: Provenance,
    known_at: KnownAt,
    in_log: InLog,
    members: MemberForm,
    /// The property that a limit counts by.
    counted: &'static str,
    /// The property that a request may lack, in a message about the file.
    lacked: &'static str,
    /// The property that a client should have sent; empty means the part as the file writes it.
    sent: &'static str,
    /// The challenge of a 401 (RFC 9110, section 11.6.1).
    challenge: &'static str,
}

/// The origin of a value, and so its relation to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provenance {
    /// From the target: every request has it, and it does not distinguish clients.
    Target,
    /// From the connection, or from a trusted proxy.
    Address,
    /// From the client, which may omit it or choose any value.
    Statement,
    /// From the client, which proves it; the client may omit it.
    Proof,
}

/// The step at which the value is known. A value that follows the head has to be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownAt {
    Handshake,
    Head,
    Route,
    Token,
}

/// The place in a logged request at which a replay finds the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLog {
    /// Every line has it.
    Always,
    /// A field of the part's name.
    Field,
    /// The field `Cookie`.
    Cookies,
    /// The field `Authorization`.
    Authorization,
    /// The query of the target.
    Query,
    /// The host.
    Host,
    /// The name of the customer.
    Customer,
    /// No line has the value, except in the key that the gateway's own log writes.
    Never,
}

/// The form of a group's members for the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberForm {
    /// No form: no client is a member by such a part.
    None,
    /// As networks.
    Network,
    /// As the value, with its blanks.
    Exact,
    /// As the value of a field, without the blanks around it; a credential in its one spelling.
    Field,
    /// As the value of a cookie.
    Cookie,
    /// As a host, in any case.
    Host,
    /// As the subject of a certificate.
    Subject,
    /// As the name of a customer.
    Name,
    /// As the SHA-256 of a certificate, which is of use only until the certificate ends.
    Fingerprint,
    /// As the SHA-256 of a user with a password. Only groups go by such a part: a limit would have a counter for each
    /// guess.
    Password,
}

/// The row of a source that every line of a log has, and that no group uses. Its words equal its form.
const fn row(
    form: &'static str,
    read: fn(&str) -> Option<KeyPart>,
    provenance: Provenance,
    known_at: KnownAt,
) -> SourceRow {
    SourceRow {
        form,
        read,
        unnamed: "",
        example: "",
        provenance,
        known_at,
        in_log: InLog::Always,
        members: MemberForm::None,
        counted: form,
        lacked: "",
        sent: "",
        challenge: "ApiKey",
    }
}

impl SourceRow {
    /// For a source with names: the fault if the name is missing, and an example.
    const fn named(mut self, unnamed: &'static str, example: &'static str) -> Self {
        (self.unnamed, self.example) = (unnamed, example);
        self
    }

    /// The place of the value in a log, and its form in groups.
    const fn found(mut self, in_log: InLog, members: MemberForm) -> Self {
        (self.in_log, self.members) = (in_log, members);
        self
    }

    /// The property that a limit counts by.
    const fn counted(mut self, counted: &'static str) -> Self {
        self.counted = counted;
        self
    }

    /// The property that a request may lack, the one that the client should have sent, and the challenge of a 401.
    const fn absent(
        mut self,
        lacked: &'static str,
        sent: &'static str,
        challenge: &'static str,
    ) -> Self {
        (self.lacked, self.sent, self.challenge) = (lacked, sent, challenge);
        self
    }
}

sources! {
    /// The client's address, masked.
    Ip(Mask) = row("ip", |_| Some(KeyPart::Ip(Mask::DEFAULT)), Provenance::Address, KnownAt::Head)
        .found(InLog::Always, MemberForm::Network)
        .counted("client address");

    /// A request field.
    Header {
        /// Its name.
        name: HeaderName,
        /// A secret leaves the process as a digest only.
        secret: bool,
    } = row("header:NAME", name::header, Provenance::Statement, KnownAt::Head)
        .named("the name of the field is missing", "write `\"header:x-api-key\"`")
        .found(InLog::Field, MemberForm::Field)
        .counted("NAME")
        .absent("header `NAME`", "the field NAME", "ApiKey field=\"NAME\"");

    /// A cookie. The value leaves the process as a digest only.
    Cookie(Arc<str>) = row("cookie:NAME", name::cookie, Provenance::Statement, KnownAt::Head)
        .named("the name of the cookie is missing", "write `\"cookie:session\"`")
        .found(InLog::Cookies, MemberForm::Cookie)
        .counted("cookie NAME")
        .absent("cookie `NAME`", "the cookie NAME", "ApiKey cookie=\"NAME\"");

    /// A parameter of the query.
    Query {
        /// Its name, decoded.
        name: Arc<str>,
        /// A secret leaves the process as a digest only.
        secret: bool,
    } = row("query:NAME", name::query, Provenance::Statement, KnownAt::Head)
        .named(
            "the name of the parameter is missing",
            "write `\"query:api_key\"`, the name as it is when decoded",
        )
        .found(InLog::Query, MemberForm::Exact)
        .counted("query parameter NAME")
        .absent("query parameter `NAME`", "the query parameter NAME", "ApiKey query=\"NAME\"");

    /// The value of a parameter in the route's path.
    Path(Arc<str>) = row("path:NAME", name::parameter, Provenance::Target, KnownAt::Route)
        .named(
            "the name of the path's parameter is missing",
            "write `\"path:id\"` for a route with `path = \"/orders/{id}\"`",
        )
        .found(InLog::Always, MemberForm::Exact)
        .counted("{NAME} of the path");

    /// A claim of the request's token, once the token is verified.
    Jwt {
        /// Its name, with dots for members of other claims.
        claim: Arc<str>,
        /// A secret leaves the process as a digest only.
        secret: bool,
    } = row("jwt:CLAIM", name::claim, Provenance::Proof, KnownAt::Token)
        .named(
            "the name of the claim is missing",
            "write `\"jwt:sub\"`, or with dots `\"jwt:realm.tenant\"`",
        )
        .found(InLog::Never, MemberForm::Exact)
        .counted("claim NAME of a verified token")
        .absent("claim `NAME`", "its jwt:NAME", "Bearer");

    /// The subject of the client's certificate, with a digest of the authorities that issue it.
    TlsSubject = row("tls:subject", |_| Some(KeyPart::TlsSubject), Provenance::Proof, KnownAt::Handshake)
        .found(InLog::Never, MemberForm::Subject)
        .counted("subject of the client's certificate")
        .absent("the client's certificate", "a client certificate", "Certificate");

    /// SHA-256 of the client's certificate.
    TlsFingerprint = row("tls:fingerprint", |_| Some(KeyPart::TlsFingerprint), Provenance::Proof, KnownAt::Handshake)
        .found(InLog::Never, MemberForm::Fingerprint)
        .counted("certificate of the client")
        .absent("the client's certificate", "a client certificate", "Certificate");

    /// The user of a Basic credential, whose password is not verified.
    BasicUser = row("basic:user", |_| Some(KeyPart::BasicUser), Provenance::Statement, KnownAt::Head)
        .found(InLog::Authorization, MemberForm::None)
        .counted("user of Basic authentication")
        .absent("the user of Basic authentication", "a user (Basic authentication)", BASIC);

    /// The user and the password of a Basic credential. They leave the process as a digest only.
    Basic = row("basic", |_| Some(KeyPart::Basic), Provenance::Statement, KnownAt::Head)
        .found(InLog::Authorization, MemberForm::Password)
        .absent("a user and a password", "a user and a password (Basic authentication)", BASIC);

    /// The customer whose credential the request has, as groups name customers.
    Customer = row("customer", |_| Some(KeyPart::Customer), Provenance::Proof, KnownAt::Token)
        .found(InLog::Customer, MemberForm::Name)
        .absent("the credential of a customer", "a known credential", "ApiKey");

    /// The method.
    Method = row("method", |_| Some(KeyPart::Method), Provenance::Target, KnownAt::Head);

    /// The host that the request is for.
    Host = row("host", |_| Some(KeyPart::Host), Provenance::Target, KnownAt::Head)
        .found(InLog::Host, MemberForm::Host);

    /// The name of the route.
    Route = row("route", |_| Some(KeyPart::Route), Provenance::Target, KnownAt::Route);
}

impl SourceRow {
    /// The row of this kind, if the kind has names.
    #[must_use]
    pub fn of_kind(kind: &str) -> Option<&'static Self> {
        let mut named = SOURCES.iter().filter(|row| row.has_name());
        named.find(|row| row.kind() == kind)
    }

    /// The word before the colon.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.form
            .split_once(':')
            .map_or(self.form, |(kind, _)| kind)
    }

    /// Does a name follow the colon?
    #[must_use]
    pub fn has_name(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// The row of the source that is this word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<&'static Self> {
        let mut words = SOURCES.iter().filter(|row| !row.has_name());
        words.find(|row| row.form == word)
    }

    /// Do only groups go by the source, and no limits?
    #[must_use]
    pub fn is_for_groups(&self) -> bool {
        self.members == MemberForm::Password
    }

    /// Are values of the source stated by clients, without proof?
    #[must_use]
    pub fn is_stated(&self) -> bool {
        self.provenance == Provenance::Statement
    }
}
