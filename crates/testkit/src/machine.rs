//! A directory with the layout of `/` on a machine with network cards. The directory contains the parts of `/sys`, `/dev`
//! and `/proc` that are used to find cards.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

/// A simulated machine in a temporary directory. This process has all permissions there.
#[derive(Debug)]
pub struct Machine {
    root: TempDir,
}

impl Default for Machine {
    fn default() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let machine = Self { root };
        machine.write("proc/self/status", "Name:\tsluice\nCapEff:\t000001ffffffffff\n");
        machine.write("dev/vfio/vfio", "");
        machine
    }
}

impl Machine {
    /// Root directory of the simulated machine.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Write a file. Missing directories are created.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a folder above")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    /// The content of a file, without surrounding white space.
    pub fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.trim().to_owned()
    }

    /// Create a link to a path below the root.
    pub fn link(&self, link: &str, to: &str) {
        let link = self.root().join(link);
        fs::create_dir_all(link.parent().expect("a folder above")).expect("folders");
        symlink(self.root().join(to), link).expect("a link");
    }

    /// Add an Ethernet card.
    pub fn card(&self, address: &str, driver: Option<&str>, group: Option<u32>) {
        self.device(address, "0x020000", driver, group);
    }

    /// Add a PCI device of a class.
    pub fn device(&self, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("class", class),
            ("vendor", "0x8086"),
            ("device", "0x10d3"),
            ("numa_node", "-1"),
            ("modalias", "pci:v00008086d000010D3"),
            ("driver_override", "(null)"),
        ] {
            self.write(&format!("{folder}/{name}"), text);
        }
        self.bind(address, driver);
        if let Some(group) = group {
            let groups = format!("sys/kernel/iommu_groups/{group}");
            self.write(&format!("dev/vfio/{group}"), "");
            self.link(&format!("{groups}/devices/{address}"), &folder);
            self.link(&format!("{folder}/iommu_group"), &groups);
        }
    }

    /// Bind a device to a different driver, or to no driver.
    pub fn bind(&self, address: &str, driver: Option<&str>) {
        let link = format!("sys/bus/pci/devices/{address}/driver");
        let _ = fs::remove_file(self.root().join(&link));
        if let Some(driver) = driver {
            self.driver(driver);
            self.link(&link, &format!("sys/bus/pci/drivers/{driver}"));
        }
    }

    /// Add a loaded driver.
    pub fn driver(&self, driver: &str) {
        for file in ["bind", "unbind"] {
            self.write(&format!("sys/bus/pci/drivers/{driver}/{file}"), "");
        }
    }

    /// Add a process that has a file open.
    pub fn process(&self, id: u32, name: &str, file: &str) {
        self.write(&format!("proc/{id}/comm"), name);
        let fd = self.root().join(format!("proc/{id}/fd"));
        fs::create_dir_all(&fd).expect("folders");
        symlink(file, fd.join("7")).expect("a link");
    }

    /// Add hugepages of a size.
    pub fn hugepages(&self, kilobytes: usize, total: usize, free: usize) {
        let folder = format!("sys/kernel/mm/hugepages/hugepages-{kilobytes}kB");
        for (name, count) in [("nr_hugepages", total), ("free_hugepages", free), ("resv_hugepages", 0)] {
            self.write(&format!("{folder}/{name}"), &format!("{count}\n"));
        }
    }
}
