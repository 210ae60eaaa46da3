//! The configuration of a commit, as one immutable snapshot that every worker loads once per burst.

pub mod assist;
pub mod chains;
pub mod forwarding;
pub mod fragment_limits;
pub mod gateway_flows;
pub mod inside_hosts;
pub mod inspection;
mod interface;
mod link;
pub mod marks;
pub mod overload;
pub mod probes;
pub mod shard_memory;
pub mod shard_owners;
pub mod shared_capacity;
pub mod shares;
pub mod sites;
pub mod stages;
pub mod steering;
mod translation_targets;
pub mod tunnels;
pub mod vlan_table;

use sluice_filter::Filters;
use sluice_nat::bindings::Capacity;
use sluice_nat::event::EventKinds;
use sluice_nat::meter::Meters;
use std::collections::HashSet;
use std::sync::Arc;

use sluice_nat::rule::{Changed, SourceAction};
use sluice_nat::shard::Shards;
use sluice_nat::sites::{Sites, is_pooled, outer};
use sluice_nat::timeout::Schedule;
use sluice_nat::{Behaviour, Filtering, Layout, PoolIndex, Pools, PortClass, Rules};
use sluice_route::policer::ControlClass;
use sluice_route::{Address, Lookup, RouterIndex, SourceTables};
use sluice_table::changes::Changes;
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};
use sluice_wire::Context;
use sluice_wire::vlan::Tag;

use crate::packet::batch::{Meta, Origin};
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{PortIndex, WorkerIndex};
use crate::packet::punt;
use crate::packet::time::Now;
use crate::session::family::{Family, PerFamily, V4, V6};
use crate::session::identification::IdentificationSettings;
use crate::snapshot::assist::Assist;
use crate::snapshot::chains::{Chains, NamedPolicers};
use crate::snapshot::fragment_limits::FragmentLimits;
use crate::snapshot::gateway_flows::GatewayFlows;
use crate::snapshot::inside_hosts::InsideHosts;
use crate::snapshot::inspection::InspectionPolicy;
use crate::snapshot::marks::Marks;
use crate::snapshot::probes::Probes;
use crate::snapshot::shard_owners::ShardOwners;
use crate::snapshot::shares::{LinkShare, RouterShare, Shares};
use crate::snapshot::stages::Stages;
use crate::snapshot::steering::Steering;
use crate::snapshot::translation_targets::TranslationTargets;
use crate::snapshot::tunnels::Tunnels;
use crate::snapshot::vlan_table::VlanTable;

pub use interface::{
    Advertise, BRIDGES, Bridge, Interface, LATER_SIDE, MOST_BRIDGES, NeighbourSettings, Priority, bridge_context,
    bridged_context,
};
pub use link::{HEAD, Link};
pub use sites::SiteClassifier;

/// Parameters that are fixed for the lifetime of the process, because memory and devices depend on them.
#[derive(Clone, Debug)]
pub struct StartParameters {
    /// The shards, and the function that assigns packets to them.
    pub steering: Steering,
    /// The worker that owns each shard.
    pub owners: Arc<ShardOwners>,
    /// The workers of each part of packet processing.
    pub stages: Stages,
    /// State of assistance, in which receiving workers process shards of overloaded session workers.
    pub assist: Option<Arc<Assist>>,
    /// Maximum number of IPv4 sessions, and of IPv6 sessions, in all shards together.
    pub sessions: [u32; 2],
    /// Maximum number of outside ports, which is at least the number of ports at start.
    pub ports: usize,
    /// Secret key of the hashes for session tables and port selection.
    pub secret: [u64; 2],
    /// Limits of the table of fragmented datagrams.
    pub fragments: FragmentLimits,
    /// Maximum number of parked unsolicited SYNs in all shards together.
    pub unsolicited_syns: u32,
    /// Number of public IPv4 addresses that can be added to pools later without more memory for port allocations.
    pub spare_addresses: u32,
    /// Maximum numbers of subscribers and of port blocks.
    pub subscribers: SubscriberCapacity,
    /// Capacity of each worker's application identification, if enabled.
    pub applications: Option<sluice_inspect::applications::ApplicationCapacity>,
    /// Capacity of each shard's inspection, if enabled.
    pub inspection: Option<sluice_inspect::inspector::InspectorCapacity>,
    /// Session counts of the pools and routers that have limits.
    pub meters: Arc<Meters>,
    /// Settings of translation events.
    pub events: EventSettings,
    /// Maximum number of interfaces, which is at least the number of interfaces at start.
    pub interfaces: usize,
}

