//! Which application a flow is of, found out by nDPI in its first packets.
//!
//! Every core has one [`Applications`]. A flow that is looked at has a [`FlowState`] there, some kilobytes of a fixed
//! pool, until its application is known or given up; what remains is the pair of numbers, which the flow's record
//! keeps. nDPI's memory is a fixed arena: where it runs short, the flow is given up, and the others go on.

use sluice_wire::Direction;

use crate::bindings::ndpi::{ArenaCounters, DetectionError, DetectionModule};
pub use crate::bindings::ndpi::{Error, ProtocolPair};
use crate::signature::Service;

/// How much a core looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplicationCapacity {
    /// Flows that are looked at at a time, each of [`Applications::FLOW`] bytes.
    pub flows: u32,
    /// Bytes of the arena. While it is looked at, an HTTP flow takes some hundred bytes, a TLS flow 2 to 64 KiB (its
    /// certificates), and no flow more than 256 KiB.
    pub memory: usize,
    /// Packets of a TCP flow that are looked at.
    pub tcp_packets: u8,
    /// Packets of any other flow that are looked at.
    pub other_packets: u8,
}

impl Default for ApplicationCapacity {
    /// 4,096 flows; as many packets as nDPI's own tools take.
    fn default() -> Self {
        Self {
            flows: 4096,
            memory: 16 << 20,
            tcp_packets: 80,
            other_packets: 24,
        }
    }
}

/// Handle of a flow that is looked at: plain data that a record may hold. One whose flow has ended is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectionHandle {
    slot: u32,
    /// Odd for as long as the flow is looked at.
    serial: u32,
}

impl DetectionHandle {
    /// Its place among [`Capacity::flows`].
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// Which use of the place.
    pub fn serial(self) -> u32 {
        self.serial
    }
}

/// What is known of a flow's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectionResult {
    /// Nothing yet, or nothing by this packet: show more.
    Unknown,
    /// It is known. `done`: nothing will be added, and the flow's state is given back.
    Application {
        /// Number of the protocol that carries the application, 0 where there is none.
        master: u16,
        /// Number of the application.
        application: u16,
        /// Whether that is all.
        done: bool,
    },
    /// It will not be known; the flow's state is given back.
    GivenUp,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationCounters {
    /// Flows that got a state.
    pub opened: u64,
    /// Flows that got none, as all were taken.
    pub refused: u64,
    /// Flows whose application packets told.
    pub found: u64,
    /// Flows whose application was guessed by addresses and ports.
    pub guessed: u64,
    /// Flows that stayed unknown.
    pub unknown: u64,
    /// Flows that were given up because the arena ran short.
    pub out_of_memory: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    serial: u32,
    packets: u16,
}

/// Names applications, for one core.
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
    /// Bytes of a flow's state, arena excluded.
    pub const FLOW: usize = DetectionModule::FLOW + size_of::<Slot>();

    /// All that is allocated is allocated here: on the control thread, 20 ms and, beside what
    /// `capacity` says, 6 MiB.
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

    /// A state for a flow, if one is left.
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

    /// Looks at one packet of a flow, from its IP header on. One that is cut short, a later fragment, or has a header
    /// that is not valid says nothing, and counts.
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

    /// The flow has ended or is looked at no longer: what it most probably was, by what was seen, its addresses and
    /// its ports. Its state is given back.
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

    /// Gives a flow's state back. Nothing happens where that was done.
    pub fn release(&mut self, flow: DetectionHandle) {
        if self.is_active(flow) {
            self.module.release(flow.slot);
            let slot = &mut self.slots[flow.slot as usize];
            slot.serial = slot.serial.wrapping_add(1);
            self.vacant.push(flow.slot);
        }
    }

    /// Whether the flow is still looked at.
    pub fn is_active(&self, flow: DetectionHandle) -> bool {
        let slot = self.slots.get(flow.slot as usize);
        flow.serial % 2 == 1 && slot.is_some_and(|slot| slot.serial == flow.serial)
    }

    /// Flows that are looked at.
    pub fn active_flows(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// What happened.
    pub fn counters(&self) -> ApplicationCounters {
        self.counters
    }

    /// Of nDPI's arena.
    pub fn memory(&self) -> ArenaCounters {
        self.module.arena_counters()
    }

    /// What the numbers are called; the same for every core.
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

/// By the first header: an extension header in IPv6 makes it another, and the flow a shorter one.
fn is_tcp(packet: &[u8]) -> bool {
    let place = match packet.first() {
        Some(first) if first >> 4 == 4 => 9,
        _ => 6,
    };
    packet.get(place) == Some(&6)
}

/// Which applications a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationSelector {
    /// What has to carry it; where nothing is said, what is named may be what carries, too.
    pub master: Option<u16>,
    /// What is named.
    pub application: u16,
}

impl ApplicationSelector {
    /// Whether an application is meant.
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

/// Names of protocols and applications, by number from 0 (`Unknown`) on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationNames(Box<[Box<str>]>);

impl ApplicationNames {
    /// Those of the library that is installed. 20 ms.
    pub fn installed() -> Result<Self, Error> {
        let capacity = ApplicationCapacity {
            flows: 0,
            memory: 0,
            ..ApplicationCapacity::default()
        };
        ApplicationDetector::new(capacity).map(|applications| applications.names)
    }

    /// Both names of a pair, as nDPI's own tools write them: `TLS.Google`, `DNS`, `Unknown`.
    pub fn text(&self, pair: ProtocolPair) -> String {
        let name = |number| self.name(number).unwrap_or("?");
        match pair.master {
            0 => name(pair.application).into(),
            master => format!("{}.{}", name(master), name(pair.application)),
        }
    }

    /// The name of a number.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.0.get(usize::from(number)).map(|name| &**name)
    }

    /// What a name means, whatever its case: `Google`, `TLS`, `TLS.Google`.
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

    /// The number of a name, whatever its case.
    pub fn number(&self, name: &str) -> Option<u16> {
        let place = self.0.iter().position(|other| other.eq_ignore_ascii_case(name))?;
        u16::try_from(place).ok()
    }

    /// All, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        (0..).zip(self.0.iter().map(|name| &**name))
    }

    /// The service of a protocol's number.
    pub fn service(&self, number: u16) -> Option<Service> {
        let name = self.name(number)?;
        let known = SERVICES.iter().find(|(_, names)| names.contains(&name));
        known.map(|(service, _)| *service)
    }

    /// Numbers that a service stands for: a flow is of it where one of them is the master's or the application's. None
    /// where nDPI does not know it, such as Sun's RPC.
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

/// Names that nDPI has for what the dialects of rules name.
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
