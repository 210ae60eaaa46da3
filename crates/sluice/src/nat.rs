//! `sluice show nat`, `show mapping` and `show subscribers`: how full translation is, and which outside ports belong to
//! whom.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use sluice_daemon::Shares;
use sluice_daemon::config::api::{
    Mapping, MappingFilter, Nat, NatRequest, Pool, PortBlock, Rule, RuleAction, RuleHost, RuleKind, Share, Subscriber,
    SubscriberFilter, TableUse, path,
};

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::each;

use Align::{Left, Right};

/// Spans of a share that a table names.
const SPANS: usize = 4;

/// Rows between two flushes.
const ROWS: usize = 256;

const SHARE: [(&str, Align); 4] = [("POOL", Left), ("INSIDE", Left), ("PORTS", Right), ("OUTSIDE", Left)];

const BLOCK: [(&str, Align); 6] = [
    ("POOL", Left),
    ("SUBSCRIBER", Left),
    ("BLOCK", Left),
    ("TCP", Right),
    ("UDP", Right),
    ("ICMP", Right),
];

const MAPPING: [(&str, Align); 5] = [
    ("POOL", Left),
    ("PROTOCOL", Left),
    ("INSIDE", Left),
    ("OUTSIDE", Left),
    ("SESSIONS", Right),
];

const RULE: [(&str, Align); 8] = [
    ("RULE", Left),
    ("NETWORK", Left),
    ("PROTOCOL", Left),
    ("PORTS", Left),
    ("IN", Left),
    ("OUT", Left),
    ("ACTION", Left),
    ("FLOWS", Right),
];

const RULE_HOST: [(&str, Align); 5] = [
    ("HOSTS", Left),
    ("ADDRESS", Left),
    ("WEIGHT", Right),
    ("STATE", Left),
    ("FLOWS", Right),
];

const SUBSCRIBER: [(&str, Align); 8] = [
    ("SUBSCRIBER", Left),
    ("POOL", Left),
    ("PAIRED", Left),
    ("TCP", Right),
    ("UDP", Right),
    ("ICMP", Right),
    ("BLOCKS", Right),
    ("SESSIONS", Right),
];

/// What the daemon knows of mappings. Shares are listed where an address is named: every inside address has one.
///
/// # Errors
/// Those of the connection and of the output.
pub fn mapping(
    client: &mut Client,
    filter: &MappingFilter,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut lists = Lists::new(json, output);
    lists.begin("shares", &SHARE)?;
    if filter.inside.is_some() || filter.outside.is_some() {
        each(client, path::SHARES, filter, u64::MAX, |share: Share| {
            lists.entry(&share, share_row(&share))
        })?;
    }
    lists.begin("blocks", &BLOCK)?;
    each(client, path::PORT_BLOCKS, filter, u64::MAX, |block: PortBlock| {
        lists.entry(&block, block_row(&block))
    })?;
    lists.begin("mappings", &MAPPING)?;
    each(client, path::MAPPINGS, filter, u64::MAX, |mapping: Mapping| {
        lists.entry(&mapping, mapping_row(&mapping))
    })?;
    lists.end()
}

/// What a configuration says.
///
/// # Errors
/// The file can't be read or is wrong; those of the output.
pub fn mapping_of_file(
    file: &Path,
    filter: &MappingFilter,
    json: bool,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let shares = Shares::of_file(file)?;
    let mut lists = Lists::new(json, output);
    lists.begin("shares", &SHARE)?;
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let (found, next) = shares.list(filter, from, ROWS);
        found
            .iter()
            .try_for_each(|share| lists.entry(share, share_row(share)))?;
        cursor = next;
    }
    lists.end()
}

/// Subscribers that have sessions.
///
/// # Errors
/// Those of the connection and of the output.
pub fn subscribers(
    client: &mut Client,
    filter: &SubscriberFilter,
    (limit, json): (u64, bool),
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut lists = Lists::new(json, output);
    lists.begin("subscribers", &SUBSCRIBER)?;
    each(client, path::SUBSCRIBERS, filter, limit, |subscriber: Subscriber| {
        lists.entry(&subscriber, subscriber_row(&subscriber))
    })?;
    lists.end()
}

