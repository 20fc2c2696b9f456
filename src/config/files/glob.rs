//! Patterns of paths: `*`, `?` and `[a-z]` in any step, and a step `**` for any number of folders.
//!
//! As in a shell, names that begin with a dot are only found by patterns that begin with one: editors and orchestrators
//! keep their own files under such names.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// More entries of folders than this are not looked at.
const MOST_ENTRIES: usize = 100_000;

/// What a pattern led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matched {
    /// Regular files, sorted.
    pub files: Vec<PathBuf>,
    /// Folders in which another file may come to match.
    pub folders: Vec<PathBuf>,
}

/// Has `text` anything that a pattern has?
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Why `text` is no pattern of paths, in words.
///
/// # Errors
/// When it is none.
pub fn check(text: &str) -> Result<(), &'static str> {
    for step in text.split('/') {
        if step != "**" && step.contains("**") {
            return Err("`**` stands alone between slashes, and is any number of folders");
        }
        let mut rest = step;
        while let Some(at) = rest.find('[') {
            let (_, end) = class(&rest[at + 1..]).ok_or("a `[` that no `]` closes")?;
            rest = &rest[at + 1 + end..];
        }
    }
    Ok(())
}

/// Everything that `pattern` leads to now.
///
/// # Errors
/// When a folder cannot be read, or there is too much in them.
pub fn find(pattern: &Path) -> io::Result<Matched> {
    let mut walk = Walk {
        matched: Matched::default(),
        entries: 0,
    };
    let steps: Vec<&str> = pattern
        .components()
        .filter_map(|component| match component {
            Component::Normal(step) => step.to_str(),
            Component::ParentDir => Some(".."),
            _ => None,
        })
        .collect();
    let start = if pattern.is_absolute() {
        Path::new("/")
    } else {
        Path::new("")
    };
    walk.down(start, &steps)?;
    let Matched { files, folders } = &mut walk.matched;
    files.sort();
    files.dedup();
    folders.sort();
    folders.dedup();
    Ok(walk.matched)
}

struct Walk {
    matched: Matched,
    entries: usize,
}

impl Walk {
    fn down(&mut self, folder: &Path, steps: &[&str]) -> io::Result<()> {
        let Some((step, rest)) = steps.split_first() else {
            return Ok(());
        };
        if !is_pattern(step) {
            let next = folder.join(step);
            if next.exists() {
                return self.reached(next, rest);
            }
            self.matched.folders.push(folder.to_owned());
            return Ok(());
        }
        self.matched.folders.push(folder.to_owned());
        for name in self.names(folder)? {
            let next = folder.join(&name);
            if *step == "**" {
                // A link may lead back: it is no folder on the way down.
                let deeper = next.symlink_metadata().is_ok_and(|found| found.is_dir());
                if deeper && !name.starts_with('.') {
                    self.down(&next, steps)?;
                }
            } else if matches(step, &name) {
                self.reached(next, rest)?;
            }
        }
        match *step {
            "**" => self.down(folder, rest),
            _ => Ok(()),
        }
    }

    fn reached(&mut self, path: PathBuf, rest: &[&str]) -> io::Result<()> {
        match (rest.is_empty(), path.is_dir()) {
            (true, false) if path.is_file() => self.matched.files.push(path),
            (false, true) => self.down(&path, rest)?,
            _ => {}
        }
        Ok(())
    }

    fn names(&mut self, folder: &Path) -> io::Result<Vec<String>> {
        let here = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(here)? {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(io::Error::other(format!(
                    "more than {MOST_ENTRIES} names to look through"
                )));
            }
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

/// Do `steps` lead to the path that consists of `names`?
#[must_use]
pub fn leads(steps: &[String], names: &[&str]) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return names.is_empty();
    };
    let one = || {
        let (name, below) = names.split_first()?;
        let takes = if is_pattern(step) {
            matches(step, name)
        } else {
            step == name
        };
        takes.then_some(below)
    };
    if step == "**" {
        leads(rest, names) || one().is_some_and(|below| leads(steps, below))
    } else {
        one().is_some_and(|below| leads(rest, below))
    }
}

