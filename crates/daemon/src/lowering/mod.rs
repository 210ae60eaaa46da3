//! Converts a valid configuration to the parameters of the data plane. The data plane does not depend on the types of
//! the configuration.

mod applications;
mod chains;
mod filter;
mod hosts;
mod inspection;
mod interfaces;
mod shares;
mod signatures;
mod sites;
mod steering;
mod subscribers;
mod translation;

pub use applications::{UnknownApplication, application_names};
pub use filter::{Listed, Rules, elements, filters, update_sets, written};
pub use inspection::{inspection, inspection_plan, other_inspection, signatures};
pub use interfaces::{faces_outside, interfaces, port, ports, routes, sources, uplinks};
pub use signatures::{ReadRules, RefusedRule, SignatureError, SignatureReport};
pub use sites::{access, relays, site_context, site_networks};
pub use steering::steering;
pub use subscribers::{subscribers, virtual_macs};
pub use translation::{PoolNames, pool_names, translation};
pub(crate) use translation::{plan, pool};

use std::sync::Arc;

use sluice_config::Config;
use sluice_config::config::Timeouts;
use sluice_config::{limits, schema};
use sluice_engine::control::plane::NeighbourLimits;
use sluice_engine::features::inspection::InspectionPolicy;
use sluice_engine::packet::adjacency::AdjacencyIndex;
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::placement::Part;
use sluice_engine::snapshot::fragment_limits::FragmentLimits;
use sluice_engine::snapshot::shard_owners::ShardOwners;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::{ControlLimits, LIMITS, Router, Snapshot, StartParameters, SubscriberCapacity};
use sluice_nat::rule::RuleId;
use sluice_nat::sites::Sites;
use sluice_nat::timeout::Schedule;
use sluice_route::RouteError;
use sluice_route::neighbour::Timing;
use sluice_route::policer::ControlClass;