/// How full pools and tables are, and what rules decided.
///
/// # Errors
/// Those of the connection and of the output.
pub fn nat(client: &mut Client, request: &NatRequest, json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let nat: Nat = client.ask(path::NAT, request)?;
    if json {
        serde_json::to_writer_pretty(&mut *output, &nat).map_err(std::io::Error::from)?;
        return Ok(writeln!(output)?);
    }
    let mut pools = Columns::new(&[
        ("POOL", Left),
        ("ADDRESSES", Right),
        ("PORTS", Right),
        ("TCP", Right),
        ("UDP", Right),
        ("ICMP", Right),
        ("BLOCKS", Right),
        ("FRAGMENTED", Right),
        ("SUBSCRIBERS", Right),
        ("SESSIONS", Right),
    ]);
    nat.pools.iter().for_each(|pool| pools.row(pool_row(pool)));
    pools.flush(output)?;
    writeln!(output)?;
    let mut tables = Columns::new(&[("TABLE", Left), ("USED", Right), ("CAPACITY", Right), ("FULL", Right)]);
    nat.tables.iter().for_each(|table| tables.row(table_row(table)));
    tables.flush(output)?;
    if nat.not_held != 0 {
        writeln!(
            output,
            "{} ports did not wait: the table was full",
            grouped(nat.not_held)
        )?;
    }
    if nat.borrowed_blocks != 0 {
        writeln!(
            output,
            "{} blocks of 64 ports are with shards whose own are used up",
            grouped(nat.borrowed_blocks)
        )?;
    }
    if !nat.subscribers.is_empty() {
        writeln!(output)?;
        let mut subscribers = Columns::new(&SUBSCRIBER);
        nat.subscribers
            .iter()
            .for_each(|row| subscribers.row(subscriber_row(row)));
        subscribers.flush(output)?;
    }
    if !nat.rules.is_empty() {
        writeln!(output)?;
        let mut rules = Columns::new(&RULE);
        nat.rules.iter().for_each(|rule| rules.row(rule_row(rule)));
        rules.flush(output)?;
        let more = nat.rules_in_all - nat.rules.len() as u64;
        if more > 0 {
            writeln!(output, "and {} more: --rules", grouped(more))?;
        }
    }
    if !nat.hosts.is_empty() {
        writeln!(output)?;
        let mut hosts = Columns::new(&RULE_HOST);
        nat.hosts.iter().for_each(|host| hosts.row(rule_host_row(host)));
        hosts.flush(output)?;
    }
    Ok(())
}

/// Lists that are printed one after the other: as tables, those without entries left out, or as one JSON object.
struct Lists<'a> {
    output: &'a mut dyn Write,
    json: bool,
    table: Option<Columns>,
    /// What stands before the next list and before the next entry.
    before: [&'static str; 2],
}

impl<'a> Lists<'a> {
    fn new(json: bool, output: &'a mut dyn Write) -> Self {
        Self {
            output,
            json,
            table: None,
            before: [if json { "{" } else { "" }, ""],
        }
    }