/// Settings of translation events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSettings {
    /// The kinds of events to record.
    pub wanted: EventKinds,
    /// Capacity of each worker's queue. Events beyond the capacity are counted as lost. With capacity 0, there is no queue.
    pub most: usize,
}

/// Maximum numbers of subscribers and of port blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberCapacity {
    /// Maximum number of subscribers of each family, in all shards together.
    pub most: u32,
    /// Maximum number of port blocks of all subscribers.
    pub blocks: u32,
    /// Maximum number of ports and blocks in quarantine (RFC 6888, REQ-8), in all shards together.
    pub held: u32,
    /// Length of the inside prefix that counts as one subscriber, for IPv4 and for IPv6.
    pub prefix: [u8; 2],
}

impl Default for SubscriberCapacity {
    fn default() -> Self {
        Self {
            most: 65_536,
            blocks: 131_072,
            held: 131_072,
            prefix: [32, 128],
        }
    }
}

impl StartParameters {
    /// Number of IPv4 and of IPv6 sessions in each shard, at least one.
    pub fn sessions_per_shard(&self) -> [usize; 2] {
        self.sessions
            .map(|all| (all as usize).div_ceil(self.steering.shards().count() as usize).max(1))
    }

    /// Capacity of each shard for allocations of a family's pools. Every session may have a separate mapping, and a
    /// filtering entry if filtering is address-dependent. Subscribers are distributed unevenly over the shards, so
    /// their capacity is a quarter higher than an even share.
    pub fn capacity<F: Family>(&self, snapshot: &Snapshot) -> Capacity {
        let family = usize::from(F::IS_V6);
        let nat = snapshot.nat::<F>();
        if F::IS_V6 && nat.pools.is_empty() {
            return Capacity::NONE;
        }
        let shards = self.steering.shards().count() as usize;
        let share = |all: u32| {
            let even = (all as usize).div_ceil(shards);
            if shards == 1 { even } else { even + even / 4 + 64 }
        };
        let permits = |behaviour: Behaviour| behaviour.filtering == Filtering::AddressDependent;
        let permissions = nat
            .pools
            .iter()
            .any(|(_, pool)| PortClass::ALL.iter().any(|&class| permits(pool.behaviour(class))));
        Capacity {
            mappings: self.sessions_per_shard()[family] * (1 + usize::from(permissions)),
            subscribers: share(self.subscribers.most),
            blocks: share(self.subscribers.blocks),
            quarantine: share(self.subscribers.held),
            events: if self.events.most == 0 {
                EventKinds::NONE
            } else {
                self.events.wanted
            },
            subscriber: self.subscribers.prefix[family],
        }
    }
}

/// The workers that have a transmit queue of a port; empty if every worker has a transmit queue.
pub type Senders = Box<[WorkerIndex]>;

/// Translation of one address family.
#[derive(Clone, Debug)]
pub struct Nat<F: Family> {
    /// Translation rules.
    pub rules: Rules<F::Address>,
    /// Changes of individual rules in recent generations.
    pub changes: Changes<Changed>,
    /// Address pools.
    pub pools: Pools<F::Address>,
    /// Networks of inside hosts; `None` if untranslated flows have no sessions.
    pub hosts: Option<InsideHosts<F::Address>>,
    /// Endpoints with flows that belong to the shards of their clients; `None` if no rule defines such endpoints.
    pub spread: Option<TranslationTargets<F::Address>>,
    /// The sites that have public addresses.
    pub sites: Option<Arc<Sites>>,
    /// Networks of inside hosts to which outside hosts may connect. The snapshot derives these networks.
    pub inside: InsideHosts<F::Address>,
    /// Whether a rule translates on any interface, so that interfaces with inside hosts also count as outside. Derived from the rules.
    pub everywhere: bool,
}

