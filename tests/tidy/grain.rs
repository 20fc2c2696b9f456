//! Counts in the code, from its syntax: names, loops of imports, shapes that are not used, and sizes.
//!
//! `cargo test --test main -- tidy::grain --nocapture` prints the figures, and the places of everything that is
//! counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::imports::Imports;

/// Words that are no terms of the field: pronouns, participles, adverbs, prepositions.
const NO_NAMES: &[&str] = &[
    "again",
    "apart",
    "aside",
    "asked",
    "away",
    "before",
    "beforehand",
    "beside",
    "brim",
    "combined",
    "dropped",
    "ending",
    "given",
    "granted",
    "half",
    "halves",
    "held",
    "hidden",
    "known",
    "lacks",
    "late",
    "logged",
    "lost",
    "named",
    "near",
    "nobody",
    "others",
    "own",
    "owed",
    "promised",
    "refused",
    "robust",
    "said",
    "seen",
    "several",
    "somebody",
    "sparing",
    "spelled",
    "standing",
    "starred",
    "strange",
    "taken",
    "taking",
    "that",
    "together",
    "told",
    "tracked",
    "undone",
    "way",
    "ways",
    "who",
    "whoever",
    "without",
];

/// Words that comments use in place of a noun.
const PRONOUNS: [&str; 6] = ["who", "whoever", "nobody", "somebody", "told", "said"];

/// A longer function is divided into its stages.
const FUNCTION_LINES: usize = 60;

// The present numbers of each. These figures only go down.
const LONG_FUNCTIONS: usize = 5;
const TUPLE_PARAMETERS: usize = 0;
const BOOL_MATCHES: usize = 0;
const CROWDED_NAMES: usize = 0;
const NAMES_WITH_TWO_HOMES: usize = 15;
const NAMES_WITHOUT_NOUN: usize = 0;
const IMPORT_LOOPS: usize = 0;
const PRONOUNS_IN_1000: usize = 1;

/// Type names that mislead if two rooms have them. Each has one home.
const TRAPS: [&str; 12] = [
    "Attempts",
    "ChunkState",
    "Connection",
    "Counter",
    "Descriptor",
    "Destination",
    "Failure",
    "Grant",
    "Label",
    "Protocol",
    "Scheme",
    "Signals",
];

/// A folder with more modules is divided into parts that are read together.
const MODULES_IN_A_FOLDER: usize = 14;

/// The folders with more modules, and their numbers. These figures only go down.
const BROAD_FOLDERS: [(&str, usize); 7] = [
    ("src", 27),
    ("src/acme", 28),
    ("src/key", 23),
    ("src/limit", 28),
    ("src/replay", 26),
    ("src/store", 20),
    ("src/tls", 24),
];

/// One file of `src` that is part of the program, without its tests.
pub(super) struct Source {
    /// The path from the repository, such as `src/store/mod.rs`.
    pub(super) path: String,
    text: String,
    pub(super) syntax: syn::File,
    tests: Vec<RangeInclusive<usize>>,
}

