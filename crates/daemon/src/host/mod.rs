//! Host stacks of virtual routers: network namespaces in which daemons run on behalf of a router.
//!
//! The host stack of a router is the namespace `sluice-NAME`. For each interface of the router, this namespace has a
//! TAP interface with the same name, MAC address, addresses, MTU and carrier. Punted packets are written to the TAP
//! interfaces. Packets that the kernel sends on the TAP interfaces are passed to the worker that sends the gateway's
//! own packets. Sluice forwards, resolves neighbours and answers echo requests; all other functions are left to the
//! kernel and its daemons. ARP is disabled on TAP links: the kernel sends frames to the broadcast address, and Sluice
//! resolves the neighbour.

mod links;
mod namespace;
pub(crate) mod netlink;
mod serving;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sluice_engine::packet::punt::{PuntReceiver, PuntSender};

pub use links::HostError;
use namespace::Namespace;
use serving::Shared;

/// A router with a host stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRouter {
    /// Name of the router.
    pub name: String,
    /// Interfaces of the router.
    pub interfaces: Vec<HostInterface>,
    /// Output interfaces of the host stack's default routes of last resort, for IPv4 and IPv6. Sluice routes the
    /// packets that the kernel sends on these routes.
    pub uplinks: [Option<u16>; 2],
}

/// An interface of a host stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterface {
    /// Index in the configuration.
    pub index: u16,
    /// Name of the interface.
    pub name: String,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU: length of the largest IP packet in bytes.
    pub mtu: u16,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Callback for frames from host stacks, with the index of the interface. The callback returns whether it consumed the
/// frame. Frames that are not consumed are processed as usual.
pub type Diversion = Box<dyn Fn(u16, &[u8]) -> bool + Send + Sync>;

/// Queues between workers and host stacks.
pub struct HostQueues {
    /// For each worker, the queue of punted frames.
    pub to_hosts: Vec<PuntReceiver>,
    /// Queue to the worker that sends the gateway's own packets.
    pub from_hosts: Option<PuntSender>,
}

/// An interface of a host stack, with its kernel interface index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLink {
    /// Name of the router.
    pub router: String,
    /// Interface index in the namespace.
    pub link: u32,
    /// Index in the configuration.
    pub index: u16,
}

/// Counters of frames between workers and host stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Frames delivered to namespaces.
    pub delivered: u64,
    /// Frames passed to the worker.
    pub sent: u64,
    /// Frames that the namespace rejected, because its interface was down or the kernel had no memory.
    pub undelivered: u64,
    /// Frames from namespaces, lost because the queue to the worker was full.
    pub lost: u64,
}

impl std::ops::Add for HostCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            sent: self.sent + other.sent,
            undelivered: self.undelivered + other.undelivered,
            lost: self.lost + other.lost,
        }
    }
}

/// A running host stack.
#[derive(Debug)]
struct Running {
    namespace: Namespace,
    router: HostRouter,
    links: BTreeMap<u16, u32>,
}

/// All host stacks, and the thread that serves them.
pub struct Hosts {
    running: Mutex<BTreeMap<String, Running>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Name of the namespace of a router's host stack.
pub fn namespace_name(router: &str) -> String {
    format!("sluice-{router}")
}

impl Hosts {
    /// Create the host stacks of these routers and serve them. Namespaces that an earlier process has left are reused.
    ///
    /// # Errors
    /// A namespace, an interface or the thread can't be created.
    pub fn start(routers: Vec<HostRouter>, queues: HostQueues) -> Result<Self, HostError> {
        let shared = Arc::new(Shared::new()?);
        let thread = serving::start(queues, shared.clone())?;
        let hosts = Self {
            running: Mutex::default(),
            shared,
            thread: Mutex::new(Some(thread)),
        };
        hosts.update(routers)?;
        Ok(hosts)
    }

