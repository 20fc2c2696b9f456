//! Reads the files with the numbers of single customers, which limits name with `own`. Lines with the same numbers
//! share one set of them.

use super::file_lines::lines;
use crate::config::document::{Document, Limit};
use crate::config::input::{At, Reference, SideFiles, Span};
use crate::config::report::{Code, Details as _, Findings, counted, nearest};
use crate::config::value::{Quota, ValueError, duration, quoted, rate, with_valid_offers};
use crate::key::{KeyPart, NAME_FORM, is_name};
use crate::limit::rate::MOST_UNITS;
use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

/// The largest file.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// The most lines with numbers of one file.
const MOST_LINES: usize = 100_000;
/// The number of mistakes of one file that are shown; further mistakes are counted.
pub(in crate::config) const SHOWN: usize = 5;
/// The form of a line.
const FORM: &str = "a line is `NAME RATE[,RATE] [burst=N] [max=N] [queue=N] [max_wait=TIME]`";
/// The words of a line that are no rate.
const WORDS: [&str; 4] = ["burst", "max", "queue", "max_wait"];

/// The files with the numbers of single customers, each by the place of its limit's name.
#[derive(Debug, Default)]
pub(in crate::config) struct NumberFiles(HashMap<usize, NumberFile>);

/// A file without mistakes, or with mistakes that have been reported.
#[derive(Debug)]
pub(in crate::config) struct NumberFile {
    /// The path as written.
    pub(in crate::config) path: At<String>,
    /// The lines with numbers, in order.
    pub(in crate::config) lines: Vec<CustomerLine>,
    /// The different numbers.
    pub(in crate::config) sets: Vec<WrittenNumbers>,
}

/// A customer's line.
#[derive(Debug)]
pub(in crate::config) struct CustomerLine {
    /// The customer.
    pub(in crate::config) name: Box<str>,
    /// The position of the numbers among the file's sets.
    pub(in crate::config) set: u32,
    /// The number of the line.
    pub(in crate::config) line: u32,
}

/// Numbers as written. What is left out comes from the customer's tier, then from the limit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::config) struct WrittenNumbers {
    pub(in crate::config) rates: Vec<Quota>,
    pub(in crate::config) burst: Option<u64>,
    pub(in crate::config) max: Option<u32>,
    pub(in crate::config) queue: Option<u32>,
    pub(in crate::config) max_wait: Option<Duration>,
}

impl NumberFiles {
    /// The numbers of customers for a limit, if a file states them.
    pub(in crate::config) fn of_limit(&self, limit: &Limit) -> Option<&NumberFile> {
        self.0.get(&limit.name.span.start)
    }

    /// All files, in the order of the configuration.
    pub(in crate::config) fn all(&self) -> impl Iterator<Item = &NumberFile> {
        let mut all: Vec<&NumberFile> = self.0.values().collect();
        all.sort_by_key(|file| file.path.span.start);
        all.into_iter()
    }
}

/// Reads the files that limits name.
pub(in crate::config) fn read_number_files(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> NumberFiles {
    let mut files = HashMap::new();
    for limit in &document.limits {
        let Some(path) = limit.own.at() else { continue };
        note_others(limit, &path.span, side_files.found);
        let failure = format!(
            "cannot read {}, the numbers of customers",
            quoted(&path.value)
        );
        let at = Reference {
            span: &path.span,
            failure: &failure,
            label: "a file with the numbers of one customer on a line",
        };
        if let Some(content) = side_files.list(&path.value, MOST_BYTES, at) {
            let file = Reader::new(path, side_files.found).read(&content);
            files.insert(limit.name.span.start, file);
        }
    }
    NumberFiles(files)
}

/// Notes the numbers of single customers in a limit that does not count customers.
fn note_others(limit: &Limit, span: &Span, found: &mut Findings) {
    let parts = limit.by.entries().iter();
    let mut parts = parts.filter_map(|part| part.value.as_ref());
    let is_unknown = limit.by.is_absent() || limit.by.is_bad();
    if is_unknown || parts.any(KeyPart::is_customer) {
        return;
    }
    let message = format!("{limit} has numbers of single customers, and does not count customers");
    found
        .error(Code::BadOwn, message)
        .at(span, "only where `by` has `customer`")
        .and_if(limit.by.span(), "counts something else")
        .help("count customers with `by = \"customer\"`, or leave `own` out");
}

/// A mistake in a line: the reason, and the advice.
#[derive(Debug, PartialEq, Eq)]
struct LineFault {
    why: String,
    help: Option<String>,
}

impl LineFault {
    fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            help: None,
        }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }
}

