//! DHCP messages (RFC 2131, 2132): what a client says, and what it reads of a server's answer, strictly.

use std::net::Ipv4Addr;

use dhcproto::Encodable as _;
use dhcproto::v4::borrowed::{self, DhcpOptionIterator};
use dhcproto::v4::{DhcpOption, DhcpOptions, Flags, HType, MAGIC, Message, MessageType, Opcode, OptionCode};
use sluice_wire::Mac;

/// A client's UDP port.
pub const CLIENT_PORT: u16 = 68;
/// A server's UDP port.
pub const SERVER_PORT: u16 = 67;
/// Longest message that is read, in bytes, and what servers are told of it (option 57).
pub const LONGEST: usize = 1472;
/// Shortest message that is sent: what is shorter, BOOTP relays may drop (RFC 1542, 2.1).
const SHORTEST: usize = 300;
/// Where the options begin, behind the magic cookie.
const OPTIONS: usize = 240;
/// A lease without an end, in seconds.
pub const INFINITE: u32 = u32::MAX;

/// Why bytes are not a server's answer to a client on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It ends within the fixed part, or is longer than anybody may send.
    #[error("a DHCP message has {OPTIONS} to {LONGEST} bytes, not {0}")]
    Length(usize),
    /// A client's message, or none of DHCP.
    #[error("it is not a server's DHCP message")]
    Foreign,
    /// Not the hardware of a site.
    #[error("its hardware address is not Ethernet's")]
    Hardware,
    /// None that a server sends to a client.
    #[error("its message type is missing, or none of a server's answers")]
    Kind,
    /// An option that has another length than its RFC says.
    #[error("its option {0} has a wrong length")]
    Option(u8),
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// DHCPOFFER.
    Offer,
    /// DHCPACK.
    Acknowledge,
    /// DHCPNAK.
    Refuse,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it answers.
    pub answer: Answer,
    /// The exchange.
    pub xid: u32,
    /// The client's hardware address.
    pub mac: Mac,
    /// The address that it gives.
    pub address: Ipv4Addr,
    /// Option 54: the server.
    pub server: Option<Ipv4Addr>,
    /// Option 1: the prefix length. None where it is missing, or no mask.
    pub prefix_length: Option<u8>,
    /// Option 3: the first router.
    pub router: Option<Ipv4Addr>,
    /// Option 51: the lease in seconds.
    pub lease: Option<u32>,
    /// Option 58, T1, in seconds.
    pub renew: Option<u32>,
    /// Option 59, T2, in seconds.
    pub rebind: Option<u32>,
    /// Option 61, which a server repeats (RFC 6842).
    pub identifier: Option<Box<[u8]>>,
}

impl Reply {
    /// Read the payload of a datagram. Where an option is there twice the first counts.
    ///
    /// # Errors
    /// It is not a server's answer to a client on Ethernet.
    pub fn read(bytes: &[u8]) -> Result<Self, MessageError> {
        if !(OPTIONS..=LONGEST).contains(&bytes.len()) {
            return Err(MessageError::Length(bytes.len()));
        }
        let message = borrowed::Message::new(bytes).map_err(|_| MessageError::Length(bytes.len()))?;
        if message.opcode() != Opcode::BootReply || bytes.get(OPTIONS - 4..OPTIONS) != Some(&MAGIC) {
            return Err(MessageError::Foreign);
        }
        // Also keeps the library from reading behind the hardware address's field.
        if message.htype() != HType::Eth || message.hlen() != 6 {
            return Err(MessageError::Hardware);
        }
        let mut reply = Self {
            answer: Answer::Refuse,
            xid: message.xid(),
            mac: message.chaddr().try_into().map_err(|_| MessageError::Hardware)?,
            address: message.yiaddr(),
            server: None,
            prefix_length: None,
            router: None,
            lease: None,
            renew: None,
            rebind: None,
            identifier: None,
        };
        let mut found = Found::default();
        reply.take(message.opts(), &mut found)?;
        // Option 52: options go on where the names of file and server would be (RFC 2131, 4.1).
        for (flag, place) in [(1, 108..236), (2, 44..108)] {
            if found.overload & flag != 0 {
                reply.take(DhcpOptionIterator::new(&bytes[place]), &mut found)?;
            }
        }
        reply.answer = match found.kind {
            2 => Answer::Offer,
            5 => Answer::Acknowledge,
            6 => Answer::Refuse,
            _ => return Err(MessageError::Kind),
        };
        Ok(reply)
    }

