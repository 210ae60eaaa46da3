//! Computes the memory requirement of a configuration, by table.

use std::fmt;

use crate::host_share::divided;
use crate::schema::{Document, EveType, Filtering, Inspection, Pool};
use crate::value::{AddressRange, Workers};

/// A number of bytes. The number is printed in the largest suitable unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) => write!(f, "{:.1} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Memory per entry of each table in bytes, including both directions and the index. The data plane supplies these
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryBytes {
    /// An IPv4 session.
    pub session_ipv4: u64,
    /// An IPv6 session.
    pub session_ipv6: u64,
    /// A neighbour.
    pub neighbour: u64,
    /// A fragmented packet that is being tracked.
    pub fragment: u64,
    /// An address of a pool: two bitmaps of allocated ports, since pools may change at run time.
    pub pool_address: u64,
    /// A mapping, or a permission of address-dependent filtering.
    pub mapping: u64,
    /// A subscriber.
    pub subscriber: u64,
    /// A port block of a subscriber.
    pub port_block: u64,
    /// A port or port block that is in quarantine.
    pub held_port: u64,
    /// An entry of a ring between workers.
    pub ring: u64,
    /// A packet buffer of the default size.
    pub buffer: u64,
    /// An inspected flow, without the windows of its streams.
    pub inspected_flow: u64,
    /// A block of 2 KiB of stream data.
    pub block: u64,
    /// A message that is being parsed.
    pub message: u64,
    /// A record of a transaction or of a flow that has ended.
    pub record: u64,
    /// A fragmented datagram that is being reassembled for inspection.
    pub assembly: u64,
    /// A session whose application is being identified, not including nDPI's arena.
    pub identification: u64,
    /// Fixed memory of nDPI per worker.
    pub recogniser: u64,
    /// A subscriber's site, including the index of virtual MACs.
    pub site: u64,
    /// A public address that may be assigned to a site.
    pub public_address: u64,
    /// A terminal of a site.
    pub terminal: u64,
    /// An entry of the terminals' index. The size of the index is a power of two, and at least twice the number of
    /// terminals.
    pub terminal_place: u64,
}

impl Default for EntryBytes {
    /// Upper bounds that follow the memory budget for sessions.
    fn default() -> Self {
        Self {
            session_ipv4: 160,
            session_ipv6: 224,
            neighbour: 128,
            fragment: 64,
            pool_address: 52 << 10,
            mapping: 32,
            subscriber: 70,
            port_block: 16,
            held_port: 48,
            ring: 72,
            buffer: 2_432,
            inspected_flow: 2_432,
            block: 2_384,
            message: 36_864,
            record: 1_280,
            assembly: 66_656,
            identification: 1_536,
            recogniser: 7 << 20,
            site: 56,
            public_address: 4,
            terminal: 64,
            terminal_place: 4,
        }
    }
}

/// A table of fixed capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the table: the plural of the word for its entries.
    pub name: &'static str,
    /// Configuration table and key that set the capacity.
    pub key: [&'static str; 2],
    /// Capacity in entries.
    pub entries: u64,
    /// Memory of the table.
    pub bytes: Bytes,
}

/// Tables whose capacity the configuration sets.
pub fn tables(document: &Document, entry: &EntryBytes) -> Vec<Table> {
    let mut tables = of_every_gateway(document, entry);
    if let Some(inspection) = &document.inspection {
        tables.extend(of_inspection(document, inspection, entry));
    }
    if let Some(applications) = &document.applications {
        let each = entry.identification.saturating_mul(workers(document).max(1).into());
        tables.push(table(
            "sessions in application identification",
            ["applications", "flows"],
            applications.flows,
            each,
        ));
        let fixed = entry.recogniser.saturating_add(applications.memory.into());
        tables.push(table(
            "memory areas of nDPI",
            ["applications", "memory"],
            workers(document).max(1),
            fixed,
        ));
    }
    if let Some(subscribers) = &document.subscribers {
        let sites = u32::try_from(subscribers.count()).unwrap_or(u32::MAX);
        tables.push(table("sites", ["subscribers", "sites"], sites, entry.site));
        let addresses = subscribers.public_addresses();
        if addresses > 0 {
            tables.push(Table {
                name: "public addresses",
                key: ["subscribers", "public"],
                entries: addresses,
                bytes: Bytes(addresses.saturating_mul(entry.public_address)),
            });
        }
        tables.push(terminals(subscribers.max_terminals(), entry));
    }
    tables
}

