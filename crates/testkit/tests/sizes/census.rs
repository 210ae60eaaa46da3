//! Counts the lines of files and functions, and the public types. The test parses the source text with a Rust parser.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemConst, ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait};

use crate::interface::Interface;

/// Counts of the sources of all crates.
#[derive(Default)]
pub struct Census {
    /// Number of lines of each file. `crates/crate/src/path.rs` has the key `crate/path.rs`.
    pub files: BTreeMap<String, usize>,
    /// Number of lines of each function, with a key such as `crate/path.rs: Type::function`.
    pub functions: BTreeMap<String, usize>,
    /// Number of public types with each name, with a key such as `crate: Type`.
    pub types: BTreeMap<String, usize>,
}

/// Counter of one file.
struct Counter<'c> {
    file: String,
    functions: &'c mut BTreeMap<String, usize>,
    /// The type or trait that contains the current function, if any.
    owner: Option<String>,
    is_test: bool,
    /// Number of lines of tables counted so far.
    table_lines: usize,
    /// Whether the visitor is inside a function. The lines of closures and inner functions count as lines of the outer
    /// function.
    in_function: bool,
}

impl Counter<'_> {
    fn function(&mut self, name: &str, from: usize, to: usize, walk: impl FnOnce(&mut Self)) {
        let tables_before = self.table_lines;
        let outermost = !std::mem::replace(&mut self.in_function, true);
        walk(self);
        if !outermost {
            return;
        }
        self.in_function = false;
        if self.is_test {
            return;
        }
        let owner = self.owner.as_ref().map_or(String::new(), |owner| format!("{owner}::"));
        let lines = to + 1 - from - (self.table_lines - tables_before);
        let known = self
            .functions
            .entry(format!("{}: {owner}{name}", self.file))
            .or_default();
        *known = lines.max(*known);
    }

    fn within(&mut self, owner: String, walk: impl FnOnce(&mut Self)) {
        let outer = self.owner.replace(owner);
        walk(self);
        self.owner = outer;
    }
}

pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

fn lines(item: &impl Spanned) -> usize {
    item.span().end().line + 1 - item.span().start().line
}

impl<'ast> Visit<'ast> for Counter<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let outer = self.is_test;
        self.is_test |= is_test(&module.attrs);
        visit::visit_item_mod(self, module);
        self.is_test = outer;
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.table_lines += lines(item);
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.table_lines += lines(item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
            _ => "impl".to_owned(),
        };
        self.within(owner, |counter| visit::visit_item_impl(counter, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.within(item.ident.to_string(), |counter| visit::visit_item_trait(counter, item));
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let (from, to) = (item.sig.span().start().line, item.block.span().end().line);
        let outer = self.is_test;
        self.is_test |= is_test(&item.attrs);
        self.function(&item.sig.ident.to_string(), from, to, |counter| {
            visit::visit_item_fn(counter, item);
        });
        self.is_test = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let (from, to) = (item.sig.span().start().line, item.block.span().end().line);
        self.function(&item.sig.ident.to_string(), from, to, |counter| {
            visit::visit_impl_item_fn(counter, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let Some(block) = &item.default else {
            return;
        };
        let (from, to) = (item.sig.span().start().line, block.span().end().line);
        self.function(&item.sig.ident.to_string(), from, to, |counter| {
            visit::visit_trait_item_fn(counter, item);
        });
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

impl Census {
    /// Counts the sources of all crates of the workspace.
    pub fn of_workspace() -> Self {
        let mut census = Self::default();
        for folder in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
            let folder = folder.unwrap();
            let root = folder.path().join("src");
            let mut files = Vec::new();
            sources(&root, &mut files);
            let text = |file: PathBuf| {
                let path = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                (path, fs::read_to_string(file).unwrap())
            };
            census.count(&folder.file_name().into_string().unwrap(), files.into_iter().map(text));
        }
        census
    }

    /// Counts a crate. The texts of the source files are given with their paths in `src`.
    pub fn count(&mut self, package: &str, files: impl Iterator<Item = (String, String)>) {
        let mut interface = Interface::default();
        for (path, text) in files {
            let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{package}/{path}: {error}"));
            interface.add(&path, &parsed.items);
            self.measure(format!("{package}/{path}"), &text, &parsed);
        }
        for name in interface.types() {
            *self.types.entry(format!("{package}: {name}")).or_default() += 1;
        }
    }

    fn measure(&mut self, name: String, text: &str, parsed: &syn::File) {
        // Test modules are identified by file name, because their attribute is at the declaration in the parent module.
        let mut parts = name.trim_end_matches(".rs").split('/');
        let is_test = parts.any(|part| part == "tests" || part.ends_with("_tests"));
        let mut counter = Counter {
            file: name.clone(),
            functions: &mut self.functions,
            owner: None,
            is_test: is_test || self::is_test(&parsed.attrs),
            table_lines: 0,
            in_function: false,
        };
        counter.visit_file(parsed);
        let lines = text.lines().count() - counter.table_lines;
        self.files.insert(name, lines);
    }
}
