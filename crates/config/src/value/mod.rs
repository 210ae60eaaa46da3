//! Values of the configuration. Each type of value is parsed once, and is printed in the notation of the configuration.

mod address;
mod bit_rate;
mod by_protocol;
mod device;
mod field_values;
mod key;
mod list;
mod mac_prefix;
mod mss_clamp;
mod period;
mod ports;
mod protocol;
mod range;
mod scoped_address;
mod selection;
mod set_element;
mod site_tags;
mod target;
mod vlan;
mod workers;

pub use address::{AddressRange, InterfaceAddress, Mac, Prefix};
pub use bit_rate::BitRate;
pub use by_protocol::ByProtocol;
pub use device::{Device, DeviceKind};
pub use field_values::FieldValues;
pub use key::Key;
pub use list::{OneOrMore, OrNot};
pub use mac_prefix::MacPrefix;
pub use mss_clamp::MssClamp;
pub use period::Period;
pub use ports::{Port, PortRange, PortRanges, Transport};
pub use protocol::{Protocol, UnknownProtocol};
pub use range::{Addresses, Numbers, Ports};
pub use scoped_address::ScopedAddress;
pub use selection::{Dscp, Ecn, IpProtocol, Mark, Message, TcpFlags};
pub use set_element::{SetElement, SetType};
pub use site_tags::{SiteTags, TagRange};
pub use target::{GATEWAY, Target, TargetHost};
pub use vlan::{TagProtocol, Tags, VlanPriority};
pub use workers::Workers;

use ipnet::IpNet;

