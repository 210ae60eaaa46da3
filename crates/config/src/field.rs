//! Header fields that filter rules match, with a single declaration each: key, help, and spelling in iptables and nftables. Fields
//! with groups, sets or address families, and fields that depend on the protocol, are declared elsewhere.

/// Passes all declarations to another macro. A declaration has:
///
/// - the key, a single word, with its help and the type of its values ([`FieldValues`](crate::value::FieldValues));
/// - `field`: its [`Field`](sluice_filter::Field), and the word for one of its values;
/// - `guide`: its row of the table in docs/filter.md;
/// - `request`: the type, placeholder and help of `sluice show filter --match … --KEY`, if that option exists;
/// - `import`: its spelling in listings of iptables and nftables. `refused`: name of the match in error messages, if NAT rules do
///   not support it. `iptables`: modules, and options with the parsers of their values. `nft`: headers and fields with the parsers
///   of their values.
macro_rules! header_fields {
    ($consumer:ident) => {
        $consumer! {
            /// Part of the datagram: whole packet, first or later fragment.
            fragment: Option<Part> {
                field: Fragment, "a part";
                guide: "`whole`, `first` or `later`; later fragments have no ports, so rules with ports don't match \
them";
                request: {}
                import: {}
            }
            /// Differentiated services code points.
            dscp: OneOrMore<Dscp> {
                field: Dscp, "a code point";
                guide: "`ef`, `af11`, … or a number from 0 to 63; a single value or a list";
                request: { Dscp, "DSCP", "With --match: DSCP, such as ef [default: 0]." }
                import: {
                    refused: "code points";
                    iptables: ["dscp"], "--dscp" => values::dscp, "--dscp-class" => values::dscp_class;
                    nft: ["ip", "ip6"], "dscp" => values::dscp;
                }
            }
            /// ECN code points.
            ecn: OneOrMore<Ecn> {
                field: Ecn, "an ECN code point";
                guide: "`not-ect`, `ect0`, `ect1`, `ce` (RFC 3168); a single value or a list";
                request: {
                    Ecn, "ECN", "With --match: ECN, such as ect0 [default: not-ect]."
                }
                import: {
                    refused: "ECN code points";
                    iptables: ["ecn"], "--ecn-ip-ect" => values::ecn;
                    nft: ["ip", "ip6"], "ecn" => values::ecn;
                }
            }
            /// Length of the packet in bytes, from its IP header on.
            length: Option<Numbers> {
                field: Length, "a length";
                guide: "length of the packet in bytes, including the IP header: `40` or `\"0-128\"`";
                request: {
                    u16,
                    "BYTES",
                    "With --match: length of the packet in bytes, including the IP header [default: the length of its \
headers]."
                }
                import: {
                    refused: "lengths";
                    iptables: ["length"], "--length" => values::lengths;
                    nft: ["meta", "ip"], "length" => values::length;
                }
            }
            /// Outer VLAN ID of the received frame.
            vlan: Option<Numbers> {
                field: Vlan, "a VLAN";
                guide: "the outer VLAN tag of the received packet: `7` or `\"100-199\"`";
                request: { u16, "VLAN", "With --match: outer VLAN ID of the received frame." }
                import: {}
            }
            /// TTL or hop limit of the received packet.
            ttl: Option<Numbers> {
                field: Ttl, "a TTL";
                guide: "TTL (IPv4) or hop limit (IPv6) of the received packet, before the gateway decrements it: \
`255` or `\"0-1\"`. To revalidate sessions, the value 64 is used";
                request: { u8, "TTL", "With --match: TTL or hop limit of the received packet [default: 64]." }
                import: {
                    refused: "TTLs";
                    iptables: ["ttl", "hl"],
                        "--ttl-eq" => values::ttl,
                        "--ttl-lt" => values::ttl_below,
                        "--ttl-gt" => values::ttl_above,
                        "--hl-eq" => values::ttl,
                        "--hl-lt" => values::ttl_below,
                        "--hl-gt" => values::ttl_above;
                    nft: ["ip"], "ttl" => values::ttl, ["ip6"], "hoplimit" => values::ttl;
                }
            }
        }
    };
}
pub(crate) use header_fields;
