//! What the length and the time to live of a packet allow.

/// Whether a packet may go on, by its own header and the MTU of the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// It may; its time to live is to be decremented.
    Forward,
    /// Its time to live runs out here (RFC 1812 section 5.3.1, RFC 8200 section 3).
    TtlExceeded,
    /// Too long and not to be fragmented: the sender is told this MTU (RFC 1191, RFC 8201).
    TooBig(u16),
    /// Too long; IPv4 without DF is fragmented (RFC 791).
    Fragment,
}

/// Decide by time to live (hop limit) and total length of the IP packet in bytes. `df` is the header's bit for
/// IPv4, and true for IPv6, whose packets are never fragmented on the way.
#[inline(always)]
pub fn forward_check(ttl: u8, length: u16, df: bool, mtu: u16) -> Forward {
    if ttl <= 1 {
        Forward::TtlExceeded
    } else if length <= mtu {
        Forward::Forward
    } else if df {
        Forward::TooBig(mtu)
    } else {
        Forward::Fragment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_check_at_each_limit_decides_as_the_rfcs_say() {
        assert_eq!(Forward::TtlExceeded, forward_check(0, 40, false, 1500));
        assert_eq!(Forward::TtlExceeded, forward_check(1, 9000, true, 1500));
        assert_eq!(Forward::Forward, forward_check(2, 1500, true, 1500));
        assert_eq!(Forward::TooBig(1500), forward_check(2, 1501, true, 1500));
        assert_eq!(Forward::Fragment, forward_check(2, 1501, false, 1500));
    }
}