/// All source files, without those that only tests include.
fn sources() -> Vec<Source> {
    let mut parsed: Vec<Source> = super::files("src", "rs")
        .into_iter()
        .map(|(path, text)| {
            let syntax = syn::parse_file(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Source {
                path: path.to_str().unwrap().to_owned(),
                tests: test_lines(&syntax.items),
                text,
                syntax,
            }
        })
        .collect();
    let of_tests: Vec<String> = parsed.iter().flat_map(test_files).collect();
    parsed.retain(|source| {
        !of_tests.iter().any(|stem| {
            source.path == format!("{stem}.rs") || source.path.starts_with(&format!("{stem}/"))
        })
    });
    assert!(parsed.len() > 100, "{} files of the program", parsed.len());
    parsed
}

/// All counts, made once for all tests: in a debug build, parsing takes seconds.
static GRAIN: LazyLock<Grain> = LazyLock::new(|| {
    let sources = sources();
    Grain {
        loops: Imports::of(&sources).loops(),
        files: sources.iter().map(File::of).collect(),
    }
});

struct Grain {
    files: Vec<File>,
    /// Loops of imports, except between parent and child.
    loops: Vec<String>,
}

struct File {
    path: String,
    /// The number of modules with their own files that the file declares, without test modules.
    modules: usize,
    shapes: Shapes,
    comments: Vec<String>,
    /// The number of lines with code: not blank, no comment, and no test.
    code: usize,
}

impl File {
    fn of(source: &Source) -> Self {
        Self {
            path: source.path.clone(),
            modules: source.modules(),
            shapes: Shapes::of(source),
            comments: source.comments().map(str::to_owned).collect(),
            code: source.code(),
        }
    }

    fn room(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap();
        below.split('/').next().unwrap().trim_end_matches(".rs")
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

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

fn lines(part: &impl Spanned) -> RangeInclusive<usize> {
    part.span().start().line..=part.span().end().line
}

fn test_lines(items: &[syn::Item]) -> Vec<RangeInclusive<usize>> {
    items
        .iter()
        .filter(|item| is_for_tests(attributes(item)))
        .map(lines)
        .collect()
}

/// The test modules that a file declares, as paths without the file ending.
fn test_files(source: &Source) -> Vec<String> {
    let folder = folder(&source.path);
    source
        .syntax
        .items
        .iter()
        .filter(|item| is_for_tests(attributes(item)))
        .filter_map(|item| match item {
            syn::Item::Mod(module) if module.content.is_none() => {
                Some(format!("{folder}/{}", module.ident))
            }
            _ => None,
        })
        .collect()
}

/// The folder of the modules that a file declares.
pub(super) fn folder(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    ["/mod", "/lib", "/main"]
        .iter()
        .find_map(|end| stem.strip_suffix(end))
        .unwrap_or(stem)
        .to_owned()
}

impl Source {
    fn is_tested(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    fn modules(&self) -> usize {
        let items = self.syntax.items.iter();
        let shown = items.filter(|item| {
            matches!(item, syn::Item::Mod(module) if module.content.is_none() && !is_for_tests(&module.attrs))
        });
        shown.count()
    }

    fn code(&self) -> usize {
        let mut found = BTreeSet::new();
        let tokens: TokenStream = self.text.parse().unwrap();
        code_lines(tokens, &mut found);
        found.iter().filter(|line| !self.is_tested(**line)).count()
    }

    /// The comments, line by line.
    fn comments(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .enumerate()
            .filter(|(number, _)| !self.is_tested(number + 1))
            .filter_map(|(_, line)| {
                let line = line.trim_start();
                line.starts_with("//").then_some(line)
            })
    }
}

fn code_lines(tokens: TokenStream, found: &mut BTreeSet<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            // In the parsed syntax a documentation comment is an attribute.
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Punct(inner)) = tokens.peek()
                    && inner.as_char() == '!'
                {
                    tokens.next();
                }
                match tokens.peek() {
                    Some(TokenTree::Group(group)) if is_documentation(group) => {
                        tokens.next();
                    }
                    _ => {
                        found.insert(mark.span().start().line);
                    }
                }
            }
            TokenTree::Group(group) => {
                found.insert(group.span_open().start().line);
                found.insert(group.span_close().end().line);
                code_lines(group.stream(), found);
            }
            other => found.extend(other.span().start().line..=other.span().end().line),
        }
    }
}

fn is_documentation(group: &proc_macro2::Group) -> bool {
    group.delimiter() == Delimiter::Bracket
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

/// The counted shapes in one file, with their lines.
#[derive(Default)]
struct Shapes {
    tuple_parameters: Vec<usize>,
    bool_matches: Vec<usize>,
    long_functions: Vec<(usize, String, usize)>,
    types: Vec<String>,
    in_trait: bool,
}

impl Shapes {
    fn of(source: &Source) -> Self {
        let mut shapes = Self::default();
        for item in &source.syntax.items {
            if !is_for_tests(attributes(item)) {
                shapes.visit_item(item);
            }
        }
        shapes
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.span().start().line;
        let length = body.span().end().line + 1 - first;
        if length > FUNCTION_LINES {
            self.long_functions
                .push((first, signature.ident.to_string(), length));
        }
        if self.in_trait {
            return;
        }
        for input in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = input
                && is_tuple(&parameter.ty)
            {
                self.tuple_parameters.push(parameter.span().start().line);
            }
        }
    }
}

