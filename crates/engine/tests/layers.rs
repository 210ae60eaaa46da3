//! Tests that the folders of the engine are layers: a module uses only modules in its own folder or in a lower layer.

use sluice_testkit::Layers;

#[test]
fn modules_use_their_own_layer_and_lower_ones() {
    let layers = Layers {
        layers: &[
            &["packet"],
            &["session"],
            &["snapshot"],
            &["features"],
            &["nodes"],
            &["worker"],
            &["control"],
        ],
        beside: &["lib", "placement"],
        exceptions: &[],
        files: 101,
    };
    layers.check(env!("CARGO_MANIFEST_DIR"));
}
