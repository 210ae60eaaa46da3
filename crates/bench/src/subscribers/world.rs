//! Everything except the gateway: the terminals and their DHCP server, which writes a lease file like Kea's, the
//! operator's DHCP server, and the receiver of the packets. All components run in one process, so that they share a
//! clock.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluice_daemon::subscribers::frame::Datagram;
use sluice_daemon::subscribers::message::{CLIENT_PORT, SERVER_PORT};
use sluice_dpdk::Driver;
use sluice_wire::Mac;

use super::gateway::{FAR, MACS, OPERATOR, OPERATOR_MAC, configuration};
use super::operator::Operator;
use super::site::{LeaseFile, terminal_address};
use super::{Failure, Size};
use crate::daemon::Daemon;
use crate::netns;
use crate::rig::Source;
use crate::rig::frames::{Frame, Random, SEED, SHORTEST, Tagged, Written, mark};
use crate::rig::sites::{Homes, TAGS, terminal_mac};

/// Maximum time from a lease until packets are output.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between packets of the measured terminal.
const PROBE: Duration = Duration::from_micros(100);
const BURST: usize = 32;
/// Ports of the terminals' side and of the operator's side.
const STREET: u16 = 0;
const OPERATOR_SIDE: u16 = 1;
/// Number of packets per second from all other terminals together.
const RATE: u32 = 100_000;
/// Destination address and port of the terminals' packets.
const REMOTE: (u32, u16) = (0x0808_0808, 443);

/// State of everything except the gateway.
pub struct World {
    /// The opposite ends of both links, as ports [`STREET`] and [`OPERATOR_SIDE`] of this source.
    source: Source,
    homes: Homes,
    operator: Operator,
    leases: LeaseFile,
    /// Terminals that send packets in turn, and the index of the next one.
    busy: Vec<u32>,
    next: usize,
    due: Instant,
    random: Random,
    /// Whether packets of a terminal have been output, by terminal.
    came: Vec<bool>,
    arrived: u64,
}

fn packet(homes: Homes, terminal: u32) -> Tagged<Written, TAGS> {
    let written = Written {
        source: (terminal_address(terminal).into(), 5_000),
        destination: REMOTE,
        tcp: false,
        flags: 0,
        numbers: (0, 0),
        macs: (MACS[0], terminal_mac(terminal)),
        mark: terminal,
    };
    Tagged {
        frame: written,
        tags: Some(homes.tags(terminal)),
    }
}

impl World {
    /// Creates the terminals of `size`, none of which has a lease yet.
    pub fn new(size: &Size, folder: &Path) -> Result<Self, Failure> {
        let homes = Homes {
            sites: size.sites,
            terminals: size.terminals,
        };
        Ok(Self {
            source: netns::open(&FAR, Driver::AfPacket, cores()?.0, None)?,
            homes,
            operator: Operator::new(Ipv4Addr::new(203, 0, 1, 0)),
            leases: LeaseFile::create(&leases(folder))?,
            busy: Vec::new(),
            next: 0,
            due: Instant::now(),
            random: Random(SEED),
            came: vec![false; homes.flows() as usize],
            arrived: 0,
        })
    }

    /// Starts a gateway that serves `sites` sites and has capacity for all flows.
    pub fn gateway(&self, size: &Size, sites: u32, folder: &Path) -> Result<Daemon, Failure> {
        let (own, core) = cores()?;
        let configuration = configuration(size, sites, core, folder, &leases(folder))?;
        let program = crate::daemon::program(size.program.as_ref());
        Daemon::start("env", [own, core], &program, folder, &configuration, &["0.0.0.0/0"])
    }

    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Sends one packet from each of the given terminals.
    fn send(&mut self, terminals: &[u32]) -> usize {
        let (homes, mut left) = (self.homes, terminals.iter());
        let (_, taken) = self.source.send(&[(STREET, terminals.len())], |_, buffer| {
            let Some(&terminal) = left.next() else {
                return false;
            };
            let packet = packet(homes, terminal);
            let is_long_enough = buffer.set_len(packet.length());
            if is_long_enough {
                packet.write(buffer.bytes_mut());
            }
            is_long_enough
        });
        taken
    }

    /// Sends the due packets of the other terminals.
    fn flow(&mut self) {
        let now = Instant::now();
        if now < self.due || self.busy.is_empty() {
            return;
        }
        let turn: Vec<u32> = (0..BURST)
            .map(|place| self.busy[(self.next + place) % self.busy.len()])
            .collect();
        let sent = self.send(&turn);
        self.next = (self.next + sent) % self.busy.len();
        self.due += Duration::from_secs(1) * BURST as u32 / RATE;
        // Packets missed during a preemption are not sent later.
        self.due = self.due.max(now);
    }

