//! Memory required by sites: the engine's table of sites and terminals, the DHCP client's state of each site, and the
//! leases of the terminals from a lease file in Kea's format.
//!
//! The total is the increase of the process's resident memory; the parts are computed from readings in between.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use sluice_daemon::subscribers::Site;
use sluice_daemon::subscribers::agent::{Agent, AgentOutput, AgentSettings};
use sluice_daemon::subscribers::leases::{Format, Now, Source};
use sluice_nat::Secret;
use sluice_nat::sites::SiteWriter;
use sluice_wire::Mac;

use super::gateway::wires;
use super::operator::Operator;
use super::site::{LeaseFile, terminal_address, unix, virtual_macs};
use super::world::World;
use super::{Failure, Figures, Size};
use crate::rig::sites::terminal;

/// Maximum time until packets of all terminals are output.
const PATIENCE: Duration = Duration::from_secs(300);
/// Limit of DHCP messages per second, so high that it has no effect here.
const RATE: u32 = 20_000;

const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 0);

/// Resident memory of a process in kilobytes.
fn resident(process: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    Ok(word.ok_or("a process has no VmRSS")?.parse()?)
}

/// The DHCP client, with all sites bound.
fn agent(macs: &[Mac]) -> Result<Agent, Failure> {
    let settings = AgentSettings {
        rate: 100_000,
        ..AgentSettings::new(Secret([7, 8]))
    };
    let (mut agent, mut operator, mut now) = (Agent::new(settings, 0), Operator::new(PUBLIC), 0);
    for (site, mac) in (0..).zip(macs) {
        agent.want(Site(site), *mac, now)?;
    }
    // Each site needs two messages to be bound, and then sends none for hours.
    for _ in 0..macs.len() * 2 {
        let mut output = AgentOutput::default();
        agent.poll(now, &mut output);
        for transmit in output.transmits {
            if let Some(answer) = operator.answer(&transmit.payload) {
                agent.receive(&answer, transmit.source_mac, now);
            }
        }
        if agent.leases().count() == macs.len() {
            return Ok(agent);
        }
        now += 10_000_000;
    }
    Err(format!("{} of {} sites were bound", agent.leases().count(), macs.len()).into())
}

/// The engine's table with all sites and terminals.
fn writer(size: &Size, macs: &[Mac]) -> Result<SiteWriter, Failure> {
    let first = u32::from(PUBLIC);
    let networks = [(0, first, first + size.sites - 1)];
    let (mut writer, _) = SiteWriter::new(size.sites, size.sites * size.terminals, &networks, [1, 2]);
    for (site, mac) in (0..).zip(macs) {
        writer.set_site(site, Some(*mac), None)?;
        writer.set_public(site, 0, Some(u32::from(PUBLIC) + site))?;
        for number in site * size.terminals..(site + 1) * size.terminals {
            writer.add_terminal(&terminal(site, number, terminal_address(number).into()))?;
        }
    }
    Ok(writer)
}

/// Parses a lease file with leases for all terminals; returns the leases and the seconds that parsing took.
fn leases(size: &Size, file: &Path) -> Result<(Source, f64), Failure> {
    let terminals = size.sites * size.terminals;
    let all = (0..terminals).map(|terminal| (terminal / size.terminals, terminal, terminal_address(terminal)));
    LeaseFile::create(file)?.add(all)?;
    let (unix, began) = (unix()?, Instant::now());
    let mut source = Source::new(file, Format::Kea, terminals as usize, Arc::new(AtomicBool::new(false)));
    source.look(Now { unix, monotonic: 0 }, &mut Vec::new())?;
    let seconds = began.elapsed().as_secs_f64();
    match source.table().len() {
        read if read == terminals as usize => Ok((source, seconds)),
        read => Err(format!("of {terminals} leases {read} were read").into()),
    }
}

pub fn measure(size: &Size) -> Result<Figures, Failure> {
    let macs = virtual_macs(size.sites)?;
    let begin = resident("self")?;
    let writer = writer(size, &macs)?;
    let with_sites = resident("self")?;
    let agent = agent(&macs)?;
    let with_agent = resident("self")?;
    let folder = tempfile::tempdir()?;
    let (source, seconds) = leases(size, &folder.path().join("kea-leases4.csv"))?;
    let end = resident("self")?;
    let bytes = writer.sites().bytes() + writer.bytes();
    // All three must live until memory has been measured.
    drop((agent, source, writer));
    let own = bytes as f64 / 1024.0;
    // Pages that have not yet been written are not resident, so the table's own size is used as the minimum.
    let sites = own.max(with_sites - begin);
    let (agent, leases) = (with_agent - with_sites, end - with_agent);
    let all = sites + agent + leases;
    let per_site = all * 1024.0 / f64::from(size.sites);
    Ok(vec![
        ("memory_kb", all),
        ("bytes_per_site", per_site),
        // Figures: the engine's table with its writer, the DHCP client, the leases from the lease file, and the time to
        // read the file.
        ("sites_kb", sites),
        ("agent_kb", agent),
        ("leases_kb", leases),
        ("seconds", seconds),
    ])
}

/// Runs the daemon once in a separate network namespace: all terminals of all sites send packets, which must be output.
pub fn of_daemon(size: &Size) -> Result<Figures, Failure> {
    wires()?;
    let size = Size {
        rate: RATE.max(size.rate),
        ..size.clone()
    };
    let folder = tempfile::tempdir()?;
    let mut world = World::new(&size, folder.path())?;
    let one = {
        // The reference has the same session capacity, but only one site.
        let daemon = world.gateway(&size, 1, folder.path())?;
        resident(&daemon.process().to_string())?
    };
    world.lease(0..size.sites * size.terminals)?;
    let began = Instant::now();
    let daemon = world.gateway(&size, size.sites, folder.path())?;
    world.settle(&daemon, PATIENCE)?;
    let seconds = began.elapsed().as_secs_f64();
    let all = resident(&daemon.process().to_string())?;
    let more = all - one;
    let per_site = more * 1024.0 / f64::from(size.sites);
    // Memory in addition to that of the daemon with one site.
    Ok(vec![
        ("all_kb", all),
        ("memory_kb", more),
        ("bytes_per_site", per_site),
        ("seconds", seconds),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_and_terminals_are_all_held_at_once() {
        let size = &Size {
            sites: 1_000,
            terminals: 4,
            rate: 1_000,
            program: None,
        };
        let macs = virtual_macs(size.sites).expect("names that differ");
        let writer = writer(size, &macs).expect("room");
        assert_eq!((4_000, 4_000), writer.sites().terminals());
        assert_eq!(Some(999), writer.sites().owner(0, u32::from(PUBLIC) + 999));
        let agent = agent(&macs).expect("all are bound");
        let mut addresses: Vec<_> = agent.leases().map(|(_, _, lease)| lease.address).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(1_000, addresses.len());
        let figures = measure(size).expect("figures");
        // The total memory of the process includes that of other tests, so only the table's minimum size is checked.
        let (name, sites) = figures[2];
        assert_eq!("sites_kb", name);
        assert!(sites * 1024.0 >= 4_000.0 * 64.0, "a line of memory for each terminal");
    }
}