/// Reason why a valid configuration can't be converted on this machine. Validation has checked everything that depends on
/// the configuration alone.
#[derive(Debug, thiserror::Error)]
pub enum LoweringError {
    /// A route contradicts the link-local address that an interface derives from the MAC address of its device.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// The matcher of the filter exceeds its memory limit.
    #[error(transparent)]
    Filter(#[from] sluice_filter::FilterError),
    /// The installed application identification library does not have an application that a filter rule names.
    #[error(transparent)]
    UnknownApplication(#[from] UnknownApplication),
    /// The application identification library can't be used.
    #[error(transparent)]
    Applications(#[from] sluice_inspect::applications::Error),
}

/// Secrets of keyed hashes.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    /// Secret of the hash that assigns sessions to buckets and selects ports.
    pub sessions: [u64; 2],
    /// Secret from which the steering keys are derived.
    pub steering: u64,
    /// Secret of DHCP transaction IDs and of the site table.
    pub subscribers: [u64; 2],
}

impl Secrets {
    /// Fixed secrets for `replay`, so that the output of a replay is reproducible.
    pub const FIXED: Self = Self {
        sessions: [0x736c_7569_6365_2e31, 0x9e37_79b9_7f4a_7c15],
        steering: 0x736c_7569_6365_2e32,
        subscribers: [0x736c_7569_6365_2e35, 0x736c_7569_6365_2e36],
    };

    /// Random secrets from the kernel.
    ///
    /// # Errors
    /// The kernel provides no random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let word = getrandom::u64;
        Ok(Self {
            sessions: [word()?, word()?],
            steering: word()?,
            subscribers: [word()?, word()?],
        })
    }
}

/// Parameters that are fixed for the life of the process. `ports` is the maximum number of ports, and `stages` assigns
/// the workers to stages.
pub fn start_parameters(
    config: &Config,
    ports: usize,
    (stages, workers): (Stages, usize),
    secrets: Secrets,
) -> StartParameters {
    let steering = steering(config, secrets);
    let shards = steering.shards();
    let sessions = &config.document.sessions;
    let fragments = &config.document.fragments;
    StartParameters {
        steering,
        owners: ShardOwners::distribute(shards, &stages.all(Part::Session, workers)).into(),
        stages,
        // The caller sets this field, because the conversion needs the frequency of the cycle counter.
        assist: None,
        sessions: [sessions.ipv4, sessions.ipv6],
        ports,
        secret: secrets.sessions,
        fragments: FragmentLimits {
            datagrams: fragments.packets as usize,
            parked: fragments.parked as usize,
            timeout: fragments.timeout.duration().as_nanos() as u64,
        },
        unsolicited_syns: config.document.nat.unsolicited_syns,
        spare_addresses: config.document.nat.spare_addresses,
        meters: Default::default(),
        applications: applications::capacity(config),
        inspection: inspection_plan(config, shards.count()),
        events: Default::default(),
        interfaces: (config.interfaces.len() + SPARE_INTERFACES).min(AdjacencyIndex::MAX_INTERFACES),
        subscribers: SubscriberCapacity {
            max: config.document.nat.subscribers,
            blocks: config.document.nat.port_blocks,
            held: config.document.nat.quarantined_ports,
            prefix: [config.document.nat.subscriber_prefix, 128],
        },
    }
}

/// Creates the snapshot of a configuration. `macs` contains the Ethernet address of each port, and `pools` the pool
/// names by pool index. `filter` is the result of [`filters`]. `inspection` is the result of [`inspection()`]. `sites`
/// is the site table if the subscriber service is enabled.
///
/// # Errors
/// The application identification library can't be used.
pub fn policy(
    config: &Config,
    macs: &[[u8; 6]],
    pools: &PoolNames,
    filter: Option<&Rules>,
    inspection: Option<&Arc<InspectionPolicy>>,
    sites: Option<&Arc<Sites>>,
) -> Result<Snapshot, LoweringError> {
    let interfaces = interfaces(config, macs);
    let mut policy = Snapshot::new(macs.len(), interfaces);
    policy.nat4 = translation(config, pools);
    if let Some(access) = sites.and_then(|table| access(config, table)) {
        policy.serve_sites(access);
    }
    policy.timeouts = Schedule::new(&timeouts(&config.timeouts)).expect(VALIDATED);
    policy.limits = limits(config);
    policy.routers = routers(config);
    policy.chains = chains::chains(config);
    policy.hosts = config
        .routers
        .iter()
        .map(|router| hosts::host(&router.host, config.interfaces.len()).into())
        .collect();
    let (routers, links) = shares::shares(config);
    policy.share_by(routers, links);
    if let Some(rules) = filter {
        policy.filter_by(rules.filters().clone());
    }
    if let Some(inspection) = inspection {
        policy.inspect_by(inspection.clone());
    }
    if let Some(seeking) = applications::seeking(config)? {
        policy.identify_by(seeking);
    }
    policy.spread_flows();
    policy.uplinks = uplinks(config);
    policy.sources = sources(config).into();
    policy.passes_untranslated = config.document.nat.untranslated_inbound == schema::UntranslatedInbound::Pass;
    policy.answers_syns = config.document.nat.unsolicited_syn == schema::UnsolicitedSyn::Unreachable;
    Ok(policy)
}

/// Virtual routers by number.
fn routers(config: &Config) -> Vec<Router> {
    let router = |router: &sluice_config::config::Router| Router {
        name: router.name.clone(),
        limits: translation::limits(&router.limits.of_sessions()),
        filters: router.filters,
        quotas: shares::quotas(&router.limits),
    };
    config.routers.iter().map(router).collect()
}

/// Rate limits of packets to and from the gateway itself.
fn limits(config: &Config) -> ControlLimits {
    let gateway = &config.document.gateway;
    let mut limits = LIMITS;
    for (class, rate) in [
        (ControlClass::Neighbour, gateway.policing.neighbours),
        (ControlClass::Icmp, gateway.policing.echo),
        (ControlClass::IcmpError, gateway.icmp_errors),
        (ControlClass::Other, gateway.policing.other),
    ] {
        limits[class as usize] = (rate.rate.into(), rate.burst.into());
    }
    limits
}

/// Parameters of neighbour resolution.
pub fn neighbour_limits(config: &Config) -> NeighbourLimits {
    let neighbours = &config.document.neighbours;
    let nanoseconds = |period: sluice_config::value::Period| period.duration().as_nanos() as u64;
    let timing = Timing {
        reachable: nanoseconds(neighbours.reachable),
        // The delay before the first probe does not exceed the reachable time.
        delay: Timing::default().delay.min(nanoseconds(neighbours.reachable)),
        retransmit: nanoseconds(neighbours.retransmit),
        attempts: neighbours.requests,
        ..Timing::default()
    };
    NeighbourLimits {
        capacity: neighbours.ipv4 as usize + neighbours.ipv6 as usize,
        parked: neighbours.parked_each.into(),
        parked_in_all: neighbours.parked as usize,
        // Slightly longer than the time after which an unanswered resolution fails.
        timeout: timing.retransmit * (u64::from(timing.attempts) + 1),
        timing,
    }
}

/// Timeouts in whole seconds.
pub(crate) fn timeouts(timeouts: &Timeouts) -> sluice_nat::Timeouts {
    let seconds = |duration: std::time::Duration| duration.as_secs().try_into().unwrap_or(u32::MAX);
    sluice_nat::Timeouts {
        tcp_established: seconds(timeouts.tcp_established),
        tcp_transitory_open: seconds(timeouts.tcp_transitory_open),
        tcp_transitory_close: seconds(timeouts.tcp_transitory_close),
        tcp_incoming_syn: seconds(timeouts.tcp_incoming_syn),
        udp: seconds(timeouts.udp),
        udp_by_port: timeouts
            .udp_ports
            .iter()
            .map(|&(port, time)| (port, seconds(time)))
            .collect(),
        icmp: seconds(timeouts.icmp),
        other: seconds(timeouts.other),
        inbound_refresh: timeouts.inbound_refresh,
    }
}

const _: () = assert!(limits::MAX_INTERFACES <= AdjacencyIndex::MAX_INTERFACES);
const _: () = assert!(limits::MAX_NEIGHBOURS as usize <= AdjacencyIndex::MAX_NEIGHBOURS);
const _: () = assert!(limits::MAX_SHARDS as u32 <= sluice_nat::shard::BLOCKS);
const _: () = assert!(limits::MAX_RULES <= RuleId::MAX as usize);
const _: () = assert!(limits::MAX_STEPS <= sluice_engine::snapshot::chains::MAX_STEPS);
const _: () = assert!(limits::MAX_BRIDGES <= sluice_engine::snapshot::MAX_BRIDGES);

/// Panic message for a value that the data plane rejects although validation has accepted it. The property test
/// `lowering` checks that validation rejects every such value.
const VALIDATED: &str = "validation has checked the limits of the data plane";

/// Maximum number of interfaces added at run time. Every worker has counters for each added interface.
const SPARE_INTERFACES: usize = 1024;

/// Worker that receives from devices with a single queue.
pub const FIRST: WorkerIndex = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::memory::EntryBytes;
    use sluice_config::{Machine, check};
    use sluice_engine::snapshot::PortLayouts;
    use sluice_engine::snapshot::shard_memory::ShardMemory;
    use sluice_engine::snapshot::shared_capacity;

