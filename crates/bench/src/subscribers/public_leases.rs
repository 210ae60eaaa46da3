//! Time until all sites have public addresses from a real Kea server, and until all sites have renewed them. The frames
//! of the DHCP client pass through a TAP interface, on which the server listens.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use sluice_daemon::subscribers::Site;
use sluice_daemon::subscribers::agent::{Agent, AgentOutput, AgentSettings, Destination, Event, Transmit};
use sluice_daemon::subscribers::frame::Datagram;
use sluice_daemon::subscribers::message::{CLIENT_PORT, SERVER_PORT};
use sluice_daemon::subscribers::virtual_mac::text;
use sluice_dpdk::tap::Tap;
use sluice_nat::Secret;
use sluice_wire::ethernet::BROADCAST;

use super::gateway::{FAR, OPERATOR, OPERATOR_MAC, POOL, PREFIX, ROUTER, SUBNET, wires};
use super::kea::Kea;
use super::site::virtual_macs;
use super::world::World;
use super::{Failure, Figures, Size};
use crate::daemon::Daemon;
use crate::process::{await_every, run, script};

const INTERFACE: &str = "wan";
/// Maximum number of received frames that are processed before due messages are sent.
const BURST: usize = 64;
/// Maximum time for assignment, and for renewal.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time after which half of the lease time has passed.
const HALF: Duration = Duration::from_secs(1_801);

/// Runs the DHCP client: exchanges its frames, and controls its clock.
struct Runner {
    agent: Agent,
    tap: Tap,
    began: Instant,
    /// Time by which the DHCP client's clock was advanced.
    skipped: Duration,
    bound: usize,
    renewed: usize,
}

impl Runner {
    fn now(&self) -> u64 {
        (self.began.elapsed() + self.skipped).as_nanos() as u64
    }

    fn send(&self, transmit: &Transmit) -> Result<(), Failure> {
        let (destination_mac, address) = match transmit.destination {
            Destination::Broadcast => (BROADCAST, Ipv4Addr::BROADCAST),
            // The operator's server is the only neighbour.
            Destination::Unicast { address, .. } => (OPERATOR_MAC, address),
        };
        let datagram = Datagram {
            source_mac: transmit.source_mac,
            destination_mac,
            source: SocketAddrV4::new(transmit.source, CLIENT_PORT),
            destination: SocketAddrV4::new(address, SERVER_PORT),
            payload: &transmit.payload,
        };
        let frame = datagram.frame().ok_or("a message is too long")?;
        Ok(self.tap.send(&frame)?)
    }

    /// Runs the client until a condition holds; returns the seconds that this took.
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<f64, Failure> {
        let (began, mut frame) = (Instant::now(), [0; 2_048]);
        while !done(self) {
            if began.elapsed() > PATIENCE {
                return Err(format!("waited in vain for {what}: {:?}", self.agent.counters()).into());
            }
            let mut output = AgentOutput::default();
            self.agent.poll(self.now(), &mut output);
            output.transmits.iter().try_for_each(|transmit| self.send(transmit))?;
            for event in output.events {
                match event {
                    Event::Bound(..) => self.bound += 1,
                    Event::Renewed(..) => self.renewed += 1,
                    _ => {}
                }
            }
            let mut count = 0;
            while count < BURST
                && let Some(length) = self.tap.receive(&mut frame)?
            {
                count += 1;
                if let Some(datagram) = Datagram::of(&frame[..length])
                    && datagram.destination.port() == CLIENT_PORT
                {
                    let now = self.now();
                    self.agent.receive(datagram.payload, datagram.destination_mac, now);
                }
            }
            if count == 0 {
                // Sleep, because the server may run on the same core.
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }

    fn messages(&self) -> u64 {
        let counters = self.agent.counters();
        counters.discovers + counters.requests.iter().sum::<u64>()
    }
}

/// Measures once, in a separate network namespace.
pub fn measure(size: &Size) -> Result<Figures, Failure> {
    let tap = Tap::open(INTERFACE)?;
    let mac = text(OPERATOR_MAC);
    script(
        "env",
        &format!(
            "ip link set lo up
ip link set {INTERFACE} address {mac} txqueuelen 20000
ip address add {OPERATOR}/{PREFIX} dev {INTERFACE}
ip link set {INTERFACE} up
"
        ),
    )?;
    let kea = Kea::start("env", INTERFACE, ROUTER, [SUBNET, POOL])?;
    let settings = AgentSettings {
        prefixes: vec![SUBNET.parse()?],
        servers: vec![OPERATOR],
        rate: size.rate,
        ..AgentSettings::new(Secret([7, 8]))
    };
    let macs = virtual_macs(size.sites)?;
    let mut runner = Runner {
        agent: Agent::new(settings, 0),
        tap,
        began: Instant::now(),
        skipped: Duration::ZERO,
        bound: 0,
        renewed: 0,
    };
    for (site, mac) in (0..).zip(&macs) {
        runner.agent.want(Site(site), *mac, 0)?;
    }
    let seconds = runner.until("all to be bound", |runner| runner.bound >= macs.len())?;
    let messages = runner.messages() as f64 / macs.len() as f64;
    let leases = kea.leases()?;
    if leases != macs.len() {
        return Err(format!("{} sites are bound, and Kea leases {leases} addresses", macs.len()).into());
    }
    runner.skipped = HALF;
    let renewal = runner.until("all to be renewed", |runner| runner.renewed >= macs.len())?;
    Ok(vec![
        ("seconds", seconds),
        ("renewal_seconds", renewal),
        ("messages_per_site", messages),
    ])
}

/// Measures the daemon once, in a separate network namespace: each site has a terminal that has a lease from the start.
pub fn of_daemon(size: &Size) -> Result<Figures, Failure> {
    wires()?;
    let [_, interface] = FAR;
    run(&format!("ip address add {OPERATOR}/{PREFIX} dev {interface}"))?;
    let kea = Kea::start("env", interface, ROUTER, [SUBNET, POOL])?;
    let folder = tempfile::tempdir()?;
    let mut world = World::new(size, folder.path())?;
    world.lease((0..size.sites).map(|site| site * size.terminals))?;
    let began = Instant::now();
    let daemon = world.gateway(size, size.sites, folder.path())?;
    let sites = size.sites as usize;
    // Query the DHCP server first, which has all leases before the gateway does; queries to the gateway would take its
    // CPU time.
    await_addresses(&daemon, sites, PATIENCE, || Ok(kea.leases()? >= sites))?;
    Ok(vec![("seconds", began.elapsed().as_secs_f64())])
}

/// Waits until this number of sites have public addresses; queries the daemon only if `is_due`.
pub fn await_addresses(
    daemon: &Daemon,
    sites: usize,
    patience: Duration,
    is_due: impl Fn() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut served = 0;
    let all = await_every(Duration::from_millis(100), patience, || {
        if is_due()? {
            let shown = daemon.show("sites")?;
            served = shown.iter().filter(|site| site.get("public").is_some()).count();
        }
        Ok((served >= sites).then_some(()))
    })?;
    let failed = || format!("{served} of {sites} sites have an address; {}", daemon.last_words());
    Ok(all.ok_or_else(failed)?)
}
