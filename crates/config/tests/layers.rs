//! The modules of the crate are layers: a module uses those of its own layer and of layers below.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, the lowest first.
const LAYERS: [&[&str]; 7] = [
    &["field", "limits", "numbering", "text"],
    &["value"],
    &["schema"],
    // The configuration as the daemon uses it.
    &["chain", "config", "filter", "host_share", "memory", "subscribers"],
    // What is wrong, and where.
    &["diagnosis", "problem", "read", "snippet"],
    &["validate"],
    &["api", "difference", "file", "hostile", "import"],
];

/// Files that use a higher layer, and what of it. The list may only become shorter.
const EXCEPTIONS: [(&str, &[&str]); 2] = [
    // A protocol as pools and sessions name it.
    ("problem/pool.rs", &["api"]),
    ("schema/pool.rs", &["api"]),
];

#[test]
fn modules_use_their_own_layer_and_lower_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 80, "{}", files.len());
    for file in files.iter().filter(|file| !file.ends_with("src/lib.rs")) {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        let module = name.split('/').next().unwrap().trim_end_matches(".rs");
        let own = LAYERS.iter().position(|layer| layer.contains(&module));
        let own = own.unwrap_or_else(|| panic!("{module} is in no layer"));
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // A comment may name what stands above.
        let code: String = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let upward: BTreeSet<&str> = LAYERS[own + 1..]
            .iter()
            .flat_map(|layer| layer.iter().copied())
            .filter(|higher| code.contains(&format!("crate::{higher}::")))
            .collect();
        let exception = EXCEPTIONS.iter().find(|(excepted, _)| *excepted == name);
        let expected: BTreeSet<&str> =
            exception.map_or(BTreeSet::new(), |(_, modules)| modules.iter().copied().collect());
        assert_eq!(expected, upward, "{name}: modules above {module}");
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