fn table(name: &'static str, key: [&'static str; 2], entries: u32, bytes: u64) -> Table {
    let entries = u64::from(entries);
    Table {
        name,
        key,
        entries,
        bytes: Bytes(entries.saturating_mul(bytes)),
    }
}

/// Tables that exist in every configuration.
fn of_every_gateway(document: &Document, entry: &EntryBytes) -> Vec<Table> {
    vec![
        table(
            "IPv4 sessions",
            ["sessions", "ipv4"],
            document.sessions.ipv4,
            with_reserve(document, document.sessions.ipv4, entry.session_ipv4),
        ),
        table(
            "IPv6 sessions",
            ["sessions", "ipv6"],
            document.sessions.ipv6,
            with_reserve(document, document.sessions.ipv6, entry.session_ipv6),
        ),
        table(
            "IPv4 neighbours",
            ["neighbours", "ipv4"],
            document.neighbours.ipv4,
            entry.neighbour,
        ),
        table(
            "IPv6 neighbours",
            ["neighbours", "ipv6"],
            document.neighbours.ipv6,
            entry.neighbour,
        ),
        table(
            "fragmented packets",
            ["fragments", "packets"],
            document.fragments.packets,
            entry.fragment,
        ),
        table(
            "pool addresses",
            ["nat", "spare-addresses"],
            pool_addresses(document),
            with_shared(document, entry.pool_address),
        ),
        table(
            "mappings",
            ["sessions", "ipv4"],
            mappings(document),
            with_reserve(document, document.sessions.ipv4, entry.mapping),
        ),
        table(
            "subscribers",
            ["nat", "subscribers"],
            document.nat.subscribers,
            in_shards(document, entry.subscriber),
        ),
        table(
            "port blocks",
            ["nat", "port-blocks"],
            document.nat.port_blocks,
            in_shards(document, entry.port_block),
        ),
        table(
            "quarantined ports",
            ["nat", "quarantined-ports"],
            document.nat.quarantined_ports,
            in_shards(document, entry.held_port),
        ),
        rings(document, entry),
    ]
}

/// Tables of inspection.
fn of_inspection(document: &Document, inspection: &Inspection, entry: &EntryBytes) -> Vec<Table> {
    let mut tables = Vec::new();
    let window = u64::from(inspection.window);
    tables.push(table(
        "inspected flows",
        ["inspection", "flows"],
        inspection.flows,
        in_shards(document, entry.inspected_flow.saturating_add(4 * window)),
    ));
    tables.push(table(
        "blocks of stream data",
        ["inspection", "reassembly-bytes"],
        inspection.reassembly_bytes / 2048,
        in_shards(document, entry.block),
    ));
    tables.push(table(
        "parsed messages",
        ["inspection", "messages"],
        inspection.messages,
        in_shards(document, entry.message),
    ));
    let transactions = [EveType::Http, EveType::Dns, EveType::Tls];
    if let Some(eve) = &inspection.eve {
        if transactions.iter().any(|&kind| eve.writes(kind)) {
            tables.push(table(
                "messages for rule evaluation",
                ["inspection", "messages"],
                inspection.messages,
                in_shards(document, entry.record),
            ));
        }
        if eve
            .types
            .iter()
            .any(|kind| !matches!(kind, EveType::Alert | EveType::Stats))
        {
            let workers = u64::from(workers(document));
            let each = entry.record.saturating_mul(workers);
            tables.push(table("records", ["inspection", "eve"], eve.records, each));
        }
    }
    tables.push(table(
        "reassembled datagrams",
        ["inspection", "fragments"],
        inspection.fragments,
        entry.assembly.saturating_mul(workers(document).max(1).into()),
    ));
    tables
}

/// Table of the sites' terminals. Its memory includes the index in which terminals are looked up.
fn terminals(max: u32, entry: &EntryBytes) -> Table {
    let entries = u64::from(max);
    let places = (2 * entries).next_power_of_two();
    let index = places.saturating_mul(entry.terminal_place);
    Table {
        name: "terminals",
        key: ["subscribers", "terminals"],
        entries,
        bytes: Bytes(entries.saturating_mul(entry.terminal).saturating_add(index)),
    }
}

