//! A rule of the packet filter, and what a step of a chain matches: keys of their own, and those of header fields.

use serde::{Deserialize, Serialize};
use sluice_filter::Field;

use super::filter::{Action, Name, Part, RejectWith};
use super::pool::is_default;
use crate::field::header_fields;
use crate::value::{
    Addresses, Dscp, Ecn, FieldValues, IpProtocol, Mac, Mark, Message, Numbers, OneOrMore, OrNot, Ports, TcpFlags,
};

/// What the key of a header field says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// The key.
    pub key: &'static str,
    /// The field.
    pub field: Field,
    /// What a value of it is called.
    pub value: &'static str,
    /// Its values; none where any will do.
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
        /// `[[filter.rules]]`: what is not named may be anything. Of several values of a key any may hold, of several keys all must.
        /// With `!` before all values of a key, none of them may hold.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct FilterRule {
            /// What it is called in lists, counters and the log; its number where not given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// What it does.
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
            /// MAC addresses of senders: neighbours, which routers are too. What no Ethernet frame brought has none.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub from_mac: OneOrMore<OrNot<Mac>>,
            /// MAC addresses that frames came to.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub to_mac: OneOrMore<OrNot<Mac>>,
            /// Interfaces that it came in by.
            #[serde(default, rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
            pub incoming: OneOrMore<OrNot<Name>>,
            /// Interfaces that it leaves by; or `gateway`: it is addressed to the gateway itself.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub out: OneOrMore<OrNot<Name>>,
            /// Applications of sessions, by nDPI's names: `BitTorrent`, `TLS.NetFlix`. The rule is asked when a session's is known.
            #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
            pub application: OneOrMore<Name>,
            /// The mark that rules before it have set.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub mark: Option<OrNot<Mark>>,
            /// With `accept`: whether the flow becomes a session. Without one all its packets are asked about, in both directions.
            #[serde(default = "yes", skip_serializing_if = "is_yes")]
            pub track: bool,
            /// With `reject`: what the sender is told.
            #[serde(default, skip_serializing_if = "is_default")]
            pub with: RejectWith,
            /// With `rate-limit`: packets a second, all together.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub rate: Option<u32>,
            /// With `rate-limit`: packets at once; as many as a second's where not given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub burst: Option<u32>,
            /// With `set-mark`: the mark; bits outside its mask stay as they are.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub new_mark: Option<Mark>,
            /// With `set-dscp`: the code point.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub new_dscp: Option<Dscp>,
            /// With `set-ecn`: the code point of congestion.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub new_ecn: Option<Ecn>,
            /// With `add-to-set`: the set.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub set: Option<String>,
        }

        impl FilterRule {
            /// A rule that does something with all packets.
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

            /// What the keys of header fields say, in order.
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
            /// The keys and their values, as the filter's guide explains them.
            pub const GUIDE: [(&str, &str); [$(stringify!($key)),+].len()] = [$((stringify!($key), $guide)),+];
        }

        /// What packets match, by the keys of a filter rule: of several values of a key any may hold, of several keys all must.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Class {
            /// Source addresses.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub from: OneOrMore<OrNot<Addresses>>,
            /// Destination addresses, as they came.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub to: OneOrMore<OrNot<Addresses>>,
            /// Protocols.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub protocol: OneOrMore<OrNot<IpProtocol>>,
            /// Source ports.
            #[serde(skip_serializing_if = "OneOrMore::is_empty")]
            pub from_port: OneOrMore<OrNot<Ports>>,
            /// Destination ports, as they came.
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
            /// Interfaces that it came in by.
            #[serde(rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
            pub incoming: OneOrMore<OrNot<Name>>,
        }

        impl Class {
            /// A filter rule that matches the same.
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
    /// What it matches, by key, as it is written.
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