impl<F: Family> Nat<F> {
    /// Derives the networks of inside hosts from the rules and the interfaces.
    fn find_inside_hosts(&mut self, interfaces: &[Interface]) {
        self.inside = InsideHosts::of(self, interfaces, true);
        let rules = self.rules.sources(usize::MAX);
        self.everywhere = rules
            .iter()
            .any(|(_, rule, _)| rule.outside.is_none() && rule.action != SourceAction::Exempt);
    }

    /// Whether a packet from outside starts a flow to an inside host's own address. If untranslated flows have
    /// sessions, the function returns `false`, because both endpoints of the flow determine its shard.
    #[inline(always)]
    pub fn begins_outside(&self, context: Context, source: F::Address, destination: F::Address) -> bool {
        self.hosts.is_none()
            && self.inside.has(context, destination)
            && !(self.everywhere && self.inside.has(context, source))
    }
}

impl<F: Family> Default for Nat<F> {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            changes: Changes::default(),
            pools: Pools::default(),
            hosts: None,
            spread: None,
            sites: None,
            inside: InsideHosts::default(),
            everywhere: false,
        }
    }
}

/// Limits of the gateway's own traffic: packets per second and burst size, by [`sluice_route::policer::ControlClass`].
pub type Limits = [(u64, u64); ControlClass::ALL.len()];

/// Rate limit of redirects on an interface, per second, and burst size. A host needs one redirect per destination.
const REDIRECTS: TokenRate = TokenRate::new(10, 10);

/// Default limits, in the order of [`sluice_route::policer::ControlClass::ALL`].
pub const LIMITS: Limits = [
    (2_000, 500),
    (1_000, 200),
    (1_000, 200),
    (2_000, 500),
    (2_000, 500),
    (500, 100),
];

/// Memory layouts of port allocations. The control plane creates the layouts.
#[derive(Clone, Debug, Default)]
pub struct PortLayouts {
    /// Generation of the last commit that changed the layouts.
    pub generation: u32,
    /// Layout of IPv4 pools.
    pub four: Layout<u32>,
    /// Layout of IPv6 pools.
    pub six: Layout<[u64; 2]>,
    /// IPv4 and IPv6 pools with a changed allocation scheme (mapping, selection or distribution of ports), each with
    /// the generation of the change.
    pub reshaped: Arc<[Vec<(PoolIndex, u32)>; 2]>,
}

impl PortLayouts {
    /// Creates the layouts of a snapshot's pools.
    pub fn of(snapshot: &Snapshot, shards: Shards) -> Self {
        Self {
            generation: 0,
            reshaped: Arc::default(),
            four: Layout::shared(&snapshot.nat4.pools, shards),
            six: Layout::shared(&snapshot.nat6.pools, shards),
        }
    }

    /// Whether a pool's allocation scheme has changed since a generation.
    #[inline]
    pub fn is_reshaped_since(&self, six: bool, pool: PoolIndex, generation: u32) -> bool {
        let reshaped = &self.reshaped[usize::from(six)];
        reshaped
            .iter()
            .any(|&(index, since)| index == pool && (generation.wrapping_sub(since) as i32) < 0)
    }

    /// Records the changes since the layouts `before`, as changes of a generation.
    pub fn follow(&mut self, before: &Self, generation: u32) {
        let mut reshaped = (*before.reshaped).clone();
        let [four, six] = &mut reshaped;
        note(four, &before.four, &self.four, generation);
        note(six, &before.six, &self.six, generation);
        self.generation = generation;
        self.reshaped = Arc::new(reshaped);
    }

    /// Whether the layouts are equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.four.is_same(&other.four) && self.six.is_same(&other.six)
    }
}

/// A virtual router. The number of the router is the context of packets that arrive on its interfaces.
#[derive(Clone, Debug, Default)]
pub struct Router {
    /// Name in the configuration; empty if the number is unused.
    pub name: String,
    /// Session limits. The limits apply to both families together.
    pub limits: sluice_nat::Limits,
    /// Whether the packet filter applies to forwarded packets of the router.
    pub filters: bool,
    /// Quotas in addition to the session limits.
    pub quotas: Quotas,
}

