//! Diagnostics: the code, the message, the places and the help of a mistake.

use crate::config::input::Span;
use std::borrow::BorrowMut;
use std::fmt;
use std::ops::{Deref, DerefMut};

macro_rules! codes {
    ($($name:ident $text:literal $about:literal;)*) => {
        /// The stable name of a kind of mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $about] $name,)* }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name of the code in messages.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Is the code found after the file has been read: by a probe of the store, as a note on a valid file, or
            /// by a running gateway?
            #[must_use]
            pub const fn is_found_later(self) -> bool {
                matches!(
                    self,
                    Self::CostNeverSaid | Self::EvictingStore | Self::OpenStore | Self::QueueNeverFull
                )
            }

            /// The meaning of the code, in one sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }

            /// The code's page: a file in `pages/`; a code without a page does not compile.
            pub(in crate::config) const fn page(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("pages/", $text, ".md")),)* }
            }
        }
    };
}

codes! {
    AcmeNeedsSecret "acme-needs-secret" "Certificates are kept in the store, and no secret of 64 hexadecimal digits seals them.";
    AcmeNotAgreed "acme-not-agreed" "A certificate is ordered from an authority whose terms are not agreed to.";
    AcmeUnreachableChallenge "acme-unreachable-challenge" "No listener is at the address at which an authority verifies hosts.";
    AdminOverlapsServer "admin-overlaps-server" "The admin listener and the server are to listen on one address.";
    BadCertificate "bad-certificate" "A file for TLS has no usable certificate or key.";
    BadAddress "bad-address" "An address to listen on is not written as `host:port` or `:port`.";
    BadChoice "bad-choice" "A word is not one of the words that the key takes.";
    BadCondition "bad-condition" "A route has a condition that no request can meet.";
    BadCustomer "bad-customer" "A line of `customers` is no name with a credential, or the key names customers where it cannot.";
    BadDuration "bad-duration" "A time is not a number with a unit, or makes no sense at its place.";
    BadField "bad-field" "A route changes a field that no route may change, or sets a value that no field can have.";
    BadHost "bad-host" "A host name to match cannot be the host of a request.";
    BadJsonMember "bad-json-member" "`response_json` names a member that no response can have.";
    BadJwtKey "bad-jwt-key" "A file of `[jwt]` has no key that could verify tokens.";
    BadKey "bad-key" "`by` names a part by which requests cannot be counted.";
    BadMember "bad-member" "A text in a group's members cannot be a member.";
    BadMethod "bad-method" "A method is not one that a request can have.";
    BadName "bad-name" "The name of a table or of the gateway has characters that headers, metrics and Redis keys do not take.";
    BadNetwork "bad-network" "A network is not written as an address or as address/bits.";
    BadNumber "bad-number" "A number is outside the range that the key takes.";
    BadOwn "bad-own" "A line of a file of `own` has no numbers of a customer, or the limit does not count customers.";
    BadPattern "bad-pattern" "A pattern of files to include cannot be read.";
    BadPath "bad-path" "A path pattern is one that no request can match, or that cannot be read.";
    BadRate "bad-rate" "A rate is not written as N/TIME.";
    BadStatus "bad-status" "A text names no status of an answer.";
    BadServer "bad-server" "A server is not written as http://host:port or in another form that servers have.";
    BadStore "bad-store" "The address of the store has no form that Tollgate can connect to.";
    BadUrl "bad-url" "The URL of an authority's directory, or the address that it may write to, cannot be used.";
    BadVariable "bad-variable" "A variable in a text is not written as `${NAME}`.";
    BlocksSlots "blocks-slots" "A limit on requests in flight blocks its keys.";
    CertificateEndsSoon "certificate-ends-soon" "A certificate has less than a third of its life left, or none.";
    CertificateKeyMismatch "certificate-key-mismatch" "A key belongs to another certificate than the one beside it.";
    CertificateLacksHost "certificate-lacks-host" "No certificate has the name of a host that clients ask for by TLS.";
    CertificateNotDemanded "certificate-not-demanded" "Hosts for which an identity demands certificates are also reached through another identity, which does not.";
    CertificateNotYetValid "certificate-not-yet-valid" "The time from which a certificate is valid is still to come.";
    CertificateOutOfPlace "certificate-out-of-place" "A certificate behind an identity's own has not signed the one before it.";
    CertificateUnreadable "certificate-unreadable" "A file of an identity cannot be read, or has nothing usable in it.";
    ClientWithoutTls "client-without-tls" "A listener without TLS takes requests beside an identity that demands certificates of clients.";
    Conflict "conflict" "Two settings contradict each other.";
    CostNeverSaid "cost-never-said" "Answers should state the cost of their requests, and twenty in a row have not. A running gateway logs this.";
    CostsNothing "costs-nothing" "Every cost of a limit is 0 or less.";
    DroppedField "dropped-field" "A limit, a group or `[jwt]` reads a field that is dropped from every request.";
    CustomerTwice "customer-twice" "Two customers have the same credential.";
    Duplicate "duplicate" "A key, a table or an entry is written twice.";
    EmptyFile "empty-file" "The file is empty.";
    EmptyGroup "empty-group" "A group has no members.";
    EmptyList "empty-list" "A list needs at least one entry.";
    EvictingStore "evicting-store" "The Redis forgets counters when its memory is full.";
    ExemptsEveryone "exempts-everyone" "A limit exempts every request.";
    H2Needed "h2-needed" "A route for gRPC leads to a server of HTTP/1.1.";
    HashWithoutKey "hash-without-key" "`balance` needs a key, and names none that tells requests apart.";
    HostBits "host-bits" "A network has bits of its address beyond its prefix.";
    HostClaimedTwice "host-claimed-twice" "Two identities of one listener are for the same host.";
    IgnoredEject "ignored-eject" "`eject` is written for an upstream with one server, which is never ejected.";
    IgnoresNothing "ignores-nothing" "`ignore_warnings` names a warning that does not occur.";
    InsecureUpstream "insecure-upstream" "An upstream trusts any certificate of its servers.";
    KeyReadable "key-readable" "Every user of the machine can read a private key.";
    MatchesNothing "matches-nothing" "A pattern of files to include finds no file.";
    MissingChoice "missing-choice" "A limit without `missing` counts by a part that a request may lack.";
    MissingKey "missing-key" "A key without a default is absent.";
    NeedlessMissing "needless-missing" "`missing` is written, and no request can lack the limit's key.";
    NoCustomers "no-customers" "A limit, a group or a template asks for the customer, and no group names customers.";
    NeverAdmits "never-admits" "One request costs more than the limit ever admits at once.";
    NeverBinds "never-binds" "A rate of a list never refuses a request that the other rates admit.";
    NoDefaultIdentity "no-default-identity" "A listener with several identities has none for clients that name no host.";
    NoRoutes "no-routes" "The file has no route.";
    NoWeight "no-weight" "All servers of an upstream have weight 0.";
    NotAvailable "not-available" "This version does not have the setting.";
    NotGranted "not-granted" "An included file needs a grant that its entry of `include` does not have.";
    OneHopField "one-hop-field" "A field of one address names clients, and only private networks are trusted to write it.";
    OneForAll "one-for-all" "A limit by address counts all clients behind a proxy as one.";
    OnlyInMain "only-in-main" "An included file has a setting that belongs in the main file.";
    OpenAdmin "open-admin" "The admin listener can be reached from other machines.";
    OpenStore "open-store" "Any client that reaches the Redis may change counters, or the server itself.";
    OutOfRange "out-of-range" "The numbers are too large for exact computation.";
    OtherCase "other-case" "A path in another case evades the limits of a route.";
    Overlap "overlap" "Two routes of equal rank can match the same request.";
    PasswordHash "password-hash" "A member of a group by `basic` is a line of another program's password file.";
    ProbeLongerThanInterval "probe-longer-than-interval" "A probe may take longer than the time between two probes.";
    QueueNeverFull "queue-never-full" "A limit's queue has more places than requests reach within `max_wait`: a note of `check`.";
    QueueWithoutBound "queue-without-bound" "An upstream has a queue, and its servers take any number of requests.";
    RedirectWithoutTls "redirect-without-tls" "A listener sends requests on to `https`, and no listener has TLS.";
    RetryUnsafe "retry-unsafe" "`retry` names answers to requests that are never safe to send again.";
    RevocationList "revocation-list" "A revocation list has ended, or an authority has none: all its clients are refused.";
    SaySo "say-so" "Membership of a group depends on a value that any client may write.";
    SecretInFile "secret-in-file" "A secret is written into the file itself.";
    Syntax "syntax" "The file is not TOML.";
    TierByOther "tier-by-other" "A limit by customer has a tier for a group whose members are not customers.";
    TokenInClear "token-in-clear" "A token for the admin listener would cross a network without TLS.";
    TokenTwice "token-twice" "Two tokens for the admin listener are the same.";
    TrustsEveryone "trusts-everyone" "Any client may state the address that it comes from.";
    UnaskedCertificate "unasked-certificate" "A limit, a group or an upstream uses clients' certificates, and no client is asked for one.";
    UnknownAuthority "unknown-authority" "A named authority is not defined.";
    UnknownGroup "unknown-group" "A named group is not defined.";
    UnknownIdentity "unknown-identity" "A named identity is not defined.";
    UnknownKey "unknown-key" "A key or table of this name does not exist.";
    UnknownLimit "unknown-limit" "A named limit is not defined.";
    UnknownParameter "unknown-parameter" "A limit counts by, or a route rewrites with, a parameter that the path of a route does not have.";
    UnknownUpstream "unknown-upstream" "A named upstream is not defined.";
    UnreachableRoute "unreachable-route" "No request can reach a route.";
    Unreadable "unreadable" "The file, or a secret that it points to, cannot be read.";
    UnsetVariable "unset-variable" "A variable of the environment is not set, and has no default.";
    UnverifiedClaim "unverified-claim" "A limit or a group asks for a claim of a token, and no `[jwt]` names the keys that verify tokens.";
    UnusedAuthority "unused-authority" "No identity is ordered from the authority.";
    UnknownCustomer "unknown-customer" "A group by customer, or a file of `own`, has a name that no group names.";
    UnusedGroup "unused-group" "No limit refers to the group.";
    UnusedIdentity "unused-identity" "No listener offers the identity.";
    UnusedLimit "unused-limit" "No route and no upstream names the limit.";
    UnusedUpstream "unused-upstream" "No route leads to the upstream.";
    WaitsLonger "waits-longer" "A limit may delay a request for longer than the `timeout` of the route.";
    WeakSecret "weak-secret" "The secret that tokens are signed with can be guessed.";
    WeakToken "weak-token" "A token for the admin listener can be guessed.";
    WrongType "wrong-type" "A value has another type than the key takes.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted, but may not have the intended effect.
    Warning,
    /// A warning that the file ignores.
    Ignored,
}