/// Is `name` one that the step of a pattern describes?
#[must_use]
pub fn matches(step: &str, name: &str) -> bool {
    if step == "**" {
        return !name.starts_with('.');
    }
    if name.starts_with('.') && !step.starts_with('.') {
        return false;
    }
    let (step, name): (Vec<Piece>, Vec<char>) = (pieces(step), name.chars().collect());
    // Where to go on when the last `*` takes one character more.
    let (mut at, mut here, mut retry) = (0, 0, None);
    while here < name.len() {
        match step.get(at) {
            Some(Piece::Any) => {
                retry = Some((at, here));
                at += 1;
            }
            Some(piece) if piece.takes(name[here]) => {
                at += 1;
                here += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    at = star + 1;
                    here = from + 1;
                }
                None => return false,
            },
        }
    }
    step[at..].iter().all(|piece| matches!(piece, Piece::Any))
}

enum Piece {
    Any,
    One,
    Char(char),
    /// Ranges, and whether they are what it must not be.
    Class(Vec<(char, char)>, bool),
}

impl Piece {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(own) => *own == c,
            Self::Class(ranges, negated) => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
        }
    }
}

fn pieces(step: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = step;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        pieces.push(match c {
            '*' => Piece::Any,
            '?' => Piece::One,
            '[' => match class(rest) {
                Some((class, end)) => {
                    rest = &rest[end..];
                    class
                }
                None => Piece::Char('['),
            },
            c => Piece::Char(c),
        });
    }
    pieces
}

/// What stands behind a `[`, and where it ends.
fn class(text: &str) -> Option<(Piece, usize)> {
    let negated = text.starts_with(['!', '^']);
    let start = usize::from(negated);
    // A `]` that stands first is meant.
    let first = start + text[start..].chars().next()?.len_utf8();
    let end = first + text[first..].find(']')?;
    let chars: Vec<char> = text[start..end].chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(from) = chars.get(at) {
        match (chars.get(at + 1), chars.get(at + 2)) {
            (Some('-'), Some(to)) => {
                ranges.push((*from, *to));
                at += 3;
            }
            _ => {
                ranges.push((*from, *from));
                at += 1;
            }
        }
    }
    Some((Piece::Class(ranges, negated), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_match_as_in_a_shell() {
        for (step, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".a.toml", false),
            (".*.toml", ".a.toml", true),
            ("*.toml", "a.toml.swp", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-", false),
            ("?.toml", "é.toml", true),
            ("?.toml", "ab.toml", false),
            ("[a-c]*.toml", "bx.toml", true),
            ("[!a-c]*.toml", "bx.toml", false),
            ("[]x].toml", "].toml", true),
            ("a.toml", "a.toml", true),
            ("a.toml", "A.toml", false),
        ] {
            assert_eq!(matches(step, name), expected, "{step} {name}");
        }
        assert!(matches(
            &("*a".repeat(40) + "b"),
            &"a".repeat(4000).replace("aa", "ab")
        ));
        for wrong in ["a**/b", "routes.d/[a", "x/***"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert!(check("a/**/[]-]?*.toml").is_ok());
    }

    #[test]
    fn folders_are_walked() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for name in ["d/b/c", "d/.hidden", "e"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["d/1.toml", "d/b/2.toml", "d/b/c/3.toml", "d/.hidden/4.toml"] {
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink("..", at("d/b/up")).unwrap();
        std::os::unix::fs::symlink("d/1.toml", at("e/5.toml")).unwrap();
        let found = |pattern: &str| {
            let found = find(&at(pattern)).unwrap();
            let short = |paths: Vec<PathBuf>| -> Vec<String> {
                let paths = paths.iter().map(|path| path.strip_prefix(folder.path()));
                paths
                    .map(|path| path.unwrap().display().to_string())
                    .collect()
            };
            (short(found.files), short(found.folders))
        };
        let text =
            |list: &[&str]| -> Vec<String> { list.iter().map(|one| (*one).into()).collect() };
        assert_eq!(found("d/*.toml"), (text(&["d/1.toml"]), text(&["d"])));
        assert_eq!(
            found("d/**/*.toml"),
            (
                text(&["d/1.toml", "d/b/2.toml", "d/b/c/3.toml"]),
                text(&["d", "d/b", "d/b/c"])
            )
        );
        assert_eq!(found("*/b/*.toml").0, text(&["d/b/2.toml"]));
        assert_eq!(found("*/b/*.toml").1, text(&["", "d/b", "e"]));
        assert_eq!(found("none/*.toml"), (vec![], text(&[""])));
        assert_eq!(found("e/*"), (vec![], text(&["e"])), "a dangling link");
        assert_eq!(found("d/*").0, text(&["d/1.toml"]), "folders are none");
    }
}
