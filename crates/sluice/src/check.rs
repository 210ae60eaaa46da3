//! `sluice check`: checks a configuration and prints what the daemon would run.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use sluice_daemon::bind::CardStatus;
use sluice_daemon::config::config::{Interface, Link};
use sluice_daemon::config::host_share::host_share;
use sluice_daemon::config::memory::Bytes;
use sluice_daemon::config::text::escaped;
use sluice_daemon::config::{Config, place};
use sluice_daemon::{
    FilterOutlook, Loaded, Outlook, PortsPlan, SignatureReport, Stages, buffer_memory, filter_outlook, hugepages,
    key_faults, load, outlook, plan, signatures,
};

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;

use Align::{Left, Right};

/// Check a configuration, and print what the daemon would run with it.
///
/// # Errors
/// The file can't be read or is invalid, or a device can't be opened. If a device can't be opened, all other results
/// are printed before the error.
pub fn check(file: &Path, json: bool, partial: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let loaded = load(file)?;
    let diagnosis = |faults| CommandError::Configuration(place(&loaded.name, &loaded.text, faults));
    let ports = outlook(&loaded.checked.config).map_err(diagnosis)?;
    let filter = filter_outlook(&loaded.checked.config).map_err(|fault| diagnosis(vec![fault]))?;
    let mut config = loaded.checked.config.clone().into_inner();
    let files = config
        .inspection
        .iter_mut()
        .flat_map(|inspection| &mut inspection.signatures);
    files.for_each(|file| file.partial |= partial);
    let signatures = signatures(&config).map_err(|error| diagnosis(vec![error.fault()]))?;
    let found = (filter.as_ref(), signatures.as_ref());
    if json {
        as_json(&loaded, &ports, found, output)
    } else {
        as_text(&loaded, &ports, found, output)
    }?;
    let config = &loaded.checked.config;
    let of_ports = ports.iter().flat_map(|port| port.faults(config));
    let faults: Vec<_> = of_ports
        .chain(key_faults(config))
        .chain(buffer_memory(config, &ports, &planned(config, &ports)).err())
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(diagnosis(faults))
    }
}

fn as_text(
    loaded: &Loaded,
    ports: &[Outlook],
    (filter, signatures): (Option<&FilterOutlook>, Option<&SignatureReport>),
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let config = &loaded.checked.config;
    interfaces(config, ports, output)?;
    cards(ports, output)?;
    for (interface, sites) in promiscuous(config) {
        let sites = grouped(sites.into());
        writeln!(
            output,
            "  {interface}: in promiscuous mode for the virtual MAC addresses of {sites} sites"
        )?;
    }
    workers(config, output)?;
    memory(loaded, ports, output)?;
    one_host(config, output)?;
    if let Some(filter) = filter {
        writeln!(output, "\n{filter}")?;
    }
    if let Some(signatures) = signatures {
        writeln!(output, "\n{signatures}")?;
        for refused in &signatures.refused {
            let why = refused.why.to_string();
            writeln!(
                output,
                "  {}:{}: {}",
                refused.file.display(),
                refused.line,
                escaped(&why)
            )?;
        }
    }
    for finding in loaded.checked.advice.findings() {
        let message = escaped(&finding.message);
        writeln!(output, "\n{}:{}: {message}", loaded.name, finding.line)?;
    }
    Ok(())
}

/// Print the interfaces with their devices, and the limits of the devices.
fn interfaces(config: &Config, ports: &[Outlook], output: &mut dyn Write) -> Result<(), CommandError> {
    let mut interfaces = Columns::new(&[
        ("INTERFACE", Left),
        ("ROUTER", Left),
        ("DEVICE", Left),
        ("DRIVER", Left),
        ("MTU", Right),
        ("QUEUES", Right),
        ("ADDRESSES", Left),
    ]);
    for (index, interface) in config.interfaces.iter().enumerate() {
        let choice = ports
            .iter()
            .find(|port| usize::from(port.interface) == index)
            .map(|port| &port.choice);
        interfaces.row([
            interface.name.clone(),
            router(config, interface),
            device(config, interface),
            choice.map_or("-".into(), |choice| choice.driver.to_string()),
            interface.mtu.to_string(),
            choice.map_or("-".into(), |choice| choice.queues.to_string()),
            addresses(interface).join(" "),
        ]);
    }
    interfaces.flush(output)?;
    for port in ports {
        let name = &port.plan.name;
        if !port.choice.reason.is_empty() {
            writeln!(output, "  {name}: {}, {}", port.choice.driver, port.choice.reason)?;
        }
        for limit in port.limits.iter().filter(|limit| !limit.fatal) {
            writeln!(output, "  {name}: {limit}")?;
        }
    }
    Ok(())
}