impl From<ValueError> for LineFault {
    fn from(error: ValueError) -> Self {
        let shown = error.at(&(0..0));
        let label = shown.primary.map(|label| label.text).unwrap_or_default();
        let separator = if label.is_empty() { "" } else { ", " };
        Self {
            why: format!("{}{separator}{label}", shown.message),
            help: shown.help,
        }
    }
}

/// The reader of one file.
struct Reader<'a, 'c> {
    file: NumberFile,
    found: &'a mut Findings,
    /// The position of each text of numbers among the sets.
    known: HashMap<&'c str, u32>,
    /// The line of each name.
    names: HashMap<&'c str, u32>,
    wrong: usize,
}

impl<'a, 'c> Reader<'a, 'c> {
    fn new(path: &At<String>, found: &'a mut Findings) -> Self {
        Self {
            file: NumberFile {
                path: path.clone(),
                lines: Vec::new(),
                sets: Vec::new(),
            },
            found,
            known: HashMap::new(),
            names: HashMap::new(),
            wrong: 0,
        }
    }

    fn read(mut self, content: &'c [u8]) -> NumberFile {
        for (line, text) in lines(content) {
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            if self.file.lines.len() == MOST_LINES {
                let most = format!("beyond the {MOST_LINES} lines that such a file has at most");
                let help = "give customers with the same numbers a group and a tier";
                self.note(line, LineFault::new(most).help(help));
                break;
            }
            if let Err(fault) = self.add(line, text) {
                self.note(line, fault);
            }
        }
        if let (Some(last), Some(more @ 1..)) =
            (self.found.last_mut(), self.wrong.checked_sub(SHOWN))
        {
            last.note = Some(format!("and {more} more like this"));
        }
        self.file
    }

    fn add(&mut self, line: u32, text: &'c [u8]) -> Result<(), LineFault> {
        let text = std::str::from_utf8(text).map_err(|_| LineFault::new("it is not UTF-8"))?;
        let (name, numbers) = text
            .split_once([' ', '\t'])
            .ok_or_else(|| LineFault::new("it has no numbers").help(FORM))?;
        if !is_name(name.as_bytes()) {
            return Err(LineFault::new(NAME_FORM));
        }
        if let Some(first) = self.names.get(name) {
            let why = format!("{} has numbers in line {first} already", quoted(name));
            return Err(LineFault::new(why).help("a customer has one line: remove one of the two"));
        }
        let numbers = numbers.trim();
        let set = match self.known.get(numbers) {
            Some(set) => *set,
            None => {
                let read = read_numbers(numbers)?;
                let set = u32::try_from(self.file.sets.len()).unwrap_or(u32::MAX);
                self.file.sets.push(read);
                self.known.insert(numbers, set);
                set
            }
        };
        self.names.insert(name, line);
        self.file.lines.push(CustomerLine {
            name: name.into(),
            set,
            line,
        });
        Ok(())
    }

    fn note(&mut self, line: u32, fault: LineFault) {
        self.wrong += 1;
        if self.wrong > SHOWN {
            return;
        }
        let path = &self.file.path;
        let message = format!(
            "{}:{line} has no numbers of a customer: {}",
            path.value, fault.why
        );
        self.found
            .error(Code::BadOwn, message)
            .at(&path.span, "in this file")
            .help_if(fault.help);
    }
}

