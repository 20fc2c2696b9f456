//! Diagnostics: the code, the message, the places and the help of a mistake.

use super::span::Span;
use std::borrow::BorrowMut;
use std::fmt;
use std::ops::{Deref, DerefMut};

macro_rules! codes {
    ($($name:ident $text:literal $about:literal;)*) => {
        /// The stable name of a kind of mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $about] $name,)* }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, as messages show it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Does only a probe of the store or of a server find it?
            #[must_use]
            pub const fn is_found_by_asking(self) -> bool {
                matches!(self, Self::OpenStore)
            }

            /// What it stands for, in one sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }

            /// Its page: a file beside this one, without which there is no code.
            pub(super) const fn page(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("pages/", $text, ".md")),)* }
            }
        }
    };
}

codes! {
    BadCertificate "bad-certificate" "A file for TLS has no certificate or key in it that can be used.";
    BadAddress "bad-address" "An address to listen on is not written as `host:port` or `:port`.";
    BadChoice "bad-choice" "A word is not among those that the key takes.";
    BadCondition "bad-condition" "A route asks for something that no request can have.";
    BadDuration "bad-duration" "A time is not a number with a unit, or makes no sense where it stands.";
    BadField "bad-field" "A route changes a field that it may not change, or to a value that no field can have.";
    BadHost "bad-host" "A host name to match cannot be the host of a request.";
    BadJwtKey "bad-jwt-key" "A file of `[jwt]` has no key that tokens could be verified with.";
    BadKey "bad-key" "`by` names something that requests cannot be counted by.";
    BadMember "bad-member" "What is written as the member of a group cannot be one.";
    BadMethod "bad-method" "A method is not one that a request can have.";
    BadName "bad-name" "The name of a table has characters that headers, metrics and Redis keys do not take.";
    BadNetwork "bad-network" "A network is not written as an address or as address/bits.";
    BadNumber "bad-number" "A number is outside the range that the key takes.";
    BadPattern "bad-pattern" "A pattern of files to include cannot be read.";
    BadPath "bad-path" "A path pattern is one that no request can match, or that cannot be read.";
    BadRate "bad-rate" "A rate is not written as N/TIME.";
    BadServer "bad-server" "A server is not written as http://host:port.";
    BadStore "bad-store" "The address of the store is not one that can be connected to.";
    BadVariable "bad-variable" "A variable in a text is not written as `${NAME}`.";
    Conflict "conflict" "Two settings contradict each other.";
    DroppedField "dropped-field" "Something reads a field that is dropped from every request.";
    Duplicate "duplicate" "Something is written twice.";
    EmptyFile "empty-file" "The file is empty.";
    EmptyGroup "empty-group" "A group has no members.";
    EmptyList "empty-list" "A list needs at least one entry.";
    ExemptsEveryone "exempts-everyone" "A limit exempts every request.";
    HostBits "host-bits" "A network has bits of its address beyond its prefix.";
    IgnoresNothing "ignores-nothing" "`ignore_warnings` names a warning that is not there.";
    MatchesNothing "matches-nothing" "A pattern of files to include finds none.";
    MissingChoice "missing-choice" "A limit does not say what happens to requests that lack what it counts by.";
    MissingKey "missing-key" "A key that has no default is absent.";
    NeedlessMissing "needless-missing" "`missing` is written where nothing can be missing.";
    NeverAdmits "never-admits" "What one request costs is more than the limit ever holds.";
    NeverBinds "never-binds" "A rate of a list never refuses what the others let through.";
    NoRoutes "no-routes" "The file has no route.";
    NotAvailable "not-available" "A setting that this version does not have.";
    NotGranted "not-granted" "An included file does what its entry of `include` does not let it.";
    OneForAll "one-for-all" "A limit by address counts all clients behind a proxy as one.";
    OnlyInMain "only-in-main" "An included file says what only the including one may say.";
    OpenAdmin "open-admin" "The admin listener can be reached from other machines.";
    OpenStore "open-store" "Any client that reaches the Redis may change counters, or the server itself.";
    OutOfRange "out-of-range" "Numbers that cannot be computed with exactly.";
    OtherCase "other-case" "A path in another case goes past limits of a route.";
    Overlap "overlap" "Two routes of equal rank can match the same request.";
    SaySo "say-so" "Membership of a group depends on a value that any client may write.";
    SecretInFile "secret-in-file" "A secret is written into the file itself.";
    Syntax "syntax" "The file is not TOML.";
    TrustsEveryone "trusts-everyone" "Any client may state the address that it comes from.";
    UnknownGroup "unknown-group" "A group is named that is not defined.";
    UnknownKey "unknown-key" "A key or table that does not exist.";
    UnknownLimit "unknown-limit" "A limit is named that is not defined.";
    UnknownParameter "unknown-parameter" "A limit counts by, or a route rewrites with, a parameter that the path of a route does not have.";
    UnknownUpstream "unknown-upstream" "An upstream is named that is not defined.";
    UnreachableRoute "unreachable-route" "No request can reach a route.";
    Unreadable "unreadable" "The file, or a secret that it points to, cannot be read.";
    UnsetVariable "unset-variable" "A variable of the environment is not set, and has no default.";
    UnverifiedClaim "unverified-claim" "A claim of a token is asked for, and no `[jwt]` names keys to verify tokens with.";
    UnusedGroup "unused-group" "No limit refers to the group.";
    UnusedLimit "unused-limit" "No route and no upstream names the limit.";
    UnusedUpstream "unused-upstream" "No route leads to the upstream.";
    WaitsLonger "waits-longer" "A limit may hold a request for longer than the route gives its upstream.";
    WeakSecret "weak-secret" "The secret that tokens are signed with can be guessed.";
    WrongType "wrong-type" "A value is of another type than the key takes.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is not taken.
    Error,
    /// The file is taken, and may not do what was meant.
    Warning,
    /// A warning that the file says is meant.
    Ignored,
}

