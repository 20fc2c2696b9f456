//! Words of other gateways and proxies: each is answered by what serves its purpose here.
//!
//! In: a name or a value that the file's place does not take. Out: the advice beside it.
//!
//! ```text
//! settings           words for tables, and for keys of clients, bodies and upstreams
//! routes_and_limits  words for keys of routes, the server and limits
//! values             words for values
//! ```
//!
//! A word is compared without case, `_` and `-`. It is never looked up where it is a key of that table.

mod routes_and_limits;
mod settings;
#[cfg(test)]
mod tests;
mod values;

pub(super) use values::value_advice;

use super::vocabulary::Table;
use super::{TABLES, table_named};
use crate::config::report::all_of;
use routes_and_limits::ROUTES_AND_LIMITS;
use settings::TABLES_AND_UPSTREAMS;

/// A place of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TablePlace {
    /// The name of a table, or a key before the first table.
    Top,
    /// A key of this table, or of a table inside it.
    In(&'static str),
    /// A key of any table.
    Key,
}

/// Words of others and their answer.
struct ForeignSetting {
    words: &'static [&'static str],
    places: &'static [TablePlace],
    /// What is different here. It may be empty if the offers say all.
    about: &'static str,
    offers: &'static [Offer],
}

/// Lines of a file that serve the purpose of a word.
struct Offer {
    /// The table of the lines; the top of the file if it is empty.
    table: &'static str,
    /// Keys with their values.
    lines: &'static [&'static str],
}

/// The advice about a name that is a word of others.
pub(super) struct ForeignName {
    row: &'static ForeignSetting,
}

impl ForeignName {
    /// The word `name` as a key of `table`, or of the top level.
    pub(super) fn find(table: Option<&Table>, name: &str) -> Option<Self> {
        let name = fold(name);
        let fits = |place: &TablePlace| match (place, table) {
            (TablePlace::Top, table) => table.is_none(),
            (TablePlace::In(wanted), Some(table)) => *wanted == table.name,
            (TablePlace::Key, Some(_)) => true,
            (_, None) => false,
        };
        let has_word = |row: &&ForeignSetting| row.words.iter().any(|word| fold(word) == name);
        let row = all_settings()
            .filter(has_word)
            .find(|row| row.places.iter().any(fits))?;
        Some(Self { row })
    }

    /// The advice in words, for a name that is in `table`.
    pub(super) fn advice(&self, table: Option<&Table>) -> String {
        let here = table.filter(|table| TABLES.iter().any(|one| std::ptr::eq(*one, *table)));
        let offers = self.row.offers.iter().map(|offer| {
            let lines = all_of(offer.lines);
            match table_named(offer.table) {
                Some(named) if here.is_none_or(|here| here.name != named.name) => {
                    format!("{lines} in `{}`", named.title("NAME"))
                }
                Some(_) => lines,
                None => format!("{lines} at the top of the file, before the first table"),
            }
        });
        let offers: Vec<String> = offers.collect();
        match (self.row.about, offers.join("; ")) {
            (about, offers) if offers.is_empty() => about.to_owned(),
            ("", offers) => format!("write {offers}"),
            (about, offers) => format!("{about}: write {offers}"),
        }
    }

    /// The keys that the advice writes in `table`.
    pub(super) fn keys(&self, table: &Table) -> impl Iterator<Item = &'static str> {
        let offers = self.row.offers.iter();
        let lines = offers
            .filter(|offer| offer.table == table.name)
            .flat_map(|offer| offer.lines);
        lines.filter_map(|line| Some(line.split_once(" = ")?.0))
    }

    /// Does the advice write lines of `table`?
    pub(super) fn offers(&self, table: &Table) -> bool {
        let mut offers = self.row.offers.iter();
        offers.any(|offer| offer.table == table.name)
    }

    /// The tables that a table of this name probably defines.
    pub(super) fn tables(&self) -> Vec<&'static str> {
        match self.row.offers {
            [] => TABLES.iter().map(|table| table.name).collect(),
            offers => offers.iter().map(|offer| offer.table).collect(),
        }
    }
}

/// All words for tables and keys. A row for a table comes before a row for any table.
fn all_settings() -> impl Iterator<Item = &'static ForeignSetting> {
    TABLES_AND_UPSTREAMS.iter().chain(ROUTES_AND_LIMITS)
}

/// A word without case and separators.
fn fold(word: &str) -> String {
    let letters = word.chars().take(80).filter(|c| !['_', '-'].contains(c));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}