/// Quotas of a router; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Maximum number of learned routes.
    pub routes: Option<usize>,
    /// Maximum number of neighbours, including neighbours that are being resolved.
    pub neighbours: Option<u32>,
    /// Maximum number of packets that each worker parks: for neighbours, fragments, stream reassembly and unsolicited SYNs.
    pub buffers: Option<u32>,
}

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
    /// Whether outside hosts may connect to an inside host's own address if a source rule translates that address.
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
    pub limits: Limits,
    /// Hosts of routers, by router number.
    pub hosts: Vec<Arc<punt::Host>>,
    /// Number of the owner worker, which handles neighbours and the gateway's own traffic.
    pub owner: WorkerIndex,
    /// Memory layouts of port allocations.
    pub leases: PortLayouts,
}

fn note<A: sluice_nat::Address>(
    reshaped: &mut Vec<(PoolIndex, u32)>,
    before: &Layout<A>,
    now: &Layout<A>,
    generation: u32,
) {
    for index in 0.. {
        let (Some(old), Some(new)) = (before.pool(index), now.pool(index)) else {
            return;
        };
        // If a pool was added or removed, there is no previous allocation scheme to compare.
        if old.addresses() > 0 && new.addresses() > 0 && !new.has_shape_of(old) {
            reshaped.retain(|&(known, _)| known != index);
            reshaped.push((index, generation));
        }
    }
}

/// Translation of both families.
struct AllNat;

impl PerFamily for AllNat {
    type Of<F: Family> = Nat<F>;
}

impl Snapshot {
    /// Translation of one address family.
    #[inline(always)]
    pub fn nat<F: Family>(&self) -> &Nat<F> {
        F::select::<AllNat>(&self.nat4, &self.nat6)
    }

