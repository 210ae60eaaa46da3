//! Conversion of a [`Document`] to a [`Valid`] configuration. All references, ranges and cross-field rules are checked
//! here. Other crates need not repeat these checks.

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
mod rule_limits;
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

/// Properties of the machine with which a configuration must be compatible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores that this process may use, in ascending order.
    pub cores: Vec<u16>,
    /// Free memory in bytes.
    pub memory: u64,
    /// Memory per entry of each table.
    pub entry: EntryBytes,
}

/// A valid configuration, and advice about it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The configuration.
    pub config: Valid<Config>,
    /// Advice about unusual settings.
    pub advice: Diagnosis,
}

/// Check a configuration. `name` identifies the text in messages, and is the path of its file.
///
/// # Errors
/// Returns all problems that can be found in one run.
pub fn check(name: &str, text: &str, machine: &Machine) -> Result<Checked, Diagnosis> {
    check_numbered(name, text, machine, &Numbering::default())
}

/// Check a configuration for a running process. Existing items keep their numbers.
///
/// # Errors
/// Returns the errors of [`check`].
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

/// State of a validation. Each part reports its problems, and the validation continues.
struct Check<'a> {
    /// Path of the file.
    name: &'a str,
    document: &'a Document,
    places: Places<'a>,
    machine: &'a Machine,
    found: Vec<Located>,
    /// The part of the file that is being checked.
    scope: Scope<'a>,
    /// Numbers of interfaces and routers.
    numbering: Numbering,
    /// Pools to which site groups refer, each with the router of the first site group that refers to it.
    site_pools: HashMap<&'a str, RouterIndex>,
}

/// Numbering of the items of a file.
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
    /// The configuration. `None` only if a problem was reported.
    fn config(&mut self) -> Option<Config> {
        let (cores, stages) = self.cores();
        self.sizes();
        self.watchdog();
        let timeouts = self.timeouts(place!["sessions", "timeouts"], &self.document.sessions.timeouts, None);
        let routers = self.routers();
        let interfaces = self.interfaces(cores.len());
        // Routes and rules refer to interfaces by index, so routes and rules are checked only if all interfaces are
        // valid.
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

    /// Report a problem. `path` is relative to the part that is being checked.
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
        description: &'static str,
        value: T,
        range: RangeInclusive<T>,
    ) {
        if !range.contains(&value) {
            let range = format!("{} to {}", range.start(), range.end());
            self.report(
                path,
                Problem::OutOfRange {
                    description,
                    value: value.to_string(),
                    range,
                },
            );
        }
    }

    /// Check that a period consists of whole seconds, because this is the resolution of the data plane's timers.
    fn whole_seconds(&mut self, path: &[Step<'_>], description: &'static str, period: Period) {
        let duration = period.duration();
        if duration.subsec_nanos() != 0 || duration.as_secs() == 0 || duration.as_secs() > u64::from(u32::MAX / 2) {
            let range = "of whole seconds from 1s".to_owned();
            self.report(
                path,
                Problem::OutOfRange {
                    description,
                    value: period.to_string(),
                    range,
                },
            );
        }
    }

    /// Index of an interface by name. An unknown name is reported.
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

    /// Check a name. Names are used in command lines, counters and file names.
    fn name(&mut self, path: &[Step<'_>], name: &str) {
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !plain || name.is_empty() || name.len() > 32 || name.starts_with(['-', '.']) {
            self.report(path, Problem::Name(name.to_owned()));
        }
    }

    /// Check that an address is valid for a host. An invalid address is reported.
    fn host(&mut self, path: &[Step<'_>], address: IpAddr) -> bool {
        let Some(reason) = self.unusable(address) else {
            return true;
        };
        self.report(path, Problem::UnusableAddress { address, reason });
        false
    }

    /// Why an address is not valid for a host in this configuration. `None` if the address is valid.
    fn unusable(&self, address: IpAddr) -> Option<&'static str> {
        let reason = unusable(address);
        let allows = self.document.system.allow_reserved_ranges;
        reason.filter(|reason| !(allows && *reason == RESERVED && address != IpAddr::V4(Ipv4Addr::BROADCAST)))
    }
}

/// Description of addresses in 240.0.0.0/4.
const RESERVED: &str = "in the reserved block 240.0.0.0/4";

/// Why an address is not valid for any host (RFC 6890). `None` if the address is valid.
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

/// Whether an address is link-local.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
