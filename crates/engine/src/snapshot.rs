//! The configuration of a commit, as one immutable snapshot that every worker loads once per burst.

mod adopt;
pub mod assist;
pub mod chains;
mod configure;
pub mod forwarding;
pub mod fragment_limits;
pub mod gateway_flows;
pub mod inside_hosts;
pub mod inspection;
mod interface;
mod link;
pub mod marks;
mod nat;
pub mod overload;
mod port_layouts;
pub mod probes;
mod router;
pub mod shard_memory;
pub mod shard_owners;
pub mod shared_capacity;
pub mod shares;
pub mod sites;
pub mod stages;
mod start_parameters;
pub mod steering;
mod translation_targets;
pub mod tunnels;
pub mod vlan_table;

use std::sync::Arc;

use sluice_filter::Filters;
use sluice_nat::rule::Changed;
use sluice_nat::timeout::Schedule;
use sluice_route::policer::ControlClass;
use sluice_route::{Address, RouterIndex, SourceTables};
use sluice_table::changes::Changes;
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};
use sluice_wire::Context;
use sluice_wire::vlan::Tag;

use crate::packet::batch::{Meta, Origin};
use crate::packet::io::{PortIndex, WorkerIndex};
use crate::packet::punt;
use crate::packet::time::Now;
use crate::session::family::{Family, V4, V6};
use crate::session::identification::IdentificationSettings;
use crate::snapshot::chains::Chains;
use crate::snapshot::gateway_flows::GatewayFlows;
use crate::snapshot::inspection::InspectionPolicy;
use crate::snapshot::marks::Marks;
use crate::snapshot::probes::Probes;
use crate::snapshot::shares::Shares;
use crate::snapshot::tunnels::Tunnels;
use crate::snapshot::vlan_table::VlanTable;

use nat::AllNat;

pub use interface::{
    Advertise, BRIDGES, Bridge, Interface, MAX_BRIDGES, NeighbourSettings, Priority, SECOND_INTERFACE, bridge_context,
    bridged_context,
};
pub use link::{Express, HEAD, Link, MAX_TAGS};
pub use nat::Nat;
pub use port_layouts::PortLayouts;
pub use router::{Quotas, Router};
pub use sites::SiteClassifier;
pub use start_parameters::{EventSettings, StartParameters, SubscriberCapacity};

/// The workers that have a transmit queue of a port; empty if every worker has a transmit queue.
pub type Senders = Box<[WorkerIndex]>;

/// Limits of the gateway's own traffic: packets per second and burst size, by [`sluice_route::policer::ControlClass`].
pub type ControlLimits = [(u64, u64); ControlClass::ALL.len()];

/// Rate limit of redirects on an interface: redirects per second, and burst size. A host needs one redirect per
/// destination.
const REDIRECTS: TokenRate = TokenRate::new(10, 10);

/// Default limits, in the order of [`sluice_route::policer::ControlClass::ALL`].
pub const LIMITS: ControlLimits = [
    (2_000, 500),
    (1_000, 200),
    (1_000, 200),
    (2_000, 500),
    (2_000, 500),
    (500, 100),
];

