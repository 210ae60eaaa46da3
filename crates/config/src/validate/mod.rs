//! From a [`Document`] to a [`Valid`] configuration: every reference, range and rule of the field is checked here,
//! and nowhere behind it.

mod applications;
mod bridges;
mod chains;
mod destination;
mod filter;
mod gateways;
mod inspection;
mod interfaces;
mod nat;
mod pool;
mod routers;
mod routes;
mod rules;
mod shares;
mod sites;
mod stages;
mod subscribers;
mod system;
mod tunnels;
mod uplinks;

pub use self::filter::{Inserted, Weight, check_rules};
use self::routers::DEFAULT;
use self::routers::Scope;

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use crate::config::{Config, InterfaceIndex, RouterIndex, Valid};
use crate::diagnosis::{Diagnosis, Located};
use crate::memory::{self, EntryBytes};
use crate::numbering::Numbering;
use crate::problem::Problem;
use crate::read::{Places, Step, place, read};
use crate::schema::Document;
use crate::value::Period;

/// What the configuration must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The cores that this process may use, in ascending order.
    pub cores: Vec<u16>,
    /// Free memory in bytes.
    pub memory: u64,
    /// What the entries of the tables take.
    pub entry: EntryBytes,
}

/// A configuration that would run.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The configuration.
    pub config: Valid<Config>,
    /// What it says that is seldom meant.
    pub advice: Diagnosis,
}

/// Check a configuration. `name` is what messages call the text: the path of its file.
///
/// # Errors
/// Everything that is wrong with it, as far as one reading can tell.
pub fn check(name: &str, text: &str, machine: &Machine) -> Result<Checked, Diagnosis> {
    check_numbered(name, text, machine, &Numbering::default())
}

/// The same for a process that runs: what it has already keeps its number.
///
/// # Errors
/// As [`check`].
pub fn check_numbered(name: &str, text: &str, machine: &Machine, numbering: &Numbering) -> Result<Checked, Diagnosis> {
    let (document, places) = read(text).map_err(|found| Diagnosis::new(name, text, found))?;
    let mut check = Check {
        name,
        document: &document,
        places,
        machine,
        found: Vec::new(),
        scope: Scope::top(&document),
        numbering: numbering_of(&document, numbering),
        site_pools: HashMap::new(),
    };
    check.site_pools = check.pools_of_sites();
    let config = check.config();
    let found = std::mem::take(&mut check.found);
    let sound = found.iter().all(|located| located.advice);
    let diagnosis = Diagnosis::new(name, text, found);
    match config.filter(|_| sound) {
        Some(config) => Ok(Checked {
            config: Valid::checked(config),
            advice: diagnosis,
        }),
        None => Err(diagnosis),
    }
}

/// A check under way: each part reports what it finds and goes on.
struct Check<'a> {
    /// Path of the file.
    name: &'a str,
    document: &'a Document,
    places: Places<'a>,
    machine: &'a Machine,
    found: Vec<Located>,
    /// The part that is being checked.
    scope: Scope<'a>,
    /// Whose numbers interfaces and routers have.
    numbering: Numbering,
    /// Pools that groups of sites name, with the router of the first such group.
    site_pools: HashMap<&'a str, RouterIndex>,
}

/// The numbers of what a file has.
fn numbering_of(document: &Document, before: &Numbering) -> Numbering {
    let others = document
        .routers
        .keys()
        .map(String::as_str)
        .filter(|name| *name != DEFAULT);
    let with_device = document
        .interfaces
        .iter()
        .filter(|(_, interface)| interface.device.is_some() || interface.bond.is_some())
        .map(|(name, _)| name.as_str());
    Numbering {
        interfaces: before.interfaces.with(document.interfaces.keys().map(String::as_str)),
        routers: before.routers.with([DEFAULT].into_iter().chain(others)),
        ports: before.ports.with(with_device),
    }
}

