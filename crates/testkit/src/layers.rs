//! Checks the layers of a crate. A module may use only its own layer and lower layers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of a crate, sorted into layers.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// Top-level modules by layer, with the lowest layer first.
    pub layers: &'a [&'a [&'a str]],
    /// Top-level modules outside of the layers: `lib`, and the modules that every layer may use.
    pub beside: &'a [&'a str],
    /// Files that use a higher layer, each with the modules of that layer that the file uses.
    pub exceptions: &'a [(&'a str, &'a [&'a str])],
    /// Minimum number of source files. A smaller number indicates the wrong directory.
    pub files: usize,
}

impl Layers<'_> {
    /// Check every source file of the crate in the directory `manifest`. Unit tests are not checked.
    ///
    /// # Panics Panics if a module is in no layer, a file uses a higher layer without being an exception, or an
    /// exception is not needed.
    pub fn check(&self, manifest: &str) {
        let root = Path::new(manifest).join("src");
        let mut files = Vec::new();
        collect(&root, &mut files);
        assert!(files.len() >= self.files, "{} source files", files.len());
        for file in files {
            let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
            let module = name.split('/').next().unwrap().trim_end_matches(".rs");
            if self.beside.contains(&module) {
                continue;
            }
            let upward = self.upward(module, &fs::read_to_string(&file).unwrap());
            assert_eq!(self.excepted(name), upward, "{name}: modules above {module}");
        }
        for (excepted, _) in self.exceptions {
            assert!(
                root.join(excepted).exists(),
                "exception {excepted}: there is no such file"
            );
        }
    }

    fn excepted(&self, name: &str) -> BTreeSet<&str> {
        let exception = self.exceptions.iter().find(|(excepted, _)| *excepted == name);
        exception.map_or(BTreeSet::new(), |(_, modules)| modules.iter().copied().collect())
    }

    /// Modules of higher layers to which the source text of a module refers. Comments are ignored.
    fn upward(&self, module: &str, text: &str) -> BTreeSet<&str> {
        let own = self.layers.iter().position(|layer| layer.contains(&module));
        let own = own.unwrap_or_else(|| panic!("{module} is in no layer"));
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = lines.collect();
        let higher = self.layers[own + 1..].iter().flat_map(|layer| layer.iter().copied());
        higher
            .filter(|higher| code.contains(&format!("crate::{higher}::")))
            .collect()
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: Layers<'_> = Layers {
        layers: &[&["low"], &["middle", "beside"], &["high"]],
        beside: &["lib"],
        exceptions: &[],
        files: 1,
    };

    #[test]
    fn module_that_names_a_higher_one_uses_it() {
        let text = "use crate::high::Roof;\nuse crate::low::Floor;\nuse crate::beside::Wall;\n";
        assert_eq!(BTreeSet::from(["high"]), LAYERS.upward("middle", text));
        assert_eq!(BTreeSet::from(["beside", "high"]), LAYERS.upward("low", text));
        assert_eq!(BTreeSet::new(), LAYERS.upward("high", text));
    }

    #[test]
    fn comment_and_unit_test_may_name_a_higher_module() {
        let text = "// See crate::high::Roof.\n#[cfg(test)]\nmod tests {\n    use crate::high::Roof;\n}\n";
        assert_eq!(BTreeSet::new(), LAYERS.upward("low", text));
    }

    #[test]
    #[should_panic(expected = "cellar is in no layer")]
    fn module_in_no_layer_is_refused() {
        LAYERS.upward("cellar", "");
    }

    #[test]
    #[should_panic(expected = "lib.rs: modules above lib")]
    fn file_above_its_layer_is_refused() {
        let layers = Layers {
            layers: &[&["lib"], &["packet"]],
            beside: &[
                "clock", "capture", "hostile", "ledger", "machine", "packet", "process", "strategy", "layers",
            ],
            exceptions: &[("lib.rs", &["packet"])],
            files: 1,
        };
        layers.check(env!("CARGO_MANIFEST_DIR"));
    }
}
