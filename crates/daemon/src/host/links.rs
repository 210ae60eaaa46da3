//! Configuration of the interfaces of a host stack.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sluice_dpdk::tap::Tap;

use super::namespace::Namespace;
use super::netlink::Netlink;
use super::{HostCounts, HostInterface, HostRouter};
use crate::files;

/// Why a host stack can't be created.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The namespace can't be created.
    #[error(
        "the network namespace {name} can't be created: {error}; a router with `daemon = true` needs the capability \
         CAP_SYS_ADMIN and a writable /run/netns"
    )]
    Namespace {
        /// Name of the namespace.
        name: String,
        /// Error of the kernel.
        error: Error,
    },
    /// An interface in the namespace can't be created.
    #[error(
        "the host of router {router} can't be set up: {error}; a host needs /dev/net/tun and interface names of \
         at most 15 bytes"
    )]
    Interface {
        /// Name of the router.
        router: String,
        /// Error of the kernel.
        error: Error,
    },
    /// The serving thread can't be started.
    #[error(
        "the service for hosts of routers can't start: {0}; raise the limits on threads and descriptors (ulimit \
         -u -n)"
    )]
    Thread(#[from] Error),
}

impl HostError {
    pub(super) fn namespace(name: &str, error: Error) -> Self {
        let name = name.into();
        Self::Namespace { name, error }
    }

    pub(super) fn interface(router: &str, error: Error) -> Self {
        let router = router.into();
        Self::Interface { router, error }
    }
}

/// A TAP interface with its frame counters.
#[derive(Debug)]
pub struct Line {
    /// The TAP device.
    pub tap: Tap,
    /// Frames delivered to the namespace.
    pub delivered: AtomicU64,
    /// Frames that the namespace rejected.
    pub undelivered: AtomicU64,
    /// Frames passed to the worker.
    pub sent: AtomicU64,
    /// Frames that were lost because the worker's queue was full.
    pub lost: AtomicU64,
}

