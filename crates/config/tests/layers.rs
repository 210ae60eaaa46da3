//! Tests the layers of the crate: a module may use only its own layer and lower layers.

use sluice_testkit::Layers;

#[test]
fn modules_use_their_own_layer_and_lower_ones() {
    let layers = Layers {
        layers: &[
            &["field", "limits", "numbering", "text"],
            &["value"],
            &["schema"],
            // The validated configuration that the daemon uses.
            &["chain", "config", "filter", "host_share", "memory", "subscribers"],
            // Problems and their positions in the file.
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
