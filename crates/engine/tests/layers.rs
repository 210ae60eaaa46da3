//! The folders of the engine are layers: a module only uses modules of its own folder and of lower layers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, the lowest first. `placement` is independent of them.
const LAYERS: [&str; 7] = [
    "packet", "session", "snapshot", "features", "nodes", "worker", "control",
];

/// Files that use a higher layer, with that layer. The list may only become shorter.
const EXCEPTIONS: [(&str, &[&str]); 3] = [
    // The end of a session releases resources of its features.
    ("session/shard.rs", &["features", "snapshot"]),
    ("session/shared_capacity.rs", &["snapshot"]),
    // A snapshot holds the settings of features.
    ("snapshot.rs", &["features"]),
];

#[test]
fn modules_use_their_own_layer_and_lower_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 100, "{}", files.len());
    for file in files {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        let layer = name.split('/').next().unwrap().trim_end_matches(".rs");
        let Some(own) = LAYERS.iter().position(|&known| known == layer) else {
            continue;
        };
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // Comments may mention higher layers.
        let code: String = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let upward: BTreeSet<&str> = LAYERS[own + 1..]
            .iter()
            .copied()
            .filter(|higher| code.contains(&format!("crate::{higher}::")))
            .collect();
        let exception = EXCEPTIONS.iter().find(|(excepted, _)| *excepted == name);
        let expected: BTreeSet<&str> =
            exception.map_or(BTreeSet::new(), |(_, layers)| layers.iter().copied().collect());
        assert_eq!(expected, upward, "{name}: layers above {layer}");
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
