//! CPU sockets, hyperthreads, caches and NUMA nodes, as the kernel describes them under `/sys`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_config::Config;
use sluice_config::config::Link;
use sluice_dpdk::Device;
use sluice_engine::placement::{Core, DeviceSite, Site, Topology};

use crate::MachineError;
use crate::machine::core_list;

/// Mount point of sysfs.
pub const SYS: &str = "/sys";

/// Cores that are online, and locations of the devices. `root` is [`SYS`] or a directory with the same layout.
///
/// If a kernel or hypervisor does not report a property, the simplest value is used: no hyperthreads, one cache per
/// socket, one NUMA node.
///
/// # Errors
/// The list of cores can't be read.
pub fn topology(root: &Path, devices: &[(String, Device)]) -> Result<Topology, MachineError> {
    let path = root.join("devices/system/cpu/online");
    let online = fs::read_to_string(&path).map_err(|error| MachineError::Unreadable {
        path: path.clone(),
        error,
    })?;
    let online = core_list(online.trim()).ok_or(MachineError::Unexpected { path, line: "0-3,8" })?;
    let nodes = nodes(root);
    let mut cores: Vec<Site> = online.iter().map(|&core| site(root, core, &nodes)).collect();
    let lowest = |socket| {
        let of_socket = cores.iter().filter(|site| site.socket == socket).map(|site| site.core);
        of_socket.min().unwrap_or(0)
    };
    let caches: Vec<Core> = cores
        .iter()
        .map(|site| cache(root, site.core).unwrap_or_else(|| lowest(site.socket)))
        .collect();
    for (site, cache) in cores.iter_mut().zip(caches) {
        site.cache = cache;
    }
    let devices = devices.iter().map(|(name, device)| DeviceSite {
        name: name.clone(),
        node: device_node(root, device),
    });
    Ok(Topology {
        cores,
        devices: devices.collect(),
    })
}

/// Devices of a configuration. The members of a bond are listed instead of the bond.
pub fn devices(config: &Config) -> Vec<(String, Device)> {
    let named = config.interfaces.iter().flat_map(|interface| {
        let devices = match &interface.link {
            Link::Device { device, .. } => std::slice::from_ref(device),
            Link::Bond { members, .. } => members,
            Link::Vlan { .. } | Link::Virtual { .. } | Link::Tunnel(_) | Link::Removed => &[],
        };
        devices.iter().map(|device| (interface.name.clone(), device))
    });
    named
        .filter_map(|(name, device)| Some((name, device.as_str().parse().ok()?)))
        .collect()
}

fn site(root: &Path, core: Core, nodes: &[(u16, Vec<Core>)]) -> Site {
    let folder = root.join(format!("devices/system/cpu/cpu{core}/topology"));
    let socket = number(&folder.join("physical_package_id")).unwrap_or(0);
    let node = nodes.iter().find(|(_, cores)| cores.contains(&core));
    Site {
        core,
        socket,
        physical: lowest(&folder.join("thread_siblings_list")).unwrap_or(core),
        cache: core,
        node: node.map_or(0, |(node, _)| *node),
    }
}

/// Lowest core that shares the last-level cache with a core.
fn cache(root: &Path, core: Core) -> Option<Core> {
    let folder = root.join(format!("devices/system/cpu/cpu{core}/cache"));
    let levels = numbered(&folder, "index").into_iter().filter_map(|(_, path)| {
        let level = number(&path.join("level"))?;
        Some((level, lowest(&path.join("shared_cpu_list"))?))
    });
    levels.max_by_key(|&(level, _)| level).map(|(_, lowest)| lowest)
}

fn nodes(root: &Path) -> Vec<(u16, Vec<Core>)> {
    let nodes = numbered(&root.join("devices/system/node"), "node").into_iter();
    nodes
        .filter_map(|(node, path)| Some((node, core_list(&text(&path.join("cpulist")).ok()?)?)))
        .collect()
}

fn device_node(root: &Path, device: &Device) -> Option<u16> {
    let folder = match device {
        Device::Pci(address) => root.join(format!("bus/pci/devices/{address}")),
        Device::Kernel { interface } => root.join(format!("class/net/{interface}/device")),
        _ => return None,
    };
    // The kernel reports -1 on a machine with one node or with an unknown topology.
    number(&folder.join("numa_node"))
}

/// Directory entries whose name consists of `word` and a number.
fn numbered(folder: &Path, word: &str) -> Vec<(u16, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix(word)?.parse().ok();
    entries
        .filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path())))
        .collect()
}

