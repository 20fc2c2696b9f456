//! Names in lower case: fields, functions, modules and variables have names from the field, in tests too.

use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Words that are not allowed as whole words of an identifier: `is_told` contains one, `untold` does not.
const NO_WORDS: &[&str] = &[
    "again",
    "apart",
    "aside",
    "asides",
    "believe",
    "believed",
    "believes",
    "believing",
    "bequeath",
    "beside",
    "came",
    "dismissed",
    "far",
    "goes_by",
    "half",
    "halves",
    "heard_out",
    "heir",
    "let_go",
    "near",
    "news",
    "nobody",
    "onward",
    "own",
    "promise",
    "promised",
    "shelf",
    "shelves",
    "somebody",
    "stranger",
    "strangers",
    "told",
    "turn_round",
    "turned",
    "unanswered",
    "whoever",
    "whom",
];

/// Names that come from other projects and contain such a word, each with its reason.
const KEPT: &[(&str, &str)] = &[
    (
        "half_close",
        "hyper's word for a connection of which one direction is over",
    ),
    ("own", "a key of limits in the file"),
];

/// Single words that mean nothing without the type whose method they name.
const METHODS_ALONE: [&str; 8] = [
    "all", "check", "leave", "note", "of", "read", "take", "text",
];

/// The declarations of one file.
#[derive(Default)]
struct Names {
    /// Declared names with forbidden words: the line and the identifier.
    wrong: Vec<(usize, String)>,
    /// Functions outside a type that have the name of a method.
    bare: Vec<(usize, String)>,
}

fn is_wrong(name: &str) -> bool {
    let padded = format!("_{}_", name.trim_start_matches("r#"));
    let is_kept = KEPT.iter().any(|(kept, _)| *kept == name);
    !is_kept
        && NO_WORDS
            .iter()
            .any(|word| padded.contains(&format!("_{word}_")))
}

/// Is this a test? The name of a test is a sentence.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let last = attribute.path().segments.last();
        last.is_some_and(|segment| segment.ident == "test")
    })
}

impl Names {
    fn declare(&mut self, name: &syn::Ident) {
        if is_wrong(&name.to_string()) {
            self.wrong
                .push((name.span().start().line, name.to_string()));
        }
    }

    /// The identifiers in a macro's body. Declarations and uses cannot be distinguished there.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut is_test = false;
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    is_test |= group.stream().to_string() == "test";
                    self.tokens(group.stream());
                }
                TokenTree::Ident(name) if name == "fn" => {}
                TokenTree::Ident(name) => {
                    if !std::mem::take(&mut is_test) {
                        self.declare(&name);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        let name = &function.sig.ident;
        if !is_test(&function.attrs) {
            self.declare(name);
            if METHODS_ALONE.contains(&name.to_string().as_str()) {
                self.bare.push((name.span().start().line, name.to_string()));
            }
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.declare(&function.sig.ident);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        self.declare(&function.sig.ident);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if let Some(name) = &field.ident {
            self.declare(name);
        }
        visit::visit_field(self, field);
    }

    /// A variable: by `let`, as a parameter, of a closure, in an arm of a `match`.
    fn visit_pat_ident(&mut self, variable: &'a syn::PatIdent) {
        self.declare(&variable.ident);
        visit::visit_pat_ident(self, variable);
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        self.declare(&module.ident);
        visit::visit_item_mod(self, module);
    }

    fn visit_use_rename(&mut self, rename: &'a syn::UseRename) {
        self.declare(&rename.rename);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

fn names(path: &Path, text: &str) -> Names {
    let syntax =
        syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut names = Names::default();
    names.visit_file(&syntax);
    names
}

#[test]
fn names_are_words_of_the_field() {
    let mut wrong = Vec::new();
    for (path, text) in super::files("src", "rs") {
        let names = names(&path, &text);
        let place = |line: usize| format!("{}:{line}", path.display());
        wrong.extend(
            names
                .wrong
                .iter()
                .map(|(line, name)| format!("{}: {name} has a word that is no name", place(*line))),
        );
        wrong.extend(
            names
                .bare
                .iter()
                .map(|(line, name)| format!("{}: the function {name} needs a noun", place(*line))),
        );
    }
    super::assert_none(&wrong);
}

#[test]
fn each_way_of_declaring_a_name_is_read() {
    let text = r#"
        mod told;
        use other as news;
        struct One { heir: u8 }
        trait Two { fn came(&self); }
        impl One { fn beside(&self) {} fn of() {} }
        fn apart(half: u8) { let near = |onward: u8| match onward { shelf => untold(shelf) }; }
        fn read() { format!("{}", again); }
        #[test] fn it_is_told_again() {}
        proptest! { #[test] fn nobody_is_told(far in 0..1) {} }
    "#;
    let names = names(Path::new("a test"), text);
    let found: Vec<&str> = names.wrong.iter().map(|(_, name)| name.as_str()).collect();
    let expected = [
        "told", "news", "heir", "came", "beside", "apart", "half", "near", "onward", "shelf",
        "again", "far",
    ];
    assert_eq!(found, expected);
    let bare: Vec<&str> = names.bare.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(bare, ["read"]);
}
