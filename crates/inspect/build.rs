//! Finds the installed Vectorscan and nDPI, which are linked dynamically, and generates bindings from nDPI's header.

use std::path::PathBuf;

use pkg_config::{Config, Error, Library};

const INSTALL: &str = "apt-get install -y libvectorscan-dev libndpi-dev clang libclang-dev pkg-config";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");

    let vectorscan = Config::new().atleast_version("5.4").probe("libhs");
    found("Vectorscan 5.4 or newer", vectorscan);
    // The layout of nDPI's flow structure is part of the interface and changes with each release.
    let ndpi = Config::new().range_version("4.2".."4.3").probe("libndpi");
    bind_ndpi(&found("nDPI 4.2", ndpi));
}

fn found(what: &str, answer: Result<Library, Error>) -> Library {
    answer.unwrap_or_else(|error| {
        println!("cargo::error={what}, with its headers, is needed. Run as root: {INSTALL}");
        println!(
            "cargo::error=pkg-config said: {}",
            error
                .to_string()
                .lines()
                .find(|line| !line.is_empty())
                .unwrap_or_default()
        );
        std::process::exit(1);
    })
}

fn bind_ndpi(ndpi: &Library) {
    let includes = ndpi.include_paths.iter().map(|path| format!("-I{}", path.display()));
    let bindings = bindgen::Builder::default()
        .header_contents("ndpi.h", "#include <ndpi_api.h>")
        // Makes the fields of a detection module visible.
        .clang_arg("-DNDPI_LIB_COMPILATION")
        .clang_args(includes)
        .allowlist_function("set_ndpi_(flow_)?(malloc|free)")
        .allowlist_function("ndpi_(init|exit)_detection_module|ndpi_finalize_initialization")
        .allowlist_function("ndpi_set_(protocol_detection_bitmask2|detection_preferences)|ndpi_lru_cache_init")
        .allowlist_function("ndpi_detection_(process_packet|giveup|get_sizeof_ndpi_flow_struct)")
        .allowlist_function("ndpi_extra_dissection_possible|ndpi_get_(proto_by_id|num_supported_protocols)")
        .allowlist_function("ndpi_get_api_version|ndpi_revision")
        .allowlist_type("ndpi_protocol_id_t")
        .allowlist_var("NDPI_API_VERSION")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .wrap_unsafe_ops(true)
        .use_core()
        .layout_tests(false)
        .generate()
        .expect("bindgen reads ndpi_api.h");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings
        .write_to_file(out.join("ndpi.rs"))
        .expect("OUT_DIR is writable");
}