/// Print the capacity and the memory of the tables and of the packet buffers.
fn memory(loaded: &Loaded, ports: &[Outlook], output: &mut dyn Write) -> Result<(), CommandError> {
    let config = &loaded.checked.config;
    let mut tables = Columns::new(&[("TABLE", Left), ("CAPACITY", Right), ("MEMORY", Right)]);
    for table in &config.tables {
        tables.row([table.name.into(), grouped(table.entries), table.bytes.to_string()]);
    }
    let plan = planned(config, ports);
    tables.row([
        "packet buffers".into(),
        grouped(u64::from(plan.buffers)),
        Bytes(plan.bytes() as u64).to_string(),
    ]);
    tables.flush(output)?;
    // Buffers in rings are included in the packet buffers.
    let tables = config.tables.iter().filter(|table| table.key != ["system", "ring"]);
    let sum: u64 = tables.map(|table| table.bytes.0).sum();
    writeln!(
        output,
        "{} of {} free",
        Bytes(sum + plan.bytes() as u64),
        Bytes(loaded.machine.memory)
    )?;
    // If the memory is not available, another part of the check reports an error.
    if let Ok(memory) = buffer_memory(config, ports, &plan) {
        writeln!(
            output,
            "Packet buffers in {memory}; free hugepages: {}",
            free_hugepages()
        )?;
    }
    Ok(())
}

/// Print how much of the tables and pools a single host can use if no other host uses them.
fn one_host(config: &Config, output: &mut dyn Write) -> Result<(), CommandError> {
    let share = host_share(config);
    let [v4, v6] = [share.sessions_ipv4, share.sessions_ipv6].map(grouped);
    writeln!(output, "\nA single host can have {v4} IPv4 and {v6} IPv6 sessions")?;
    let mut columns = Columns::new(&[
        ("  OF POOL", Left),
        ("SESSIONS", Right),
        ("TCP PORTS", Right),
        ("UDP PORTS", Right),
        ("ICMP IDENTIFIERS", Right),
    ]);
    for pool in share.pools {
        let [sessions, tcp, udp, icmp] = [pool.sessions, pool.tcp, pool.udp, pool.icmp].map(grouped);
        columns.row([format!("  {}", pool.pool), sessions, tcp, udp, icmp]);
    }
    if columns.waiting() > 0 {
        columns.flush(output)?;
    }
    Ok(())
}

/// Plan of the ports, as far as it can be determined without opening devices.
fn planned(config: &Config, ports: &[Outlook]) -> PortsPlan {
    let stages = Stages::new(config.stages.clone());
    plan(config, ports, &stages, config.document.system.assists())
}

/// Print the drivers to which cards are bound. Without cards, prints nothing.
fn cards(ports: &[Outlook], output: &mut dyn Write) -> Result<(), CommandError> {
    let mut columns = Columns::new(&[
        ("CARD", Left),
        ("INTERFACE", Left),
        ("KERNEL DRIVER", Left),
        ("MODE", Left),
        ("GROUP", Right),
        ("NODE", Right),
        ("NAME", Left),
    ]);
    for (port, card) in ports
        .iter()
        .flat_map(|port| port.cards.iter().map(move |card| (port, card)))
    {
        let card = CardStatus::from(card);
        columns.row([
            card.card,
            port.plan.name.clone(),
            card.driver.unwrap_or("-".into()),
            card.mode,
            card.group.map_or("-".into(), |group| group.to_string()),
            card.node.map_or("-".into(), |node| node.to_string()),
            card.name.unwrap_or(card.id),
        ]);
    }
    if columns.waiting() > 0 {
        writeln!(output)?;
        columns.flush(output)?;
    }
    Ok(())
}

fn free_hugepages() -> String {
    let sizes: Vec<_> = hugepages().iter().map(ToString::to_string).collect();
    match sizes.is_empty() {
        true => "this kernel supports none".into(),
        false => sizes.join(", "),
    }
}

/// Names of the interfaces in promiscuous mode. For each interface, also the number of sites that have virtual MACs and
/// therefore require this mode.
fn promiscuous(config: &Config) -> impl Iterator<Item = (&str, u32)> {
    let subscribers = config.subscribers.iter();
    subscribers.flat_map(|subscribers| {
        let clients = subscribers.public.iter().enumerate();
        clients.filter_map(|(place, client)| {
            let interface = config.interfaces.get(usize::from(client.interface))?;
            let sites = subscribers.clients(place);
            (sites > 0).then_some((interface.name.as_str(), sites))
        })
    })
}

/// Print the cores, and the roles of the workers on them.
fn workers(config: &Config, output: &mut dyn Write) -> Result<(), CommandError> {
    let cores: Vec<_> = config.cores.iter().map(u16::to_string).collect();
    let (cores, shards) = (cores.join(", "), config.document.system.shards());
    writeln!(output, "\nWorkers on cores {cores} with {shards} shards")?;
    let stages = Stages::new(config.stages.clone());
    if !stages.is_run_to_completion() {
        for (worker, core) in (0..).zip(&config.cores) {
            writeln!(output, "  core {core}: {}", stages.parts(worker))?;
        }
    }
    Ok(writeln!(output)?)
}

