//! Finds the installed Vectorscan, which is linked dynamically.

const INSTALL: &str = "apt-get install -y libvectorscan-dev pkg-config";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");

    if let Err(error) = pkg_config::Config::new().atleast_version("5.4").probe("libhs") {
        println!("cargo::error=Vectorscan 5.4 or newer, with its headers, is needed. Run as root: {INSTALL}");
        println!(
            "cargo::error=pkg-config said: {}",
            error
                .to_string()
                .lines()
                .find(|line| !line.is_empty())
                .unwrap_or_default()
        );
        std::process::exit(1);
    }
}
