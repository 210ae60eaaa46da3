//! Location of cores and devices.

use super::Core;

/// Distance between two workers: the path that a cache line takes from the core of one to the core of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Distance {
    /// Hyperthreads of one core.
    Core,
    /// Two cores that share the last-level cache.
    Cache,
    /// Cores with different last-level caches of one socket.
    Socket,
    /// Different sockets.
    Far,
}

impl Distance {
    /// All distances, in ascending order.
    pub const ALL: [Distance; 4] = [Self::Core, Self::Cache, Self::Socket, Self::Far];

    /// The distance in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "same core",
            Self::Cache => "same cache",
            Self::Socket => "same socket",
            Self::Far => "another socket",
        }
    }
}

/// Location of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Number of the core in the kernel. If the machine has hyperthreads, this is the number of a hyperthread.
    pub core: Core,
    /// Number of the core's socket.
    pub socket: u16,
    /// Physical core, represented by the lowest number among its hyperthreads.
    pub physical: Core,
    /// Last-level cache, represented by the lowest number among the cores that share it.
    pub cache: Core,
    /// Number of the core's memory node.
    pub node: u16,
}

/// Location of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSite {
    /// Name of the device's interface.
    pub name: String,
    /// Memory node of the device; `None` for a device without a memory node, such as a virtual device.
    pub node: Option<u16>,
}

/// Cores and devices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The cores in the order of their numbers.
    pub cores: Vec<Site>,
    /// The devices.
    pub devices: Vec<DeviceSite>,
}

impl Topology {
    /// A machine with one socket and one cache, and without hyperthreads.
    pub fn flat(cores: u16) -> Self {
        let site = |core| Site {
            core,
            socket: 0,
            physical: core,
            cache: 0,
            node: 0,
        };
        Self {
            cores: (0..cores).map(site).collect(),
            devices: Vec::new(),
        }
    }

    /// The location of a core.
    pub fn site(&self, core: Core) -> Option<&Site> {
        let place = self.cores.binary_search_by_key(&core, |site| site.core).ok()?;
        self.cores.get(place)
    }

    /// The distance between two cores. Unknown cores are assumed to share a socket.
    pub fn distance(&self, one: Core, other: Core) -> Distance {
        match (self.site(one), self.site(other)) {
            (Some(one), Some(other)) if one.socket != other.socket => Distance::Far,
            (Some(one), Some(other)) if one.physical == other.physical => Distance::Core,
            (Some(one), Some(other)) if one.cache == other.cache => Distance::Cache,
            _ => Distance::Socket,
        }
    }

    /// Whether two workers are hyperthreads of one core.
    pub fn are_siblings(&self, one: Core, other: Core) -> bool {
        one != other && self.distance(one, other) == Distance::Core
    }

    /// Fraction of the devices that belong to a different memory node than the core.
    pub fn remote(&self, core: Core) -> f64 {
        let Some(site) = self.site(core) else { return 0.0 };
        let nodes = self.devices.iter().filter_map(|device| device.node);
        let (all, far) = nodes.fold((0, 0), |(all, far), node| (all + 1, far + u32::from(node != site.node)));
        f64::from(far) / f64::from(all.max(1))
    }

    /// This machine with `more` additional cores, for predictions about larger machines. The new cores belong to the
    /// socket and to the cache of the last core, and have no hyperthreads.
    pub fn extended(&self, more: u16) -> Self {
        let mut larger = self.clone();
        let Some(&last) = self.cores.last() else { return larger };
        let numbers = (1..=more).filter_map(|k| last.core.checked_add(k));
        larger.cores.extend(numbers.map(|core| Site {
            core,
            physical: core,
            ..last
        }));
        larger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(core: Core, socket: u16, physical: Core, cache: Core) -> Site {
        Site {
            core,
            socket,
            physical,
            cache,
            node: socket,
        }
    }

    #[test]
    fn distance_is_told_by_what_cores_have_in_common() {
        let topology = Topology {
            cores: vec![
                site(0, 0, 0, 0),
                site(1, 0, 0, 0),
                site(2, 0, 2, 0),
                site(4, 0, 4, 4),
                site(8, 1, 8, 8),
            ],
            devices: Vec::new(),
        };
        let found: Vec<_> = [1, 2, 4, 8].iter().map(|&other| topology.distance(0, other)).collect();
        assert_eq!(Distance::ALL.to_vec(), found);
        assert!(topology.are_siblings(0, 1) && !topology.are_siblings(0, 0));
    }

    #[test]
    fn device_on_another_node_is_remote() {
        let device = |node| DeviceSite { name: "x".into(), node };
        let topology = Topology {
            cores: vec![site(0, 0, 0, 0), site(8, 1, 8, 8)],
            devices: vec![device(Some(0)), device(None)],
        };
        assert_eq!([0.0, 1.0], [topology.remote(0), topology.remote(8)]);
    }
}
