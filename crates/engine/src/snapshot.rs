//! What a commit decides: one immutable snapshot that every worker loads once per burst.

pub mod assist;
pub mod chains;
pub mod forwarding;
pub mod inside_hosts;
mod interface;
mod link;
pub mod marks;
pub mod probes;
pub mod shard_owners;
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

use crate::features::applications::IdentificationSettings;
use crate::features::input_filter::GatewayFlows;
use crate::features::inspection::InspectionPolicy;
use crate::features::punt;
use crate::features::virtual_reassembly;
use crate::packet::batch::{Meta, Origin};
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{PortIndex, WorkerIndex};
use crate::packet::time::Now;
use crate::session::family::{Family, PerFamily, V4, V6};
use crate::snapshot::assist::Assist;
use crate::snapshot::chains::{Chains, NamedPolicers};
use crate::snapshot::inside_hosts::InsideHosts;
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

/// What is fixed from start to end, because memory and devices hang on it.
#[derive(Clone, Debug)]
pub struct StartParameters {
    /// Shards, and which packets belong to which.
    pub steering: Steering,
    /// Worker in charge of each shard.
    pub owners: Arc<ShardOwners>,
    /// Which workers do which part of a packet's way.
    pub stages: Stages,
    /// Workers that receive take shards over from those with sessions when these have too much to do.
    pub assist: Option<Arc<Assist>>,
    /// Sessions of IPv4 and IPv6, all shards together.
    pub sessions: [u32; 2],
    /// Ports that there is room for; at least those of the start.
    pub ports: usize,
    /// Secret of the hashes that place sessions and choose ports.
    pub secret: [u64; 2],
    /// Datagrams in fragments.
    pub fragments: virtual_reassembly::Limits,
    /// SYNs that nobody expects which may wait for their answer, all shards together.
    pub unsolicited_syns: u32,
    /// Public IPv4 addresses that pools may gain later, as far as memory for their leases is concerned.
    pub spare_addresses: u32,
    /// Subscribers of translation.
    pub subscribers: SubscriberCapacity,
    /// How much of applications each worker looks at, where it does.
    pub applications: Option<sluice_inspect::applications::ApplicationCapacity>,
    /// How much is inspected at once in each shard, where anything is.
    pub inspection: Option<sluice_inspect::inspector::InspectorCapacity>,
    /// Sessions of pools and router, where they are limited.
    pub meters: Arc<Meters>,
    /// Events of translation.
    pub events: EventSettings,
    /// Interfaces that there is room for; at least those of the start.
    pub interfaces: usize,
}

/// What is kept of the events of translation until somebody takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSettings {
    /// Which are wanted.
    pub wanted: EventKinds,
    /// Events that wait in each worker's queue at most; further ones are counted and lost. 0: there is no queue.
    pub most: usize,
}

/// What is fixed about subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberCapacity {
    /// Most of each family, all shards together.
    pub most: u32,
    /// Port blocks of all of them.
    pub blocks: u32,
    /// Ports and blocks that wait before they are lent again (RFC 6888, REQ-8), all shards together.
    pub held: u32,
    /// Length of the inside prefix that is one subscriber, in IPv4 and IPv6.
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
    /// Sessions of IPv4 and IPv6 in each shard, at least one.
    pub fn sessions_per_shard(&self) -> [usize; 2] {
        self.sessions
            .map(|all| (all as usize).div_ceil(self.steering.shards().count() as usize).max(1))
    }

    /// Room of each shard for what pools of a family lend. Every session may have a mapping of its own, and a permission
    /// where filtering is address-dependent. Subscribers don't spread evenly over shards: there is room for a quarter more.
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

/// The workers that have a queue of a port to send by: none where each has its own.
pub type Senders = Box<[WorkerIndex]>;

