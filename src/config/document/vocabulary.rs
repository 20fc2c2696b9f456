//! The declaration of a key of the file: its name, the shape of its value, its default, its meaning, and how two values
//! are compared. The keys are declared in [`crate::config::document`], with a block for each key.

use crate::config::presentation::{
    Boot, IdentityOutline, LimitOutline, Outline, RouteOutline, ShownValue, TokenOutline,
    UpstreamOutline,
};
use crate::config::report::{all_of, one_of};
use crate::limit::rate::MOST_UNITS;
use crate::{key, limit};

/// The greatest of all numbers that count no units.
const ANY_COUNT: u64 = u32::MAX as u64;

/// A table of the file.
#[derive(Debug)]
pub struct Table {
    /// The table's name at the top level.
    pub name: &'static str,
    /// Is each table of this kind named, as in `[limits.NAME]`?
    pub named: bool,
    /// Can only the main file have such tables, although the tables are named?
    pub main_only: bool,
    /// The noun for one such table in a sentence.
    pub noun: &'static str,
    /// The purpose of the table.
    pub about: &'static str,
    /// The keys of the table.
    pub keys: &'static [Key],
    /// Keys that are known by name but not supported in this version.
    pub later: &'static [&'static str],
    /// An example of the table, if its keys alone do not show its form.
    pub takes: Option<&'static str>,
    /// The report on an empty table, if an empty table is a mistake.
    pub empty: Option<Emptiness>,
}

/// The report on a table without a key.
#[derive(Debug)]
pub struct Emptiness {
    /// The missing effect: "changes nothing".
    pub message: &'static str,
    /// Words beside the caret.
    pub label: &'static str,
    /// The advice in words.
    pub help: &'static str,
}

/// A key of a table.
#[derive(Debug)]
pub struct Key {
    /// The name of the key.
    pub name: &'static str,
    /// The shape of the key's value.
    pub shape: fn() -> ValueShape,
    /// The default.
    pub default: Default,
    /// The meaning of the key; its first sentence or clause is short enough for a table cell.
    pub about: &'static str,
    /// An example value, as written in the file.
    pub example: &'static str,
    /// The comparison of two values of the key, and whether a reload can apply a new value.
    pub compare: Compare,
}

