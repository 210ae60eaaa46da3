//! Identifies the application of a flow from its first packets, with nDPI.
//!
//! Every core has one [`ApplicationDetector`]. A flow under identification occupies an entry of some kilobytes in a
//! fixed pool until nDPI identifies its application or gives up. After identification, only the pair of protocol
//! numbers is kept, in the flow record. nDPI allocates memory from an arena of fixed size. If the arena is exhausted,
//! the detector gives up the identification of the current flow only.

use sluice_wire::Direction;

use crate::bindings::ndpi::{ArenaCounters, DetectionError, DetectionModule};
pub use crate::bindings::ndpi::{Error, ProtocolPair};
use crate::signature::Service;

/// Limits of the application identification on one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplicationCapacity {
    /// Maximum number of simultaneous flows under identification. Each flow takes [`ApplicationDetector::FLOW`] bytes.
    pub flows: u32,
    /// Size of the arena in bytes. During identification an HTTP flow takes some hundred bytes, a TLS flow 2 to 64 KiB
    /// (for its certificates), and no flow more than 256 KiB.
    pub memory: usize,
    /// Maximum number of packets that nDPI inspects in a TCP flow.
    pub tcp_packets: u8,
    /// Maximum number of packets that nDPI inspects in a flow that is not TCP.
    pub other_packets: u8,
}

impl Default for ApplicationCapacity {
    /// The default is 4,096 flows with the packet limits of nDPI's own tools.
    fn default() -> Self {
        Self {
            flows: 4096,
            memory: 16 << 20,
            tcp_packets: 80,
            other_packets: 24,
        }
    }
}

/// Handle of a flow under identification, to be stored in the flow record. Using the handle of a released entry is
/// safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectionHandle {
    slot: u32,
    /// Generation of the pool entry, which is odd while the flow is under identification.
    serial: u32,
}

impl DetectionHandle {
    /// Index of the pool entry, below [`ApplicationCapacity::flows`].
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// Generation of the pool entry.
    pub fn serial(self) -> u32 {
        self.serial
    }
}

/// State of the identification of a flow's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectionResult {
    /// The application is not identified yet. The next packet of the flow must also be passed to the detector.
    Unknown,
    /// The application is identified. If `done`, the result is final and the flow's entry has been released.
    Application {
        /// Number of the protocol that carries the application; 0 if there is no carrying protocol.
        master: u16,
        /// Number of the application.
        application: u16,
        /// Whether the result is final.
        done: bool,
    },
    /// The application can't be identified; the flow's entry has been released.
    GivenUp,
}

/// Counters of the application identification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationCounters {
    /// Flows that got a pool entry.
    pub opened: u64,
    /// Flows that got no pool entry because the pool was exhausted.
    pub refused: u64,
    /// Flows whose application was identified from their packets.
    pub found: u64,
    /// Flows whose application was guessed from addresses and ports.
    pub guessed: u64,
    /// Flows whose application remained unknown.
    pub unknown: u64,
    /// Flows whose identification was given up because the arena was exhausted.
    pub out_of_memory: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    serial: u32,
    packets: u16,
}

/// Identifies applications on one core.
#[derive(Debug)]
pub struct ApplicationDetector {
    module: DetectionModule,
    capacity: ApplicationCapacity,
    slots: Box<[Slot]>,
    vacant: Vec<u32>,
    counters: ApplicationCounters,
    names: ApplicationNames,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.serial, self.packets)
    }
}

impl ApplicationDetector {
    /// Size in bytes of a flow's pool entry, excluding the flow's memory in the arena.
    pub const FLOW: usize = DetectionModule::FLOW + size_of::<Slot>();

    /// Allocates all memory of the identification: the memory that `capacity` specifies, and an additional 6 MiB.
    /// Loading nDPI takes 20 ms, so this function must run on the control thread.
    pub fn new(capacity: ApplicationCapacity) -> Result<Self, Error> {
        let module = DetectionModule::new(capacity.flows, capacity.memory)?;
        Ok(Self {
            names: ApplicationNames(module.names().map(Into::into).collect()),
            module,
            capacity,
            slots: vec![Slot::default(); capacity.flows as usize].into(),
            vacant: (0..capacity.flows).rev().collect(),
            counters: ApplicationCounters::default(),
        })
    }

    /// Allocates a pool entry for a flow, if one is free.
    pub fn allocate(&mut self) -> Option<DetectionHandle> {
        let Some(slot) = self.vacant.pop() else {
            self.counters.refused += 1;
            return None;
        };
        self.counters.opened += 1;
        let state = &mut self.slots[slot as usize];
        state.packets = 0;
        state.serial = state.serial.wrapping_add(1);
        let serial = state.serial;
        Some(DetectionHandle { slot, serial })
    }