/// Translation of one family.
#[derive(Clone, Debug)]
pub struct Nat<F: Family> {
    /// Rules.
    pub rules: Rules<F::Address>,
    /// Where single rules have changed since the last generations.
    pub changes: Changes<Changed>,
    /// Pools.
    pub pools: Pools<F::Address>,
    /// Where flows that are not translated have sessions too: networks of the hosts that translation knows.
    pub hosts: Option<InsideHosts<F::Address>>,
    /// Ends whose flows belong to the shards of their clients, where rules make any such.
    pub spread: Option<TranslationTargets<F::Address>>,
    /// Whose addresses are that sites have of their own.
    pub sites: Option<Arc<Sites>>,
    /// Networks of hosts that translation knows, to whom others may begin from outside. The snapshot fills it in.
    pub inside: InsideHosts<F::Address>,
    /// Some rule translates by whatever interface, so that hosts come in by outside interfaces too. The snapshot fills it in.
    pub everywhere: bool,
}

impl<F: Family> Nat<F> {
    /// Find out whose hosts are inside, of the interfaces there are.
    fn find_inside_hosts(&mut self, interfaces: &[Interface]) {
        self.inside = InsideHosts::of(self, interfaces, true);
        let rules = self.rules.sources(usize::MAX);
        self.everywhere = rules
            .iter()
            .any(|(_, rule, _)| rule.outside.is_none() && rule.action != SourceAction::Exempt);
    }

    /// Whether what comes in from outside is for an inside host's own address, and answered from there. Where flows that are not
    /// translated have sessions anyway, the two ends of a flow say it.
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

/// Limits of the gateway's own traffic: packets a second and burst, by [`sluice_route::policer::Class`].
pub type Limits = [(u64, u64); ControlClass::ALL.len()];

/// Redirects of an interface, a second and at once. A host needs one for each destination.
const REDIRECTS: TokenRate = TokenRate::new(10, 10);

/// Limits where the configuration names none, in the order of [`sluice_route::policer::Class::ALL`].
pub const LIMITS: Limits = [
    (2_000, 500),
    (1_000, 200),
    (1_000, 200),
    (2_000, 500),
    (2_000, 500),
    (500, 100),
];

/// Where port leases lie. The plane fills it in.
#[derive(Clone, Debug, Default)]
pub struct PortLayouts {
    /// Generation of the commit that was the last to change it.
    pub generation: u32,
    /// Leases of IPv4 pools.
    pub four: Layout<u32>,
    /// Leases of IPv6 pools.
    pub six: Layout<[u64; 2]>,
    /// Of IPv4 and IPv6: pools that map, choose or deal their ports in another way since a generation.
    pub reshaped: Arc<[Vec<(PoolIndex, u32)>; 2]>,
}

impl PortLayouts {
    /// Leases of a snapshot's pools.
    pub fn of(snapshot: &Snapshot, shards: Shards) -> Self {
        Self {
            generation: 0,
            reshaped: Arc::default(),
            four: Layout::shared(&snapshot.nat4.pools, shards),
            six: Layout::shared(&snapshot.nat6.pools, shards),
        }
    }

    /// Whether a pool maps, chooses or deals its ports in another way than at a generation.
    #[inline]
    pub fn is_reshaped_since(&self, six: bool, pool: PoolIndex, generation: u32) -> bool {
        let reshaped = &self.reshaped[usize::from(six)];
        reshaped
            .iter()
            .any(|&(index, since)| index == pool && (generation.wrapping_sub(since) as i32) < 0)
    }

    /// What is to be known of the change from the leases `before`, at a generation.
    pub fn follow(&mut self, before: &Self, generation: u32) {
        let mut reshaped = (*before.reshaped).clone();
        let [four, six] = &mut reshaped;
        note(four, &before.four, &self.four, generation);
        note(six, &before.six, &self.six, generation);
        self.generation = generation;
        self.reshaped = Arc::new(reshaped);
    }

    /// Whether the same ports are lent in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        self.four.is_same(&other.four) && self.six.is_same(&other.six)
    }
}

