//! Hosts of routers: network namespaces where daemons live that speak for a router.
//!
//! A router's host is the namespace `sluice-NAME`, with a TAP interface for each of the router's, of the same name, with its
//! MAC address, addresses, MTU and carrier. What the workers have for hosts is written to these, and what the kernel sends by
//! them goes to the worker that sends for the gateway: Sluice forwards, resolves neighbours and answers echo requests, the
//! kernel and its daemons do the rest. There is no ARP on these links: the kernel sends to everybody at once, and Sluice
//! finds out who that is.

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

/// A router with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRouter {
    /// The router's name.
    pub name: String,
    /// Its interfaces.
    pub interfaces: Vec<HostInterface>,
    /// Of IPv4 and IPv6: the interface by which the host sends what no route in it knows, for Sluice to route.
    pub uplinks: [Option<u16>; 2],
}

/// An interface of such a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterface {
    /// Its place in the configuration.
    pub index: u16,
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet.
    pub mtu: u16,
    /// Its addresses, each with the length of its network.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Takes frames that hosts send, by interface; those that it does not take go on.
pub type Diversion = Box<dyn Fn(u16, &[u8]) -> bool + Send + Sync>;

/// What goes between workers and hosts.
pub struct Queues {
    /// From each worker.
    pub to_hosts: Vec<PuntReceiver>,
    /// To the one that sends for the gateway.
    pub from_hosts: Option<PuntSender>,
}

/// An interface as the kernel has it in a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLink {
    /// The router's name.
    pub router: String,
    /// The number that the namespace has for it.
    pub link: u32,
    /// Its place in the configuration.
    pub index: u16,
}

/// What has become of frames between workers and hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Written to namespaces.
    pub delivered: u64,
    /// Given to the worker.
    pub sent: u64,
    /// Not taken by the namespace: its interface was down there, or its kernel had no memory.
    pub undelivered: u64,
    /// Sent by namespaces while the queue to the worker was full.
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

/// A host that runs.
#[derive(Debug)]
struct Running {
    namespace: Namespace,
    router: HostRouter,
    links: BTreeMap<u16, u32>,
}

/// The hosts, and the thread that serves them.
pub struct Hosts {
    running: Mutex<BTreeMap<String, Running>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The namespace of a router's host.
pub fn namespace_name(router: &str) -> String {
    format!("sluice-{router}")
}

impl Hosts {
    /// Make the hosts of these routers, or take over those that a process before this one has left, and serve them.
    ///
    /// # Errors
    /// A namespace or an interface can't be had, or no thread.
    pub fn start(routers: Vec<HostRouter>, queues: Queues) -> Result<Self, HostError> {
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

    /// Other routers have hosts, or other interfaces: what stays is not disturbed, what is no longer named ends. Takes some
    /// milliseconds for each that changes.
    ///
    /// # Errors
    /// A namespace or an interface can't be had; the others are as asked.
    pub fn update(&self, routers: Vec<HostRouter>) -> Result<(), HostError> {
        let mut running = lock(&self.running);
        let mut first = Ok(());
        let gone: Vec<_> = running
            .keys()
            .filter(|name| routers.iter().all(|router| router.name != **name))
            .cloned()
            .collect();
        for name in gone {
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

    /// Let a host be as a router says, as far as that can be had.
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
                    true => tracing::info!("router {}: its host is the namespace {name}", router.name),
                    false => tracing::info!("router {}: its host goes on in the namespace {name}", router.name),
                }
                (namespace, None)
            }
        };
        let old = || known.iter().flat_map(|(_, links)| links.keys().copied());
        // Interfaces that stay are held open already.
        let mut taps = self.shared.taps_of(old());
        let (links, wrong) = match links::settle(&namespace, &router, known.as_ref(), &mut taps) {
            Ok(settled) => settled,
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        taps.retain(|index, _| links.contains_key(index));
        self.shared.replace(old(), taps);
        let settled = wrong.map_or(Ok(()), |error| Err(HostError::interface(&router.name, error)));
        // What is missing is asked for again by the next change.
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

    /// An interface's link is up or down.
    pub fn set_link(&self, index: u16, up: bool) {
        self.shared.set_link(index, up);
    }

    /// Let an interface's router's host receive a frame by it. False where there is no such host, or its kernel does not take
    /// it. It drops what comes from an address of its own.
    pub fn deliver(&self, index: u16, frame: &[u8]) -> bool {
        self.shared.deliver(index, frame)
    }

    /// Frames that hosts send are offered to `taker` first, with the interface's place. What it takes goes no further. There
    /// can be one.
    pub fn divert(&self, taker: Diversion) {
        let _ = self.shared.diversion.set(taker);
    }

    /// Interfaces that hosts have.
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

    /// What has become of frames of a router's host since its interfaces were made; none where it has no host.
    pub fn counts(&self, router: &str) -> Option<HostCounts> {
        let running = lock(&self.running);
        let taps = self.shared.taps_of(running.get(router)?.links.keys().copied());
        let counts = taps.values().map(|line| line.counts());
        Some(counts.fold(HostCounts::default(), |sum, counts| sum + counts))
    }

    /// Frames for interfaces that no host has: they were on their way when it lost them.
    pub fn strays(&self) -> u64 {
        self.shared.strays.load(Ordering::Relaxed)
    }

    /// Times that the thread that serves hosts failed by a fault of the program, and went on.
    pub fn panics(&self) -> u64 {
        self.shared.panics.load(Ordering::Relaxed)
    }

    /// End in order: namespaces are removed.
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