    /// Creates a snapshot with only interfaces, for `ports` ports.
    pub fn new(ports: usize, interfaces: Vec<Interface>) -> Self {
        let mut untagged = vec![None; ports];
        for (number, interface) in interfaces.iter().enumerate() {
            if interface.tags.is_empty()
                && let Some(place) = untagged.get_mut(interface.port as usize)
            {
                *place = Some(number as u16);
            }
        }
        let most = interfaces.iter().map(|interface| usize::from(interface.router) + 1);
        let mut interfaces_of = vec![Vec::new(); most.max().unwrap_or(0)];
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

    /// The interface that receives a port's frames with these tags. Frames with only priority tags count as untagged (IEEE 802.1Q, 6.9).
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

    /// Derives the networks of inside hosts. There may be very many rules, so this is called only if rules or
    /// interfaces have changed.
    pub(crate) fn know_inside(&mut self) {
        self.nat4.find_inside_hosts(&self.interfaces);
        self.nat6.find_inside_hosts(&self.interfaces);
    }

    /// Derives worker data from all interfaces, so that workers need not search them. Must be called after all other changes.
    pub(crate) fn link(&mut self) {
        let numbered = (0..).zip(&self.interfaces);
        let advertising = numbered.filter(|(_, interface)| interface.advertise.is_some());
        self.advertising = advertising.map(|(number, _)| number).collect();
        let announces = |interface: &Interface| {
            interface.neighbours.announces && interface.bridge.is_none() && !interface.is_pair()
        };
        let numbered = (0..).zip(&self.interfaces);
        let announcing = numbered.filter(|(_, interface)| announces(interface));
        self.announcing = announcing.map(|(number, _)| number).collect();
        if self.interfaces.iter().any(|interface| interface.neighbours.redirects) {
            let bucket = |_| SharedTokenBucket::new(REDIRECTS);
            self.redirects = self.interfaces.iter().map(bucket).collect();
        }
        self.links = self
            .interfaces
            .iter()
            .map(|interface| Link::of(interface, self))
            .collect();
    }

    /// Whether the rate limit permits a redirect through an interface now.
    pub fn admits_redirect(&self, interface: u16, now: Now) -> bool {
        let bucket = self.redirects.get(usize::from(interface));
        bucket.is_some_and(|bucket| bucket.take(now.nanoseconds))
    }

    /// The interface that receives a port's frames with tags that are encoded as the word of [`VlanTable::find_word`].
    #[inline(always)]
    pub fn tagged_by(&self, port: PortIndex, word: u64) -> Option<u16> {
        self.tagged.find_word(port, word)
    }

    /// The worker that transmits on a port for `own`; `None` if the worker `own` itself transmits.
    #[inline(always)]
    pub fn sender(&self, port: PortIndex, own: WorkerIndex) -> Option<WorkerIndex> {
        let senders = self.senders.get(port as usize)?;
        // All workers use the same sender for a port. If a shard moves, its flows therefore keep their sender and their packet order.
        let sender = *senders.get(usize::from(port).checked_rem(senders.len())?)?;
        (!senders.contains(&own)).then_some(sender)
    }

    /// Derives the endpoints of translation rules with flows that belong to the shards of their clients. Must be called
    /// after interfaces and translation rules were set.
    pub fn spread_flows(&mut self) {
        self.nat4.spread = TranslationTargets::of(&self.nat4, &self.interfaces);
        self.nat6.spread = TranslationTargets::of(&self.nat6, &self.interfaces);
    }

    /// Applies a filter to the routers that have filtering enabled, or to all routers if no router has it enabled. Must
    /// be called after routers, interfaces and translation rules were set.
    pub fn filter_by(&mut self, filter: Arc<Filters>) {
        if !self.routers.iter().any(|router| router.filters) {
            self.routers.iter_mut().for_each(|router| router.filters = true);
        }
        if filter.sessions {
            let filters: Vec<bool> = self.routers.iter().map(|router| router.filters).collect();
            self.keep_sessions(|context, _| filters.get(context as usize).is_some_and(|filters| *filters));
        }
        self.filter = Some(filter);
    }

    /// Keeps the marks and DSCPs of the previous snapshot, and allocates tables if rules now set marks or DSCPs.
    pub(crate) fn keep_marks(&mut self, before: [Option<Arc<Marks>>; 2], start: &StartParameters) {
        let filter = self.filter.as_ref();
        let sets = filter.map_or([false; 2], |filter| [filter.marks, filter.code_points]);
        let kept = |at: usize| {
            before[at]
                .clone()
                .or_else(|| sets[at].then(|| Arc::new(Marks::new(start))))
        };
        (self.marks, self.code_points) = (kept(0), kept(1));
    }

    /// Keeps the previous snapshot's flows to and from the gateway, and allocates tables if input filter rules exist.
    pub(crate) fn keep_local_flows(&mut self, before: Option<Arc<GatewayFlows>>) {
        let filter = self.filter.as_ref();
        let is_asked = filter.is_some_and(|filter| filter.gateway.is_some());
        self.local_flows = before.or_else(|| is_asked.then(Arc::default));
    }

    /// Inspects the flows of some interfaces. Must be called after interfaces and translation rules were set.
    pub fn inspect_by(&mut self, inspection: Arc<InspectionPolicy>) {
        self.keep_sessions(|_, interface| inspection.is_on(interface));
        self.inspection = Some(inspection);
    }

    /// Identifies the applications of sessions of some interfaces. Must be called after interfaces and translation rules were set.
    pub fn identify_by(&mut self, seeking: Arc<IdentificationSettings>) {
        self.keep_sessions(|_, interface| seeking.is_on(interface));
        self.applications = Some(seeking);
    }

    /// Enables subscribers' sites. Must be called after interfaces and translation rules were set.
    pub fn serve_sites(&mut self, sites: SiteClassifier) {
        let settings = sites.settings();
        let doors = settings.doors.iter().flat_map(|(_, behind)| behind.contexts());
        let pooled: HashSet<Context> = doors.filter(|&context| is_pooled(context)).map(outer).collect();
        self.nat4.sites = Some(sites.table.clone());
        for (number, interface) in (0..).zip(&mut self.interfaces).filter(|(_, one)| one.bridge.is_none()) {
            let is_door = sites.is_access(number);
            // Packets to the address of a pool may arrive on any interface of the router except access interfaces.
            let is_outside = sites.is_public(number) || !is_door && pooled.contains(&interface.context);
            interface.stateful[0] |= is_door || is_outside;
            interface.outside |= is_outside;
        }
        self.sites = Some(Arc::new(sites));
    }

    /// Whether an interface is the access interface of sites' terminals.
    #[inline(always)]
    pub fn is_access(&self, number: u16) -> bool {
        self.sites.as_deref().is_some_and(|sites| sites.is_access(number))
    }

    /// Sets the division of capacity among routers and among interfaces, by number.
    pub fn share_by(&mut self, routers: Vec<RouterShare>, links: Vec<LinkShare>) {
        self.shares = Shares::new(routers, links, &self.interfaces, self.untagged.len()).map(Arc::new);
    }

    /// Whether the applications of sessions between two interfaces are identified.
    #[inline(always)]
    pub fn identifies(&self, interfaces: [u16; 2]) -> bool {
        let seeking = self.applications.as_deref();
        seeking.is_some_and(|seeking| interfaces.iter().any(|&interface| seeking.is_on(interface)))
    }

    /// Requires sessions for untranslated flows in the routers of the selected interfaces, so that all packets look up sessions.
    fn keep_sessions(&mut self, wanted: impl Fn(Context, u16) -> bool) {
        let routed = |interface: &&Interface| interface.bridge.is_none();
        let wanting = (0..).zip(&self.interfaces).filter(|(_, interface)| routed(interface));
        let wanting = wanting.filter(|(number, interface)| wanted(interface.context, *number));
        let contexts: HashSet<Context> = wanting.map(|(_, interface)| interface.context).collect();
        if contexts.is_empty() {
            return;
        }
        for interface in &mut self.interfaces {
            if interface.bridge.is_none() && contexts.contains(&interface.context) {
                interface.stateful = [true; 2];
            }
        }
        self.nat4.hosts = Some(InsideHosts::of(&self.nat4, &self.interfaces, false));
        self.nat6.hosts = Some(InsideHosts::of(&self.nat6, &self.interfaces, false));
    }

    /// The filter; `None` if it does not apply to a router's packets.
    #[inline(always)]
    pub fn filter_of(&self, context: Context) -> Option<&Filters> {
        let filter = self.filter.as_deref()?;
        self.router(context)?.filters.then_some(filter)
    }

    /// Whether the filter is stateful for a router, so that only the first packet of an untranslated flow is evaluated.
    #[inline(always)]
    pub fn filters_sessions(&self, context: Context) -> bool {
        self.filter_of(context).is_some_and(|filter| filter.sessions)
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
    /// Otherwise the result is the interface's context, which includes the tags on a bridge.
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

    /// The virtual router of a context; `None` if the context belongs to a bridge.
    #[inline(always)]
    pub fn router(&self, context: Context) -> Option<&Router> {
        self.routers.get(outer(context) as usize)
    }

    /// Number of the virtual router with this name.
    pub fn router_named(&self, name: &str) -> Option<RouterIndex> {
        let place = self.routers.iter().position(|router| router.name == name)?;
        Some(place as RouterIndex)
    }

    /// The router of an interface, or router 0 if the interface doesn't exist.
    #[inline(always)]
    pub fn router_of(&self, interface: u16) -> RouterIndex {
        self.router_of.get(interface as usize).copied().unwrap_or(0)
    }

    /// The gateway of an uplink, for one address family.
    pub fn uplink(&self, interface: u16, six: bool) -> Option<Address> {
        *self.uplinks.get(usize::from(interface))?.get(usize::from(six))?
    }

    /// The context for route lookups of a router's packets from a source address.
    #[inline(always)]
    pub fn lookup<F: Family>(&self, router: RouterIndex, source: F::Address) -> Lookup<'_> {
        self.sources.lookup(router, F::address(source))
    }

    /// The router of each interface, by interface number.
    pub fn routers_of(&self) -> impl Iterator<Item = RouterIndex> + '_ {
        (0..self.interfaces.len()).map(|number| self.router_of(number as u16))
    }

