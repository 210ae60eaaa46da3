//! Drop reasons of routing, each with its counter name and help text.

macro_rules! reasons {
    ($($reason:ident $name:literal $help:literal;)*) => {
        /// Reason for which routing drops a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $help] $reason,)*
        }

        impl Reason {
            /// Every reason, in numeric order.
            pub const ALL: &[Reason] = &[$(Reason::$reason),*];

            /// Name of the counter.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$reason => $name,)* }
            }

            /// Meaning and advice for the operator.
            pub fn help(self) -> &'static str {
                match self { $(Reason::$reason => $help,)* }
            }
        }
    };
}

reasons! {
    NoRoute "no-route"
        "No route matches the destination, and there is no default route.";
    Blackhole "blackhole"
        "The route to the destination is a blackhole: dropped in silence, as configured.";
    Unreachable "unreachable"
        "The route to the destination is marked unreachable: the sender is told so.";
    Prohibited "prohibited"
        "The route to the destination is prohibited: the sender is told so.";
    DirectedBroadcast "directed-broadcast"
        "The destination is the broadcast or network address of an attached network (RFC 2644).";
    TtlExceeded "ttl-exceeded"
        "The time to live, or hop limit, ran out here.";
    TooBig "too-big"
        "Longer than the MTU of the way out, and may not be fragmented: the sender is told the MTU.";
    SourceValidation "source-validation"
        "The source address does not belong behind the interface that the packet came in by (BCP 38).";
    LinkLocal "link-local"
        "Addressed to or from a link-local address, which is never forwarded (RFC 3927 section 2.7, RFC 4291 section 2.5.6).";
    NeighbourUnresolved "neighbour-unresolved"
        "The next hop does not answer address resolution.";
    NeighbourTableFull "neighbour-table-full"
        "No entry is left for a new neighbour; raise the capacity of the neighbour table.";
    NeighbourQuota "neighbour-quota"
        "The virtual router has as many neighbours as it may.";
    ParkedTooMany "parked-too-many"
        "As many packets wait for address resolution as are allowed in total.";
    ParkedReplaced "parked-replaced"
        "A newer packet took its place in the queue for the same unresolved neighbour (RFC 4861, 7.2.2).";
    ParkedTooLong "parked-too-long"
        "Waited for address resolution longer than allowed.";
}