/// The default of a key.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// The key has no default and must be written.
    Required,
    /// The key has no default: either the key or one of these keys must be written.
    Unless(&'static [&'static str]),
    /// The default is this value, as written in the file.
    Value(&'static str),
    /// The default, described in words.
    Words(&'static str),
    /// The default in words, and its value computed from a compiled limit.
    Computed(&'static str, fn(&limit::Limit) -> Option<String>),
    /// The default in words, and its value computed from a compiled file, since the default depends on another key.
    Compiled(&'static str, fn(&Outline) -> String),
}

/// The source of a key's value for `--diff` and for a reload. A key is compared if both files have a value for the key.
#[derive(Debug, Clone, Copy)]
pub enum Compare {
    /// The key is part of another key, or is compared together with other keys. A reload applies it.
    Within,
    /// The key is part of the store's address, which needs a restart.
    StoreAddress,
    /// The key is read once, at start.
    Restart(fn(&Boot) -> Option<ShownValue>),
    /// The key applies to the whole gateway.
    Gateway(fn(&Outline) -> Option<ShownValue>),
    /// The key belongs to `[jwt]`.
    Tokens(fn(&TokenOutline) -> Option<ShownValue>),
    /// The key belongs to a group.
    Group(fn(&key::Group) -> Option<ShownValue>),
    /// The key belongs to an identity.
    Identity(fn(&IdentityOutline) -> Option<ShownValue>),
    /// The key belongs to a limit.
    Limit(fn(&LimitOutline<'_>) -> Option<ShownValue>),
    /// The key belongs to an upstream.
    Upstream(fn(&UpstreamOutline) -> Option<ShownValue>),
    /// The key belongs to a route.
    Route(fn(&RouteOutline) -> Option<ShownValue>),
}

/// The shape of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum ValueShape {
    /// A text.
    Text,
    /// A text or a list of texts.
    Texts,
    /// The path of a file.
    File,
    /// The path of a folder, or this word.
    FolderOr(&'static str),
    /// The path of a file, or a list of paths.
    Files,
    /// Members of a group: texts that can be keys of clients.
    Members,
    /// `true`, files, or credentials by the names of customers.
    Customers,
    /// A word for the form of error bodies, or `file:` and the path of a template.
    ErrorBody,
    /// The address of a store, which can contain a password.
    StoreUrl,
    /// A path or an address that a redirect leads to.
    Destination,
    /// A file, a table with a file and the id of its keys, or a list of these.
    KeyFiles(&'static Table),
    /// An address to listen on, which can be the path of a socket.
    ListenAddress,
    /// An address to listen on, or a list of these.
    ListenAddresses,
    /// An address to listen on, a table of this kind, or a list of these.
    Listeners(&'static Table),
    /// The address of a server, a table of this kind, or a list of these.
    Servers(&'static Table),
    /// A network, a table of this kind, or a list of these.
    Networks(&'static Table),
    /// A file of authorities, a list of files, or a table of this kind.
    Authorities(&'static Table),
    /// `true`, a name, a list of names, or a table of this kind.
    ListenerTls(&'static Table),
    /// `true` or `false`, a text, or a list of texts.
    FlagOrTexts,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these words, or a list of these words.
    Choices(&'static [&'static str]),
    /// A whole number in this range.
    Whole {
        /// The smallest number.
        least: u64,
        /// The largest number.
        most: u64,
    },
    /// One of these numbers.
    Numbers(&'static [u32]),
    /// A number with a unit of time.
    Duration,
    /// A number with a unit of time, or `false`.
    DurationOrOff,
    /// A number of bytes in a second, or 0.
    ByteRate,
    /// N/TIME, or a list of rates, each of which can be a table of this kind.
    Rate(&'static Table),
    /// `true` or `false`.
    Flag,
    /// A whole number from 1, or one of these tables.
    Cost(&'static [&'static Table]),
    /// `auto`, `off`, or a number of permits.
    Lease,
    /// Names of groups, each with a table of this kind.
    Tiers(&'static Table),
    /// Names, each with a table of this kind.
    Named(&'static Table),
    /// A text, or the place of a secret.
    Secret,
    /// The name of a user, which is shown, or the place of the name.
    UserName,
    /// Statuses of answers or `cancel`: one, or a list.
    RefundCauses,
    /// Statuses of answers and `else`, each with a cost.
    StatusCosts,
    /// Members of JSON: one, a list, or a table of weights.
    JsonMembers,
    /// Names, each with a text or `true`.
    Conditions,
    /// Names of fields, each with a text.
    Lines,
    /// Files to include, and the grants to these files.
    Include(&'static Table),
    /// A table with its own keys.
    Inner(&'static Table),
    /// A text, or a table of this kind.
    TextOrInner(&'static Table),
    /// `false`, or a table of this kind.
    OffOrInner(&'static Table),
}

impl Table {
    /// A table without keys, from which declarations start.
    pub(in crate::config) const NONE: Self = Self {
        name: "",
        named: false,
        main_only: false,
        noun: "",
        about: "",
        keys: &[],
        later: &[],
        takes: None,
        empty: None,
    };

    /// Can an included file have such tables?
    #[must_use]
    pub fn is_included(&self) -> bool {
        self.named && !self.main_only
    }

    /// The key with the name `name`.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// `[server]` or `[limits.NAME]`.
    #[must_use]
    pub fn title(&self, name: &str) -> String {
        if self.named {
            format!("[{}.{name}]", self.name)
        } else {
            format!("[{}]", self.name)
        }
    }
}

impl Key {
    /// The shape of the key's value.
    #[must_use]
    pub fn shape(&self) -> ValueShape {
        (self.shape)()
    }

    /// Must the key be written?
    #[must_use]
    pub fn is_required(&self) -> bool {
        matches!(self.default, Default::Required)
    }

    /// Can a reload change the key? Otherwise the key needs a restart.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self.compare, Compare::Restart(_) | Compare::StoreAddress)
    }
}

impl ValueShape {
    /// Is this number in the range of the shape?
    #[must_use]
    pub fn includes(self, number: u64) -> bool {
        let (least, most) = match self {
            Self::Whole { least, most } => (least, most),
            Self::Cost(_) => (1, MOST_UNITS),
            _ => return false,
        };
        (least..=most).contains(&number)
    }

    /// Does the shape take a whole number that is no part of a text?
    #[must_use]
    pub fn takes_numbers(self) -> bool {
        matches!(
            self,
            Self::Whole { .. } | Self::Numbers(_) | Self::Cost(_) | Self::Lease
        )
    }

    /// Does the shape take `true` or `false` as a flag, and not only as a text?
    #[must_use]
    pub fn takes_flags(self) -> bool {
        matches!(
            self,
            Self::Flag
                | Self::FlagOrTexts
                | Self::Customers
                | Self::ListenerTls(_)
                | Self::OffOrInner(_)
                | Self::DurationOrOff
        )
    }

    /// The tables that can be in values of this shape.
    #[must_use]
    pub fn tables(self) -> Vec<&'static Table> {
        match self {
            Self::Inner(table)
            | Self::TextOrInner(table)
            | Self::OffOrInner(table)
            | Self::Tiers(table)
            | Self::Named(table)
            | Self::Rate(table)
            | Self::KeyFiles(table)
            | Self::Listeners(table)
            | Self::Networks(table)
            | Self::Servers(table)
            | Self::Authorities(table)
            | Self::ListenerTls(table)
            | Self::Include(table) => vec![table],
            Self::Cost(tables) => tables.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The shape in a sentence: "takes ...".
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Text | Self::ListenAddress | Self::File | Self::FolderOr(_) | Self::ErrorBody | Self::StoreUrl | Self::Destination => "a text".into(),
            Self::Texts | Self::Files | Self::Members | Self::ListenAddresses => "a text or a list of texts".into(),
            Self::Customers => {
                "a file, a list of files, `true`, or a table of names, as `{ acme = \"sha256:...\" }`".into()
            }
            Self::KeyFiles(_) => {
                "a file, `{ file = \"2026.pem\", kid = \"2026\" }`, or a list of them".into()
            }
            Self::Listeners(_) => {
                "an address, a table as `{ address = \":8080\" }`, or a list of them".into()
            }
            Self::Authorities(table) | Self::TextOrInner(table) | Self::OffOrInner(table) => {
                table.takes.unwrap_or_default().into()
            }
            Self::Networks(_) => {
                "a network, a table as `{ file = \"cdn-networks.txt\" }`, or a list of them".into()
            }
            Self::Servers(_) => {
                "a text, a table as `{ url = \"http://10.1.0.5:3000\", weight = 2 }`, or a list of them".into()
            }
            Self::ListenerTls(_) => {
                "`true`, the name of an identity, a list of names, or `{ cert = \"api.pem\", key = \"api.key\" }`".into()
            }
            Self::FlagOrTexts => "`true`, a text or a list of texts".into(),
            Self::Choice(words) => one_of(words),
            Self::Choices(words) => format!("a list of {}", all_of(words)),
            Self::Whole { least, most: ANY_COUNT | MOST_UNITS } => format!("a whole number from {least}"),
            Self::Whole { least, most } => format!("a whole number from {least} to {most}"),
            Self::Numbers(numbers) => one_of(numbers),
            Self::Duration => "a time with its unit, as `\"250ms\"` or `\"1m30s\"`".into(),
            Self::DurationOrOff => "a time with its unit, as `\"250ms\"` or `\"1m30s\"`, or `false`".into(),
            Self::ByteRate => "bytes in a second, as `\"256B/s\"` or `\"4KiB/s\"`, or 0".into(),
            Self::Rate(_) => "a rate, as `\"100/min\"`, or a list of rates".into(),
            Self::Flag => "`true` or `false`".into(),
            Self::Cost(_) => "a whole number from 1, `{ header = \"x-cost\", max = 50 }`, `{ response_header = \"x-units\" }`, `{ response_json = \"usage.total_tokens\" }` or `{ status = { \"401\" = 1 } }`".into(),
            Self::Lease => "`auto`, `off`, or how many permits, from 2 to 1000000".into(),
            Self::Tiers(_) => {
                "a table of groups, each with other numbers, as `{ gold = { rate = \"1000/min\" } }`".into()
            }
            Self::Named(_) => {
                "a table of names, each with a table, as `{ anna = { token = { env = \"NAME\" } } }`".into()
            }
            Self::RefundCauses => "`\"cancel\"`, a status as `\"401\"`, `\"5xx\"` or `\"grpc-14\"`, or a list of these".into(),
            Self::StatusCosts => "a table of statuses with their costs, as `{ \"401\" = 1, else = 0 }`".into(),
            Self::JsonMembers => "a member as `\"usage.total_tokens\"`, a list of members, or a table with their weights".into(),
            Self::Lines => {
                "a table of names, each with a text, as `{ x-source = \"tollgate\" }`".into()
            }
            Self::Conditions => {
                "a table of names, each with its value or `true`, as `{ x-version = \"2\" }`".into()
            }
            Self::Inner(Table { takes: Some(takes), .. }) => (*takes).into(),
            Self::Inner(table) => {
                let names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
                format!("a table of {}", all_of(&names))
            }
            Self::Include(_) => {
                "a text, a table of `files` and what they may do, or a list of these".into()
            }
            Self::Secret | Self::UserName => {
                "a text, `{ file = \"...\" }` or `{ env = \"...\" }`".into()
            }
        }
    }
}