impl Severity {
    /// The name of the severity in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Ignored => "ignored",
        }
    }
}

/// A place with a text about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caret {
    /// The place.
    pub span: Span,
    /// Words beside the caret; the text may be empty.
    pub text: String,
}

impl Caret {
    fn new(span: &Span, text: impl Into<String>) -> Self {
        Self {
            span: span.clone(),
            text: text.into(),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of mistake.
    pub code: Code,
    /// The severity.
    pub severity: Severity,
    /// The mistake, in the words of the file.
    pub message: String,
    /// The place; `None` if the mistake is about the whole file.
    pub primary: Option<Caret>,
    /// The other places involved.
    pub others: Vec<Caret>,
    /// Places that the diagnostic concerns but does not show.
    pub concerns: Vec<Span>,
    /// The advice.
    pub help: Option<String>,
    /// A further fact.
    pub note: Option<String>,
}

impl Diagnostic {
    /// An error about the whole file.
    #[must_use]
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            primary: None,
            others: Vec::new(),
            concerns: Vec::new(),
            help: None,
            note: None,
        }
    }

    /// A warning about the whole file.
    #[must_use]
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, message)
        }
    }

    /// The start of the place, if the mistake has a place.
    pub(in crate::config) fn start(&self) -> Option<usize> {
        self.primary.as_ref().map(|label| label.span.start)
    }

    /// Every visible place, the primary place first.
    pub(in crate::config) fn labels(&self) -> impl Iterator<Item = &Caret> {
        self.primary.iter().chain(&self.others)
    }

    /// Every visible place, for changes.
    pub(in crate::config) fn labels_mut(&mut self) -> impl Iterator<Item = &mut Caret> {
        self.primary.iter_mut().chain(&mut self.others)
    }

    /// Every visible text.
    pub(in crate::config) fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let labels = self.primary.iter_mut().chain(&mut self.others);
        let texts = labels.map(|label| &mut label.text);
        texts
            .chain([&mut self.message])
            .chain(&mut self.help)
            .chain(&mut self.note)
    }

    /// The diagnostic with its places moved by `by`.
    #[must_use]
    pub(in crate::config) fn moved(mut self, by: usize) -> Self {
        let labels = self.primary.iter_mut().chain(&mut self.others);
        for span in labels
            .map(|label| &mut label.span)
            .chain(&mut self.concerns)
        {
            *span = span.start + by..span.end + by;
        }
        self
    }
}