/// Number of workers in the configuration.
fn workers(document: &Document) -> u32 {
    let system = &document.system;
    let roles = system.roles.io.iter().chain(&system.roles.inspect);
    let mut staged: Vec<_> = system
        .stages
        .iter()
        .flat_map(|stage| &stage.cores)
        .chain(roles)
        .collect();
    staged.sort_unstable();
    staged.dedup();
    let workers = match (&system.workers, staged.len()) {
        (Workers::Count(count), 0) => usize::from(*count),
        (Workers::Cores(cores), 0) => cores.len(),
        (_, staged) => staged,
    };
    u32::try_from(workers).unwrap_or(u32::MAX)
}

/// Number of packets in rings between workers for which buffers are reserved: the content of two full rings for each
/// worker. If more rings are full, devices have no buffers for received packets and count the dropped packets.
pub fn in_rings(document: &Document) -> u32 {
    let workers = workers(document);
    let full = 2.min(workers.saturating_sub(1));
    workers.saturating_mul(full).saturating_mul(document.system.ring)
}

/// The rings (one from each worker to each other worker), and the buffers that are queued in them.
fn rings(document: &Document, entry: &EntryBytes) -> Table {
    let workers = u64::from(workers(document));
    let pairs = workers.saturating_mul(workers.saturating_sub(1));
    let entries = pairs.saturating_mul(document.system.ring.into());
    let buffers = u64::from(in_rings(document)).saturating_mul(entry.buffer);
    Table {
        name: "packets in the rings between workers",
        key: ["system", "ring"],
        entries,
        bytes: Bytes(entries.saturating_mul(entry.ring).saturating_add(buffers)),
    }
}

/// Memory per address, in bytes, for the owners of port blocks and for the free ports of each block.
const SHARED_PORTS: u64 = 26 << 10;

/// Memory of a shard's summary of shared ports, in bytes. Each summary exists in two versions.
const SUMMARY: u64 = 2 * 3 * 64;

/// Number of addresses for which memory for port allocations is reserved.
fn pool_addresses(document: &Document) -> u32 {
    let pools = document.nat.pools.values();
    let configured: u64 = pools.flat_map(|pool| &pool.addresses).map(AddressRange::count).sum();
    u32::try_from(configured.saturating_add(document.nat.spare_addresses.into())).unwrap_or(u32::MAX)
}

/// Memory per address. If shards share ports, this memory includes the summaries and the owners of ports.
fn with_shared(document: &Document, bytes: u64) -> u64 {
    match document.system.shards() {
        0..=2 => bytes,
        shards => bytes + SHARED_PORTS + SUMMARY * u64::from(shards),
    }
}

/// Maximum number of mappings: each session may have a mapping and, with address-dependent filtering, a permission.
fn mappings(document: &Document) -> u32 {
    let permits = |pool: &Pool| pool.filtering.each().contains(&Some(Filtering::AddressDependent));
    let each = 1 + u32::from(document.nat.pools.values().any(permits));
    document.sessions.ipv4.saturating_mul(each)
}

/// Memory for `all` entries, including the reserve that shards share.
fn with_reserve(document: &Document, all: u32, bytes: u64) -> u64 {
    let (_, parts, each) = divided(&document.system, all);
    bytes + (bytes * parts * each).div_ceil(u64::from(all.max(1)))
}

/// Memory that includes a reserve of a quarter in each shard, since subscribers are not distributed evenly.
fn in_shards(document: &Document, bytes: u64) -> u64 {
    match document.system.shards() {
        0 | 1 => bytes,
        _ => bytes + bytes.div_ceil(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn memory_of_sites_and_terminals_is_that_of_their_entries_and_index() {
        let sites = "[subscribers.sites.homes]\ninterface = \"access\"\ntags = \"1-100.1-10\"\n";
        let listed = |terminals: &str| {
            let text = format!("[subscribers]\n{terminals}{sites}");
            let document = parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
            let tables = tables(&document, &EntryBytes::default());
            let own = tables.into_iter().filter(|table| table.key[0] == "subscribers");
            own.map(|table| (table.name, table.entries, table.bytes.0))
                .collect::<Vec<_>>()
        };
        let table = ("sites", 1_000, 56_000);
        assert_eq!(vec![table, ("terminals", 4_000, 4_000 * 64 + 8_192 * 4)], listed(""));
        assert_eq!(
            vec![table, ("terminals", 4_097, 4_097 * 64 + 16_384 * 4)],
            listed("terminals = 4_097\n")
        );
        let public = "[subscribers.public.outside]\nprefixes = [\"192.0.2.0/24\", \"198.51.100.0/23\"]\n";
        let with_public = listed(&format!("terminals = 4_000\n{public}"));
        assert_eq!(Some(&("public addresses", 768, 3_072)), with_public.get(1));
    }
}