fn text(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn number(path: &Path) -> Option<u16> {
    text(path).ok()?.parse().ok()
}

fn lowest(path: &Path) -> Option<Core> {
    core_list(&text(path).ok()?)?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use sluice_engine::placement::{Costs, Distance, HandOver, Load, Part, Placement, candidates, choose, rank};
    use tempfile::TempDir;

    use super::*;

    /// A directory with the layout of `/sys`, filled from a recorded topology.
    fn laid_out(name: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let record = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/topologies")
            .join(name);
        for line in fs::read_to_string(record).unwrap().lines() {
            let Some((path, value)) = line.split_once('=') else {
                continue;
            };
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        folder
    }

    fn read(name: &str, devices: &[&str]) -> Topology {
        let folder = laid_out(name);
        let devices: Vec<_> = devices
            .iter()
            .map(|name| ((*name).to_owned(), name.parse().unwrap()))
            .collect();
        topology(folder.path(), &devices).unwrap()
    }

    #[test]
    fn one_socket_with_four_caches_is_told_apart() {
        let found = read("one-socket-four-caches.txt", &["0000:41:00.0"]);
        assert_eq!(32, found.cores.len());
        let distances: Vec<_> = [16, 1, 4].iter().map(|&other| found.distance(0, other)).collect();
        assert_eq!(vec![Distance::Core, Distance::Cache, Distance::Socket], distances);
        assert_eq!((Some(0), 0.0), (found.devices[0].node, found.remote(31)));
    }

    #[test]
    fn two_sockets_numbered_in_turn_are_told_apart() {
        let found = read("two-sockets.txt", &["0000:af:00.0"]);
        assert_eq!(48, found.cores.len());
        let distances: Vec<_> = [25, 3, 2].iter().map(|&other| found.distance(1, other)).collect();
        assert_eq!(vec![Distance::Core, Distance::Cache, Distance::Far], distances);
        assert_eq!([1.0, 0.0], [found.remote(0), found.remote(47)]);
        let all: Vec<Core> = (0..48).collect();
        let order = sluice_engine::placement::order(&all, &found);
        assert_eq!((1..24).step_by(2).collect::<Vec<Core>>(), order[..12]);
        assert!(
            order[12..24].iter().all(|core| core % 2 == 0 && *core < 24),
            "{order:?}"
        );
    }

    #[test]
    fn virtual_machine_that_tells_no_caches_has_one_cache_a_socket() {
        let found = read("two-virtual-cores.txt", &["eth0", "null:"]);
        assert_eq!(Distance::Cache, found.distance(0, 1));
        assert_eq!(
            vec![None, None],
            found.devices.iter().map(|device| device.node).collect::<Vec<_>>()
        );
    }

    #[test]
    fn virtual_machine_with_caches_has_them() {
        let found = read("virtual-machine-with-caches.txt", &[]);
        assert_eq!(Distance::Cache, found.distance(0, 1));
        assert_eq!(2, found.cores.len());
    }

    /// The placement that is chosen if every stage takes 100 cycles and a hand-over has its usual cost.
    fn chosen(topology: &Topology, queues: u16, offered: Option<f64>) -> Placement {
        let costs = Costs {
            parts: [100.0; 4],
            hand_overs: [20.0, 30.0, 60.0, 100.0].map(|cycles| HandOver {
                out: cycles,
                take: cycles,
            }),
            ..Costs::default()
        };
        let load = Load {
            queues,
            offered,
            ..Load::even(64)
        };
        let cores: Vec<Core> = topology.cores.iter().map(|site| site.core).collect();
        let ranked = rank(candidates(&cores, topology, &load), &costs, topology, &load, 2.6e9);
        choose(&ranked, &load).unwrap().placement.clone()
    }

    #[test]
    fn load_that_a_socket_carries_stays_on_the_devices_socket_without_hyperthreads() {
        let found = read("two-sockets.txt", &["0000:af:00.0"]);
        let placement = chosen(&found, 64, Some(50e6));
        assert_eq!(8, placement.workers().len());
        assert!(
            placement.workers().iter().all(|core| core % 2 == 1 && *core < 24),
            "{placement}"
        );
    }

    #[test]
    fn one_queue_receives_and_sends_on_the_devices_socket() {
        let found = read("two-sockets.txt", &["0000:af:00.0"]);
        let placement = chosen(&found, 1, None);
        assert!(placement.is_pipeline());
        for part in [Part::Receive, Part::Transmit] {
            assert!(
                placement.of(part).iter().all(|core| found.remote(*core) == 0.0),
                "{placement}"
            );
        }
    }

    #[test]
    fn two_virtual_cores_with_one_queue_are_a_pipeline_and_with_two_are_not() {
        let found = read("virtual-machine-with-caches.txt", &[]);
        assert_eq!(
            "receive+parse on 0 | session+transmit on 1",
            chosen(&found, 1, None).to_string()
        );
        assert_eq!("run-to-completion on 0,1", chosen(&found, 2, None).to_string());
    }

    #[test]
    fn hyperthreads_of_one_socket_add_what_they_are_worth() {
        let found = read("one-socket-four-caches.txt", &[]);
        assert_eq!(32, chosen(&found, 64, None).workers().len());
        assert_eq!((0..16).collect::<Vec<Core>>(), chosen(&found, 64, Some(90e6)).workers());
    }

    #[test]
    fn machine_of_this_test_has_a_topology() {
        let found = topology(Path::new(SYS), &[]).unwrap();
        assert!(!found.cores.is_empty());
    }

    #[test]
    fn folder_without_cores_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = topology(folder.path(), &[]).unwrap_err();
        assert!(error.to_string().contains("cpu/online"), "{error}");
    }
}