impl Check<'_> {
    /// `None` only where something was reported.
    fn config(&mut self) -> Option<Config> {
        let (cores, stages) = self.cores();
        self.sizes();
        self.watchdog();
        let timeouts = self.timeouts(place!["sessions", "timeouts"], &self.document.sessions.timeouts, None);
        let routers = self.routers();
        let interfaces = self.interfaces(cores.len());
        // Routes and rules name interfaces by their place: it means nothing where some are missing.
        let mut interfaces = interfaces?;
        self.bridges(&mut interfaces);
        let uplinks = self.uplinks(&interfaces);
        let routes = self.routes(&interfaces, &uplinks);
        let neighbours = self.neighbours(&interfaces);
        let pools = self.pools(&interfaces, &timeouts);
        let rules = self.rules(&interfaces);
        let filter = self.filters();
        let filter_sets = self.filter_sets();
        let inspection = self.inspection(&interfaces);
        let applications = self.applications(&interfaces);
        let chains = self.chains(&interfaces, inspection.as_ref(), applications.as_ref());
        let subscribers = self.subscribers(&interfaces, &pools);
        let tables = memory::tables(self.document, &self.machine.entry);
        let document = self.document.clone();
        Some(Config {
            document,
            cores,
            stages,
            tables,
            timeouts,
            numbering: self.numbering.clone(),
            interfaces,
            routers,
            routes,
            uplinks,
            neighbours,
            pools,
            source: rules.source,
            destination: rules.destination,
            host_sets: rules.host_sets,
            filter,
            filter_sets,
            chains,
            inspection,
            applications,
            subscribers,
        })
    }

    /// The path is within the part that is being checked.
    fn report(&mut self, path: &[Step<'_>], problem: Problem) {
        let span = self.places.value(&self.scope.place(path));
        self.found.push(Located::new(problem, span));
    }

    fn advise(&mut self, path: &[Step<'_>], problem: Problem) {
        let span = self.places.value(&self.scope.place(path));
        self.found.push(Located {
            problem,
            span,
            advice: true,
        });
    }

    fn in_range<T: PartialOrd + Display>(
        &mut self,
        path: &[Step<'_>],
        what: &'static str,
        value: T,
        range: RangeInclusive<T>,
    ) {
        if !range.contains(&value) {
            let range = format!("{} to {}", range.start(), range.end());
            self.report(
                path,
                Problem::OutOfRange {
                    what,
                    value: value.to_string(),
                    range,
                },
            );
        }
    }

    /// Whole seconds alone: the timers of the data plane count no finer.
    fn whole_seconds(&mut self, path: &[Step<'_>], what: &'static str, period: Period) {
        let duration = period.duration();
        if duration.subsec_nanos() != 0 || duration.as_secs() == 0 || duration.as_secs() > u64::from(u32::MAX / 2) {
            let range = "1s upwards in whole seconds".to_owned();
            self.report(
                path,
                Problem::OutOfRange {
                    what,
                    value: period.to_string(),
                    range,
                },
            );
        }
    }

    /// The place of an interface that is named; reported where there is none.
    fn interface_index(&mut self, path: &[Step<'_>], name: &str) -> Option<InterfaceIndex> {
        let index = self.numbering.interfaces.of(name);
        if index.is_none() {
            let known = self.document.interfaces.keys().cloned().collect();
            self.report(
                path,
                Problem::UnknownInterface {
                    name: name.to_owned(),
                    known,
                },
            );
        }
        index.and_then(|index| InterfaceIndex::try_from(index).ok())
    }

    /// Names go into command lines, counters and file names.
    fn name(&mut self, path: &[Step<'_>], name: &str) {
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !plain || name.is_empty() || name.len() > 32 || name.starts_with(['-', '.']) {
            self.report(path, Problem::Name(name.to_owned()));
        }
    }

    /// An address that one host can have; reported where it is none.
    fn host(&mut self, path: &[Step<'_>], address: IpAddr) -> bool {
        let Some(reason) = self.unusable(address) else {
            return true;
        };
        self.report(path, Problem::UnusableAddress { address, reason });
        false
    }

    /// Why no host can have an address here, where none can.
    fn unusable(&self, address: IpAddr) -> Option<&'static str> {
        let reason = unusable(address);
        let allows = self.document.system.allow_reserved_ranges;
        reason.filter(|reason| !(allows && *reason == RESERVED && address != IpAddr::V4(Ipv4Addr::BROADCAST)))
    }
}

/// What is said of 240.0.0.0/4.
const RESERVED: &str = "in the reserved block 240.0.0.0/4";

/// Why no host can have an address, where none can (RFC 6890).
pub(crate) fn unusable(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("unspecified"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("in 0.0.0.0/8"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 => Some(RESERVED),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("an IPv4 address in IPv6 form"),
        _ => None,
    }
}

/// Whether an IPv4 or IPv6 address counts on its link alone.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
