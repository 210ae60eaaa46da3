//! Fields of a packet that listings and rules name, and how listings spell those that are header fields alone.

use super::packets::Packets;
use super::ranges::Ranges;
use super::values;
use crate::field::header_fields;
use crate::schema::{FilterRule, Part};
use crate::value::{Dscp, Ecn, FieldValues, Numbers, OneOrMore};

/// Reads a value as listings write it.
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
        /// A field of a packet. Those before decide whether those behind exist: a packet of no TCP has no flags.
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
            /// Type × 256 + code of ICMP.
            Message,
            /// TCP's flags.
            Flags,
            /// Source MAC address as a number.
            SourceMac,
            /// Destination MAC address.
            DestinationMac,
            /// Number of the interface that it came in by.
            In,
            /// Number of the interface that it leaves by.
            Out,
            /// See [`state`](super::packets::state).
            State,
        }

        impl Field {
            /// All, in order.
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

            /// Those that are header fields alone.
            pub const HEADER: [Self; [$(Self::$field),+].len()] = [$(Self::$field),+];

            /// What of header fields rules of translation don't ask for.
            pub const REFUSED: &[(Self, &str)] = &[$($((Self::$field, $refused),)?)+];

            /// Largest value that a rule may name of a header field.
            pub fn last(self) -> Option<u128> {
                match self {
                    $(Self::$field => Some(sluice_filter::Field::$field.last_named().into()),)+
                    _ => None,
                }
            }
        }

        /// Modules of iptables about header fields.
        pub const MODULES: &[&str] = &[$($($($module),+,)?)+];

        /// Options of iptables about header fields.
        pub const OPTIONS: &[(&str, Field, Parser)] = &[$($($(($option, Field::$field, $of_option)),+,)?)+];

        /// Header fields as nftables names them.
        pub fn of_nft(header: &str, name: &str) -> Option<(Field, Parser)> {
            match (header, name) {
                $($($(($($header)|+, $name) => Some((Field::$field, $of_field)),)+)?)+
                _ => None,
            }
        }

        /// Rules with keys for the header fields of some packets: one for each value where a key has one alone.
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