    /// Apply a different set of routers and interfaces. Unchanged routers are not disturbed, and routers that no longer
    /// exist are removed. Takes some milliseconds per changed host stack.
    ///
    /// # Errors
    /// A namespace or an interface can't be created. The other changes are applied nevertheless.
    pub fn update(&self, routers: Vec<HostRouter>) -> Result<(), HostError> {
        let mut running = lock(&self.running);
        let mut first = Ok(());
        let removed: Vec<_> = running
            .keys()
            .filter(|name| routers.iter().all(|router| router.name != **name))
            .cloned()
            .collect();
        for name in removed {
            if let Some(host) = running.remove(&name) {
                first = first.and(self.end(host));
            }
        }
        for router in routers {
            if running.get(&router.name).is_some_and(|host| host.router == router) {
                continue;
            }
            let before = running.remove(&router.name);
            match self.settle(before, router) {
                Ok((host, settled)) => {
                    first = first.and(settled);
                    running.insert(host.router.name.clone(), host);
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// Bring a host stack into the configured state, as far as possible.
    fn settle(
        &self,
        before: Option<Running>,
        mut router: HostRouter,
    ) -> Result<(Running, Result<(), HostError>), HostError> {
        let name = namespace_name(&router.name);
        let (namespace, known) = match before {
            Some(host) => (host.namespace, Some((host.router, host.links))),
            None => {
                let (namespace, new) = Namespace::named(&name).map_err(|error| HostError::namespace(&name, error))?;
                match new {
                    true => tracing::info!(
                        "router {}: the namespace {name} is created for the router's host",
                        router.name
                    ),
                    false => tracing::info!(
                        "router {}: the router's host uses the existing namespace {name}",
                        router.name
                    ),
                }
                (namespace, None)
            }
        };
        let old = || known.iter().flat_map(|(_, links)| links.keys().copied());
        // Remaining interfaces keep their open TAP devices.
        let mut taps = self.shared.taps_of(old());
        let (links, wrong) = match links::settle(&namespace, &router, known.as_ref(), &mut taps) {
            Ok(settled) => settled,
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        taps.retain(|index, _| links.contains_key(index));
        self.shared.replace(old(), taps);
        let settled = wrong.map_or(Ok(()), |error| Err(HostError::interface(&router.name, error)));
        // Remove failed interfaces from the state of the host stack, so that the next change creates them again.
        router
            .interfaces
            .retain(|interface| links.contains_key(&interface.index));
        let host = Running {
            namespace,
            router,
            links,
        };
        Ok((host, settled))
    }

    fn end(&self, host: Running) -> Result<(), HostError> {
        self.shared.replace(host.links.keys().copied(), BTreeMap::new());
        let name = namespace_name(&host.router.name);
        let deleted = links::delete(&host.namespace);
        let removed = host.namespace.remove();
        tracing::info!("the namespace {name} is removed");
        deleted.and(removed).map_err(|error| HostError::namespace(&name, error))
    }

    /// Set the link state of an interface.
    pub fn set_link(&self, index: u16, up: bool) {
        self.shared.set_link(index, up);
    }

    /// Deliver a frame to the host stack of an interface's router. Returns `false` if the router has no host stack or
    /// its kernel rejects the frame. The kernel later drops accepted frames if the source is one of the kernel's own
    /// addresses.
    pub fn deliver(&self, index: u16, frame: &[u8]) -> bool {
        self.shared.deliver(index, frame)
    }

    /// Pass all frames from host stacks first to `taker`, with the index of the interface. Frames that `taker` consumes
    /// are not processed further. Only one callback `taker` can be set.
    pub fn divert(&self, taker: Diversion) {
        let _ = self.shared.diversion.set(taker);
    }

    /// Interfaces of all host stacks.
    pub fn links(&self) -> Vec<KernelLink> {
        let running = lock(&self.running);
        let links = running.values().flat_map(|host| {
            host.links.iter().map(|(&index, &link)| KernelLink {
                router: host.router.name.clone(),
                link,
                index,
            })
        });
        links.collect()
    }

    /// Frame counters of a router's host stack since its interfaces were created. `None` if the router has no host
    /// stack.
    pub fn counts(&self, router: &str) -> Option<HostCounts> {
        let running = lock(&self.running);
        let taps = self.shared.taps_of(running.get(router)?.links.keys().copied());
        let counts = taps.values().map(|line| line.counts());
        Some(counts.fold(HostCounts::default(), |sum, counts| sum + counts))
    }

    /// Number of frames that were still queued when their interface was removed.
    pub fn strays(&self) -> u64 {
        self.shared.strays.load(Ordering::Relaxed)
    }

    /// Number of panics of the serving thread. The thread continues after each panic.
    pub fn panics(&self) -> u64 {
        self.shared.panics.load(Ordering::Relaxed)
    }

    /// Remove the namespaces and stop the thread.
    pub fn stop(&self) {
        for (_, host) in std::mem::take(&mut *lock(&self.running)) {
            if let Err(error) = self.end(host) {
                tracing::warn!("{error}");
            }
        }
        self.finish();
    }

    fn finish(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.finish();
    }
}
