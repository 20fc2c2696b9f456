//! The fields of `forward_identity` in all files, and the routes that must not change other files' fields: routes of
//! included files that lead to upstreams of other files.

use crate::config::document::{Document, Route};
use crate::config::input::{At, Source};
use crate::key::{FieldWriters, IdentityField, IdentityPiece, same_field};
use http::HeaderName;
use std::collections::HashMap;
use std::sync::Arc;

/// The writers of each field.
pub(in crate::config) struct IdentityWriters<'a> {
    document: &'a Document,
    source: &'a Source,
    /// The writers of each field, by the one spelling that servers may treat as equal.
    fields: HashMap<String, FirstWriters<'a>>,
    /// The template by which each file writes each field; `None` if its routes have several templates for one field.
    templates: HashMap<(usize, String), Option<String>>,
}

/// A field, and the route that writes the field.
pub(in crate::config) type Writer<'a> = (&'a Route, &'a At<IdentityField>);

/// The first writer, and the first writer in another file.
struct FirstWriters<'a> {
    first: (usize, Writer<'a>),
    other: Option<Writer<'a>>,
}

impl<'a> FirstWriters<'a> {
    /// A writer outside the file.
    fn outside(&self, file: usize) -> Option<Writer<'a>> {
        let (home, first) = self.first;
        if home == file {
            self.other
        } else {
            Some(first)
        }
    }
}

impl<'a> IdentityWriters<'a> {
    pub(in crate::config) fn of(document: &'a Document, source: &'a Source) -> Self {
        let (mut fields, mut templates) = (HashMap::new(), HashMap::new());
        for route in &document.routes {
            for at in route.forward_identity.entries() {
                let file = source.start(at.span.start);
                note_writer(same_field(&at.value.name), file, (route, at), &mut fields);
                note_template(&at.value, file, &mut templates);
            }
        }
        Self {
            document,
            source,
            fields,
            templates,
        }
    }

    /// The file of a route that must not change the fields of other files' routes.
    pub(in crate::config) fn bounded_file(&self, route: &Route) -> Option<usize> {
        let at = route.name.span.start;
        let upstream = self.document.upstream_of(route)?;
        self.source.grant(at)?;
        let is_here = self.source.is_one_place(at, upstream.name.span.start);
        (!is_here).then(|| self.source.start(at))
    }

    /// The route outside `file` that writes a field which servers may treat as `name`.
    pub(in crate::config) fn outside(&self, name: &HeaderName, file: usize) -> Option<Writer<'a>> {
        self.fields.get(&same_field(name))?.outside(file)
    }

    /// Do all routes in the file of the route's upstream that write the field use the same template, without the name
    /// of a group? Fields that third files write at their own servers do not matter here.
    pub(in crate::config) fn writes_as_its_upstreams_file(
        &self,
        route: &Route,
        field: &IdentityField,
    ) -> bool {
        let named =
            |piece: &IdentityPiece| matches!(piece, IdentityPiece::Tier | IdentityPiece::Group);
        let Some(upstream) = self.document.upstream_of(route) else {
            return false;
        };
        let home = self.source.start(upstream.name.span.start);
        let template = self.templates.get(&(home, same_field(&field.name)));
        let is_same = template.and_then(Option::as_ref) == Some(&field.to_string());
        is_same && !field.pieces().iter().any(named)
    }

    /// Each field that only one file writes, with this file.
    pub(in crate::config) fn shared(&self) -> Arc<FieldWriters> {
        let fields = self.fields.iter();
        let only = |one: &FirstWriters<'_>| one.other.is_none().then_some(one.first.0);
        let all = fields.map(|(name, one)| (name.clone(), only(one)));
        Arc::new(FieldWriters::of(all.collect()))
    }
}

fn note_template(
    field: &IdentityField,
    file: usize,
    all: &mut HashMap<(usize, String), Option<String>>,
) {
    let text = field.to_string();
    let known = all
        .entry((file, same_field(&field.name)))
        .or_insert_with(|| Some(text.clone()));
    if known.as_ref() != Some(&text) {
        *known = None;
    }
}

fn note_writer<'a>(
    name: String,
    file: usize,
    writer: Writer<'a>,
    all: &mut HashMap<String, FirstWriters<'a>>,
) {
    let first = (file, writer);
    let known = all
        .entry(name)
        .or_insert(FirstWriters { first, other: None });
    if known.first.0 != file && known.other.is_none() {
        known.other = Some(writer);
    }
}
