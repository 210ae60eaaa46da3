//! Difference between two configurations: changes that a running process can apply, and changes that require a restart.

use std::fmt;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::config::Config;
use crate::schema;

/// Keys that can't be changed at run time, each with the reason. `*` stands for any name. An entry also applies to all
/// keys below its key.
const FIXED: &[(&str, &str)] = &[
    ("system.workers", "workers are pinned to cores at start"),
    ("system.model", "workers are assigned to stages at start"),
    ("system.stages", "workers are assigned to stages at start"),
    ("system.roles", "workers are assigned to stages at start"),
    ("system.ring", "the rings between workers are created at start"),
    ("system.idle", "the idle mode of workers is set at start"),
    ("system.shards", "a session can't move to another shard"),
    (
        "system.steering",
        "a session can't move to another shard, and devices are configured for steering at start",
    ),
    ("system.hugepages", "packet buffers are allocated at start"),
    ("system.busy-poll", "the idle mode of workers is set at start"),
    ("system.watchdog", "the watchdog is started with the workers, at start"),
    ("sessions.ipv4", "the memory of the session table is allocated at start"),
    ("sessions.ipv6", "the memory of the session table is allocated at start"),
    (
        "nat.spare-addresses",
        "the memory for the ports of pools is allocated at start",
    ),
    ("nat.subscriber-prefix", "a subscriber can't move to another shard"),
    ("nat.subscribers", "the memory of the table is allocated at start"),
    ("nat.port-blocks", "the memory of the table is allocated at start"),
    ("nat.quarantined-ports", "the memory of the table is allocated at start"),
    (
        "nat.unsolicited-syns",
        "the table of unsolicited SYNs is allocated at start",
    ),
    ("interfaces.*.device", "devices are opened at start"),
    ("interfaces.*.bond", "devices are opened at start"),
    ("interfaces.*.parent", "devices are opened at start"),
    ("interfaces.*.vlan", "devices are opened at start"),
    ("interfaces.*.queues", "queues are set up when the device is opened"),
    (
        "interfaces.*.mac",
        "the Ethernet address is set when the device is opened",
    ),
    ("interfaces.*.mtu", "packet buffers are sized when the device is opened"),
    (
        "interfaces.*.tunnel",
        "neighbour entries refer to the number of the existing tunnel: choose another name for the new tunnel",
    ),
    ("bridges.*.interfaces", "devices are set to promiscuous mode at start"),
    ("neighbours.ipv4", "the memory of the table is allocated at start"),
    ("neighbours.ipv6", "the memory of the table is allocated at start"),
    ("neighbours.parked", "the memory of the table is allocated at start"),
    ("neighbours.parked-each", "the table is created at start"),
    ("neighbours.reachable", "the timers of neighbours are set at start"),
    ("neighbours.retransmit", "the timers of neighbours are set at start"),
    ("neighbours.requests", "the timers of neighbours are set at start"),
    ("fragments.packets", "the memory of the table is allocated at start"),
    ("fragments.parked", "the memory of the table is allocated at start"),
    ("fragments.timeout", "the table is created at start"),
    ("applications", "application identification is set up at start"),
    ("subscribers", "the numbers and tables of sites are assigned at start"),
    (
        "inspection.flows",
        "the memory of inspected flows is allocated at start",
    ),
    (
        "inspection.window",
        "the memory of inspected flows is allocated at start",
    ),
    (
        "inspection.reassembly-bytes",
        "the memory of inspected flows is allocated at start",
    ),
    ("inspection.messages", "parsers are allocated at start"),
    ("inspection.decoders", "parsers are allocated at start"),
    ("inspection.alerts", "the queues of alerts are created at start"),
    ("inspection.fragments", "the memory of fragments is allocated at start"),
    (
        "inspection.fragment-bytes",
        "the memory of fragments is allocated at start",
    ),
    (
        "inspection.eve",
        "the queues and outputs of records are created at start",
    ),
    ("control.socket", "the socket is opened at start"),
    ("control.log", "the log is opened at start"),
    ("control.trace-limit", "the memory of traces is allocated at start"),
    ("control.capture-limit", "the memory of captures is allocated at start"),
];

/// Tables that can't be added or removed as a whole, each with the reason. Keys within the listed tables may change.
const FIXED_AS_A_WHOLE: &[(&str, &str)] = &[("inspection", "the inspection engine is set up at start")];

/// How a key differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Only the new configuration has the key.
    Added,
    /// Only the old configuration has the key.
    Removed,
    /// Both configurations have the key, with different values.
    Changed,
}

