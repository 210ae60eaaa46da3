//! Adjacency indexes: egress interface and neighbour of a packet.

/// Adjacency index: egress interface and neighbour in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyIndex(pub u32);

impl AdjacencyIndex {
    /// No adjacency.
    pub const NONE: AdjacencyIndex = AdjacencyIndex(u32::MAX);
    /// The packet is addressed to an inside host by its outside address and is translated again (hairpinning; RFC 4787, REQ-9).
    pub const HAIRPIN: AdjacencyIndex = AdjacencyIndex(u32::MAX - 1);
    /// The session has no route at the moment, or its neighbour is not resolved: each packet looks the route up again.
    pub const UNRESOLVED: AdjacencyIndex = AdjacencyIndex(u32::MAX - 2);
    /// The packet goes to the router's own host, because a rule translates it to the host.
    pub const LOCAL: AdjacencyIndex = AdjacencyIndex(u32::MAX - 3);
    /// Maximum number of interfaces that an index can represent.
    pub const MAX_INTERFACES: usize = (1 << 11) - 1;
    /// Maximum number of neighbours that an index can represent.
    pub const MAX_NEIGHBOURS: usize = Self::TERMINAL as usize;
    /// The neighbour number of bridges, where the frame itself holds the destination MAC address.
    const BRIDGED: u32 = (1 << 21) - 1;
    /// First neighbour number of terminals of subscribers' sites.
    const TERMINAL: u32 = 1 << 20;

    /// The adjacency of a neighbour on the link of an interface.
    #[inline(always)]
    pub fn new(interface: u16, neighbour: u32) -> Self {
        Self((interface as u32) << 21 | neighbour & Self::BRIDGED)
    }
    /// The adjacency that sends frames unchanged by `interface`.
    #[inline(always)]
    pub fn bridge(interface: u16) -> Self {
        Self::new(interface, Self::BRIDGED)
    }
    /// The adjacency of the terminal `terminal` of a site behind `interface`.
    #[inline(always)]
    pub fn terminal(interface: u16, terminal: u32) -> Self {
        Self::new(interface, Self::TERMINAL | terminal)
    }
    /// The terminal of the adjacency, if it is one.
    #[inline(always)]
    pub fn as_terminal(self) -> Option<u32> {
        let is_one = self.neighbour() & Self::TERMINAL != 0 && self.neighbour() != Self::BRIDGED;
        (is_one && self.interface() < Self::MAX_INTERFACES).then_some(self.neighbour() & !Self::TERMINAL)
    }
    /// The number of the terminal if the terminal bit is set. Some adjacencies that are no terminals have this bit, too, so the
    /// result is only a hint.
    #[inline(always)]
    pub fn terminal_bits(self) -> Option<u32> {
        (self.0 & Self::TERMINAL != 0).then_some(self.0 & (Self::TERMINAL - 1))
    }
    /// A terminal's adjacency without the number of the terminal. The terminal's link header is stored elsewhere. Other
    /// adjacencies are returned unchanged.
    #[inline(always)]
    pub fn without_terminal(self) -> Self {
        match self.0 & Self::TERMINAL != 0 && self.interface() < Self::MAX_INTERFACES {
            true => Self(self.0 | Self::BRIDGED),
            false => self,
        }
    }
    /// Whether the adjacency belongs to a bridge.
    #[inline(always)]
    pub fn is_bridge(self) -> bool {
        self.neighbour() == Self::BRIDGED && self.interface() < Self::MAX_INTERFACES
    }
    /// Whether the adjacency comes from a route, which is not so for bridges and sites.
    #[inline(always)]
    pub fn is_routed(self) -> bool {
        !self.is_bridge() && self.as_terminal().is_none()
    }
    /// Whether the adjacency has an entry in the neighbour table, to which sessions hold a reference.
    #[inline(always)]
    pub fn has_neighbour(self) -> bool {
        self != Self::HAIRPIN && self.neighbour() & Self::TERMINAL == 0
    }
    /// The egress interface.
    #[inline(always)]
    pub fn interface(self) -> usize {
        (self.0 >> 21) as usize
    }
    /// The neighbour's number.
    #[inline(always)]
    pub fn neighbour(self) -> u32 {
        self.0 & Self::BRIDGED
    }
}