/// The details of a diagnostic: places, help and note. The methods work on an owned diagnostic and on one in
/// [`Findings`].
pub(in crate::config) trait Details: BorrowMut<Diagnostic> + Sized {
    /// Adds the place, and the words beside the caret.
    fn at(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.borrow_mut().primary = Some(Caret::new(span, text));
        self
    }

    /// Adds another place.
    fn and(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.borrow_mut().others.push(Caret::new(span, text));
        self
    }

    /// Adds the other place, if there is one.
    fn and_if(self, span: Option<&Span>, text: impl Into<String>) -> Self {
        match span {
            Some(span) => self.and(span, text),
            None => self,
        }
    }

    /// Adds a place that the diagnostic concerns but does not show: `ignore_warnings` at this place ignores the
    /// warning.
    fn about(mut self, span: &Span) -> Self {
        self.borrow_mut().concerns.push(span.clone());
        self
    }

    /// Adds the advice.
    fn help(self, text: impl Into<String>) -> Self {
        self.help_if(Some(text.into()))
    }

    /// Adds the advice, if there is any.
    fn help_if(mut self, text: Option<String>) -> Self {
        let help = &mut self.borrow_mut().help;
        *help = text.or(help.take());
        self
    }

    /// Adds a further fact.
    fn note(mut self, text: impl Into<String>) -> Self {
        self.borrow_mut().note = Some(text.into());
        self
    }
}

impl Details for Diagnostic {}
impl Details for &mut Diagnostic {}

/// The diagnostics that have been found so far.
#[derive(Debug, Default)]
pub(in crate::config) struct Findings(Vec<Diagnostic>);

impl Findings {
    /// Notes an error and returns it, so that details can be added.
    pub(in crate::config) fn error(
        &mut self,
        code: Code,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.0.push_mut(Diagnostic::error(code, message))
    }

    /// Notes a warning.
    pub(in crate::config) fn warning(
        &mut self,
        code: Code,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.0.push_mut(Diagnostic::warning(code, message))
    }

    /// Notes settings that contradict each other.
    pub(in crate::config) fn conflict(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        self.error(Code::Conflict, message)
    }

    /// Is there an error after the first `before` diagnostics?
    pub(in crate::config) fn has_error_since(&self, before: usize) -> bool {
        let mut new = self.0[before..].iter();
        new.any(|one| one.severity == Severity::Error)
    }

    /// The diagnostics as a list.
    pub(in crate::config) fn into_inner(self) -> Vec<Diagnostic> {
        self.0
    }
}

impl Deref for Findings {
    type Target = Vec<Diagnostic>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Findings {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