    /// Inspects one packet of a flow, from its IP header on. A truncated packet, a fragment other than the first, and a
    /// packet with an invalid header yield no result, but count towards the packet limit.
    pub fn packet(
        &mut self,
        flow: DetectionHandle,
        packet: &[u8],
        direction: Direction,
        time_ms: u64,
    ) -> DetectionResult {
        if !self.is_active(flow) {
            return DetectionResult::GivenUp;
        }
        let slot = &mut self.slots[flow.slot as usize];
        slot.packets = slot.packets.saturating_add(1);
        let limit = match is_tcp(packet) {
            true => self.capacity.tcp_packets,
            false => self.capacity.other_packets,
        };
        let enough = slot.packets > u16::from(limit);
        let pair = match self.module.packet(flow.slot, packet, direction, time_ms) {
            Ok(pair) => pair,
            Err(DetectionError::Packet) => ProtocolPair::default(),
            Err(DetectionError::Memory) => return self.out_of_memory(flow),
        };
        match pair {
            ProtocolPair { application: 0, .. } if enough => self.give_up(flow),
            ProtocolPair { application: 0, .. } => DetectionResult::Unknown,
            pair if !enough && self.module.wants_more(flow.slot) => detection_result(pair, false),
            pair => {
                self.counters.found += 1;
                self.release(flow);
                detection_result(pair, true)
            }
        }
    }

    /// Ends the identification of a flow and releases its entry. Returns the most probable application, derived from
    /// the packets inspected so far, the addresses and the ports.
    pub fn give_up(&mut self, flow: DetectionHandle) -> DetectionResult {
        if !self.is_active(flow) {
            return DetectionResult::GivenUp;
        }
        let Ok((pair, guessed)) = self.module.give_up(flow.slot) else {
            return self.out_of_memory(flow);
        };
        self.release(flow);
        if pair.application == 0 {
            self.counters.unknown += 1;
            return DetectionResult::GivenUp;
        }
        let counter = match guessed {
            true => &mut self.counters.guessed,
            false => &mut self.counters.found,
        };
        *counter += 1;
        detection_result(pair, true)
    }

    /// Releases a flow's entry. The call has no effect if the entry is already released.
    pub fn release(&mut self, flow: DetectionHandle) {
        if self.is_active(flow) {
            self.module.release(flow.slot);
            let slot = &mut self.slots[flow.slot as usize];
            slot.serial = slot.serial.wrapping_add(1);
            self.vacant.push(flow.slot);
        }
    }

    /// Whether the flow is still under identification.
    pub fn is_active(&self, flow: DetectionHandle) -> bool {
        let slot = self.slots.get(flow.slot as usize);
        flow.serial % 2 == 1 && slot.is_some_and(|slot| slot.serial == flow.serial)
    }

    /// Number of flows under identification.
    pub fn active_flows(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Counters of this detector.
    pub fn counters(&self) -> ApplicationCounters {
        self.counters
    }

    /// Counters of nDPI's arena.
    pub fn memory(&self) -> ArenaCounters {
        self.module.arena_counters()
    }

    /// Names of protocols and applications by number. The names are equal on all cores.
    pub fn names(&self) -> &ApplicationNames {
        &self.names
    }

    fn out_of_memory(&mut self, flow: DetectionHandle) -> DetectionResult {
        self.counters.out_of_memory += 1;
        self.release(flow);
        DetectionResult::GivenUp
    }

    #[cfg(test)]
    pub(crate) fn module(&mut self) -> &mut DetectionModule {
        &mut self.module
    }
}

fn detection_result(pair: ProtocolPair, done: bool) -> DetectionResult {
    let ProtocolPair { master, application } = pair;
    DetectionResult::Application {
        master,
        application,
        done,
    }
}

/// Reads only the protocol field of the first header. A flow of IPv6 packets with extension headers therefore counts as
/// non-TCP, and fewer of its packets are inspected.
fn is_tcp(packet: &[u8]) -> bool {
    let place = match packet.first() {
        Some(first) if first >> 4 == 4 => 9,
        _ => 6,
    };
    packet.get(place) == Some(&6)
}

/// Applications that a name selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationSelector {
    /// Protocol that must carry the application. `None`: any carrier matches, and the named protocol may itself be the
    /// carrier.
    pub master: Option<u16>,
    /// Number of the named protocol or application.
    pub application: u16,
}

