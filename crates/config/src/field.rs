//! The header fields that rules of the packet filter name, each declared once: the key, its help, and how iptables and nftables
//! spell it. The fields of rules whose values stand for themselves are here; those that have groups, sets or families, or say
//! which protocol is meant, are keys of their own.

/// Hands all declarations to another macro. One has:
///
/// - the key, a single word, with its help and the type of its values ([`FieldValues`](crate::value::FieldValues));
/// - `field`: the [`Field`](sluice_filter::Field) that it is, and what one of its values is called;
/// - `guide`: its values as docs/filter.md explains them;
/// - `request`: the type, placeholder and help of `sluice show filter --match … --KEY`, where there is such an option;
/// - `import`: what listings have of it. `refused`: what rules of translation don't ask for. `iptables`: modules, and options with
///   what reads their values. `nft`: headers and their fields, and what reads their values.
macro_rules! header_fields {
    ($consumer:ident) => {
        $consumer! {
            /// Which part of its datagram the packet is.
            fragment: Option<Part> {
                field: Fragment, "a part";
                guide: "`whole`, `first` or `later`; a later fragment has no ports, so that rules that name ports don't match it";
                request: {}
                import: {}
            }
            /// Differentiated services code points.
            dscp: OneOrMore<Dscp> {
                field: Dscp, "a code point";
                guide: "`ef`, `af11`, … or a number from 0 to 63; one or a list";
                request: { Dscp, "DSCP", "With --match: its code point, such as ef; 0 where not given." }
                import: {
                    refused: "code points";
                    iptables: ["dscp"], "--dscp" => values::dscp, "--dscp-class" => values::dscp_class;
                    nft: ["ip", "ip6"], "dscp" => values::dscp;
                }
            }
            /// Code points of explicit congestion notification.
            ecn: OneOrMore<Ecn> {
                field: Ecn, "a code point of congestion";
                guide: "`not-ect`, `ect0`, `ect1`, `ce` (RFC 3168); one or a list";
                request: {
                    Ecn, "ECN", "With --match: its code point of congestion, such as ect0; not-ect where not given."
                }
                import: {
                    refused: "congestion";
                    iptables: ["ecn"], "--ecn-ip-ect" => values::ecn;
                    nft: ["ip", "ip6"], "ecn" => values::ecn;
                }
            }
            /// Length of the packet in bytes, from its IP header on.
            length: Option<Numbers> {
                field: Length, "a length";
                guide: "bytes from the IP header on: `40` or `\"0-128\"`";
                request: {
                    u16,
                    "BYTES",
                    "With --match: its length in bytes, from its IP header on; that of bare headers where not given."
                }
                import: {
                    refused: "lengths";
                    iptables: ["length"], "--length" => values::lengths;
                    nft: ["meta", "ip"], "length" => values::length;
                }
            }
            /// VLANs that it came in by, the outer tag where there are two.
            vlan: Option<Numbers> {
                field: Vlan, "a VLAN";
                guide: "the outer tag that the packet came in with: `7` or `\"100-199\"`";
                request: { u16, "VLAN", "With --match: the outer VLAN tag that it comes in with." }
                import: {}
            }
            /// IPv4's time to live, or IPv6's hop limit, with which it came in.
            ttl: Option<Numbers> {
                field: Ttl, "a TTL";
                guide: "time to live of IPv4, hop limit of IPv6, with which the packet came in, before it is counted down: `255` or `\"0-1\"`. Sessions that are asked about again have 64";
                request: { u8, "TTL", "With --match: its TTL or hop limit as it comes in; 64 where not given." }
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
