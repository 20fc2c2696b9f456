//! The imports between the files of `src`, through the re-exports of rooms and in the bodies of macros, and the loops
//! that these imports form.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::grain::{Source, folder};

/// A module's path from the crate, as `["store", "redis"]`.
type Module = Vec<String>;

/// The imports between modules. Modules that one file declares inline count as one with the file.
pub(super) struct Imports {
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    pub(super) fn of(sources: &[Source]) -> Self {
        let mut files: BTreeMap<Module, Vec<Vec<String>>> = BTreeMap::new();
        let mut faces: BTreeMap<Module, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for source in sources {
            let module = module(&source.path);
            let mut paths = Paths::default();
            paths.visit_file(&source.syntax);
            faces.insert(module.clone(), paths.names.into_iter().collect());
            files.entry(module).or_default().extend(paths.found);
        }
        let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, paths) in &files {
            let targets = edges.entry(from.clone()).or_default();
            for path in paths {
                if let Some(to) = resolve(&files, &faces, from, path, 0)
                    && to != *from
                {
                    targets.insert(to);
                }
            }
        }
        Self { edges }
    }

    /// Every loop, as a list of its files. A parent and its children may import each other, but children among
    /// themselves may not.
    pub(super) fn loops(&self) -> Vec<String> {
        let mut found = Vec::new();
        for group in self.components(|_, _| true) {
            let root = group.iter().min_by_key(|module| module.len()).unwrap();
            if !group.iter().all(|module| module.starts_with(root)) {
                found.push(named(&group));
            }
        }
        let down = |from: &Module, to: &Module| !from.starts_with(to);
        for group in self.components(down) {
            let name = named(&group);
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// Strongly connected groups of more than one module. Only edges for which `counts` is true are followed.
    fn components(&self, counts: impl Fn(&Module, &Module) -> bool) -> Vec<Vec<Module>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = self
            .edges
            .keys()
            .map(|start| (start, self.reachable(start, &counts)))
            .collect();
        let mut groups: BTreeSet<Vec<Module>> = BTreeSet::new();
        for (start, reached) in &reach {
            let group: Vec<Module> = reached
                .iter()
                .filter(|other| reach.get(**other).is_some_and(|back| back.contains(start)))
                .map(|other| (*other).clone())
                .collect();
            if group.len() > 1 {
                groups.insert(group);
            }
        }
        groups.into_iter().collect()
    }

    /// All modules that can be reached from a module. The module itself is among them only if a loop leads back to it.
    fn reachable<'a>(
        &'a self,
        start: &'a Module,
        counts: &impl Fn(&Module, &Module) -> bool,
    ) -> BTreeSet<&'a Module> {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(from) = open.pop() {
            for to in self.edges.get(from).into_iter().flatten() {
                if counts(from, to) && reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }
}

fn named(group: &[Module]) -> String {
    let names: Vec<String> = group.iter().map(|module| module.join("/")).collect();
    names.join(" ")
}

fn module(path: &str) -> Module {
    folder(path).split('/').skip(1).map(str::to_owned).collect()
}

/// The module that defines the target of a path. Re-exports are followed as far as they lead.
fn resolve(
    files: &BTreeMap<Module, Vec<Vec<String>>>,
    faces: &BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    from: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let mut at = from.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" | "tollgate" => {
            at.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {}
        first => {
            let mut child = from.clone();
            child.push(first.to_owned());
            let face = faces
                .get(from)
                .is_some_and(|names| names.contains_key(first));
            if !files.contains_key(&child) && !face {
                return None;
            }
        }
    }
    while let Some((next, after)) = rest.split_first() {
        if next == "super" {
            at.pop()?;
        } else {
            let mut child = at.clone();
            child.push(next.clone());
            if files.contains_key(&child) {
                at = child;
            } else if let Some(target) = faces.get(&at).and_then(|names| names.get(next))
                && depth < 8
                && target.as_slice() != path
            {
                let mut onward = target.clone();
                onward.extend(after.iter().cloned());
                return resolve(files, faces, &at, &onward, depth + 1).or(Some(at));
            } else {
                return Some(at);
            }
        }
        rest = after;
    }
    Some(at)
}

/// The paths in one file that may lead into another, and the names that the file imports.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
    names: Vec<(String, Vec<String>)>,
}

impl Paths {
    fn tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| {
            let mut path = before.to_vec();
            if name != "self" || before.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        match tree {
            syn::UseTree::Path(part) => self.tree(&part.tree, &with(&part.ident)),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, before);
                }
            }
            syn::UseTree::Name(name) => {
                let path = with(&name.ident);
                self.name(path.last().cloned(), path);
            }
            syn::UseTree::Rename(name) => {
                self.name(Some(name.rename.to_string()), with(&name.ident));
            }
            syn::UseTree::Glob(_) => self.found.push(before.to_vec()),
        }
    }

    fn name(&mut self, name: Option<String>, path: Vec<String>) {
        self.names.extend(name.map(|name| (name, path.clone())));
        self.found.push(path);
    }

    /// The paths in the body of a macro, which is only known as tokens. A single name there may mean anything: an
    /// imported name has its path at its import.
    fn tokens(&mut self, body: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        // The number of colons since the last name. Two of them connect the next name to the same path.
        let mut colons = 0;
        for token in body {
            match token {
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => {
                    path.push(name.to_string());
                }
                TokenTree::Ident(name) => {
                    self.whole(&mut path);
                    if colons == 0 {
                        path.push(name.to_string());
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && colons < 2 => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.whole(&mut path);
                    self.tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.whole(&mut path),
            }
            colons = 0;
        }
        self.whole(&mut path);
    }

    fn whole(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.found.push(path);
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|name| name == "test")
    })
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&item.tree, &[]);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_macro(&mut self, item: &'a syn::ItemMacro) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_macro(self, item);
        }
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        visit::visit_macro(self, item);
        self.tokens(item.tokens.clone());
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if path.leading_colon.is_none() {
            self.found.push(names);
        }
        visit::visit_path(self, path);
    }
}
