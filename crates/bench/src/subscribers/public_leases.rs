//! How long it takes until all sites have public addresses of a real Kea, and until all have renewed them: the DHCP client's
//! frames over a TAP interface, on whose other side the server listens.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use sluice_daemon::subscribers::Site;
use sluice_daemon::subscribers::agent::{Agent, Destination, Event, Output, Settings, Transmit};
use sluice_daemon::subscribers::frame::Datagram;
use sluice_daemon::subscribers::message::{CLIENT_PORT, SERVER_PORT};
use sluice_daemon::subscribers::virtual_mac::text;
use sluice_dpdk::tap::Tap;
use sluice_nat::Secret;
use sluice_wire::Mac;
use sluice_wire::ethernet::BROADCAST;

use super::kea::{Kea, PREFIX, SERVER};
use super::site::virtual_macs;
use super::{Failure, Figures, Size};
use crate::kernel::command::run;

/// Figures of its rows: seconds to the last address, to the last renewal, and messages that were sent for the addresses, for
/// each site.
pub const FIGURES: [&str; 3] = ["seconds", "renewal_seconds", "messages_per_site"];

const INTERFACE: &str = "wan";
const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 0xfe];
/// Frames that are taken before what is due is sent.
const BURST: usize = 64;
/// Longest time for each half.
const PATIENCE: Duration = Duration::from_secs(300);
/// From then on half of a lease is over.
const HALF: Duration = Duration::from_secs(1_801);

/// Drives the agent: its frames, its time.
struct Runner {
    agent: Agent,
    tap: Tap,
    began: Instant,
    /// Time that passed for the agent alone.
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
            // The only neighbour.
            Destination::Unicast { address, .. } => (SERVER_MAC, address),
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

    /// Go on until so far; the seconds that it took.
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<f64, Failure> {
        let (began, mut frame) = (Instant::now(), [0; 2_048]);
        while !done(self) {
            if began.elapsed() > PATIENCE {
                return Err(format!("waited in vain for {what}: {:?}", self.agent.counters()).into());
            }
            let mut output = Output::default();
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
                // The server may have only this core.
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

/// One run, in a network namespace of its own.
pub fn measure(size: Size) -> Result<Figures, Failure> {
    let tap = Tap::open(INTERFACE)?;
    for line in [
        "ip link set lo up".to_owned(),
        format!("ip link set {INTERFACE} address {} txqueuelen 20000", text(SERVER_MAC)),
        format!("ip address add {SERVER}/{PREFIX} dev {INTERFACE}"),
        format!("ip link set {INTERFACE} up"),
    ] {
        run(&line)?;
    }
    let kea = Kea::start(INTERFACE)?;
    let settings = Settings {
        prefixes: vec![format!("{SERVER}/{PREFIX}").parse()?],
        servers: vec![SERVER],
        rate: size.rate,
        ..Settings::new(Secret([7, 8]))
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
    Ok(FIGURES.into_iter().zip([seconds, renewal, messages]).collect())
}