    fn begin(&mut self, name: &str, titles: &[(&'static str, Align)]) -> Result<(), CommandError> {
        self.flush()?;
        if self.json {
            write!(self.output, "{}\"{name}\":[", self.before[0])?;
            self.before = ["\n],", "\n"];
        } else {
            self.table = Some(Columns::new(titles));
            self.before[1] = self.before[0];
        }
        Ok(())
    }

    fn entry<T: Serialize, const N: usize>(&mut self, entry: &T, row: [String; N]) -> Result<(), CommandError> {
        if self.json {
            write!(self.output, "{}", self.before[1])?;
            self.before[1] = ",\n";
            return Ok(serde_json::to_writer(&mut *self.output, entry).map_err(std::io::Error::from)?);
        }
        if let Some(table) = &mut self.table {
            table.row(row);
            if table.waiting() >= ROWS {
                write!(self.output, "{}", self.before[1])?;
                self.before = ["\n", ""];
                table.flush(self.output)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CommandError> {
        if let Some(mut table) = self.table.take().filter(|table| table.waiting() > 0) {
            write!(self.output, "{}", self.before[1])?;
            self.before = ["\n", ""];
            table.flush(self.output)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), CommandError> {
        self.flush()?;
        if self.json {
            writeln!(self.output, "\n]}}")?;
        } else if self.before[0].is_empty() {
            writeln!(self.output, "nothing matches")?;
        }
        Ok(())
    }
}

fn share_row(share: &Share) -> [String; 4] {
    let mut spans: Vec<_> = share.spans.iter().take(SPANS).map(ToString::to_string).collect();
    if share.spans.len() > SPANS {
        spans.push(format!("and {} more", share.spans.len() - SPANS));
    }
    let ports = grouped(share.ports.into());
    [share.pool.clone(), share.inside.to_string(), ports, spans.join(" ")]
}

fn block_row(block: &PortBlock) -> [String; 6] {
    let used = block.used;
    [
        block.pool.clone(),
        block.subscriber.to_string(),
        block.span.to_string(),
        grouped(used.tcp),
        grouped(used.udp),
        grouped(used.icmp),
    ]
}

fn mapping_row(mapping: &Mapping) -> [String; 5] {
    [
        mapping.pool.clone(),
        mapping.protocol.to_string(),
        mapping.inside.to_string(),
        mapping.outside.to_string(),
        grouped(mapping.sessions.into()),
    ]
}

fn subscriber_row(subscriber: &Subscriber) -> [String; 8] {
    let ports = subscriber.ports;
    [
        subscriber.address.to_string(),
        subscriber.pool.clone(),
        subscriber.paired.to_string(),
        grouped(ports.tcp),
        grouped(ports.udp),
        grouped(ports.icmp),
        grouped(subscriber.blocks.into()),
        grouped(subscriber.sessions.into()),
    ]
}

fn rule_row(rule: &Rule) -> [String; 8] {
    let any = |text: Option<String>| text.unwrap_or_else(|| "any".into());
    let kind = match rule.kind {
        RuleKind::Destination => "destination",
        RuleKind::Source => "source",
    };
    let action = match rule.action {
        RuleAction::Pool => "pool",
        RuleAction::Static => "static",
        RuleAction::Host => "to",
        RuleAction::Hosts => "to hosts",
        RuleAction::Exempt => "exempt",
    };
    let action = [Some(action), rule.to.as_deref()];
    [
        kind.into(),
        rule.network.clone(),
        any(rule.protocol.map(|protocol| protocol.to_string())),
        any(rule.ports.clone()),
        match rule.own {
            true => "own".into(),
            false => any(rule.incoming.clone()),
        },
        any(rule.out.clone()),
        action.into_iter().flatten().collect::<Vec<_>>().join(" "),
        grouped(rule.flows),
    ]
}

fn rule_host_row(host: &RuleHost) -> [String; 5] {
    [
        host.hosts.to_string(),
        host.address.to_string(),
        host.weight.to_string(),
        host.state.to_string(),
        grouped(host.flows),
    ]
}

fn pool_row(pool: &Pool) -> [String; 10] {
    let (blocks, fragmented) = match &pool.blocks {
        None => ("-".into(), "-".into()),
        Some(blocks) => (
            format!("{} of {}", grouped(blocks.used), grouped(blocks.count)),
            format!("{:.0} %", blocks.fragmentation * 100.0),
        ),
    };
    [
        pool.name.clone(),
        grouped(pool.addresses),
        grouped(pool.ports),
        grouped(pool.used.tcp),
        grouped(pool.used.udp),
        grouped(pool.used.icmp),
        blocks,
        fragmented,
        grouped(pool.subscribers),
        grouped(pool.sessions),
    ]
}

fn table_row(table: &TableUse) -> [String; 4] {
    let share = table.used as f64 / table.most.max(1) as f64;
    [
        table.name.clone(),
        grouped(table.used),
        grouped(table.most),
        format!("{:.0} %", share * 100.0),
    ]
}