impl Severity {
    /// Its name, as messages show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Ignored => "ignored",
        }
    }
}

/// A place and what is to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// Words beside the caret; may be empty.
    pub text: String,
}

impl Label {
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
    /// Its kind.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// The mistake, in the words of the file.
    pub message: String,
    /// Where; nothing when it is about the file as a whole.
    pub primary: Option<Label>,
    /// The other places involved.
    pub others: Vec<Label>,
    /// Places that the diagnostic concerns and that are not shown.
    pub concerns: Vec<Span>,
    /// What would be right.
    pub help: Option<String>,
    /// What else to know.
    pub note: Option<String>,
}

impl Diagnostic {
    /// An error about the file as a whole.
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

    /// A warning about the file as a whole.
    #[must_use]
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, message)
        }
    }

    /// The start of the place, where it has one.
    pub(super) fn start(&self) -> Option<usize> {
        self.primary.as_ref().map(|label| label.span.start)
    }

    /// Every place that a reader sees, the primary one first.
    pub(super) fn labels(&self) -> impl Iterator<Item = &Label> {
        self.primary.iter().chain(&self.others)
    }

    /// Every place that a reader sees, to be changed.
    pub(super) fn labels_mut(&mut self) -> impl Iterator<Item = &mut Label> {
        self.primary.iter_mut().chain(&mut self.others)
    }

    /// Every text that a reader sees.
    pub(super) fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let labels = self.primary.iter_mut().chain(&mut self.others);
        let texts = labels.map(|label| &mut label.text);
        texts
            .chain([&mut self.message])
            .chain(&mut self.help)
            .chain(&mut self.note)
    }

    /// The diagnostic with its places moved by `by`.
    #[must_use]
    pub(super) fn moved(mut self, by: usize) -> Self {
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

/// The details of a diagnostic: places, help and note. They are added to one at hand, or to one in [`Findings`].
pub(super) trait Details: BorrowMut<Diagnostic> + Sized {
    /// The place, and the words beside the caret.
    fn at(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.borrow_mut().primary = Some(Label::new(span, text));
        self
    }

    /// Another place involved.
    fn and(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.borrow_mut().others.push(Label::new(span, text));
        self
    }

    /// The other place, where there is one.
    fn and_if(self, span: Option<&Span>, text: impl Into<String>) -> Self {
        match span {
            Some(span) => self.and(span, text),
            None => self,
        }
    }

    /// A place that the diagnostic concerns and that is not shown: `ignore_warnings` there ignores the warning.
    fn about(mut self, span: &Span) -> Self {
        self.borrow_mut().concerns.push(span.clone());
        self
    }

    /// What would be right.
    fn help(self, text: impl Into<String>) -> Self {
        self.help_if(Some(text.into()))
    }

    /// What would be right, where something is known.
    fn help_if(mut self, text: Option<String>) -> Self {
        let help = &mut self.borrow_mut().help;
        *help = text.or(help.take());
        self
    }

    /// What else to know.
    fn note(mut self, text: impl Into<String>) -> Self {
        self.borrow_mut().note = Some(text.into());
        self
    }
}

impl Details for Diagnostic {}
impl Details for &mut Diagnostic {}

/// The diagnostics that have been found so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Diagnostic>);

impl Findings {
    /// Notes an error; the details are added to what is returned.
    pub(super) fn error(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.0.push_mut(Diagnostic::error(code, message))
    }

    /// Notes a warning.
    pub(super) fn warning(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.0.push_mut(Diagnostic::warning(code, message))
    }

    /// Notes settings that contradict each other.
    pub(super) fn conflict(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        self.error(Code::Conflict, message)
    }

    /// Is there an error behind the first `before` diagnostics?
    pub(super) fn has_error_since(&self, before: usize) -> bool {
        let mut new = self.0[before..].iter();
        new.any(|one| one.severity == Severity::Error)
    }

    /// The diagnostics as a list.
    pub(super) fn into_inner(self) -> Vec<Diagnostic> {
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