/// One difference between two configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Change {
    /// The full key, such as `nat.pools.public.addresses`.
    pub key: String,
    /// How the key differs.
    pub kind: Kind,
    /// Why a running process can't apply the change. `None` if the process can apply the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Added => "added",
            Kind::Removed => "removed",
            Kind::Changed => "changed",
        };
        write!(f, "{} {kind}", self.key)?;
        match &self.fixed {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// All differences between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Difference {
    /// Changes in the order of the keys.
    pub changes: Vec<Change>,
}

impl Difference {
    /// Whether the configurations are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Changes that require a restart. If a change requires a restart, a running process rejects the whole
    /// configuration.
    pub fn fixed(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.fixed.is_some())
    }

    /// Whether the configurations differ in a key or in any key below this key.
    pub fn touches(&self, key: &str) -> bool {
        self.changes.iter().any(|change| {
            change
                .key
                .strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Compare two configurations with all defaults filled in.
pub fn difference(old: &Config, new: &Config) -> Difference {
    let mut found = Vec::new();
    let tree = |config: &Config| Table::try_from(&config.document).unwrap_or_default();
    let (old_tree, new_tree) = (tree(old), tree(new));
    walk(&[], &old_tree, &new_tree, &mut found);
    let devices = |config: &Config| {
        let written = config.document.interfaces.values();
        written
            .flat_map(devices_of)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let (old_devices, new_devices) = (devices(old), devices(new));
    // Interfaces can be added and removed as a whole, but the parameters with which a device was opened can't change. A
    // device must be closed before another interface can use it, so moving a device requires two commits.
    let is_live = |path: &[&str]| match path {
        ["interfaces", name] => {
            let (before, after) = (&old.document.interfaces, &new.document.interfaces);
            let (interface, others) = match (before.get(*name), after.get(*name)) {
                (None, Some(added)) => (added, &old_devices),
                (Some(removed), None) => (removed, &new_devices),
                _ => return false,
            };
            devices_of(interface).all(|device| !others.contains(&device.to_string()))
        }
        ["interfaces", name, rest @ ..] => {
            let written = [old, new].map(|config| config.document.interfaces.get(*name));
            let device = |written: &schema::Interface| written.device.is_some() || written.bond.is_some();
            let live = match rest {
                ["tunnel", key] => *key != "type",
                rest => rest.iter().all(|key| LIVE.contains(key)),
            };
            !written.into_iter().flatten().any(device) && live
        }
        _ => false,
    };
    let change = |(path, kind): (Vec<&str>, Kind)| Change {
        key: path.join("."),
        kind,
        fixed: fixed(&path).filter(|_| !is_live(&path)),
    };
    let mut changes: Vec<_> = found.into_iter().map(change).collect();
    changes.sort_by(|a, b| a.key.cmp(&b.key));
    Difference { changes }
}

/// Devices of an interface.
fn devices_of(interface: &schema::Interface) -> impl Iterator<Item = &crate::value::Device> {
    let members = interface.bond.iter().flat_map(|bond| &bond.members);
    interface.device.iter().chain(members)
}

/// Keys that can change at run time on an interface that has no device.
const LIVE: &[&str] = &["parent", "vlan", "peer", "mtu"];

fn walk<'t>(prefix: &[&'t str], old: &'t Table, new: &'t Table, found: &mut Vec<(Vec<&'t str>, Kind)>) {
    let path = |key: &'t str| [prefix, &[key]].concat();
    for (key, old_value) in old {
        match (old_value, new.get(key)) {
            (Value::Table(old), Some(Value::Table(new))) => walk(&path(key), old, new, found),
            (_, None) => found.push((path(key), Kind::Removed)),
            (old, Some(new)) if old != new => found.push((path(key), Kind::Changed)),
            _ => {}
        }
    }
    let added = new.keys().filter(|key| !old.contains_key(*key));
    found.extend(added.map(|key| (path(key), Kind::Added)));
}

/// Why the key at a path can't be changed at run time.
fn fixed(path: &[&str]) -> Option<String> {
    let key = path.join(".");
    let as_a_whole = FIXED_AS_A_WHOLE.iter().filter(|(table, _)| *table == key);
    let fixed = FIXED.iter().filter(|(pattern, _)| covers(pattern, path));
    fixed.chain(as_a_whole).next().map(|(_, why)| (*why).to_owned())
}

/// Whether a pattern matches a path. An interface that is added or removed as a whole matches the patterns of its keys.
fn covers(pattern: &str, path: &[&str]) -> bool {
    let pattern: Vec<_> = pattern.split('.').collect();
    let matched = pattern
        .iter()
        .zip(path)
        .take_while(|(expected, step)| **expected == "*" || expected == step);
    let matched = matched.count();
    let reached = matched == pattern.len() || matched == path.len();
    reached && (matched == pattern.len() || matched > 0 && pattern[matched - 1] == "*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::EntryBytes;
    use crate::{Machine, check};

    const BASE: &str = r#"
[interfaces.inside]
device = "tap:inside"
addresses = ["10.0.0.1/24"]
[interfaces.outside]
device = "tap:outside"
addresses = ["192.0.2.1/24"]
[nat.pools.public]
addresses = ["192.0.2.8/29"]
[[nat.source]]
from = "10.0.0.0/24"
pool = "public"
"#;

    fn changes(old: &str, new: &str) -> Vec<String> {
        let machine = Machine {
            cores: vec![0, 1],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let config = |text| check("test", text, &machine).unwrap_or_else(|e| panic!("{e}")).config;
        difference(&config(old), &config(new))
            .changes
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn difference_of_the_same_is_empty() {
        assert_eq!(Vec::<String>::new(), changes(BASE, BASE));
    }

    #[test]
    fn difference_of_rules_pools_and_addresses_is_live() {
        let new = BASE
            .replace("192.0.2.8/29", "192.0.2.16/29")
            .replace("10.0.0.1/24", "10.0.0.2/24")
            + "[[routes]]\nto = \"10.9.0.0/16\"\naction = \"blackhole\"\n";
        let expected = [
            "interfaces.inside.addresses changed",
            "nat.pools.public.addresses changed",
            "routes added",
        ];
        assert_eq!(expected.map(String::from).to_vec(), changes(BASE, &new));
    }

    #[test]
    fn difference_of_capacity_needs_a_restart() {
        let new = BASE.to_owned() + "[sessions]\nipv4 = 5000\n[system]\nshards = 4\n[nat]\nspare-addresses = 9\n";
        let expected = [
            "nat.spare-addresses changed: the memory for the ports of pools is allocated at start",
            "sessions.ipv4 changed: the memory of the session table is allocated at start",
            "system.shards added: a session can't move to another shard",
        ];
        assert_eq!(expected.map(String::from).to_vec(), changes(BASE, &new));
    }

    #[test]
    fn difference_of_what_is_set_up_once_needs_a_restart() {
        let new = BASE.to_owned()
            + "[neighbours]\nreachable = \"9s\"\n[fragments]\ntimeout = \"9s\"\n[control]\nlog = \"warn\"\n";
        let expected = [
            "control.log changed: the log is opened at start",
            "fragments.timeout changed: the table is created at start",
            "neighbours.reachable changed: the timers of neighbours are set at start",
        ];
        assert_eq!(expected.map(String::from).to_vec(), changes(BASE, &new));
    }

    #[test]
    fn difference_of_what_flows_are_inspected_for_is_live() {
        let old = BASE.to_owned()
            + "[inspection]\ninterfaces = [\"inside\"]\n[[inspection.signatures]]\nfile = \"a\"\ndialect = \"snort3\"\n";
        let new = old.replace("\"a\"", "\"b\"").replace(
            "[\"inside\"]",
            "[\"outside\"]\nmode = \"detect\"\ndepth = 9\ncache = \"\"",
        ) + "[[inspection.bypass]]\nprotocol = \"udp\"\n[inspection.overload]\n\
               [inspection.exceptions]\nmidstream = \"bypass\"\n[inspection.addresses]\nHOME_NET = \"any\"\n";
        let expected = [
            "addresses added",
            "bypass added",
            "cache changed",
            "depth changed",
            "exceptions added",
            "interfaces changed",
            "mode changed",
            "overload added",
            "signatures changed",
        ];
        assert_eq!(
            expected.map(|change| format!("inspection.{change}")).to_vec(),
            changes(&old, &new)
        );
    }

    #[test]
    fn difference_of_inspection_as_a_whole_and_of_its_memory_needs_a_restart() {
        let with = |keys: &str| {
            format!(
                "{BASE}[inspection]\ninterfaces = [\"inside\"]\n{keys}\
                 [[inspection.signatures]]\nfile = \"a\"\ndialect = \"snort3\"\n"
            )
        };
        let whole = "the inspection engine is set up at start";
        assert_eq!(vec![format!("inspection added: {whole}")], changes(BASE, &with("")));
        assert_eq!(vec![format!("inspection removed: {whole}")], changes(&with(""), BASE));
        let keys = "flows = 100\nwindow = 512\nreassembly-bytes = 2_097_152\nmessages = 64\ndecoders = 1\nalerts = 16\nfragments = 1\n\
                    fragment-bytes = 65_536\neve = \"f\"\n";
        let changes = changes(&with(""), &with(keys));
        assert_eq!(9, changes.len());
        assert!(changes.iter().all(|change| change.ends_with("at start")), "{changes:?}");
    }

    #[test]
    fn difference_of_subscribers_needs_a_restart() {
        let new = BASE.to_owned()
            + "[subscribers.sites.homes]\ninterface = \"inside\"\ntags = \"7\"\ndhcp = \"inside\"\npool = \"public\"\n\
               [subscribers.dhcp.inside]\nserver = \"192.0.2.7\"\nleases = \"f\"\nformat = \"kea\"\n";
        let why = "the numbers and tables of sites are assigned at start";
        assert_eq!(vec![format!("subscribers added: {why}")], changes(BASE, &new));
        let more = new.replace("\"7\"", "\"7-8\"").replace("192.0.2.7", "192.0.2.6");
        let expected = [
            format!("subscribers.dhcp.inside.server changed: {why}"),
            format!("subscribers.sites.homes.tags changed: {why}"),
        ];
        assert_eq!(expected.to_vec(), changes(&new, &more));
    }

    #[test]
    fn difference_of_an_interface_more_or_less_is_live() {
        let new = BASE.to_owned() + "[interfaces.guests]\ndevice = \"tap:guests\"\n";
        assert_eq!(vec!["interfaces.guests added".to_owned()], changes(BASE, &new));
        assert_eq!(vec!["interfaces.guests removed".to_owned()], changes(&new, BASE));
    }

    #[test]
    fn difference_of_a_device_that_goes_to_another_interface_needs_a_restart() {
        let with = |name: &str| format!("[interfaces.{name}]\ndevice = \"tap:guests\"\n{BASE}");
        let why = "devices are opened at start";
        assert_eq!(
            vec![
                format!("interfaces.one removed: {why}"),
                format!("interfaces.two added: {why}")
            ],
            changes(&with("one"), &with("two"))
        );
    }

    #[test]
    fn difference_of_the_order_of_interfaces_is_none() {
        let (inside, outside) = BASE.split_once("[interfaces.outside]").unwrap();
        let (outside, rest) = outside.split_once("[nat.pools.public]").unwrap();
        let turned = format!("[interfaces.outside]{outside}{inside}[nat.pools.public]{rest}");
        assert_eq!(Vec::<String>::new(), changes(BASE, &turned));
    }

    #[test]
    fn difference_of_interfaces_without_a_device_is_live_whatever_their_names() {
        let vlan = |id: u16| format!("[interfaces.\"inside.7\"]\nparent = \"inside\"\nvlan = {id}\n{BASE}");
        assert_eq!(vec!["interfaces.inside.7 added"], changes(BASE, &vlan(7)));
        assert_eq!(vec!["interfaces.inside.7.vlan changed"], changes(&vlan(7), &vlan(8)));
        let device = |name: &str| format!("[interfaces.\"x.1\"]\ndevice = \"tap:{name}\"\n{BASE}");
        let expected = vec!["interfaces.x.1.device changed: devices are opened at start"];
        assert_eq!(expected, changes(&device("a"), &device("b")));
    }

    const TUNNEL: &str = r#"
[interfaces.far]
tunnel = { type = "gre", local = "192.0.2.1", remote = "198.51.100.9" }
"#;

    #[test]
    fn tunnels_come_and_go_and_change_their_ends_and_their_kind_only_under_another_name() {
        let old = format!("{BASE}{TUNNEL}");
        assert_eq!(vec!["interfaces.far added"], changes(BASE, &old));
        assert_eq!(vec!["interfaces.far removed"], changes(&old, BASE));
        let moved = old.replace("198.51.100.9", "198.51.100.8").replace(" }", ", id = 7 }");
        assert_eq!(
            vec!["interfaces.far.tunnel.id added", "interfaces.far.tunnel.remote changed"],
            changes(&old, &moved)
        );
        let why = "neighbour entries refer to the number of the existing tunnel: choose another name for the new \
             tunnel";
        assert_eq!(
            vec![format!("interfaces.far.tunnel.type changed: {why}")],
            changes(&old, &old.replace("gre", "ipip"))
        );
    }
}
