//! Faults of packets. Each fault is declared once, with a counter name and a help text.

use crate::named;

named! {
    /// Why a packet must not be forwarded. Each fault is a separate drop reason.
    pub enum Fault {
        ShortFrame "short-frame" "The frame ends within its Ethernet header or VLAN tags.";
        LongFrame "long-frame" "The frame is longer than 65,535 bytes.";
        TooManyTags "too-many-tags" "The frame carries more than two VLAN tags.";
        BadArp "bad-arp" "The ARP message is truncated, or not for IPv4 over Ethernet.";
        BadNeighbourMessage "bad-neighbour-message" "A neighbour discovery message is malformed, or comes from beyond the link (RFC 4861, 6.1 and 7.1).";
        BadVersion "bad-version" "The IP version does not match the EtherType.";
        BadHeaderLength "bad-header-length" "The IPv4 header length is below 20 bytes or beyond the datagram's end.";
        BadTotalLength "bad-total-length" "The IP length is shorter than the header, or longer than the frame.";
        BadOptions "bad-options" "An IPv4 option or IPv6 extension header exceeds the header's length.";
        SourceRoute "source-route" "The packet has a source route (RFC 7126, RFC 5095).";
        MisplacedExtension "misplaced-extension" "An IPv6 hop-by-hop header is not the first header, or the packet \
             has two fragment headers.";
        ShortTransport "short-transport" "The datagram ends within its TCP, UDP or ICMP header.";
        BadUdpLength "bad-udp-length" "The UDP length, or the checksum coverage of UDP-Lite, is below 8 or beyond the datagram's end.";
        BadTcpOffset "bad-tcp-offset" "The TCP header length is below 20 or beyond the datagram's end.";
        BadHeaderChecksum "bad-header-checksum" "The IPv4 header checksum is wrong.";
        BadTransportChecksum "bad-transport-checksum" "The TCP, UDP, ICMP or ICMPv6 checksum is wrong.";
        OffloadOnFragment "offload-on-fragment" "A local sender left a checksum to offload, but the packet is a \
             fragment, for which the checksum can't be completed.";
        MartianSource "martian-source" "The source address is multicast, broadcast, loopback, unspecified or reserved.";
        MartianDestination "martian-destination" "The destination address is loopback, unspecified or reserved.";
        Land "land" "The source and the destination address are equal.";
        TinyFragment "tiny-fragment" "The first fragment does not contain the whole transport header (RFC 1858, RFC \
             7112).";
        HeaderOverlap "header-overlap" "A TCP fragment at offset 8 would overwrite the transport header (RFC 1858).";
        FragmentTooLong "fragment-too-long" "The fragment ends beyond the longest possible datagram.";
        BadFragmentLength "bad-fragment-length" "A fragment other than the last is empty, or its length is not a \
             multiple of 8 bytes.";
        SynFin "syn-fin" "A TCP segment has both SYN and FIN.";
        SynReset "syn-reset" "A TCP segment has both SYN and RST.";
        NoFlags "no-flags" "A TCP segment has no flag at all.";
        NotAnError "not-an-error" "The packet is not an ICMP error.";
        ShortQuote "short-quote" "The ICMP error quotes less than an IP header and 8 bytes.";
        QuotedFragment "quoted-fragment" "The ICMP error quotes a later fragment, which has no ports.";
        QuotedError "quoted-error" "The ICMP error quotes an ICMP error (RFC 1122, 3.2.2).";
        QuotedChecksum "quoted-checksum" "The IPv4 header that an ICMP error quotes has a wrong checksum (RFC 5508, REQ-3).";
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.help())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_all_are_numbered_in_order_with_distinct_names() {
        let mut names: Vec<_> = Fault::ALL.iter().map(|f| f.name()).collect();
        for (number, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(number, *fault as usize);
            assert!(
                fault.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{}",
                fault.name()
            );
            assert!(fault.help().ends_with('.'));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(Fault::ALL.len(), names.len());
    }
}