/// The interfaces with their devices, as JSON.
fn interfaces_json(config: &Config, ports: &[Outlook]) -> Vec<serde_json::Value> {
    let promiscuous: Vec<_> = promiscuous(config).collect();
    let numbered = config.interfaces.iter().enumerate();
    let interface = |(index, interface): (usize, &Interface)| {
        let port = ports.iter().find(|port| usize::from(port.interface) == index);
        json!({
            "name": interface.name,
            "device": device(config, interface),
            "driver": port.map(|port| port.choice.driver.to_string()),
            "reason": port.map(|port| port.choice.reason.clone()),
            "queues": port.map(|port| port.choice.queues),
            "limits": port.map(|port| port.limits.iter().map(ToString::to_string).collect::<Vec<_>>()),
            "virtual-macs": promiscuous.iter().find(|(name, _)| *name == interface.name).map(|(_, sites)| sites),
            "cards": port.map(|port| port.cards.iter().map(CardStatus::from).collect::<Vec<_>>()),
            "mtu": interface.mtu,
            "addresses": addresses(interface),
        })
    };
    numbered.map(interface).collect()
}

fn as_json(
    loaded: &Loaded,
    ports: &[Outlook],
    (filter, signatures): (Option<&FilterOutlook>, Option<&SignatureReport>),
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let config = &loaded.checked.config;
    let tables: Vec<_> = config
        .tables
        .iter()
        .map(|table| json!({ "name": table.name, "capacity": table.entries, "bytes": table.bytes.0 }))
        .collect();
    let stages = Stages::new(config.stages.clone());
    let plan = planned(config, ports);
    let memory = buffer_memory(config, ports, &plan);
    let of_ports = ports.iter().flat_map(|port| port.faults(config));
    let faults = of_ports.chain(memory.as_ref().err().cloned());
    let hugepages = hugepages();
    let document = json!({
        "interfaces": interfaces_json(config, ports),
        "cores": config.cores,
        "parts": (0..config.cores.len()).map(|worker| stages.parts(worker as u16)).collect::<Vec<_>>(),
        "shards": config.document.system.shards(),
        "tables": tables,
        "one-host": host_share(config),
        "buffers": { "count": plan.buffers, "bytes": plan.bytes(), "in": memory.as_ref().ok().map(ToString::to_string) },
        "hugepages": hugepages.iter().map(|size| json!({
            "bytes": size.bytes,
            "total": size.total,
            "free": size.free,
            "nodes": size.nodes.iter().map(|&(node, free)| json!({ "node": node, "free": free })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "faults": faults.map(|fault| json!({
            "key": fault.key.join("."),
            "what": fault.description,
            "hint": fault.hint,
        })).collect::<Vec<_>>(),
        "memory": loaded.machine.memory,
        "filter": filter.map(|filter| json!({
            "rules": filter.rules,
            "combinations": filter.combinations,
            "bytes": filter.bytes,
            "build-ms": filter.built.as_secs_f64() * 1e3,
        })),
        "signatures": signatures.map(|signatures| json!({
            "loaded": signatures.loaded,
            "commented": signatures.commented,
            "bytes": signatures.search_bytes,
            "search-ms": signatures.made.took.as_secs_f64() * 1e3,
            "refused": signatures.refused.iter().map(|refused| json!({
                "file": refused.file,
                "line": refused.line,
                "signature": refused.id.map(|id| id.signature),
                "why": refused.why,
            })).collect::<Vec<_>>(),
        })),
        "advice": loaded.checked.advice.findings(),
    });
    writeln!(output, "{document:#}")?;
    Ok(())
}

fn device(config: &Config, interface: &Interface) -> String {
    match &interface.link {
        Link::Device { device, .. } => device.to_string(),
        Link::Bond { members, .. } => members.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
        Link::Virtual { peer } => {
            let peer = config.interfaces.get(usize::from(*peer)).map_or("?", |peer| &peer.name);
            format!("link to {peer}")
        }
        Link::Tunnel(tunnel) => tunnel.to_string(),
        Link::Removed => String::new(),
        Link::Vlan { parent, tags } => {
            let parent = config
                .interfaces
                .get(usize::from(*parent))
                .map_or("?", |parent| &parent.name);
            format!("{parent} vlan {tags}")
        }
    }
}

/// Virtual router of an interface, as text. An interface in a bridge has no virtual router.
fn router(config: &Config, interface: &Interface) -> String {
    let router = config.routers.get(usize::from(interface.router));
    let router = router.filter(|_| interface.bridge.is_none());
    router.map_or("-".into(), |router| router.name.clone())
}

fn addresses(interface: &Interface) -> Vec<String> {
    interface.addresses.iter().map(ToString::to_string).collect()
}
