//! Requests to the packet filter.

use clap::Args;
use clap::builder::ArgPredicate;
use serde::{Deserialize, Serialize};
use sluice_filter::Field;

use crate::field::header_fields;
use crate::value::{Dscp, Ecn, Mac, Mark};

macro_rules! request {
    ($(
        $(#[doc = $help:tt])+
        $key:ident: $type:ty {
            field: $field:ident, $value:literal;
            guide: $guide:literal;
            request: { $($value_type:ty, $placeholder:literal, $question:tt)? }
            import: $import:tt
        }
    )+) => {
        /// Selection of rules, or of a packet for which the deciding rule is determined.
        #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", default)]
        pub struct FilterRequest {
            /// Maximum number of rules.
            #[arg(
                long,
                default_value_t = 100,
                default_value_if("packet", ArgPredicate::IsPresent, "0"),
                value_name = "NUMBER"
            )]
            pub rules: u32,
            /// Show the rule that determines the verdict on the first packet of this flow: "tcp 10.0.0.1:1234 >
            /// 192.0.2.1:80", "icmp 10.0.0.1 > 192.0.2.1". The destination is the address after translation.
            #[arg(long = "match", value_name = "PACKET")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub packet: Option<String>,
            /// With --match: input interface of the packet. If omitted, the interface of the route to the source.
            #[arg(long = "in", value_name = "INTERFACE", requires = "packet")]
            #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
            pub incoming: Option<String>,
            /// With --match: virtual router of the packet. If omitted, the router of the interface in --in.
            #[arg(long, value_name = "NAME", requires = "packet")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub router: Option<String>,
            /// With --match: output interface of the packet, or `gateway`. If omitted, the interface of the route to
            /// the destination.
            #[arg(long, value_name = "INTERFACE", requires = "packet")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub out: Option<String>,
            /// With --match: source MAC address of the frame. If neither MAC address is given, the packet has no
            /// Ethernet header.
            #[arg(long, value_name = "MAC", requires = "packet")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub from_mac: Option<Mac>,
            /// With --match: destination MAC address of the frame.
            #[arg(long, value_name = "MAC", requires = "packet")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub to_mac: Option<Mac>,
            $($(
                #[doc = $question]
                #[arg(long, value_name = $placeholder, requires = "packet")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$value_type>,
            )?)+
            /// With --match: mark of the session, such as 0x10.
            #[arg(long, value_name = "MARK", requires = "packet")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub mark: Option<Mark>,
        }

        impl FilterRequest {
            /// The header fields of the packet that are specified in the request.
            pub fn header_fields(&self) -> impl Iterator<Item = (Field, Option<u32>)> {
                [$($((Field::$field, self.$key.map(<u32 as From<$value_type>>::from)),)?)+].into_iter()
            }
        }
    };
}

header_fields!(request);