/// Why a value is invalid. [`std::fmt::Display`] is the message, and [`ValueError::hint`] the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The text is not an IP address.
    #[error("`{0}` is not an IP address")]
    Address(String),
    /// An address has a zone although it is not link-local.
    #[error("`{0}` is not a link-local address, so no interface may follow after `%`")]
    ZoneOfAll(String),
    /// An address has a zone separator, but no interface follows.
    #[error("the interface after `%` is missing in `{0}`")]
    ZoneMissing(String),
    /// The text is not an address with a prefix length.
    #[error("`{0}` is not an address with a prefix length")]
    Prefix(String),
    /// The host bits of a network are not zero.
    #[error("`{text}` has bits set beyond its prefix length")]
    HostBits {
        /// Text as written.
        text: String,
        /// Network that contains the address.
        network: IpNet,
    },
    /// The address is a network or broadcast address instead of a host address.
    #[error("`{0}` is a network or broadcast address, not the address of a host")]
    NotAHost(String),
    /// The network of an interface's link contains all addresses.
    #[error("the network of `{0}` contains all addresses")]
    LinkOfAll(String),
    /// The text is not a range of IPv4 addresses.
    #[error("`{0}` is not an IPv4 address, range or prefix")]
    AddressRange(String),
    /// The text is neither an address range nor a group.
    #[error("`{0}` is not an address, a range, a prefix or a group")]
    Addresses(String),
    /// The two addresses of a range are of different address families.
    #[error("`{0}` mixes IPv4 and IPv6")]
    Families(String),
    /// The text is not a number or a range of numbers.
    #[error("`{0}` is not a number or a range of numbers")]
    Numbers(String),
    /// The text is not an IP protocol.
    #[error("`{0}` is not a protocol")]
    Protocol(String),
    /// The text is not an ICMP message type.
    #[error("`{0}` is not an ICMP type")]
    Message(String),
    /// The text is not TCP flags, or the flags can't match.
    #[error("`{0}` is not a valid condition on TCP flags")]
    Flags(String),
    /// The text is not a mark, or the mark has bits outside of its mask.
    #[error("`{0}` is not a mark")]
    Mark(String),
    /// The text is not a set element.
    #[error("`{0}` is not a valid element of a set")]
    SetElement(String),
    /// The text is not an ECN code point.
    #[error("`{0}` is not an ECN code point")]
    Ecn(String),
    /// The text is not a DSCP.
    #[error("`{0}` is not a differentiated services code point (DSCP)")]
    Dscp(String),
    /// The end of a range is below its start.
    #[error("the range `{0}` ends before it begins")]
    Reversed(String),
    /// The text is not an Ethernet address.
    #[error("`{0}` is not an Ethernet address")]
    Mac(String),
    /// The Ethernet address is a multicast address or consists of zeros.
    #[error("`{0}` is not a unicast MAC address")]
    MacNotUnicast(String),
    /// The text is not a prefix of Ethernet addresses, or the prefix is too long.
    #[error("`{0}` is not one to three bytes of an Ethernet address")]
    MacPrefix(String),
    /// The prefix is not a prefix of locally administered unicast addresses.
    #[error("`{0}` is not a prefix of locally administered unicast MAC addresses")]
    MacPrefixNotLocal(String),
    /// The text is not a port or a port range.
    #[error("`{0}` is not a port or a range of ports")]
    Ports(String),
    /// The text is not a protocol with ports.
    #[error("`{0}` is not a transport protocol")]
    Transport(String),
    /// The text is not a port.
    #[error("`{0}` is not a port")]
    Port(String),
    /// The text is not a valid target of a destination rule.
    #[error("`{0}` is neither an IPv4 address nor `gateway`")]
    Target(String),
    /// The text is not a TCP segment size.
    #[error("`{0}` is not a TCP segment size")]
    MssClamp(String),
    /// The text is not a bit rate.
    #[error("`{0}` is not a bit rate")]
    BitRate(String),
    /// The text is not a duration.
    #[error("`{0}` is not a duration")]
    Period(String),
    /// The text is not a key. The message does not repeat the text.
    #[error("the value is not a valid key")]
    Key,
    /// The text is not one or two VLAN tags.
    #[error("`{0}` is not one or two VLAN tags")]
    Tags(String),
    /// The text is not a tag protocol.
    #[error("`{0}` is not a VLAN tag type")]
    TagProtocol(String),
    /// The text is not a tag priority.
    #[error("`{0}` is not a VLAN priority")]
    VlanPriority(String),
    /// The text is not a list of tags of sites.
    #[error("`{0}` is not a VLAN tag or a range of VLAN tags")]
    SiteTags(String),
    /// A VLAN ID is out of range.
    #[error("VLAN {0} is out of range")]
    TagRange(u32),
    /// The kind of a device is unknown.
    #[error("`{0}:` is not a kind of device")]
    DeviceKind(String),
    /// A device has no text after the colon.
    #[error("the path or name after the colon is missing in `{0}`")]
    DeviceIncomplete(String),
    /// The text is not a valid name of a kernel interface.
    #[error("`{0}` cannot be the name of a network interface")]
    DeviceName(String),
}

