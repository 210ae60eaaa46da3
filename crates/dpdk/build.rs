//! Compiles the C shim against the installed DPDK, and generates bindings of the shim.
//!
//! Bindings are generated only for `shim.h`, which includes no DPDK header. Thus only C code depends on DPDK's struct
//! layouts, which change between releases.

use std::path::PathBuf;

const INSTALL: &str =
    "apt-get install -y libdpdk-dev dpdk clang libclang-dev libelf-dev libbpf-dev libxdp-dev pkg-config";

/// Driver libraries that this crate references by symbol but `pkg-config --libs` does not list.
const DRIVER_LIBRARIES: [&str; 2] = ["rte_net_ring", "rte_net_bond"];

fn main() {
    println!("cargo::rerun-if-changed=src/shim");
    println!("cargo::rerun-if-changed=build.rs");

    let dpdk = match pkg_config::Config::new().atleast_version("22.11").probe("libdpdk") {
        Ok(dpdk) => dpdk,
        Err(error) => {
            println!("cargo::error=DPDK 22.11 or newer, with its headers, is needed. Run as root: {INSTALL}");
            println!(
                "cargo::error=pkg-config said: {}",
                error.to_string().lines().next().unwrap_or_default()
            );
            std::process::exit(1);
        }
    };
    for library in DRIVER_LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={library}");
    }

    let mut shim = cc::Build::new();
    for source in [
        "acl.c",
        "burst.c",
        "fib.c",
        "inject.c",
        "port.c",
        "process.c",
        "steering.c",
    ] {
        shim.file(PathBuf::from("src/shim").join(source));
    }
    for path in &dpdk.include_paths {
        shim.flag("-isystem")
            .flag(path.to_str().expect("an include path of DPDK is UTF-8"));
    }
    // Add two flags that DPDK's headers need but the pkg-config crate drops. Add -O3, because the shim contains the
    // burst loops.
    shim.flag("-include").flag("rte_config.h").flag("-march=corei7");
    shim.flag("-Werror=implicit-function-declaration")
        .flag("-Wall")
        .flag("-Wextra");
    shim.define("ALLOW_EXPERIMENTAL_API", None)
        .define("_GNU_SOURCE", None)
        .opt_level(3)
        .debug(true);
    shim.compile("sluice_dpdk_shim");

    let bindings = bindgen::Builder::default()
        .header("src/shim/shim.h")
        .allowlist_item("sluice_.*|SLUICE_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .wrap_unsafe_ops(true)
        .use_core()
        .layout_tests(false)
        .generate()
        .expect("bindgen reads shim.h");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings
        .write_to_file(out.join("shim.rs"))
        .expect("OUT_DIR is writable");
}