    pub(super) fn config(text: &str) -> Config {
        let machine = Machine {
            cores: vec![0, 1],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let checked = check("test", text, &machine).unwrap_or_else(|wrong| panic!("{wrong}"));
        checked.config.into_inner()
    }

    #[test]
    fn fragments_of_the_configuration_limit_the_table() {
        let config =
            config("[interfaces.a]\ndevice = \"null:\"\n[fragments]\npackets = 9\nparked = 7\ntimeout = \"5s\"\n");
        let expected = FragmentLimits {
            datagrams: 9,
            parked: 7,
            timeout: 5_000_000_000,
        };
        assert_eq!(
            expected,
            start_parameters(&config, 0, (Stages::default(), 1), Secrets::FIXED).fragments
        );
    }

    #[test]
    fn unsolicited_syns_of_the_configuration_wait_and_are_answered_as_it_says() {
        let interface = "[interfaces.a]\ndevice = \"null:\"\n";
        let settings = |text: &str| {
            let config = config(&format!("{interface}{text}"));
            let waiting = start_parameters(&config, 0, (Stages::default(), 1), Secrets::FIXED).unsolicited_syns;
            (
                waiting,
                policy(&config, &[[2, 0, 0, 0, 0, 1]], &Vec::new(), None, None, None)
                    .unwrap()
                    .answers_syns,
            )
        };
        assert_eq!((512, true), settings(""));
        let silent = "[nat]\nunsolicited-syn = \"drop\"\nunsolicited-syns = 7\n";
        assert_eq!((7, false), settings(silent));
    }

    #[test]
    fn mss_clamp_of_the_configuration_reaches_the_interface() {
        let config = config(
            "[interfaces.a]\ndevice = \"null:\"\nmtu = 1492\nmss-clamp = \"mtu\"\n\
             [interfaces.b]\ndevice = \"null:\"\nmss-clamp = 1300\n[interfaces.c]\ndevice = \"null:\"\n",
        );
        let sizes: Vec<_> = interfaces(&config, &[[2, 0, 0, 0, 0, 1]])
            .iter()
            .map(|interface| interface.segment_size)
            .collect();
        assert_eq!(vec![Some(1452), Some(1300), None], sizes);
    }

    #[test]
    fn memory_of_the_check_is_what_the_engine_takes_and_little_more() {
        for shards in [1, 4, 16, 64] {
            memory_with(shards);
        }
    }

    fn memory_with(shards: u16) {
        let config = config(&format!(
            "[interfaces.a]\ndevice = \"null:\"\n[system]\nshards = {shards}\n[sessions]\nipv4 = 500_000\nipv6 = 100_000\n\
             [nat]\nsubscribers = 20_000\nport-blocks = 90_000\nquarantined-ports = 0\nspare-addresses = 9\n\
             [nat.pools.a]\naddresses = [\"198.51.100.0/26\"]\nports = \"1-65535\"\n\
             block = {{}}\nfiltering = \"address-dependent\"\n",
        ));
        let start_parameters = start_parameters(&config, 0, (Stages::default(), 1), Secrets::FIXED);
        let names = pool_names(&config, &Vec::new());
        let mut policy = policy(&config, &[[2, 0, 0, 0, 0, 1]], &names, None, None, None).unwrap();
        policy.leases = PortLayouts::of(&policy, start_parameters.steering.shards());
        let taken = ShardMemory::of(&start_parameters, &policy).total() as u64
            * 64
            * u64::from(start_parameters.steering.shards().count());
        let taken = taken + shared_capacity::lines(&start_parameters, &policy) as u64 * 64;
        let of_shards =
            |key: [&str; 2]| !["neighbours", "fragments"].contains(&key[0]) && key[1] != "quarantined-ports";
        let tables = config.tables.iter().filter(|table| of_shards(table.key));
        let listed: u64 = tables.map(|table| table.bytes.0).sum();
        assert!(
            taken <= listed && listed <= taken + taken / 8,
            "{shards} shards: {taken} taken, {listed} listed"
        );
    }

    #[test]
    fn subscribers_of_the_configuration_are_those_of_the_tables() {
        let config = config(
            "[interfaces.a]\ndevice = \"null:\"\n\
             [nat]\nsubscribers = 5\nport-blocks = 6\nquarantined-ports = 7\nsubscriber-prefix = 30\n",
        );
        let expected = SubscriberCapacity {
            max: 5,
            blocks: 6,
            held: 7,
            prefix: [30, 128],
        };
        assert_eq!(
            expected,
            start_parameters(&config, 0, (Stages::default(), 1), Secrets::FIXED).subscribers
        );
    }

    #[test]
    fn advertisements_of_the_configuration_reach_the_interface() {
        let config = config(
            "[interfaces.a]\ndevice = \"null:\"\naddresses = [\"2001:db8::1/80\"]\n\
             router-advertisements = { autonomous = false, managed = true, other = true }\n",
        );
        let advertise = interfaces(&config, &[[2, 0, 0, 0, 0, 1]])[0].advertise.unwrap();
        assert_eq!(
            (false, true, true),
            (advertise.autonomous, advertise.managed, advertise.other)
        );
    }
}
