//! A rule of the packet filter, and the class of packets that a step of a chain matches. Each of the two tables has
//! specific keys, and the keys of header fields.

use serde::{Deserialize, Serialize};
use sluice_filter::Field;

use super::filter::{Action, Name, Part, RejectWith};
use super::pool::is_default;
use crate::field::header_fields;
use crate::value::{
    Addresses, Dscp, Ecn, FieldValues, IpProtocol, Mac, Mark, Message, Numbers, OneOrMore, OrNot, Ports, TcpFlags,
};

/// The value of a header field's key in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// The key.
    pub key: &'static str,
    /// The field.
    pub field: Field,
    /// Word for one value of the field in messages.
    pub value: &'static str,
    /// Values that match. Empty if any value matches.
    pub ranges: Vec<(u32, u32)>,
}

macro_rules! rules {
    ($(
        $(#[doc = $help:tt])+
        $key:ident: $type:ty {
            field: $field:ident, $value:literal;
            guide: $guide:literal;
            request: $request:tt
            import: $import:tt
        }
    )+) => {
        /// `[[filter.rules]]`: a rule. Conditions that are omitted match everything. If a key has several values, one value must
        /// match. All keys must match. If all values of a key begin with `!`, none of the values may match.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct FilterRule {
            /// Name of the rule in lists, counters and the log. If the name is omitted, the rule's number is used.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// Action of the rule.
            pub action: Action,
            /// Source addresses.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub from: OneOrMore<OrNot<Addresses>>,
            /// Destination addresses, after translation.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub to: OneOrMore<OrNot<Addresses>>,
            /// Protocols.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub protocol: OneOrMore<OrNot<IpProtocol>>,
            /// Source ports.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub from_port: OneOrMore<OrNot<Ports>>,
            /// Destination ports, after translation.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub to_port: OneOrMore<OrNot<Ports>>,
            /// ICMP and ICMPv6 messages.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub icmp: OneOrMore<Message>,
            /// TCP flags.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub flags: Option<TcpFlags>,
            $(
                $(#[doc = $help])+
                #[serde(default, skip_serializing_if = "FieldValues::is_any")]
                pub $key: $type,
            )+
            /// MAC addresses of senders. Senders are neighbours, including routers. Packets that did not arrive in an Ethernet frame
            /// have no MAC address.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub from_mac: OneOrMore<OrNot<Mac>>,
            /// Destination MAC addresses of received frames.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub to_mac: OneOrMore<OrNot<Mac>>,
            /// Input interfaces.
            #[serde(default, rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
            pub incoming: OneOrMore<OrNot<Name>>,
            /// Output interfaces, or `gateway` for packets to the gateway itself.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub out: OneOrMore<OrNot<Name>>,
            /// Applications of sessions, by nDPI's names: `BitTorrent`, `TLS.NetFlix`. The rule is evaluated once the
            /// application of a session has been identified.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub application: OneOrMore<Name>,
            /// The mark, which earlier rules may have set.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub mark: Option<OrNot<Mark>>,
            /// Only with `accept`: whether a session is created for the flow. Without a session, all packets of the flow are
            /// filtered, in both directions.
            #[serde(default = "yes", skip_serializing_if = "is_yes")]
            pub track: bool,
            /// Only with `reject`: the reply to the sender.
            #[serde(default, skip_serializing_if = "is_default")]
            pub with: RejectWith,
            /// Only with `rate-limit`: packets per second, over all packets that match.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub rate: Option<u32>,
            /// Only with `rate-limit`: burst in packets. If omitted, the burst is the number of packets of one second.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub burst: Option<u32>,
            /// Only with `set-mark`: the mark. Bits outside of the mark's mask are not changed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub new_mark: Option<Mark>,
            /// Only with `set-dscp`: the DSCP.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub new_dscp: Option<Dscp>,
            /// Only with `set-ecn`: the ECN code point.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub new_ecn: Option<Ecn>,
            /// Only with `add-to-set`: the set.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub set: Option<String>,
        }

        impl FilterRule {
            /// A rule with this action and without conditions.
            pub fn of(action: Action) -> Self {
                Self {
                    name: None,
                    action,
                    from: OneOrMore::default(),
                    to: OneOrMore::default(),
                    protocol: OneOrMore::default(),
                    from_port: OneOrMore::default(),
                    to_port: OneOrMore::default(),
                    icmp: OneOrMore::default(),
                    flags: None,
                    $($key: Default::default(),)+
                    from_mac: OneOrMore::default(),
                    to_mac: OneOrMore::default(),
                    incoming: OneOrMore::default(),
                    out: OneOrMore::default(),
                    application: OneOrMore::default(),
                    track: true,
                    with: RejectWith::default(),
                    rate: None,
                    burst: None,
                    mark: None,
                    new_mark: None,
                    new_dscp: None,
                    new_ecn: None,
                    set: None,
                }
            }

            /// The values of the configuration keys that match header fields, in order.
            pub fn header_fields(&self) -> [HeaderField; HeaderField::GUIDE.len()] {
                [$(HeaderField {
                    key: stringify!($key),
                    field: Field::$field,
                    value: $value,
                    ranges: self.$key.ranges(),
                }),+]
            }
        }

        impl HeaderField {
            /// The keys of header fields and their values, as explained in docs/filter.md.
            pub const GUIDE: [(&str, &str); [$(stringify!($key)),+].len()] = [$((stringify!($key), $guide)),+];
        }

        /// Packets that match, by the keys of a filter rule. If a key has several values, one value must match. All keys must match.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Class {
            /// Source addresses.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub from: OneOrMore<OrNot<Addresses>>,
            /// Destination addresses, as received.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub to: OneOrMore<OrNot<Addresses>>,
            /// Protocols.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub protocol: OneOrMore<OrNot<IpProtocol>>,
            /// Source ports.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub from_port: OneOrMore<OrNot<Ports>>,
            /// Destination ports, as received.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub to_port: OneOrMore<OrNot<Ports>>,
            /// ICMP and ICMPv6 messages.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub icmp: OneOrMore<Message>,
            /// TCP flags.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub flags: Option<TcpFlags>,
            $(
                $(#[doc = $help])+
                #[serde(skip_serializing_if = "FieldValues::is_any")]
                pub $key: $type,
            )+
            /// Input interfaces.
            #[serde(rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
            pub incoming: OneOrMore<OrNot<Name>>,
        }

        impl Class {
            /// A filter rule with the conditions of this class.
            pub fn rule(&self) -> FilterRule {
                let own = self.clone();
                FilterRule {
                    from: own.from,
                    to: own.to,
                    protocol: own.protocol,
                    from_port: own.from_port,
                    to_port: own.to_port,
                    icmp: own.icmp,
                    flags: own.flags,
                    $($key: own.$key,)+
                    incoming: own.incoming,
                    ..FilterRule::of(Action::Accept)
                }
            }
        }
    };
}

header_fields!(rules);

impl FilterRule {
    /// The conditions by key, as text in the notation of the configuration.
    pub fn matches(&self) -> Vec<(String, String)> {
        let Ok(table) = toml::Table::try_from(self) else {
            return Vec::new();
        };
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let text = |value: &toml::Value| match value {
            toml::Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(" "),
            one => text(one),
        };
        let other = [
            "name", "action", "with", "rate", "burst", "new-mark", "new-dscp", "new-ecn", "set",
        ];
        let order = [
            "protocol",
            "from",
            "from-port",
            "to",
            "to-port",
            "icmp",
            "flags",
            "in",
            "out",
        ];
        let mut found: Vec<_> = table
            .iter()
            .filter(|(key, _)| !other.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), text(value)))
            .collect();
        found.sort_by_key(|(key, _)| order.iter().position(|known| known == key).unwrap_or(order.len()));
        found
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}