impl Line {
    fn new(tap: Tap) -> Self {
        Self {
            tap,
            delivered: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// The frame counters.
    pub fn counts(&self) -> HostCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HostCounts {
            delivered: value(&self.delivered),
            sent: value(&self.sent),
            undelivered: value(&self.undelivered),
            lost: value(&self.lost),
        }
    }
}

/// TAP interfaces by their index in the configuration.
pub type Taps = BTreeMap<u16, Arc<Line>>;

/// Kernel interface indexes, by the index of the interface in the configuration.
pub type Numbers = BTreeMap<u16, u32>;

/// Kernel settings for `all`, for `default` and for every link of a host stack. The kernel does not forward, ignores
/// router advertisements, performs no duplicate address detection, and accepts every packet that Sluice passes to it.
const SETTINGS: [(&str, &str, &str); 9] = [
    ("ipv4", "forwarding", "0"),
    ("ipv4", "rp_filter", "0"),
    ("ipv4", "accept_redirects", "0"),
    ("ipv6", "disable_ipv6", "0"),
    ("ipv6", "forwarding", "0"),
    ("ipv6", "accept_ra", "0"),
    ("ipv6", "accept_redirects", "0"),
    ("ipv6", "accept_dad", "0"),
    // Sluice sets its own link-local address, so the kernel must not generate one.
    ("ipv6", "addr_gen_mode", "1"),
];

fn set(interface: &str) -> Result<(), Error> {
    for (family, name, value) in SETTINGS {
        let path = Path::new("/proc/sys/net")
            .join(family)
            .join("conf")
            .join(interface)
            .join(name);
        match files::set(&path, value) {
            // The kernel does not support IPv6, or has this setting only for individual links.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if name == "addr_gen_mode" && error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => return Err(Error::other(format!("{}: {error}", path.display()))),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Create and configure a router's interfaces in a namespace. On entry, `taps` contains the TAP devices that are
/// already open. On return, `taps` contains all TAP devices of the router. Returns the kernel's interface indexes, and
/// the first error.
pub fn settle(
    namespace: &Namespace,
    router: &HostRouter,
    known: Option<&(HostRouter, Numbers)>,
    taps: &mut Taps,
) -> Result<(Numbers, Option<Error>), Error> {
    namespace.within(|| {
        let mut netlink = Netlink::open()?;
        if known.is_none() {
            for interface in ["all", "default"] {
                set(interface)?;
            }
        }
        let before = netlink.links()?;
        let lo = before.iter().find(|link| link.name == "lo");
        lo.map_or(Ok(()), |lo| netlink.set_up(lo.index))?;
        let wanted = |name: &str| router.interfaces.iter().any(|interface| interface.name == name);
        for link in before.iter().filter(|link| link.managed && !wanted(&link.name)) {
            netlink.delete_link(link.index)?;
        }
        // The index of an interface in the configuration may have changed, so the interfaces are matched by name.
        let mut held: BTreeMap<String, Arc<Line>> = Default::default();
        if let Some((old, _)) = known {
            let named = |interface: &HostInterface| Some((interface.name.clone(), taps.remove(&interface.index)?));
            held.extend(old.interfaces.iter().filter_map(named));
        }
        taps.clear();
        let (mut numbers, mut wrong) = (Numbers::new(), None);
        let old = |name: &str| known.and_then(|(old, _)| old.interfaces.iter().find(|old| old.name == name));
        let mut fails = |interface: &HostInterface, error| {
            wrong.get_or_insert(Error::other(format!("{}: {error}", interface.name)));
        };
        for interface in &router.interfaces {
            match link(
                &mut netlink,
                interface,
                old(&interface.name),
                held.remove(&interface.name),
            ) {
                Ok((number, tap)) => {
                    numbers.insert(interface.index, number);
                    taps.insert(interface.index, tap);
                }
                Err(error) => fails(interface, error),
            }
        }
        let existed = |interface: &HostInterface| before.iter().any(|link| link.name == interface.name);
        if before.iter().any(|link| link.managed) && !router.interfaces.iter().all(existed) {
            thread::sleep(NOTIFICATION_DELAY);
        }
        for interface in &router.interfaces {
            if let Some(number) = numbers.get(&interface.index)
                && let Err(error) = address(&mut netlink, interface, old(&interface.name), *number)
            {
                fails(interface, error);
            }
        }
        for (v6, uplink) in [false, true].into_iter().zip(router.uplinks) {
            let link = uplink.and_then(|uplink| numbers.get(&uplink).copied());
            if let Err(error) = netlink.set_last_resort(v6, link) {
                wrong.get_or_insert(Error::other(format!("the default route can't be set: {error}")));
            }
        }
        Ok((numbers, wrong))
    })
}

/// Delay between creating links and setting addresses. FRR receives notifications about links and addresses on separate
/// sockets, and discards an address that it receives before the link.
const NOTIFICATION_DELAY: Duration = Duration::from_millis(100);

/// Create an interface without addresses in the namespace, and bring its link up.
fn link(
    netlink: &mut Netlink,
    interface: &HostInterface,
    old: Option<&HostInterface>,
    held: Option<Arc<Line>>,
) -> Result<(u32, Arc<Line>), Error> {
    let tap = match held {
        Some(tap) => tap,
        None => Arc::new(Line::new(Tap::open(&interface.name)?)),
    };
    let links = netlink.links()?;
    let link = links.iter().find(|link| link.name == interface.name);
    let number = link.ok_or(ErrorKind::NotFound)?.index;
    if old.is_none() {
        set(&interface.name)?;
    }
    netlink.set_link(number, interface.mac, interface.mtu)?;
    Ok((number, tap))
}

/// Set the addresses of an interface. Remove all other addresses that Sluice has set, but keep addresses set by
/// daemons.
fn address(
    netlink: &mut Netlink,
    interface: &HostInterface,
    old: Option<&HostInterface>,
    number: u32,
) -> Result<(), Error> {
    let present = netlink.addresses()?;
    let present = present.iter().filter(|address| address.link == number);
    let was_set = |address| old.is_some_and(|old| old.addresses.contains(address));
    for address in present {
        let stays = interface.addresses.contains(&address.address);
        if !stays && (address.managed || was_set(&address.address)) {
            netlink.delete_address(number, address.address)?;
        }
    }
    for &address in &interface.addresses {
        netlink.add_address(number, address)?;
    }
    Ok(())
}

/// Delete all interfaces that Sluice has created in a namespace.
pub fn delete(namespace: &Namespace) -> Result<(), Error> {
    namespace.within(|| {
        let mut netlink = Netlink::open()?;
        for link in netlink.links()?.iter().filter(|link| link.managed) {
            netlink.delete_link(link.index)?;
        }
        Ok(())
    })
}
