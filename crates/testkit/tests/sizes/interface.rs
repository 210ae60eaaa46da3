//! The public interface of a crate: items of public modules, and re-exports.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, UseTree, Visibility};

use crate::census::is_test;

type Path = Vec<String>;

/// The modules of a crate, by their path from its root.
#[derive(Default)]
pub struct Interface {
    modules: BTreeMap<Path, Module>,
}

#[derive(Default)]
struct Module {
    types: BTreeSet<String>,
    public_modules: BTreeSet<String>,
    /// Re-exported names. `*` at the end of a name represents all items of a module.
    exports: Vec<Path>,
}

/// Results found so far.
#[derive(Default)]
struct Walk {
    modules: BTreeSet<Path>,
    exports: BTreeSet<Path>,
    types: BTreeSet<(Path, String)>,
}

impl Interface {
    /// Adds a file, given its path in `src`.
    pub fn add(&mut self, path: &str, items: &[Item]) {
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        // The root module of a program has no public interface.
        if path == "main" {
            return;
        }
        let module = path.split('/').filter(|&part| part != "lib").map(str::to_owned);
        self.module(module.collect(), items);
    }

    fn module(&mut self, path: Path, items: &[Item]) {
        let mut module = Module::default();
        for item in items {
            let (attributes, visibility) = match item {
                Item::Mod(item) => (&item.attrs, &item.vis),
                Item::Struct(item) => (&item.attrs, &item.vis),
                Item::Enum(item) => (&item.attrs, &item.vis),
                Item::Union(item) => (&item.attrs, &item.vis),
                Item::Trait(item) => (&item.attrs, &item.vis),
                Item::Type(item) => (&item.attrs, &item.vis),
                Item::Use(item) => (&item.attrs, &item.vis),
                _ => continue,
            };
            if is_test(attributes) {
                continue;
            }
            if let Item::Mod(item) = item
                && let Some((_, inner)) = &item.content
            {
                self.module([&path[..], &[item.ident.to_string()]].concat(), inner);
            }
            if !matches!(visibility, Visibility::Public(_)) {
                continue;
            }
            match item {
                Item::Mod(item) => module.public_modules.insert(item.ident.to_string()),
                Item::Struct(item) => module.types.insert(item.ident.to_string()),
                Item::Enum(item) => module.types.insert(item.ident.to_string()),
                Item::Union(item) => module.types.insert(item.ident.to_string()),
                Item::Trait(item) => module.types.insert(item.ident.to_string()),
                Item::Type(item) => module.types.insert(item.ident.to_string()),
                Item::Use(item) => {
                    flatten(&item.tree, Vec::new(), &mut module.exports);
                    continue;
                }
                _ => continue,
            };
        }
        self.modules.insert(path, module);
    }

    /// The names of the crate's public types. A name that two types share is listed twice.
    pub fn types(&self) -> Vec<String> {
        let mut walk = Walk::default();
        self.export_module(Vec::new(), &mut walk);
        walk.types.into_iter().map(|(_, name)| name).collect()
    }

    fn export_module(&self, path: Path, walk: &mut Walk) {
        let Some(module) = self.modules.get(&path) else {
            return;
        };
        if !walk.modules.insert(path.clone()) {
            return;
        }
        walk.types
            .extend(module.types.iter().map(|name| (path.clone(), name.clone())));
        for inner in &module.public_modules {
            self.export_module([&path[..], std::slice::from_ref(inner)].concat(), walk);
        }
        for export in &module.exports {
            self.export(self.resolve(&path, export), walk);
        }
    }

    fn export(&self, mut path: Path, walk: &mut Walk) {
        if !walk.exports.insert(path.clone()) {
            return;
        }
        let Some(name) = path.pop() else {
            return;
        };
        if name == "*" {
            self.export_module(path, walk);
            return;
        }
        // A re-exported type of another crate is counted in that crate.
        let Some(module) = self.modules.get(&path) else {
            return;
        };
        if module.types.contains(&name) {
            walk.types.insert((path, name));
            return;
        }
        for export in module.exports.iter().filter(|export| export.last() == Some(&name)) {
            self.export(self.resolve(&path, export), walk);
        }
        path.push(name);
        self.export_module(path, walk);
    }

    /// Converts a path written in a module to a path from the root.
    fn resolve(&self, module: &Path, written: &Path) -> Path {
        let mut path = module.clone();
        for part in written {
            match part.as_str() {
                "crate" => path.clear(),
                "self" => {}
                "super" => {
                    path.pop();
                }
                name => path.push(name.to_owned()),
            }
        }
        path
    }
}

fn flatten(tree: &UseTree, mut path: Path, found: &mut Vec<Path>) {
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            flatten(&tree.tree, path, found);
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path.clone(), found);
            }
        }
        UseTree::Name(name) => {
            path.push(name.ident.to_string());
            found.push(path);
        }
        UseTree::Rename(name) => {
            path.push(name.ident.to_string());
            found.push(path);
        }
        UseTree::Glob(_) => {
            path.push("*".to_owned());
            found.push(path);
        }
    }
}
