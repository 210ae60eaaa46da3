//! A model of a DHCP server for tests.

use std::collections::{HashMap, HashSet};

use dhcproto::v4::{DhcpOption, Opcode};

use super::*;

pub struct Server {
    pub address: Ipv4Addr,
    pub lease: u32,
    pub leases: HashMap<Mac, Ipv4Addr>,
    pub taken: HashSet<Ipv4Addr>,
    pub declined: HashSet<Ipv4Addr>,
    /// If set, the address that all clients get.
    pub stuck: Option<Ipv4Addr>,
    /// The next unused address.
    pub next: u32,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::new(198, 51, 100, 2),
            lease: 3_600,
            leases: HashMap::new(),
            taken: HashSet::new(),
            declined: HashSet::new(),
            stuck: None,
            next: Ipv4Addr::new(203, 0, 0, 2).to_bits(),
        }
    }
}

fn address(message: &Message, code: OptionCode) -> Option<Ipv4Addr> {
    match message.opts().get(code)? {
        DhcpOption::RequestedIpAddress(address) | DhcpOption::ServerIdentifier(address) => Some(*address),
        _ => None,
    }
}

impl Server {
    /// Returns the reply to a client's message.
    pub fn answer(&mut self, question: &Message) -> Option<Message> {
        let mac: Mac = question.chaddr().try_into().expect("Ethernet");
        let named = address(question, OptionCode::ServerIdentifier);
        match question.opts().msg_type().expect("a type") {
            MessageType::Discover => {
                let address = self.offer(mac, address(question, OptionCode::RequestedIpAddress));
                Some(self.confirm(question, MessageType::Offer, address))
            }
            _ if named.is_some_and(|named| named != self.address) => None,
            MessageType::Request => {
                let requested = address(question, OptionCode::RequestedIpAddress).unwrap_or(question.ciaddr());
                Some(
                    match self.leases.get(&mac) == Some(&requested) || self.stuck == Some(requested) {
                        true => self.confirm(question, MessageType::Ack, requested),
                        false => self.reply(question, MessageType::Nak, Ipv4Addr::UNSPECIFIED),
                    },
                )
            }
            MessageType::Release => {
                self.forget(mac);
                None
            }
            MessageType::Decline => {
                let address = address(question, OptionCode::RequestedIpAddress).expect("which address");
                self.declined.insert(address);
                self.forget(mac);
                None
            }
            kind => panic!("a client sends {kind:?}"),
        }
    }

    fn offer(&mut self, mac: Mac, hint: Option<Ipv4Addr>) -> Ipv4Addr {
        if let Some(address) = self.stuck.or_else(|| self.leases.get(&mac).copied()) {
            return address;
        }
        let usable = |address: &Ipv4Addr| !self.taken.contains(address) && !self.declined.contains(address);
        let address = hint.filter(usable).unwrap_or_else(|| {
            self.next += 1;
            Ipv4Addr::from_bits(self.next)
        });
        self.taken.insert(address);
        self.leases.insert(mac, address);
        address
    }

    pub fn forget(&mut self, mac: Mac) {
        if let Some(address) = self.leases.remove(&mac) {
            self.taken.remove(&address);
        }
    }

    fn reply(&self, question: &Message, kind: MessageType, address: Ipv4Addr) -> Message {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut reply = Message::new_with_id(question.xid(), none, address, none, none, question.chaddr());
        reply.set_opcode(Opcode::BootReply);
        reply.opts_mut().insert(DhcpOption::MessageType(kind));
        reply.opts_mut().insert(DhcpOption::ServerIdentifier(self.address));
        if let Some(identifier) = question.opts().get(OptionCode::ClientIdentifier) {
            reply.opts_mut().insert(identifier.clone());
        }
        reply
    }

    fn confirm(&self, question: &Message, kind: MessageType, address: Ipv4Addr) -> Message {
        let mut reply = self.reply(question, kind, address);
        let options = reply.opts_mut();
        options.insert(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 0, 0)));
        options.insert(DhcpOption::Router(vec![Ipv4Addr::new(203, 0, 0, 1)]));
        options.insert(DhcpOption::AddressLeaseTime(self.lease));
        reply
    }
}