fn is_tuple(kind: &syn::Type) -> bool {
    match kind {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

impl<'a> Visit<'a> for Shapes {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let outer = std::mem::replace(&mut self.in_trait, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.in_trait = outer;
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        let outer = std::mem::replace(&mut self.in_trait, false);
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
        self.in_trait = outer;
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_expr_match(&mut self, expression: &'a syn::ExprMatch) {
        let is_bool = |pattern: &syn::Pat| matches!(pattern, syn::Pat::Lit(literal) if matches!(literal.lit, syn::Lit::Bool(_)));
        if expression.arms.iter().any(|arm| is_bool(&arm.pat)) {
            self.bool_matches.push(expression.span().start().line);
        }
        visit::visit_expr_match(self, expression);
    }
}

/// Prints a count, and fails with all its places if it is too high.
fn verdict(name: &str, found: &[String], most: usize) -> Result<(), String> {
    println!("{name}: {} (at most {most})", found.len());
    if found.len() > most {
        return Err(format!("{name}:\n  {}", found.join("\n  ")));
    }
    Ok(())
}

fn assert_all(verdicts: Vec<Result<(), String>>) {
    let wrong: Vec<String> = verdicts.into_iter().filter_map(Result::err).collect();
    super::assert_none(&wrong);
}

#[test]
fn shapes_that_hide_a_name_are_not_used() {
    let mut tuples = Vec::new();
    let mut matches = Vec::new();
    let mut long = Vec::new();
    for source in &GRAIN.files {
        let shapes = &source.shapes;
        let place = |line: &usize| format!("{}:{line}", source.path);
        tuples.extend(shapes.tuple_parameters.iter().map(place));
        matches.extend(shapes.bool_matches.iter().map(place));
        long.extend(shapes.long_functions.iter().map(|(line, name, length)| {
            format!("{}:{line}: {name} has {length} lines", source.path)
        }));
    }
    assert_all(vec![
        verdict("parameters that are tuples", &tuples, TUPLE_PARAMETERS),
        verdict("match on a bool", &matches, BOOL_MATCHES),
        verdict("functions over 60 lines", &long, LONG_FUNCTIONS),
    ]);
}

#[test]
fn a_type_name_has_one_home_in_a_room_and_two_at_most() {
    let mut homes: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for source in &GRAIN.files {
        for name in &source.shapes.types {
            homes
                .entry(name.clone())
                .or_default()
                .push((source.room().to_owned(), source.path.clone()));
        }
    }
    let (mut crowded, mut shared) = (Vec::new(), Vec::new());
    for (name, homes) in homes {
        if homes.len() < 2 {
            continue;
        }
        let rooms: BTreeSet<&str> = homes.iter().map(|(room, _)| room.as_str()).collect();
        let paths: Vec<&str> = homes.iter().map(|(_, path)| path.as_str()).collect();
        let place = format!("{name}: {}", paths.join(" "));
        if homes.len() > 2 || rooms.len() < homes.len() || TRAPS.contains(&name.as_str()) {
            crowded.push(place.clone());
        }
        shared.push(place);
    }
    assert_all(vec![
        verdict("type names with too many homes", &crowded, CROWDED_NAMES),
        verdict("type names with two homes", &shared, NAMES_WITH_TWO_HOMES),
    ]);
}

#[test]
fn a_file_or_type_is_called_by_a_noun() {
    let mut wrong = Vec::new();
    for source in &GRAIN.files {
        let stem = Path::new(&source.path)
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap();
        if NO_NAMES.contains(&stem) {
            wrong.push(source.path.clone());
        }
        for name in &source.shapes.types {
            if NO_NAMES.contains(&name.to_lowercase().as_str()) {
                wrong.push(format!("{}: {name}", source.path));
            }
        }
    }
    assert_all(vec![verdict(
        "names that are no nouns",
        &wrong,
        NAMES_WITHOUT_NOUN,
    )]);
}

#[test]
fn files_import_each_other_round_no_loop() {
    let loops = &GRAIN.loops;
    assert_all(vec![verdict(
        "loops of imports beyond parent and child",
        loops,
        IMPORT_LOOPS,
    )]);
}

#[test]
fn a_folder_shows_few_modules() {
    let mut broad = Vec::new();
    for source in &GRAIN.files {
        let folder = folder(&source.path);
        let known = BROAD_FOLDERS.iter().find(|(known, _)| *known == folder);
        let most = known.map_or(MODULES_IN_A_FOLDER, |(_, most)| *most);
        if source.modules > most {
            let modules = source.modules;
            broad.push(format!("{folder} shows {modules} modules, at most {most}"));
        }
    }
    assert_all(vec![verdict("folders that show too many", &broad, 0)]);
}

#[test]
fn comments_have_nouns() {
    let mut total = 0;
    let mut found = Vec::new();
    for source in &GRAIN.files {
        for line in &source.comments {
            total += 1;
            let words = line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| PRONOUNS.contains(&word.to_lowercase().as_str()));
            found.extend(words.map(|word| format!("{}: {word}: {line}", source.path)));
        }
    }
    println!("comment lines: {total}");
    assert_all(vec![verdict(
        "who, nobody, told, said in comments",
        &found,
        total * PRONOUNS_IN_1000 / 1_000,
    )]);
}

#[test]
fn the_code_is_counted() {
    let mut rooms: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for source in &GRAIN.files {
        let room = rooms.entry(source.room().to_owned()).or_default();
        room.0 += 1;
        room.1 += source.code;
    }
    for (room, (files, code)) in &rooms {
        println!("{room:12} {files:4} files {code:6} lines of code");
    }
    let code: usize = rooms.values().map(|(_, code)| code).sum();
    println!("lines of code that go into the program, without tests, blanks and comments: {code}");
    let scripts: usize = super::files("lua", "lua")
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--"))
        .count();
    println!("lines of code in scripts: {scripts}");
    assert!(code > 10_000 && scripts > 100, "nothing was counted");
}