    /// Whether another packet of an interface may be parked. `counters` are the counters of the worker.
    pub fn may_wait(&self, interface: u16, counters: &WorkerCounters) -> bool {
        let router = usize::from(self.router_of(interface));
        let Some(most) = self.routers.get(router).and_then(|router| router.quotas.buffers) else {
            return true;
        };
        let own = self.interfaces_of.get(router).into_iter().flatten();
        let own = own.filter_map(|&number| counters.interfaces.get(usize::from(number)));
        let waiting = own.map(|one| one.parked.get().wrapping_sub(one.unparked.get()));
        waiting.fold(0, u64::wrapping_add) < u64::from(most)
    }

    /// Prepares the ports of pools that shards share. If the snapshot `before` contains an address, its ports keep their owners.
    pub(crate) fn share_ports(&mut self, before: Option<&Self>, start: &StartParameters) {
        let shards = start.steering.shards();
        self.nat4.pools.share(before.map(|before| &before.nat4.pools), shards);
        self.nat6.pools.share(before.map(|before| &before.nat6.pools), shards);
    }

    /// Keeps the rate limit states of the previous snapshot for routers and interfaces.
    pub fn adopt_shares(&mut self, before: &Self) {
        if let (Some(own), Some(old)) = (&mut self.shares, &before.shares) {
            Arc::make_mut(own).adopt(old);
        }
    }