impl ApplicationSelector {
    /// Whether the pair of protocol numbers is selected.
    pub fn matches(&self, pair: ProtocolPair) -> bool {
        match self.master {
            Some(master) => pair.master == master && pair.application == self.application,
            None => {
                [pair.master, pair.application].contains(&self.application) && pair != ProtocolPair::default()
                    || pair == ProtocolPair::default() && self.application == 0
            }
        }
    }
}

/// Names of protocols and applications, indexed by number from 0 (`Unknown`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationNames(Box<[Box<str>]>);

impl ApplicationNames {
    /// Reads the names from the installed nDPI library, which takes 20 ms.
    pub fn installed() -> Result<Self, Error> {
        let capacity = ApplicationCapacity {
            flows: 0,
            memory: 0,
            ..ApplicationCapacity::default()
        };
        ApplicationDetector::new(capacity).map(|applications| applications.names)
    }

    /// Both names of a pair in the format of nDPI's own tools: `TLS.Google`, `DNS`, `Unknown`.
    pub fn text(&self, pair: ProtocolPair) -> String {
        let name = |number| self.name(number).unwrap_or("?");
        match pair.master {
            0 => name(pair.application).into(),
            master => format!("{}.{}", name(master), name(pair.application)),
        }
    }

    /// Name of a protocol or application number.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.0.get(usize::from(number)).map(|name| &**name)
    }

    /// Parses a selector such as `Google`, `TLS` or `TLS.Google`, ignoring case.
    pub fn selector(&self, text: &str) -> Option<ApplicationSelector> {
        if let Some(number) = self.number(text) {
            return Some(ApplicationSelector {
                master: None,
                application: number,
            });
        }
        let (master, application) = text.split_once('.')?;
        Some(ApplicationSelector {
            master: Some(self.number(master)?),
            application: self.number(application)?,
        })
    }

    /// Number of a name, compared case-insensitively.
    pub fn number(&self, name: &str) -> Option<u16> {
        let place = self.0.iter().position(|other| other.eq_ignore_ascii_case(name))?;
        u16::try_from(place).ok()
    }

    /// All names with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        (0..).zip(self.0.iter().map(|name| &**name))
    }

    /// Service of a protocol number.
    pub fn service(&self, number: u16) -> Option<Service> {
        let name = self.name(number)?;
        let known = SERVICES.iter().find(|(_, names)| names.contains(&name));
        known.map(|(service, _)| *service)
    }

    /// nDPI's protocol numbers of a service. The list is empty if nDPI does not identify the service (for example Sun
    /// RPC). A flow belongs to the service if a number in the list identifies its carrier or its application.
    pub fn numbers(&self, service: Service) -> Vec<u16> {
        let names: &[&str] = match &service {
            Service::Other(name) => &[name],
            _ => SERVICES
                .iter()
                .find(|(other, _)| *other == service)
                .map_or(&[], |(_, names)| *names),
        };
        names.iter().filter_map(|name| self.number(name)).collect()
    }
}

/// nDPI's names of the services that rule dialects name.
const SERVICES: [(Service, &[&str]); 27] = [
    (Service::Http, &["HTTP", "HTTP_Connect", "HTTP_Proxy"]),
    (Service::Tls, &["TLS", "DTLS", "SMTPS", "IMAPS", "POPS"]),
    (Service::Dns, &["DNS", "MDNS", "LLMNR"]),
    (Service::Ftp, &["FTP_CONTROL", "FTPS"]),
    (Service::FtpData, &["FTP_DATA"]),
    (Service::Smtp, &["SMTP"]),
    (Service::Imap, &["IMAP"]),
    (Service::Pop3, &["POP3"]),
    (Service::Ssh, &["SSH"]),
    (Service::Smb, &["SMBv1", "SMBv23"]),
    (Service::Telnet, &["Telnet"]),
    (Service::Sip, &["SIP"]),
    (Service::Rdp, &["RDP"]),
    (Service::Nfs, &["NFS"]),
    (Service::Ntp, &["NTP"]),
    (Service::Snmp, &["SNMP"]),
    (Service::Tftp, &["TFTP"]),
    (Service::Dhcp, &["DHCP", "DHCPV6"]),
    (Service::Krb5, &["Kerberos"]),
    (Service::Quic, &["QUIC"]),
    (Service::Irc, &["IRC"]),
    (Service::Dcerpc, &["DCE_RPC"]),
    (Service::MySql, &["MySQL"]),
    (Service::Postgres, &["PostgreSQL"]),
    (Service::Ldap, &["LDAP"]),
    (Service::Http2, &["HTTP2"]),
    (Service::Mqtt, &["MQTT"]),
];
