//! DHCP messages (RFC 2131, 2132): encoding of client messages, and strict decoding of server messages.

use std::net::Ipv4Addr;

use dhcproto::Encodable as _;
use dhcproto::v4::borrowed::{self, DhcpOptionIterator};
use dhcproto::v4::{DhcpOption, DhcpOptions, Flags, HType, MAGIC, Message, MessageType, Opcode, OptionCode};
use sluice_wire::Mac;

/// UDP port of DHCP clients.
pub const CLIENT_PORT: u16 = 68;
/// UDP port of DHCP servers.
pub const SERVER_PORT: u16 = 67;
/// Maximum length of a received message in bytes, as advertised to servers (option 57).
pub const LONGEST: usize = 1472;
/// Minimum length in bytes of a sent message. BOOTP relays may drop shorter messages (RFC 1542, section 2.1).
const SHORTEST: usize = 300;
/// Offset of the options, after the magic cookie.
const OPTIONS: usize = 240;
/// Lease time that means an infinite lease.
pub const INFINITE: u32 = u32::MAX;

/// Why bytes are not a valid message of a DHCP server to an Ethernet client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message is shorter than its fixed part, or longer than the maximum.
    #[error("the DHCP message has {0} bytes, but {OPTIONS} to {LONGEST} bytes are valid")]
    Length(usize),
    /// The message is from a client, or it is not a DHCP message.
    #[error("the message is not a DHCP message from a server")]
    Foreign,
    /// The hardware type is not Ethernet.
    #[error("the hardware address in the message is not an Ethernet address")]
    Hardware,
    /// The message type is missing, or is not a type that a server sends to a client.
    #[error("the message type is missing or not valid for a server")]
    Kind,
    /// The length of an option is not the length that its RFC specifies.
    #[error("option {0} of the message has a wrong length")]
    Option(u8),
}

/// Type of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// DHCPOFFER.
    Offer,
    /// DHCPACK.
    Acknowledge,
    /// DHCPNAK.
    Refuse,
}

/// A server's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Message type.
    pub answer: Answer,
    /// Transaction ID.
    pub xid: u32,
    /// Hardware address of the client.
    pub mac: Mac,
    /// Assigned address.
    pub address: Ipv4Addr,
    /// Server identifier (option 54).
    pub server: Option<Ipv4Addr>,
    /// Prefix length of the subnet mask (option 1). `None` if the option is missing or not a valid mask.
    pub prefix_length: Option<u8>,
    /// First router (option 3).
    pub router: Option<Ipv4Addr>,
    /// Lease time in seconds (option 51).
    pub lease: Option<u32>,
    /// Renewal time T1 in seconds (option 58).
    pub renew: Option<u32>,
    /// Rebinding time T2 in seconds (option 59).
    pub rebind: Option<u32>,
    /// Client identifier (option 61), which the server echoes (RFC 6842).
    pub identifier: Option<Box<[u8]>>,
}

impl Reply {
    /// Decode the payload of a datagram. If an option is repeated, its first occurrence is used.
    ///
    /// # Errors
    /// The payload is not a valid message of a server to an Ethernet client.
    pub fn read(bytes: &[u8]) -> Result<Self, MessageError> {
        if !(OPTIONS..=LONGEST).contains(&bytes.len()) {
            return Err(MessageError::Length(bytes.len()));
        }
        let message = borrowed::Message::new(bytes).map_err(|_| MessageError::Length(bytes.len()))?;
        if message.opcode() != Opcode::BootReply || bytes.get(OPTIONS - 4..OPTIONS) != Some(&MAGIC) {
            return Err(MessageError::Foreign);
        }
        // This check also prevents the library from reading beyond the hardware address field.
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
        // Option overload (52): the options continue in the file and server name fields (RFC 2131, section 4.1).
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

/// Message type and option overload, which affect the decoding of other options.
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

/// Prefix length of a subnet mask. `None` if the mask is not contiguous.
fn prefix_length(mask: [u8; 4]) -> Option<u8> {
    ipnet::ip_mask_to_prefix(Ipv4Addr::from(mask).into())
        .ok()
        .filter(|length| *length > 0)
}

/// Type of a client's message.
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
    /// Message type.
    pub question: Question,
    /// Transaction ID.
    pub xid: u32,
    /// Seconds since the client began to acquire or renew the lease.
    pub seconds: u16,
    /// Broadcast flag. If the flag is set, the server must broadcast its replies.
    pub broadcast: bool,
    /// Current address of the client. 0.0.0.0 if the client has no address.
    pub client: Ipv4Addr,
    /// Hardware address of the client.
    pub mac: Mac,
    /// Client identifier (option 61).
    pub identifier: Option<&'a [u8]>,
    /// Requested or declined address (option 50).
    pub requested: Option<Ipv4Addr>,
    /// Server identifier (option 54).
    pub server: Option<Ipv4Addr>,
    /// Host name (option 12).
    pub host_name: Option<&'a str>,
}

impl Request<'_> {
    /// Encode the payload of the datagram. Equal requests produce equal bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.xid, self.client, none, none, none, &self.mac);
        message.set_secs(self.seconds);
        if self.broadcast {
            message.set_flags(Flags::default().set_broadcast());
        }
        message.set_opts(self.options());
        // Encoding can't fail, because each option has at most 255 bytes.
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
