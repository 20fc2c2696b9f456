//! `table!` declares a table of the file, with a block for each of its keys. The meaning of a key for the gateway is
//! compiled elsewhere.
//!
//! ```text
//! table! {
//!     /// What the table is for.
//!     Log = LOG, "log", "the log";
//!
//!     /// What the key does.
//!     level: Level = word(), Value("\"info\""), "\"warn\"", Restart(|boot| word(boot.log.level));
//! }
//! ```
//!
//! A table has a type for its written values, a static with its declaration, a name, and a noun for sentences. A key
//! has the type of its value, the form that reads the value ([`super::form`]), a default, an example, and a comparison
//! of two values.

use super::Setting;
use super::fields::Fields;
use super::form::Form;
use super::vocabulary::{Default, Table};
use crate::config::report::Findings;
use toml::de::DeTable;

/// The name of a key whose identifier may be a raw identifier: `for` is a keyword of Rust.
pub(in crate::config) const fn key_name(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', name @ ..] => match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => identifier,
        },
        _ => identifier,
    }
}

/// The value that applies if `key` is not written, read from the key's declaration. A test reads every default.
pub(super) fn default_of<T>(table: &'static Table, key: &'static str, form: &impl Form<T>) -> T {
    let value = match table.key(key).map(|key| key.default) {
        Some(Default::Value(value)) => value,
        _ => "",
    };
    let text = format!("{key} = {value}");
    let (root, _) = DeTable::parse_recoverable(&text);
    let mut found = Findings::default();
    let mut fields = Fields::unchecked(table, root.get_ref(), &mut found);
    match form.read(key, &mut fields) {
        Setting::Valid(at) => at.value,
        _ => panic!("the default of `{key}` of {} cannot be read", table.noun),
    }
}

macro_rules! table {
    (
        $(#[doc = $about:literal])+
        $struct:ident $({ $($extra:ident),+ })? = $static:ident, $name:literal, $noun:literal
            $(, $option:ident $value:expr)*;
        $(
            $(#[doc = $key_about:literal])+
            $key:ident: $type:ty = $form:expr, $default:ident $(($($argument:tt)+))?, $example:literal
                $(, $compare:expr)?;
        )*
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default)]
        pub(in crate::config) struct $struct {
            $($(pub(in crate::config) $extra: $crate::config::document::table::extra!($extra),)+)?
            $(
                $(#[doc = $key_about])+
                pub(in crate::config) $key: $crate::config::document::Setting<$type>,
            )*
        }

        $(#[doc = $about])+
        pub(in crate::config) static $static: $crate::config::document::vocabulary::Table = {
            #[allow(unused_imports, reason = "not every table has every kind of key")]
            use $crate::config::document::vocabulary::{Compare::*, Default::*, Key, Table};
            Table {
                name: $name,
                noun: $noun,
                about: concat!($($about),+).trim_ascii(),
                keys: &[$(Key {
                    name: $crate::config::document::table::key_name(stringify!($key)),
                    shape: || $crate::config::document::form::Form::<$type>::shape(&$form),
                    default: $default $(($($argument)+))?,
                    about: concat!($($key_about),+).trim_ascii(),
                    example: $example,
                    compare: $crate::config::document::table::compare!($($compare)?),
                }),*],
                $($option: $value,)*
                ..Table::NONE
            }
        };

        impl $crate::config::document::table::Section for $struct {
            const TABLE: &'static $crate::config::document::vocabulary::Table = &$static;

            fn read(fields: &mut $crate::config::document::fields::Fields<'_>) -> Self {
                Self {
                    $($($extra: fields.$extra(),)+)?
                    $($key: $crate::config::document::form::Form::<$type>::read(
                        &$form,
                        $crate::config::document::table::key_name(stringify!($key)),
                        fields,
                    ),)*
                }
            }

            fn is_bad(&self) -> bool {
                let bad = [$(self.$key.is_bad()),*];
                let absent = [$(self.$key.is_absent()),*];
                let keys = $static.keys.iter().zip(absent);
                let mut required = keys.filter(|(key, _)| key.is_required());
                bad.contains(&true) || required.any(|(_, is_absent)| is_absent)
            }
        }

        impl $struct {
            $($crate::config::document::table::value! { $default $static $key $type, $form })*
        }

        $($($crate::config::document::table::subject! { $extra $struct $noun })+)?
    };
}

/// The value of a key whose default is a value: the written value, or the default.
macro_rules! value {
    (Value $static:ident $key:ident $type:ty, $form:expr) => {
        #[allow(dead_code, reason = "some defaults are known where the value is used")]
        pub(in crate::config) fn $key(&self) -> $type {
            static DEFAULT: std::sync::OnceLock<$type> = std::sync::OnceLock::new();
            let default = || {
                let key = $crate::config::document::table::key_name(stringify!($key));
                $crate::config::document::table::default_of(&$static, key, &$form)
            };
            match self.$key.get() {
                Some(written) => written.clone(),
                None => DEFAULT.get_or_init(default).clone(),
            }
        }
    };
    ($default:ident $($key:tt)*) => {};
}

/// The subject of messages about a named table: "limit `per-ip`".
macro_rules! subject {
    (name $struct:ident $noun:literal) => {
        impl std::fmt::Display for $struct {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let (_, noun) = $noun.split_once(' ').unwrap_or_default();
                write!(
                    f,
                    "{noun} {}",
                    $crate::config::value::quoted(&self.name.value)
                )
            }
        }
    };
    ($extra:ident $($rest:tt)+) => {};
}

/// The type of a field that a table has in addition to its keys.
macro_rules! extra {
    (name) => { $crate::config::input::source::At<String> };
    (place) => { $crate::config::input::source::Span };
}

macro_rules! compare {
    () => {
        Within
    };
    ($compare:expr) => {
        $compare
    };
}

pub(super) use super::form::Section;
pub(super) use {compare, extra, subject, table, value};