/// The configuration of a commit.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Generation of the snapshot. Each commit and each published change of individual rules or routes increments the generation.
    pub generation: u32,
    /// Generation of the last commit. Later generations have only changes of individual rules and routes.
    pub committed: u32,
    /// Virtual routers, by number.
    pub routers: Vec<Router>,
    /// Interfaces in the order of the configuration.
    pub interfaces: Vec<Interface>,
    /// For each port: the interface of untagged frames, if any.
    pub untagged: Vec<Option<u16>>,
    /// For each port: the transmitting workers.
    pub senders: Vec<Senders>,
    /// Mapping of tagged frames to interfaces.
    tagged: Arc<VlanTable>,
    /// Tunnels of all interfaces.
    pub tunnels: Arc<Tunnels>,
    /// For each interface: the data that the fast path needs. [`Self::link`] sets the field.
    pub(crate) links: Arc<[Link]>,
    /// Interfaces that send router advertisements. [`Self::link`] sets the field.
    pub(crate) advertising: Arc<[u16]>,
    /// For each interface: rate limit of redirects; empty if no interface sends redirects. [`Self::link`] sets the field.
    redirects: Arc<[SharedTokenBucket]>,
    /// Interfaces that announce their addresses. [`Self::link`] sets the field.
    pub(crate) announcing: Arc<[u16]>,
    /// For each interface: its router.
    router_of: Vec<RouterIndex>,
    /// For each router: its interfaces.
    interfaces_of: Arc<Vec<Vec<u16>>>,
    /// Whether unsolicited SYNs are answered after a delay. If the flag is not set, unsolicited SYNs are dropped immediately.
    pub answers_syns: bool,
    /// For each interface: the IPv4 and IPv6 gateways of its default routes, active or not. Answers to packets that arrived on
    /// the interface are sent to these gateways.
    pub uplinks: Vec<[Option<Address>; 2]>,
    /// Pending echo requests for health checks. The control plane creates the list of requests.
    pub probes: Arc<Probes>,
    /// Source-based routing tables. The tables are numbered after the routers.
    pub sources: Arc<SourceTables>,
    /// Whether outside hosts may connect to the untranslated address of an inside host although a source rule
    /// translates this address in outbound flows.
    pub passes_untranslated: bool,
    /// Marks of sessions; `None` until rules set marks. The control plane creates the table of marks.
    pub marks: Option<Arc<Marks>>,
    /// DSCPs of sessions; `None` until rules set DSCPs. The control plane creates the table of DSCPs.
    pub code_points: Option<Arc<Marks>>,
    /// Flows to and from the gateway itself; `None` until input filter rules exist. The control plane creates the tables of these flows.
    pub local_flows: Option<Arc<GatewayFlows>>,
    /// Whether any interface clamps the MSS.
    pub limits_segments: bool,
    /// Whether any interface belongs to a bridge.
    pub bridges: bool,
    /// Whether any router has a host.
    pub hosted: bool,
    /// Division of capacity among routers and among interfaces, if configured.
    pub shares: Option<Arc<Shares>>,
    /// Chains of each router; empty if no router has chains.
    pub chains: Vec<Option<Arc<Chains>>>,
    /// IPv4 translation.
    pub nat4: Nat<V4>,
    /// IPv6 translation.
    pub nat6: Nat<V6>,
    /// Subscribers' sites, if configured.
    pub sites: Option<Arc<SiteClassifier>>,
    /// Inspection, if configured.
    pub inspection: Option<Arc<InspectionPolicy>>,
    /// Application identification, if configured.
    pub applications: Option<Arc<IdentificationSettings>>,
    /// Generation in which the inspection rules last changed.
    pub inspected: u32,
    /// The packet filter; `None` if all packets pass.
    pub filter: Option<Arc<Filters>>,
    /// Changes of individual filter rules in recent generations, for IPv4 and IPv6.
    pub filter_changes: [Changes<Changed>; 2],
    /// Changes of routes in recent generations.
    pub route_changes: Changes<sluice_route::RouteChanges>,
    /// Timeouts of sessions that use no pool.
    pub timeouts: Schedule,
    /// Limits of the gateway's own traffic.
    pub limits: ControlLimits,
    /// Hosts of routers, by router number.
    pub hosts: Vec<Arc<punt::Host>>,
    /// Number of the owner worker, which handles neighbours and the gateway's own traffic.
    pub owner: WorkerIndex,
    /// Memory layouts of port allocations.
    pub leases: PortLayouts,
}

impl Snapshot {
    /// Translation of one address family.
    #[inline(always)]
    pub fn nat<F: Family>(&self) -> &Nat<F> {
        F::select::<AllNat>(&self.nat4, &self.nat6)
    }

    /// Creates a snapshot that has only interfaces, for `ports` ports.
    pub fn new(ports: usize, interfaces: Vec<Interface>) -> Self {
        let mut untagged = vec![None; ports];
        for (number, interface) in interfaces.iter().enumerate() {
            if interface.tags.is_empty()
                && let Some(place) = untagged.get_mut(interface.port as usize)
            {
                *place = Some(number as u16);
            }
        }
        let max = interfaces.iter().map(|interface| usize::from(interface.router) + 1);
        let mut interfaces_of = vec![Vec::new(); max.max().unwrap_or(0)];
        for (number, interface) in (0..).zip(&interfaces).filter(|(_, one)| one.bridge.is_none()) {
            interfaces_of[usize::from(interface.router)].push(number);
        }
        Self {
            generation: 1,
            committed: 1,
            interfaces_of: interfaces_of.into(),
            answers_syns: true,
            uplinks: Vec::new(),
            sources: Arc::default(),
            probes: Arc::default(),
            passes_untranslated: true,
            marks: None,
            local_flows: None,
            code_points: None,
            limits_segments: interfaces.iter().any(|interface| interface.segment_size.is_some()),
            bridges: interfaces.iter().any(|interface| interface.bridge.is_some()),
            hosted: interfaces.iter().any(|interface| interface.host),
            shares: None,
            routers: vec![Router::default()],
            router_of: interfaces.iter().map(|interface| interface.router).collect(),
            tagged: VlanTable::of(ports, &interfaces).into(),
            tunnels: Tunnels::of(&interfaces).into(),
            links: Arc::default(),
            advertising: Arc::default(),
            announcing: Arc::default(),
            redirects: Arc::default(),
            interfaces,
            untagged,
            senders: vec![Senders::default(); ports],
            chains: Vec::new(),
            nat4: Nat::default(),
            nat6: Nat::default(),
            sites: None,
            inspection: None,
            applications: None,
            inspected: 0,
            filter: None,
            filter_changes: Default::default(),
            route_changes: Changes::default(),
            timeouts: Schedule::default(),
            limits: LIMITS,
            hosts: vec![Arc::default()],
            owner: 0,
            leases: PortLayouts::default(),
        }
    }

