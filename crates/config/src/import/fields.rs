//! Fields of a packet that listings and rules refer to, and the spelling of simple header fields in listings.

use super::packets::Packets;
use super::ranges::Ranges;
use super::values;
use crate::field::header_fields;
use crate::schema::{FilterRule, Part};
use crate::value::{Dscp, Ecn, FieldValues, Numbers, OneOrMore};

/// Parses a value in the notation of listings.
pub type Parser = fn(&str) -> Result<Ranges, String>;

macro_rules! fields {
    ($(
        $(#[doc = $help:tt])+
        $key:ident: $type:ty {
            field: $field:ident, $value:literal;
            guide: $guide:literal;
            request: $request:tt
            import: {
                $(refused: $refused:literal;)?
                $(iptables: [$($module:literal),+], $($option:literal => $of_option:expr),+;)?
                $(nft: $([$($header:literal),+], $name:literal => $of_field:expr),+;)?
            }
        }
    )+) => {
        /// A field of a packet. The value of an earlier field may determine whether a later field exists: only a TCP
        /// packet has flags.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field {
            /// Source address.
            Source,
            /// Destination address.
            Destination,
            /// Protocol.
            Protocol,
            $($(#[doc = $help])+ $field,)+
            /// Source port.
            SourcePort,
            /// Destination port.
            DestinationPort,
            /// ICMP message: type × 256 + code.
            Message,
            /// TCP's flags.
            Flags,
            /// Source MAC address, as a number.
            SourceMac,
            /// Destination MAC address, as a number.
            DestinationMac,
            /// Number of the input interface.
            In,
            /// Number of the output interface.
            Out,
            /// Connection tracking state: see [`state`](super::packets::state).
            State,
        }

        impl Field {
            /// All fields, in order.
            pub const ALL: [Self; 12 + Self::HEADER.len()] = [
                Self::Source,
                Self::Destination,
                Self::Protocol,
                $(Self::$field,)+
                Self::SourcePort,
                Self::DestinationPort,
                Self::Message,
                Self::Flags,
                Self::SourceMac,
                Self::DestinationMac,
                Self::In,
                Self::Out,
                Self::State,
            ];

            /// Fields that `header_fields!` declares.
            pub const HEADER: [Self; [$(Self::$field),+].len()] = [$(Self::$field),+];

            /// Header fields that translation rules do not support, each with its name in error messages.
            pub const REFUSED: &[(Self, &str)] = &[$($((Self::$field, $refused),)?)+];

            /// Largest value that a rule may specify for a header field.
            pub fn last(self) -> Option<u128> {
                match self {
                    $(Self::$field => Some(sluice_filter::Field::$field.last_named().into()),)+
                    _ => None,
                }
            }
        }

        /// Modules of iptables that match header fields.
        pub const MODULES: &[&str] = &[$($($($module),+,)?)+];

        /// Options of iptables that match header fields, with the parsers of their values.
        pub const OPTIONS: &[(&str, Field, Parser)] = &[$($($(($option, Field::$field, $of_option)),+,)?)+];

        /// Finds a header field by its names in nftables.
        pub fn of_nft(header: &str, name: &str) -> Option<(Field, Parser)> {
            match (header, name) {
                $($($(($($header)|+, $name) => Some((Field::$field, $of_field)),)+)?)+
                _ => None,
            }
        }

        /// Adds the conditions on header fields to a rule. If a key can have only one value, the result is one rule for
        /// each value.
        pub fn written(rule: FilterRule, packets: &Packets) -> Vec<FilterRule> {
            let mut rules = vec![rule];
            $(if let Some(ranges) = packets.get(Field::$field) {
                let keys = <$type as FieldValues>::of(ranges.list());
                let each = |rule: &FilterRule| {
                    let with = |key: &$type| FilterRule { $key: key.clone(), ..rule.clone() };
                    keys.iter().map(with).collect::<Vec<_>>()
                };
                rules = rules.iter().flat_map(each).collect();
            })+
            rules
        }
    };
}

header_fields!(fields);