impl ValueError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Address(_) => "write an address such as 192.0.2.1 or 2001:db8::1".into(),
            Self::ZoneOfAll(_) => "remove `%` and the interface: only IPv6 addresses in fe80::/10 have a zone (RFC \
                 4007)"
                .into(),
            Self::ZoneMissing(_) => "write the interface's name after `%`, as in fe80::1%wan, or remove `%`".into(),
            Self::Prefix(_) => "write an address and a prefix length such as 192.0.2.0/24 or 2001:db8::/64".into(),
            Self::HostBits { network, .. } => format!("the network without these bits is {network}"),
            Self::NotAHost(_) => "write the gateway's own address in this network, such as 192.0.2.1/24".into(),
            Self::LinkOfAll(_) => "write the prefix length of the link, such as 192.0.2.1/24".into(),
            Self::AddressRange(_) => {
                "write an IPv4 address (198.51.100.1), range (198.51.100.1-198.51.100.9) or prefix \
                 (198.51.100.0/28)"
                    .into()
            }
            Self::Addresses(_) => {
                "write 192.0.2.1, 192.0.2.1-192.0.2.9, 192.0.2.0/24 or 2001:db8::/32, or a group as @name".into()
            }
            Self::Families(_) => "write two ranges, one for IPv4 and one for IPv6".into(),
            Self::Numbers(_) => "write a number from 0 to 65535 or a range such as 0-1500".into(),
            Self::Protocol(_) => "write a name such as tcp or icmpv6, or a number from 0 to 255".into(),
            Self::Message(_) => "write a name such as echo-request, a type such as 3, or type and code such as \
                 3/4"
            .into(),
            Self::Flags(_) => {
                "write the flags that must be set, a slash, and the flags that are compared, such as syn/syn,ack,rst; \
                 flags are fin, syn, rst, psh, ack, urg, ece and cwr"
                    .into()
            }
            Self::Dscp(_) => "write a name such as ef or af11, or a number from 0 to 63".into(),
            Self::Reversed(_) => "write the lower value first".into(),
            Self::Mark(_) => "write a number such as 0x10, or 0x10/0xf0 with no bit outside the mask".into(),
            Self::SetElement(_) => {
                "write an address, a network such as 192.0.2.0/24, or ports such as 1024-65535".into()
            }
            Self::Ecn(_) => "write not-ect, ect0, ect1 or ce".into(),
            Self::Mac(_) => "write six bytes in hexadecimal such as 02:00:00:00:00:01".into(),
            Self::MacNotUnicast(_) => "write an address such as 02:…: an odd first byte marks a multicast \
                 address"
                .into(),
            Self::MacPrefix(_) => "write bytes in hexadecimal such as 02 or 02:5e:10".into(),
            Self::MacPrefixNotLocal(_) => {
                "write a prefix such as 02: the second digit of the first byte must be 2, 6, a or e".into()
            }
            Self::Ports(_) => "write a port from 1 to 65535 or a range such as 1024-65535".into(),
            Self::Transport(_) => "write tcp or udp".into(),
            Self::Port(_) => "write a number from 1 to 65535".into(),
            Self::BitRate(_) => "write a number with k, M or G, such as \"100M\"".into(),
            Self::Target(_) => "write an address such as \"10.0.0.5\", \"gateway\", or a list of addresses".into(),
            Self::MssClamp(_) => "write \"mtu\", or a segment size from 88 to 9176 bytes, such as 1452".into(),
            Self::Period(_) => "write a duration with its unit, such as 90s, 5m or 2h4m".into(),
            Self::Key => "write 32 hexadecimal digits, such as `openssl rand -hex 16` prints".into(),
            Self::Tags(_) => "write \"100\" for one tag, or \"100.200\" for an outer and an inner tag".into(),
            Self::TagProtocol(_) => "write 0x8100 (802.1Q), 0x88a8 (802.1ad), 0x9100 or 0x9200".into(),
            Self::VlanPriority(_) => "write \"keep\" or a priority from 0 to 7".into(),
            Self::SiteTags(_) => {
                "write \"7\" or \"7-9\" for single tags; for double tags, write S-tags, a dot and C-tags, such as \
                 \"100-109.1-1000\""
                    .into()
            }
            Self::TagRange(_) => "VLAN identifiers are numbers from 1 to 4094".into(),
            Self::DeviceKind(_) => format!(
                "device kinds are {}; write a kernel interface by its name, and a card by its PCI address",
                DeviceKind::PREFIXES.map(|(prefix, _)| format!("{prefix}:")).join(", ")
            ),
            Self::DeviceIncomplete(_) => "write a path or a name after the colon, such as tap:sluice0".into(),
            Self::DeviceName(_) => {
                "the name of a kernel interface has 1 to 15 characters and contains no blank, `/`, `,` or `+`".into()
            }
        }
    }
}

/// Implements serialisation with `Display`, and deserialisation with `FromStr`, from a string or from the digits of a
/// number. The first line of an error message is the error, the second line the hint.
macro_rules! written_as_text {
    ($type:ty, $expecting:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse()
                            .map_err(|e: $crate::value::ValueError| E::custom(format!("{e}\n{}", e.hint())))
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}
pub(crate) use written_as_text;