    /// The interface that receives the frames of a port if they have these tags. Frames with only priority tags count
    /// as untagged (IEEE 802.1Q, 6.9).
    #[inline]
    pub fn tagged(&self, port: PortIndex, tags: &[Option<Tag>; 2]) -> Option<u16> {
        match tags.iter().flatten().all(|tag| tag.is_priority()) {
            true => self.untagged.get(usize::from(port)).copied().flatten(),
            false => self.tagged.find(port, tags),
        }
    }

    /// Whether a port receives tagged frames.
    #[inline(always)]
    pub fn is_tagged(&self, port: PortIndex) -> bool {
        self.tagged.is_on(port)
    }

    /// Whether any VLAN of a port belongs to a bridge.
    #[inline(always)]
    pub fn bridges_tags(&self, port: PortIndex) -> bool {
        self.tagged.is_bridged(port)
    }

    /// Whether the rate limit permits a redirect through an interface now.
    pub fn admits_redirect(&self, interface: u16, now: Now) -> bool {
        let bucket = self.redirects.get(usize::from(interface));
        bucket.is_some_and(|bucket| bucket.take(now.nanoseconds))
    }

    /// The interface that receives the frames of a port if they have the given tags. The tags are encoded as the word
    /// of [`VlanTable::find_word`].
    #[inline(always)]
    pub fn tagged_by(&self, port: PortIndex, word: u64) -> Option<u16> {
        self.tagged.find_word(port, word)
    }

    /// The worker that transmits on a port in place of the worker `own`; `None` if `own` itself transmits there.
    #[inline(always)]
    pub fn sender(&self, port: PortIndex, own: WorkerIndex) -> Option<WorkerIndex> {
        let senders = self.senders.get(port as usize)?;
        // All workers use the same sender for a port. If a shard moves, its flows therefore keep their sender and their packet order.
        let sender = *senders.get(usize::from(port).checked_rem(senders.len())?)?;
        (!senders.contains(&own)).then_some(sender)
    }

    /// Whether an interface is the access interface of sites' terminals.
    #[inline(always)]
    pub fn is_access(&self, number: u16) -> bool {
        self.sites.as_deref().is_some_and(|sites| sites.is_access(number))
    }

    /// Whether the applications of sessions between two interfaces are identified.
    #[inline(always)]
    pub fn identifies(&self, interfaces: [u16; 2]) -> bool {
        let identification = self.applications.as_deref();
        identification.is_some_and(|identification| interfaces.iter().any(|&interface| identification.is_on(interface)))
    }

    /// The current MTU of an interface. The MTU of a tunnel depends on its path MTU.
    #[inline]
    pub fn mtu(&self, number: u16, now: Now) -> u16 {
        let configured = self.interface(number).map_or(0, |interface| interface.mtu);
        self.tunnels.mtu(number, configured, now)
    }

    /// Whether an interface belongs to a bridge.
    pub fn is_bridged(&self, number: u16) -> bool {
        self.interface(number)
            .is_some_and(|interface| interface.bridge.is_some())
    }

    /// The context of a packet's flow. If a terminal of a site sent the packet, the result is the site's context.
    /// Otherwise the result is the interface's context. If the interface belongs to a bridge, the context also depends
    /// on the tags of the frame.
    #[inline(always)]
    pub fn context(&self, meta: &Meta, frame: &[u8]) -> Context {
        // A hairpinned packet is treated like a packet from outside.
        let site = self.sites.as_deref().filter(|_| meta.origin != Origin::Hairpinned);
        if let Some(context) = site.and_then(|sites| sites.context(meta.interface, &meta.layers, frame)) {
            return context;
        }
        let Some(interface) = self.interface(meta.interface) else {
            return 0;
        };
        match &interface.bridge {
            Some(bridge) => {
                let vlan = |k| meta.layers.tag(frame, k).map_or(0, |tag| tag.id());
                bridged_context(bridge, interface.context, meta.interface, [vlan(0), vlan(1)])
            }
            None => interface.context,
        }
    }

    /// The interface with this number.
    #[inline(always)]
    pub fn interface(&self, number: u16) -> Option<&Interface> {
        self.interfaces.get(number as usize)
    }

    /// Source address of packets that the gateway sends to an IPv4 address through an interface. If the interface has no suitable
    /// address, the result is an address of another interface of the same router.
    pub fn source4(&self, interface: &Interface, address: u32) -> Option<u32> {
        let others = || self.interfaces.iter().filter(|other| other.router == interface.router);
        let own = interface.source4(address);
        own.or_else(|| others().find_map(|other| other.source4(address)))
    }

    /// Whether an address belongs to an interface's router.
    pub fn owns(&self, interface: &Interface, address: sluice_route::Address) -> bool {
        let mut others = self.interfaces.iter().filter(|other| other.router == interface.router);
        others.any(|other| other.link.owns(address))
    }
}