/// Reads `RATE[,RATE] [burst=N] [max=N] [queue=N] [max_wait=TIME]`.
fn read_numbers(text: &str) -> Result<WrittenNumbers, LineFault> {
    let mut numbers = WrittenNumbers::default();
    for (position, piece) in text.split_ascii_whitespace().enumerate() {
        match piece.split_once('=') {
            Some((word, value)) => numbers.put(word, value)?,
            None if position == 0 => {
                if !is_number(piece) {
                    return Err(LineFault::new("its rates are missing").help(FORM));
                }
                let rates = piece.split(',').map(|text| with_valid_offers(text, rate));
                numbers.rates = rates.collect::<Result<_, _>>()?;
            }
            None => {
                let why = format!("{} stands behind other numbers", shown(piece));
                let help = "write the rates first, with commas and without blanks between them";
                return Err(LineFault::new(why).help(help));
            }
        }
    }
    Ok(numbers)
}

impl WrittenNumbers {
    /// Takes `word=value`.
    fn put(&mut self, word: &str, value: &str) -> Result<(), LineFault> {
        match word {
            "burst" => once(&mut self.burst, word, count(word, value, MOST_UNITS)?),
            "max" => once(&mut self.max, word, count(word, value, u32::MAX)?),
            "queue" => once(&mut self.queue, word, count(word, value, u32::MAX)?),
            "max_wait" if !is_number(value) => {
                Err(LineFault::new("`max_wait` is a time such as `2s`").help(FORM))
            }
            "max_wait" => {
                let time = with_valid_offers(value, duration)?;
                once(&mut self.max_wait, word, time)
            }
            _ => {
                let has_offer = nearest(word, WORDS).is_some();
                let word_shown = if has_offer {
                    quoted(word)
                } else {
                    HIDDEN.to_owned()
                };
                let why = format!("{word_shown} is no number that a line can have");
                let help = match nearest(word, WORDS) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => FORM.to_owned(),
                };
                Err(LineFault::new(why).help(help))
            }
        }
    }
}

/// The name of a text that is not shown: in a file of credentials, which was named by mistake, it may be one.
const HIDDEN: &str = "a text";

/// The longest text that may be a number or a time, in bytes.
const LONGEST_NUMBER: usize = 17;
/// The longest text that may be several rates, in bytes.
const LONGEST_RATES: usize = 40;

/// Does the text look like a number, rather than a credential?
fn is_number(text: &str) -> bool {
    let most = if text.contains('/') {
        LONGEST_RATES
    } else {
        LONGEST_NUMBER
    };
    text.len() <= most && text.starts_with(|first: char| first.is_ascii_digit())
}

fn shown(text: &str) -> String {
    if is_number(text) {
        quoted(text)
    } else {
        HIDDEN.to_owned()
    }
}

fn once<T>(number: &mut Option<T>, word: &str, value: T) -> Result<(), LineFault> {
    match number.replace(value) {
        None => Ok(()),
        Some(_) => Err(LineFault::new(format!("it has `{word}` twice"))),
    }
}

/// A number of `most` at most.
fn count<T>(word: &str, value: &str, most: T) -> Result<T, LineFault>
where
    T: FromStr + PartialOrd + Default,
{
    let count = value.parse::<T>().ok();
    let count = count.filter(|count| *count > T::default() && *count <= most);
    count.filter(|_| !value.starts_with('+')).ok_or_else(|| {
        let why = format!("`{word}` is a whole number from 1, not {}", shown(value));
        LineFault::new(why)
    })
}

