//! The variables that a file can use: variables of environment files, read like a systemd unit's `EnvironmentFile=`,
//! and then variables of the process.

use std::collections::HashMap;
use std::env::VarError;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem;
use std::path::Path;

/// The largest environment file.
const MOST: u64 = 1024 * 1024;

/// The variables of environment files. If none of the files sets a variable, the environment of the process is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentFiles(HashMap<String, String>);

impl EnvironmentFiles {
    /// Adds the variables of the file at `path`. A later value replaces an earlier one, as with several files of a
    /// unit. Returns the odd lines of the file, which do not stop the reading; `None` if the file does not exist and a
    /// `-` in front of the path allows its absence.
    ///
    /// # Errors
    /// If the file cannot be read or is not UTF-8.
    pub fn read(&mut self, path: &Path) -> io::Result<Option<Vec<OddLine>>> {
        let optional = path.to_str().and_then(|path| path.strip_prefix('-'));
        let path = optional.map_or(path, Path::new);
        let text = match file_text(path) {
            Err(error) if optional.is_some() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            read => read?,
        };
        let read = Assignments::of(&text);
        self.0.extend(read.set);
        Ok(Some(read.odd))
    }

    /// The value of a variable.
    pub(in crate::config) fn variable(&self, name: &str) -> Result<String, VarError> {
        match self.0.get(name) {
            Some(value) => Ok(value.clone()),
            None => std::env::var(name),
        }
    }
}

fn file_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// A line of an environment file that sets no variable, or that sets more than it seems to. Messages do not repeat the
/// line's text, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OddLine {
    /// The number of the line, counted from 1.
    pub line: usize,
    /// The cause, in words.
    pub why: &'static str,
}

/// The state of the reader of an environment file (systemd.exec(5), `EnvironmentFile=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// Before a line.
    Line,
    /// In a line that sets no variable.
    Comment,
    Name,
    /// Before the value, or after a quoted piece of the value.
    Value,
    /// In an unquoted piece of the value.
    Bare,
    /// After a `\` outside of quotes.
    Escape,
    /// In a piece between `'`, where only the next `'` has a meaning.
    Single,
    /// In a piece between `"`.
    Double,
    /// After a `\` between `"`.
    DoubleEscape,
}

/// systemd reports such a line in its journal.
const NO_VALUE: &str = "no `=`: the line sets nothing";
const EXPORT: &str = "`export` belongs to shells: the line sets nothing; leave the word out";
const NO_NAME: &str = "the text in front of the `=` is not a name (letters, digits and `_`, and no digit first): the line sets nothing";
const OPEN_QUOTE: &str =
    "the quote that begins here has no end: all that follows is the value of one variable";

/// The variables that the text of an environment file sets.
#[derive(Debug)]
struct Assignments {
    set: Vec<(String, String)>,
    odd: Vec<OddLine>,
    /// The number of the current line, and the number of the line on which the current name or quote began.
    line: usize,
    begun: usize,
    name: String,
    value: String,
    /// The length of the value up to its last character that is not an unquoted blank.
    kept: usize,
}