    /// Processes output packets, and answers the DHCP messages of sites.
    fn listen(&mut self) {
        let mut questions: Vec<(Mac, Vec<u8>)> = Vec::new();
        let (came, arrived) = (&mut self.came, &mut self.arrived);
        self.source.drain(OPERATOR_SIDE, |frame| {
            if frame.len() == SHORTEST && frame.get(30..34) == Some(&REMOTE.0.to_be_bytes()[..]) {
                *arrived += 1;
                if let Some(came) = came.get_mut(mark(frame) as usize) {
                    *came = true;
                }
            } else if let Some(datagram) = Datagram::of(frame).filter(|d| d.destination.port() == SERVER_PORT) {
                questions.push((datagram.source_mac, datagram.payload.to_vec()));
            }
        });
        self.source.discard(STREET);
        for (client, question) in questions {
            let Some(payload) = self.operator.answer(&question) else {
                continue;
            };
            let datagram = Datagram {
                source_mac: OPERATOR_MAC,
                destination_mac: client,
                source: SocketAddrV4::new(OPERATOR, SERVER_PORT),
                destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT),
                payload: &payload,
            };
            if let Some(frame) = datagram.frame() {
                self.source.send(&[(OPERATOR_SIDE, 1)], |_, buffer| {
                    let is_long_enough = buffer.set_len(frame.len());
                    if is_long_enough {
                        buffer.bytes_mut().copy_from_slice(&frame);
                    }
                    is_long_enough
                });
            }
        }
    }

    /// Leases addresses to terminals, which send packets from now on.
    pub fn lease(&mut self, terminals: impl Iterator<Item = u32>) -> Result<(), Failure> {
        let first = self.busy.len();
        self.busy.extend(terminals);
        let lease = |&terminal: &u32| (terminal / self.homes.terminals, terminal, terminal_address(terminal));
        self.leases.add(self.busy[first..].iter().map(lease))
    }

    /// Leases an address to a terminal; returns the milliseconds until its packets are output.
    pub fn measure(&mut self, terminal: u32) -> Result<f64, Failure> {
        let site = terminal / self.homes.terminals;
        self.leases
            .add([(site, terminal, terminal_address(terminal))].into_iter())?;
        let began = Instant::now();
        let mut next = began;
        while !self.came[terminal as usize] {
            let now = Instant::now();
            if now >= next {
                self.send(&[terminal]);
                next = now + PROBE;
            }
            self.flow();
            self.listen();
            if began.elapsed() > PATIENCE {
                return Err(format!("terminal {terminal} was leased an address and waits for a minute").into());
            }
        }
        let took = began.elapsed().as_secs_f64() * 1e3;
        self.busy.push(terminal);
        // Wait for a random time, because a real server may write at any time.
        let pause = 1_000 + self.random.below(9_000);
        self.go_on(Duration::from_micros(pause.into()));
        Ok(took)
    }

    fn go_on(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.flow();
            self.listen();
        }
    }

    /// Waits until packets of all terminals with leases have been output.
    pub fn settle(&mut self, gateway: &Daemon, patience: Duration) -> Result<(), Failure> {
        let (began, mut rounds) = (Instant::now(), 0_u32);
        loop {
            self.flow();
            self.listen();
            rounds = rounds.wrapping_add(1);
            if !rounds.is_multiple_of(256) {
                continue;
            }
            if self.busy.iter().all(|&terminal| self.came[terminal as usize]) {
                return Ok(());
            }
            if began.elapsed() > patience {
                let came = self.came.iter().filter(|&&came| came).count();
                let (all, words) = (self.busy.len(), gateway.last_words());
                return Err(format!("packets of {came} of {all} terminals come out; {words}").into());
            }
        }
    }
}

/// Path of the terminals' lease file.
fn leases(folder: &Path) -> PathBuf {
    folder.join("kea-leases4.csv")
}

/// Core of this process, and core of the gateway's worker.
fn cores() -> Result<(usize, usize), Failure> {
    match sluice_dpdk::eal::allowed_cores()[..] {
        [own, core, ..] => Ok((own, core)),
        _ => Err("the gateway and its peers need a core each, and this process may use one only".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_of_a_terminal_is_in_its_sites_tags_and_carries_its_number() {
        let homes = Homes::USUAL;
        let packet = packet(homes, 4_007);
        let mut frame = vec![0; packet.length()];
        packet.write(&mut frame);
        assert_eq!(4_007, mark(&frame));
        assert_eq!([0x88, 0xa8, 0, 101, 0x81, 0, 0, 2], frame[12..20]);
        assert_eq!(terminal_address(4_007).octets(), frame[34..38]);
    }
}