    /// Whether plain IPv4 packets of an interface need only a route lookup.
    #[inline]
    pub fn needs_routes_alone(&self, interface: &Interface) -> bool {
        self.only_routes(interface) && !self.limits_segments && !interface.neighbours.redirects
    }

    /// Whether no feature of an interface depends on the headers after IP.
    #[inline]
    pub fn only_routes(&self, interface: &Interface) -> bool {
        !interface.stateful[0]
            && self.filter_of(interface.context).is_none()
            && self.chains_of(interface.router).is_none()
            && self.sources.of(interface.router).is_empty()
    }

    /// Whether any router has chains.
    #[inline(always)]
    pub fn is_chained(&self) -> bool {
        !self.chains.is_empty()
    }

    /// The chains for packets that arrive on an interface.
    #[inline]
    pub fn chains_at(&self, interface: u16) -> Option<&Chains> {
        self.chains_of(self.router_of(interface))
    }

    /// The chains of a router.
    #[inline]
    pub fn chains_of(&self, router: RouterIndex) -> Option<&Chains> {
        self.chains.get(usize::from(router))?.as_deref()
    }

    /// Keeps the counters and policers of unchanged chains of the previous snapshot. All routers share named policers.
    pub fn adopt_chains(&mut self, before: &Self) {
        let mut named = NamedPolicers::default();
        for chains in before.chains.iter().flatten() {
            chains.note_named(&mut named);
        }
        for (router, chains) in self.routers.iter().zip(&mut self.chains) {
            let same = before.routers.iter().position(|other| other.name == router.name);
            let old = same.and_then(|place| before.chains.get(place)?.as_ref());
            let Some(chains) = chains.as_mut().and_then(Arc::get_mut) else {
                continue;
            };
            if let Some(old) = old {
                chains.adopt(old);
            }
            chains.share_named(&mut named);
        }
    }

    /// Keeps the previous snapshot's hosts if their settings are unchanged. The counters of hosts are always kept.
    pub fn adopt_hosts(&mut self, before: &Self) {
        for (router, host) in self.routers.iter().zip(&mut self.hosts) {
            let same = before.routers.iter().position(|other| other.name == router.name);
            match same.and_then(|place| before.hosts.get(place)) {
                Some(old) if old.is_like(host) => *host = old.clone(),
                Some(old) => *host = Arc::new(host.changed_from(old)),
                None => {}
            }
        }
    }

    /// The host of the router to which the interface `number` belongs.
    pub fn host(&self, number: u16) -> Option<&punt::Host> {
        let interface = self.interface(number).filter(|interface| interface.host)?;
        self.hosts.get(usize::from(interface.router)).map(|host| &**host)
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