impl Assignments {
    fn of(text: &str) -> Self {
        let mut read = Self {
            set: Vec::new(),
            odd: Vec::new(),
            line: 1,
            begun: 1,
            name: String::new(),
            value: String::new(),
            kept: 0,
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut place = ReaderState::Line;
        for c in text.chars() {
            let next = read.step(place, c);
            let is_quoted = |place| {
                use ReaderState::{Double, DoubleEscape, Single};
                matches!(place, Single | Double | DoubleEscape)
            };
            if next == ReaderState::Name && place == ReaderState::Line
                || is_quoted(next) && !is_quoted(place)
            {
                read.begun = read.line;
            }
            read.line += usize::from(c == '\n');
            place = next;
        }
        match place {
            ReaderState::Line | ReaderState::Comment => {}
            ReaderState::Name => read.note_odd(NO_VALUE),
            ReaderState::Value | ReaderState::Bare | ReaderState::Escape => read.end(),
            ReaderState::Single | ReaderState::Double | ReaderState::DoubleEscape => {
                read.note_odd(OPEN_QUOTE);
                read.end();
            }
        }
        read
    }

    fn note_odd(&mut self, why: &'static str) {
        let line = self.begun;
        self.odd.push(OddLine { line, why });
    }

    /// Processes one character, and returns the next state.
    fn step(&mut self, place: ReaderState, c: char) -> ReaderState {
        let is_end = matches!(c, '\n' | '\r');
        let is_blank = matches!(c, ' ' | '\t');
        match place {
            ReaderState::Line if is_end || is_blank => ReaderState::Line,
            ReaderState::Line if matches!(c, '#' | ';') => ReaderState::Comment,
            ReaderState::Name if is_end => {
                self.note_odd(NO_VALUE);
                self.name.clear();
                ReaderState::Line
            }
            ReaderState::Comment if is_end => ReaderState::Line,
            ReaderState::Comment => ReaderState::Comment,
            ReaderState::Name if c == '=' => ReaderState::Value,
            ReaderState::Line | ReaderState::Name => {
                self.name.push(c);
                ReaderState::Name
            }
            ReaderState::Value | ReaderState::Bare if is_end => {
                self.end();
                ReaderState::Line
            }
            ReaderState::Value if is_blank => ReaderState::Value,
            ReaderState::Value if c == '\'' => ReaderState::Single,
            ReaderState::Value if c == '"' => ReaderState::Double,
            ReaderState::Value | ReaderState::Bare if c == '\\' => ReaderState::Escape,
            ReaderState::Value | ReaderState::Bare => {
                self.value.push(c);
                if !is_blank {
                    self.kept = self.value.len();
                }
                ReaderState::Bare
            }
            // A line that ends in `\` continues on the next line.
            ReaderState::Escape if is_end => ReaderState::Bare,
            ReaderState::Single if c == '\'' => ReaderState::Value,
            ReaderState::Double if c == '"' => ReaderState::Value,
            ReaderState::Double if c == '\\' => ReaderState::DoubleEscape,
            ReaderState::DoubleEscape => self.escaped(c),
            ReaderState::Escape | ReaderState::Single | ReaderState::Double => {
                self.keep(c);
                match place {
                    ReaderState::Escape => ReaderState::Bare,
                    quoted => quoted,
                }
            }
        }
    }

    /// The characters that follow a `\` between `"`: the `\` is dropped only before characters that a shell would have
    /// to escape.
    fn escaped(&mut self, c: char) -> ReaderState {
        if !matches!(c, '"' | '\\' | '`' | '$' | '\n') {
            self.keep('\\');
        }
        if c != '\n' {
            self.keep(c);
        }
        ReaderState::Double
    }

    fn keep(&mut self, c: char) {
        self.value.push(c);
        self.kept = self.value.len();
    }

    /// Ends the value. An invalid variable name sets nothing.
    fn end(&mut self) {
        let mut value = mem::take(&mut self.value);
        value.truncate(mem::take(&mut self.kept));
        let name = mem::take(&mut self.name);
        let name = name.trim_end_matches([' ', '\t']);
        let is_name = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name {
            self.set.push((name.to_owned(), value));
        } else if name.starts_with("export ") {
            self.note_odd(EXPORT);
        } else {
            self.note_odd(NO_NAME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_systemd_reads_it() {
        let text = "\
# a comment \\
; another
HTTPS_PORT=8443
  SPACED  =  some  words \t
SINGLE='a \"b\" $c \\n'
DOUBLE=\"a \\\"b\\\" \\$c \\n\"
JOINED='a'\"b\" c
LONG=one \\
two
EMPTY=
ESCAPED=a\\ b\\\"
QUOTED_END=\"two
lines\"
no assignment
1BAD=x
export WORSE=x
A-B=x
LAST=end";
        let expected = [
            ("HTTPS_PORT", "8443"),
            ("SPACED", "some  words"),
            ("SINGLE", "a \"b\" $c \\n"),
            ("DOUBLE", "a \"b\" $c \\n"),
            ("JOINED", "abc"),
            ("LONG", "one two"),
            ("EMPTY", ""),
            ("ESCAPED", "a b\""),
            ("QUOTED_END", "two\nlines"),
            ("LAST", "end"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let read = Assignments::of(text);
        assert_eq!(read.set, expected);
        let odd: Vec<_> = read.odd.iter().map(|odd| (odd.line, odd.why)).collect();
        let expected = [(14, NO_VALUE), (15, NO_NAME), (16, EXPORT), (17, NO_NAME)];
        assert_eq!(odd, expected);
        let crlf = Assignments::of("\u{feff}A=1\r\nB=2\r\n").set;
        assert_eq!(crlf, [("A".into(), "1".into()), ("B".into(), "2".into())]);
        let open = Assignments::of("B=1\nA='open\nC=2\n");
        let all = [("B", "1"), ("A", "open\nC=2\n")];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(open.set, all);
        let (line, why) = (2, OPEN_QUOTE);
        assert_eq!(open.odd, [OddLine { line, why }]);
        assert_eq!(Assignments::of("A").odd[0].why, NO_VALUE);
    }

    #[test]
    fn later_files_win_and_a_missing_one_may_be_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "A=1\nB=1\n").unwrap();
        std::fs::write(&other, "B=2\n").unwrap();
        let mut environment = EnvironmentFiles::default();
        environment.read(&one).unwrap();
        environment.read(&other).unwrap();
        assert_eq!(environment.variable("A").as_deref(), Ok("1"));
        assert_eq!(environment.variable("B").as_deref(), Ok("2"));
        assert!(environment.variable("PATH").is_ok());
        let missing = folder.path().join("missing");
        assert!(environment.read(&missing).is_err());
        let optional = format!("-{}", missing.display());
        assert_eq!(environment.read(Path::new(&optional)).unwrap(), None);
        environment
            .read(Path::new(&format!("-{}", one.display())))
            .unwrap();
        assert_eq!(environment.variable("B").as_deref(), Ok("1"));
    }
}
