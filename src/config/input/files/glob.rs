//! Patterns of paths: `*`, `?` and `[a-z]` in any step, and a step `**` for any number of folders.
//!
//! As in a shell, only patterns that begin with a dot find names that begin with a dot: editors and orchestrators keep
//! private files under such names.

use glob::{MatchOptions, Pattern, PatternError};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// The most folder entries that one pattern visits.
const MOST_ENTRIES: usize = 100_000;

/// The files of a pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matches {
    /// Regular files, sorted.
    pub files: Vec<PathBuf>,
    /// Folders in which a new file can match.
    pub folders: Vec<PathBuf>,
}

/// Does `text` contain a character that makes it a pattern?
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Checks that `text` is a pattern of paths.
///
/// # Errors
/// If `text` is not a pattern: the reason.
pub fn check_pattern(text: &str) -> Result<(), &'static str> {
    for step in text.split('/') {
        if step != "**" && step.contains("**") {
            return Err("write `**` alone between slashes; it matches any number of folders");
        }
        if step != "**" && one_step(step).is_err() {
            return Err("a `[` that no `]` closes");
        }
    }
    Ok(())
}

/// The files that `pattern` matches now.
///
/// # Errors
/// If a folder cannot be read, or the folders contain too many entries.
pub fn find(pattern: &Path) -> io::Result<Matches> {
    let mut walk = GlobWalk {
        matched: Matches::default(),
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
    let Matches { files, folders } = &mut walk.matched;
    files.sort();
    files.dedup();
    folders.sort();
    folders.dedup();
    Ok(walk.matched)
}

struct GlobWalk {
    matched: Matches,
    entries: usize,
}

impl GlobWalk {
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
                // A link to a folder is not followed, since the link may lead back.
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

/// Does the step of a pattern match `name`?
#[must_use]
pub fn matches(step: &str, name: &str) -> bool {
    if step == "**" {
        return !name.starts_with('.');
    }
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: false,
        require_literal_leading_dot: true,
    };
    one_step(step).is_ok_and(|step| step.matches_with(name, options))
}

/// A class is negated by `!` or, as in some shells, by `^`.
fn one_step(step: &str) -> Result<Pattern, PatternError> {
    Pattern::new(&step.replace("[^", "[!"))
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
            assert!(check_pattern(wrong).is_err(), "{wrong}");
        }
        assert!(check_pattern("a/**/[]-]?*.toml").is_ok());
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