/// Notes names in a file of numbers that no group names.
pub(in crate::config) fn warn_of_strange_names(
    file: &NumberFile,
    is_known: impl Fn(&str) -> bool,
    found: &mut Findings,
) {
    let mut strange = file.lines.iter().filter(|line| !is_known(&line.name));
    let Some(first) = strange.next() else { return };
    let more = match strange.count() {
        0 => String::new(),
        more => format!(", and {} more", counted(more, "name")),
    };
    let (path, name) = (&file.path, quoted(&first.name));
    let message = format!(
        "{}:{}: no group names the customer {name}{more}",
        path.value, first.line
    );
    found
        .warning(Code::UnknownCustomer, message)
        .at(&path.span, "no credential has this name")
        .help("write `NAME CREDENTIAL` in a file of `customers`, or correct the name");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        let fault = read_numbers(text).unwrap_err();
        format!("{} ({})", fault.why, fault.help.unwrap_or_default())
    }

    #[test]
    fn a_line_has_rates_and_numbers_by_their_words() {
        let read = read_numbers("50/min,1000/h burst=7\tmax_wait=2s  queue=9 max=3").unwrap();
        assert_eq!(
            (read.burst, read.queue, read.max),
            (Some(7), Some(9), Some(3))
        );
        assert_eq!(read.max_wait, Some(Duration::from_secs(2)));
        assert_eq!(
            read.rates,
            [rate("50/min").unwrap(), rate("1000/h").unwrap()]
        );
        assert!(read_numbers("burst=2").unwrap().rates.is_empty());
        let most = read_numbers("9007199254740991/d burst=9007199254740991").unwrap();
        assert_eq!(most.burst, Some(9_007_199_254_740_991));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, reason) in [
            ("many", "its rates are missing"),
            ("5/min,", "`\"\"` is not a rate"),
            ("5/min, 6/h", "`\"\"` is not a rate"),
            ("5/min 6/h", "`6/h` stands behind other numbers"),
            ("burst=2 6/h", "`6/h` stands behind other numbers"),
            ("5/min brust=2", "did you mean `burst`?"),
            ("5/min cost=2", "a text is no number that a line can have"),
            ("5/min brust=2", "`brust` is no number that a line can have"),
            (
                "9key-of-acme/9key-of-acme/9key-of-acme/9key",
                "its rates are missing",
            ),
            ("key-of-acme", "its rates are missing"),
            ("5/min key-of-acme", "a text stands behind other numbers"),
            ("5/min max_wait=key-of-acme", "`max_wait` is a time"),
            ("5/min burst=0", "a whole number from 1"),
            ("5/min burst=+3", "a whole number from 1"),
            ("5/min max=4294967296", "a whole number from 1"),
            ("5/min burst=9007199254740992", "a whole number from 1"),
            ("5/min queue=2 queue=2", "it has `queue` twice"),
            ("5/min max_wait=5", "`5` is not a time"),
        ] {
            let shown = why(text);
            assert!(shown.contains(reason), "{text}: {shown}");
        }
    }

    #[test]
    fn equal_numbers_are_one_set_and_a_name_has_one_line() {
        let mut found = Findings::default();
        let path = At::new("own.txt".to_owned(), 0..7);
        let text = b"a 5/min\n# b\nb  5/min # as a\nc 6/min\na 7/min\nd\n\xff 1/s\n";
        let file = Reader::new(&path, &mut found).read(text);
        let lines: Vec<_> = file
            .lines
            .iter()
            .map(|line| (&*line.name, line.set, line.line))
            .collect();
        assert_eq!(lines, [("a", 0, 1), ("b", 0, 3), ("c", 1, 4)]);
        assert_eq!(file.sets.len(), 2);
        let said: Vec<_> = found.iter().map(|one| one.message.as_str()).collect();
        let front = |line: usize| format!("own.txt:{line} has no numbers of a customer: ");
        assert_eq!(
            said,
            [
                front(5) + "`a` has numbers in line 1 already",
                front(6) + "it has no numbers",
                front(7) + "it is not UTF-8"
            ]
        );
    }
}
