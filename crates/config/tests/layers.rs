//! The modules of the crate are layers: a module uses those of its own layer and of layers below.

use sluice_testkit::Layers;

#[test]
fn modules_use_their_own_layer_and_lower_ones() {
    let layers = Layers {
        layers: &[
            &["limits", "numbering", "text"],
            &["value"],
            &["schema"],
            // The configuration as the daemon uses it.
            &["chain", "config", "filter", "host_share", "memory", "subscribers"],
            // What is wrong, and where.
            &["diagnosis", "problem", "read", "snippet"],
            &["validate"],
            &["api", "difference", "file", "hostile", "import"],
        ],
        beside: &["lib"],
        exceptions: &[],
        files: 81,
    };
    layers.check(env!("CARGO_MANIFEST_DIR"));
}