    fn take(&mut self, options: DhcpOptionIterator<'_>, found: &mut Found) -> Result<(), MessageError> {
        for option in options {
            let code = u8::from(option.code());
            let wrong = MessageError::Option(code);
            let bytes = option.data();
            let word = || <[u8; 4]>::try_from(bytes).map_err(|_| wrong);
            let byte = || <[u8; 1]>::try_from(bytes).map(|[byte]| byte).map_err(|_| wrong);
            match code {
                1 => first(&mut self.prefix_length, prefix_length(word()?)),
                3 => match bytes.as_chunks() {
                    ([router, ..], []) => first(&mut self.router, Some(Ipv4Addr::from(*router))),
                    _ => return Err(wrong),
                },
                51 => first(&mut self.lease, Some(u32::from_be_bytes(word()?))),
                52 => found.overload |= byte()?,
                53 if found.kind == 0 => found.kind = byte()?,
                54 => first(
                    &mut self.server,
                    Some(Ipv4Addr::from(word()?)).filter(|server| !server.is_unspecified()),
                ),
                58 => first(&mut self.renew, Some(u32::from_be_bytes(word()?))),
                59 => first(&mut self.rebind, Some(u32::from_be_bytes(word()?))),
                61 if !bytes.is_empty() => first(&mut self.identifier, Some(bytes.into())),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Options that say how to read the others.
#[derive(Default)]
struct Found {
    kind: u8,
    overload: u8,
}

fn first<T>(field: &mut Option<T>, value: Option<T>) {
    if field.is_none() {
        *field = value;
    }
}

/// The length of a mask's prefix; none where it is no mask of a network.
fn prefix_length(mask: [u8; 4]) -> Option<u8> {
    ipnet::ip_mask_to_prefix(Ipv4Addr::from(mask).into())
        .ok()
        .filter(|length| *length > 0)
}

/// What a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// DHCPDISCOVER.
    Discover,
    /// DHCPREQUEST.
    Request,
    /// DHCPDECLINE.
    Decline,
    /// DHCPRELEASE.
    Release,
}

/// A client's message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What it says.
    pub question: Question,
    /// The exchange.
    pub xid: u32,
    /// Since when the client has been trying, in seconds.
    pub seconds: u16,
    /// Answers are to be broadcast.
    pub broadcast: bool,
    /// The address that the client uses; 0.0.0.0 where it does not yet.
    pub client: Ipv4Addr,
    /// The client's hardware address.
    pub mac: Mac,
    /// Option 61.
    pub identifier: Option<&'a [u8]>,
    /// Option 50: the address that it would like, or declines.
    pub requested: Option<Ipv4Addr>,
    /// Option 54: the server that it means.
    pub server: Option<Ipv4Addr>,
    /// Option 12.
    pub host_name: Option<&'a str>,
}

impl Request<'_> {
    /// The payload of its datagram. The same request gives the same bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.xid, self.client, none, none, none, &self.mac);
        message.set_secs(self.seconds);
        if self.broadcast {
            message.set_flags(Flags::default().set_broadcast());
        }
        message.set_opts(self.options());
        // Options of at most 255 bytes each always fit.
        let mut bytes = message.to_vec().unwrap_or_default();
        bytes.resize(bytes.len().max(SHORTEST), 0);
        bytes
    }

    fn options(&self) -> DhcpOptions {
        let mut options = DhcpOptions::new();
        let mut insert = |option| drop(options.insert(option));
        let kind = match self.question {
            Question::Discover => MessageType::Discover,
            Question::Request => MessageType::Request,
            Question::Decline => MessageType::Decline,
            Question::Release => MessageType::Release,
        };
        insert(DhcpOption::MessageType(kind));
        if let Some(bytes) = self.identifier {
            insert(DhcpOption::ClientIdentifier(bytes.into()));
        }
        if let Some(address) = self.requested {
            insert(DhcpOption::RequestedIpAddress(address));
        }
        if let Some(server) = self.server {
            insert(DhcpOption::ServerIdentifier(server));
        }
        if matches!(self.question, Question::Discover | Question::Request) {
            insert(DhcpOption::MaxMessageSize(LONGEST as u16));
            insert(DhcpOption::ParameterRequestList(vec![
                OptionCode::SubnetMask,
                OptionCode::Router,
                OptionCode::AddressLeaseTime,
                OptionCode::ServerIdentifier,
                OptionCode::Renewal,
                OptionCode::Rebinding,
            ]));
            if let Some(name) = self.host_name {
                insert(DhcpOption::Hostname(name.into()));
            }
        }
        options
    }
}

#[cfg(test)]
mod tests;