/// A virtual router. Its number is the context of what comes in by its interfaces.
#[derive(Clone, Debug, Default)]
pub struct Router {
    /// Name in the configuration; empty where there is no router of this number.
    pub name: String,
    /// Limits of its sessions, of both families together.
    pub limits: sluice_nat::Limits,
    /// The packet filter is asked about what it forwards.
    pub filters: bool,
    /// What it may have beside sessions.
    pub quotas: Quotas,
}

/// What a router may have; without limit where none is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Routes that are learned.
    pub routes: Option<usize>,
    /// Neighbours, those asked for included.
    pub neighbours: Option<u32>,
    /// Packets that wait at each worker: for neighbours, fragments, what comes before them in a stream, an expected SYN.
    pub buffers: Option<u32>,
}

/// A commit.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Raised by every commit, and by changes of single rules and of routes.
    pub generation: u32,
    /// Generation of the last commit: since then only single rules and routes have changed.
    pub committed: u32,
    /// Virtual routers by number.
    pub routers: Vec<Router>,
    /// Interfaces in the order of the configuration.
    pub interfaces: Vec<Interface>,
    /// By port: the interface of untagged frames, if any.
    pub untagged: Vec<Option<u16>>,
    /// By port: who sends by it.
    pub senders: Vec<Senders>,
    /// Those of frames with tags.
    tagged: Arc<VlanTable>,
    /// Tunnels.
    pub tunnels: Arc<Tunnels>,
    /// By interface: what the short way has to know of it. The plane fills it in.
    pub(crate) links: Arc<[Link]>,
    /// Interfaces that send router advertisements. The plane fills it in.
    pub(crate) advertising: Arc<[u16]>,
    /// By interface: redirects, where any sends them. The plane fills it in.
    redirects: Arc<[SharedTokenBucket]>,
    /// Interfaces whose addresses are announced. The plane fills it in.
    pub(crate) announcing: Arc<[u16]>,
    /// By interface: its router.
    router_of: Vec<RouterIndex>,
    /// By router: its interfaces.
    interfaces_of: Arc<Vec<Vec<u16>>>,
    /// SYNs that nobody expects are answered, after a while; otherwise dropped at once.
    pub answers_syns: bool,
    /// By interface, the gateways of IPv4 and IPv6 that a default route leads to by it, whether or not that is the one in use: by
    /// them answers go back to who has come in there.
    pub uplinks: Vec<[Option<Address>; 2]>,
    /// Echo requests that wait for answers. The plane fills it in.
    pub probes: Arc<Probes>,
    /// Routes by source. Their tables have the numbers behind those of routers.
    pub sources: Arc<SourceTables>,
    /// Whether hosts outside may open connections to the own addresses of inside hosts that source rules translate.
    pub passes_untranslated: bool,
    /// Marks of sessions, once rules have set any. The plane fills it in.
    pub marks: Option<Arc<Marks>>,
    /// Code points of sessions, likewise.
    pub code_points: Option<Arc<Marks>>,
    /// Flows to and from the gateway itself, once rules have been about these. The plane fills it in.
    pub local_flows: Option<Arc<GatewayFlows>>,
    /// Some interface limits TCP's segment size.
    pub limits_segments: bool,
    /// Some interfaces are bridged.
    pub bridges: bool,
    /// Some routers have hosts.
    pub hosted: bool,
    /// What routers and interfaces may have, where any is given something.
    pub shares: Option<Arc<Shares>>,
    /// Chains by router; empty where none has any.
    pub chains: Vec<Option<Arc<Chains>>>,
    /// IPv4 translation.
    pub nat4: Nat<V4>,
    /// IPv6 translation.
    pub nat6: Nat<V6>,
    /// Subscribers' sites, where there are any.
    pub sites: Option<Arc<SiteClassifier>>,
    /// Inspection, where there is any.
    pub inspection: Option<Arc<InspectionPolicy>>,
    /// Whose applications are looked for, where any are.
    pub applications: Option<Arc<IdentificationSettings>>,
    /// Generation of its rules.
    pub inspected: u32,
    /// The packet filter; all packets pass where there is none.
    pub filter: Option<Arc<Filters>>,
    /// Where single rules of the filter have changed since the last generations, in IPv4 and IPv6.
    pub filter_changes: [Changes<Changed>; 2],
    /// Where routes have changed since each of the last generations.
    pub route_changes: Changes<sluice_route::RouteChanges>,
    /// Timeouts of sessions without a pool.
    pub timeouts: Schedule,
    /// Limits of the gateway's own traffic.
    pub limits: Limits,
    /// What hosts get, by the number of their router.
    pub hosts: Vec<Arc<punt::Host>>,
    /// Worker that owns neighbours and the gateway's own traffic.
    pub owner: WorkerIndex,
    /// Where port leases lie.
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
        // Where there was no pool, or is none, there is nothing to compare.
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
    /// Translation of a family.
    #[inline(always)]
    pub fn nat<F: Family>(&self) -> &Nat<F> {
        F::select::<AllNat>(&self.nat4, &self.nat6)
    }

    /// Interfaces with nothing else, for `ports` ports.
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

    /// The interface of a port's frames with these tags. Those with priority tags alone are untagged (IEEE 802.1Q, 6.9).
    #[inline]
    pub fn tagged(&self, port: PortIndex, tags: &[Option<Tag>; 2]) -> Option<u16> {
        match tags.iter().flatten().all(|tag| tag.is_priority()) {
            true => self.untagged.get(usize::from(port)).copied().flatten(),
            false => self.tagged.find(port, tags),
        }
    }

    /// Whether frames with tags come in by a port.
    #[inline(always)]
    pub fn is_tagged(&self, port: PortIndex) -> bool {
        self.tagged.is_on(port)
    }

    /// Whether frames with some tags that come in by a port belong to bridges.
    #[inline(always)]
    pub fn bridges_tags(&self, port: PortIndex) -> bool {
        self.tagged.is_bridged(port)
    }

    /// Find out whose hosts are inside: where rules or interfaces are others, as there may be very many rules.
    pub(crate) fn know_inside(&mut self) {
        self.nat4.find_inside_hosts(&self.interfaces);
        self.nat6.find_inside_hosts(&self.interfaces);
    }

    /// Gather what workers would otherwise look for among all interfaces: to be called when nothing else changes any more.
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

    /// Whether a host behind an interface may be told of a better next hop now.
    pub fn admits_redirect(&self, interface: u16, now: Now) -> bool {
        let bucket = self.redirects.get(usize::from(interface));
        bucket.is_some_and(|bucket| bucket.take(now.nanoseconds))
    }

    /// The interface of a port's frames with the tags in a word, as [`VlanTable::find_word`] has them.
    #[inline(always)]
    pub fn tagged_by(&self, port: PortIndex, word: u64) -> Option<u16> {
        self.tagged.find_word(port, word)
    }

    /// The worker that must send by a port in the place of `own`; none where that may.
    #[inline(always)]
    pub fn sender(&self, port: PortIndex, own: WorkerIndex) -> Option<WorkerIndex> {
        let senders = self.senders.get(port as usize)?;
        // One for all by this port: a shard that moves takes its flows to no other.
        let sender = *senders.get(usize::from(port).checked_rem(senders.len())?)?;
        (!senders.contains(&own)).then_some(sender)
    }

    /// Gather what rules of translation lead to that has no shard of its own. Call it when interfaces and rules of translation
    /// are there.
    pub fn spread_flows(&mut self) {
        self.nat4.spread = TranslationTargets::of(&self.nat4, &self.interfaces);
        self.nat6.spread = TranslationTargets::of(&self.nat6, &self.interfaces);
    }

    /// Ask a filter about the packets of the routers that have one, of all where none says so. Call it when routers,
    /// interfaces and rules of translation are there.
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

    /// Keep the marks and code points of sessions by the snapshot before, and make room for those that rules set now.
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

    /// Keep what the snapshot before knew of flows to and from the gateway itself, and make room for it where rules are about these
    /// now.
    pub(crate) fn keep_local_flows(&mut self, before: Option<Arc<GatewayFlows>>) {
        let filter = self.filter.as_ref();
        let is_asked = filter.is_some_and(|filter| filter.gateway.is_some());
        self.local_flows = before.or_else(|| is_asked.then(Arc::default));
    }

    /// Inspect the flows of some interfaces. Call it when interfaces and rules of translation are there.
    pub fn inspect_by(&mut self, inspection: Arc<InspectionPolicy>) {
        self.keep_sessions(|_, interface| inspection.is_on(interface));
        self.inspection = Some(inspection);
    }

    /// Look for the applications of sessions by some interfaces. Call it when interfaces and rules of translation are there.
    pub fn identify_by(&mut self, seeking: Arc<IdentificationSettings>) {
        self.keep_sessions(|_, interface| seeking.is_on(interface));
        self.applications = Some(seeking);
    }

    /// Serve subscribers' sites. Call it when interfaces and rules of translation are there.
    pub fn serve_sites(&mut self, sites: SiteClassifier) {
        let settings = sites.settings();
        let doors = settings.doors.iter().flat_map(|(_, behind)| behind.contexts());
        let pooled: HashSet<Context> = doors.filter(|&context| is_pooled(context)).map(outer).collect();
        self.nat4.sites = Some(sites.table.clone());
        for (number, interface) in (0..).zip(&mut self.interfaces).filter(|(_, one)| one.bridge.is_none()) {
            let is_door = sites.is_access(number);
            // What is addressed to a pool may come in by any.
            let is_outside = sites.is_public(number) || !is_door && pooled.contains(&interface.context);
            interface.stateful[0] |= is_door || is_outside;
            interface.outside |= is_outside;
        }
        self.sites = Some(Arc::new(sites));
    }

    /// Whether terminals of sites come in by an interface.
    #[inline(always)]
    pub fn is_access(&self, number: u16) -> bool {
        self.sites.as_deref().is_some_and(|sites| sites.is_access(number))
    }

    /// Give routers and interfaces, by number, their shares.
    pub fn share_by(&mut self, routers: Vec<RouterShare>, links: Vec<LinkShare>) {
        self.shares = Shares::new(routers, links, &self.interfaces, self.untagged.len()).map(Arc::new);
    }

    /// Whether the applications of sessions between two interfaces are looked for.
    #[inline(always)]
    pub fn identifies(&self, interfaces: [u16; 2]) -> bool {
        let seeking = self.applications.as_deref();
        seeking.is_some_and(|seeking| interfaces.iter().any(|&interface| seeking.is_on(interface)))
    }

    /// Flows that are not translated have sessions, too, in the routers of some interfaces: both directions have to find them.
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

    /// The filter, where it is asked about a router's packets.
    #[inline(always)]
    pub fn filter_of(&self, context: Context) -> Option<&Filters> {
        let filter = self.filter.as_deref()?;
        self.router(context)?.filters.then_some(filter)
    }

    /// Whether the filter is asked about the first packets of a router's flows that are not translated.
    #[inline(always)]
    pub fn filters_sessions(&self, context: Context) -> bool {
        self.filter_of(context).is_some_and(|filter| filter.sessions)
    }

    /// The MTU of an interface now: of a tunnel what its path takes.
    #[inline]
    pub fn mtu(&self, number: u16, now: Now) -> u16 {
        let configured = self.interface(number).map_or(0, |interface| interface.mtu);
        self.tunnels.mtu(number, configured, now)
    }

    /// Whether an interface is one of a bridge's.
    pub fn is_bridged(&self, number: u16) -> bool {
        self.interface(number)
            .is_some_and(|interface| interface.bridge.is_some())
    }

    /// The context of a packet's flow: of the interface that it came in by, on a bridge of its tags too, and of what comes from
    /// a site that of the site.
    #[inline(always)]
    pub fn context(&self, meta: &Meta, frame: &[u8]) -> Context {
        // What turns back at an outside address comes from outside.
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

    /// The virtual router of a context; none where that is of a bridge.
    #[inline(always)]
    pub fn router(&self, context: Context) -> Option<&Router> {
        self.routers.get(outer(context) as usize)
    }

    /// The number of the virtual router with a name.
    pub fn router_named(&self, name: &str) -> Option<RouterIndex> {
        let place = self.routers.iter().position(|router| router.name == name)?;
        Some(place as RouterIndex)
    }

    /// The router of an interface; the first one's where there is no such interface.
    #[inline(always)]
    pub fn router_of(&self, interface: u16) -> RouterIndex {
        self.router_of.get(interface as usize).copied().unwrap_or(0)
    }

    /// The gateway of an uplink, of one address family.
    pub fn uplink(&self, interface: u16, six: bool) -> Option<Address> {
        *self.uplinks.get(usize::from(interface))?.get(usize::from(six))?
    }

    /// What the routes of a router are looked up by for packets from an address.
    #[inline(always)]
    pub fn lookup<F: Family>(&self, router: RouterIndex, source: F::Address) -> Lookup<'_> {
        self.sources.lookup(router, F::address(source))
    }

    /// The router of each interface, by number.
    pub fn routers_of(&self) -> impl Iterator<Item = RouterIndex> + '_ {
        (0..self.interfaces.len()).map(|number| self.router_of(number as u16))
    }

    /// Whether one more packet that came in by an interface may wait at the worker that counts so.
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

    /// Let shards share ports of the pools, and with a snapshot before those of the addresses that both have.
    pub(crate) fn share_ports(&mut self, before: Option<&Self>, start: &StartParameters) {
        let shards = start.steering.shards();
        self.nat4.pools.share(before.map(|before| &before.nat4.pools), shards);
        self.nat6.pools.share(before.map(|before| &before.nat6.pools), shards);
    }

    /// Routers and interfaces that were there before go on with what is left of their rates.
    pub fn adopt_shares(&mut self, before: &Self) {
        if let (Some(own), Some(old)) = (&mut self.shares, &before.shares) {
            Arc::make_mut(own).adopt(old);
        }
    }

    /// Whether plain IPv4 packets that come in by an interface need nothing but a route.
    #[inline]
    pub fn needs_routes_alone(&self, interface: &Interface) -> bool {
        self.only_routes(interface) && !self.limits_segments && !interface.neighbours.redirects
    }

    /// Whether nobody decides by what stands behind the IP header of packets that come in by an interface.
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

    /// The chains that what comes in by an interface takes.
    #[inline]
    pub fn chains_at(&self, interface: u16) -> Option<&Chains> {
        self.chains_of(self.router_of(interface))
    }

    /// The chains of a router.
    #[inline]
    pub fn chains_of(&self, router: RouterIndex) -> Option<&Chains> {
        self.chains.get(usize::from(router))?.as_deref()
    }

    /// Chains of routers that were there before go on counting, where nothing about them changes as they are. Policers with
    /// names are every router's.
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

    /// Routers that were there before keep their hosts, where nothing about them changes; what these have been given is
    /// counted on in any case.
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

    /// The host of the router that the interface `number` belongs to.
    pub fn host(&self, number: u16) -> Option<&punt::Host> {
        let interface = self.interface(number).filter(|interface| interface.host)?;
        self.hosts.get(usize::from(interface.router)).map(|host| &**host)
    }

    /// The interface `number`.
    #[inline(always)]
    pub fn interface(&self, number: u16) -> Option<&Interface> {
        self.interfaces.get(number as usize)
    }

    /// Source for what the gateway sends to an IPv4 address by an interface: of another one of its router where it has none
    /// itself.
    pub fn source4(&self, interface: &Interface, address: u32) -> Option<u32> {
        let others = || self.interfaces.iter().filter(|other| other.router == interface.router);
        let own = interface.source4(address);
        own.or_else(|| others().find_map(|other| other.source4(address)))
    }

    /// Whether an address is one of an interface's router.
    pub fn owns(&self, interface: &Interface, address: sluice_route::Address) -> bool {
        let mut others = self.interfaces.iter().filter(|other| other.router == interface.router);
        others.any(|other| other.link.owns(address))
    }
}
