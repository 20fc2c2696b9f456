//! The names that a mapping looks for in a line of JSON, object by object: one pass over the line finds them all.

use super::Fault;
use super::json::{self, NestedStep, Value};
use http::HeaderName;

/// The mapped names of one object of a line.
#[derive(Debug, Clone, Default)]
pub(super) struct MappedLevel {
    names: Vec<MappedName>,
    /// The prefixes of names that are fields, each in a member of its own.
    prefixes: Vec<Box<str>>,
}

/// A name that is mapped, or whose object has mapped names.
#[derive(Debug, Clone)]
struct MappedName {
    name: Box<str>,
    /// The positions of the mapped members.
    members: Vec<usize>,
    inside: Option<Box<MappedLevel>>,
}

/// The values of one line.
#[derive(Default)]
pub(super) struct MappedValues<'a> {
    /// The value of each member that the line has.
    pub(super) values: Vec<Option<Value<'a>>>,
    pub(super) fields: Vec<(HeaderName, Value<'a>)>,
}

impl MappedLevel {
    /// Adds the member at `path` below this level. A name with dots may be one name, or names of objects.
    pub(super) fn add(&mut self, path: &str, member: usize, by_prefix: bool) {
        if by_prefix {
            self.prefixes.push(path.into());
        } else {
            self.name(path).members.push(member);
        }
        for (dot, _) in path.match_indices('.') {
            let inside = self.name(&path[..dot]).inside.get_or_insert_default();
            inside.add(&path[dot + 1..], member, by_prefix);
        }
    }

    fn name(&mut self, name: &str) -> &mut MappedName {
        let known = self.names.iter().position(|known| *known.name == *name);
        let at = known.unwrap_or_else(|| {
            self.names.push(MappedName {
                name: name.into(),
                members: Vec::new(),
                inside: None,
            });
            self.names.len() - 1
        });
        &mut self.names[at]
    }

    /// Collects the mapped members of an object of `line` in `said`, and returns the position after the object. `at` is
    /// the position after its brace. An object that only has mapped members inside is read once, on the way to its end.
    pub(super) fn find<'a>(
        &self,
        line: &'a str,
        mut at: usize,
        depth: usize,
        said: &mut MappedValues<'a>,
    ) -> Result<usize, Fault> {
        let mut is_first = true;
        loop {
            let (name, start) = match json::nested_step(line, at, is_first)? {
                NestedStep::Member(name, start) => (name, start),
                NestedStep::End(end) => return Ok(end),
            };
            is_first = false;
            let name = name.read().unwrap_or_default();
            let mapped = self.names.iter().find(|mapped| *mapped.name == *name);
            let inside = mapped.and_then(|mapped| {
                let inside = mapped.inside.as_deref()?;
                Some((inside, json::object_at(line, start)?))
            });
            if let Some((inside, brace)) = inside {
                at = inside.find(line, brace, depth + 1, said)?;
            }
            let members = mapped.map_or(&[][..], |mapped| &mapped.members);
            if inside.is_some() && members.is_empty() && self.prefixes.is_empty() {
                continue;
            }
            let value;
            (value, at) = json::value(line, start, depth)?;
            for &member in members {
                said.values[member] = Some(value);
            }
            for prefix in &self.prefixes {
                let field = name.strip_prefix(&**prefix).map(HeaderName::try_from);
                said.fields
                    .extend(field.and_then(Result::ok).map(|field| (field, value)));
            }
        }
    }
}
