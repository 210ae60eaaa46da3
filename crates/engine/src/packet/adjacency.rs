//! Adjacency indexes. An adjacency index identifies the egress interface and the neighbour to which a packet is sent.

/// Adjacency index: egress interface and neighbour in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyIndex(pub u32);

impl AdjacencyIndex {
    /// The packet has no adjacency.
    pub const NONE: AdjacencyIndex = AdjacencyIndex(u32::MAX);
    /// The packet is addressed to an inside host by its outside address, so a second translation follows (hairpinning;
    /// RFC 4787, REQ-9).
    pub const HAIRPIN: AdjacencyIndex = AdjacencyIndex(u32::MAX - 1);
    /// The session has no route at present, or its neighbour is not resolved. The route is looked up again for each
    /// packet.
    pub const UNRESOLVED: AdjacencyIndex = AdjacencyIndex(u32::MAX - 2);
    /// The packet is delivered to the router's own host, because a rule translates it to the host.
    pub const LOCAL: AdjacencyIndex = AdjacencyIndex(u32::MAX - 3);
    /// Maximum number of interfaces that an index can represent.
    pub const MAX_INTERFACES: usize = (1 << 11) - 1;
    /// Maximum number of neighbours that an index can represent.
    pub const MAX_NEIGHBOURS: usize = Self::TERMINAL as usize;
    /// Neighbour number in adjacencies of bridges, for which the frame already contains the destination MAC.
    const BRIDGED: u32 = (1 << 21) - 1;
    /// First neighbour number for terminals of subscribers' sites.
    const TERMINAL: u32 = 1 << 20;

    /// Creates the adjacency of a neighbour on the link of an interface.
    #[inline(always)]
    pub fn new(interface: u16, neighbour: u32) -> Self {
        Self((interface as u32) << 21 | neighbour & Self::BRIDGED)
    }
    /// Creates the adjacency that sends frames unchanged through `interface`.
    #[inline(always)]
    pub fn bridge(interface: u16) -> Self {
        Self::new(interface, Self::BRIDGED)
    }
    /// Creates the adjacency of terminal `terminal` of a site behind `interface`.
    #[inline(always)]
    pub fn terminal(interface: u16, terminal: u32) -> Self {
        Self::new(interface, Self::TERMINAL | terminal)
    }
    /// Number of the terminal, if the adjacency belongs to a terminal.
    #[inline(always)]
    pub fn as_terminal(self) -> Option<u32> {
        let is_one = self.neighbour() & Self::TERMINAL != 0 && self.neighbour() != Self::BRIDGED;
        (is_one && self.interface() < Self::MAX_INTERFACES).then_some(self.neighbour() & !Self::TERMINAL)
    }
    /// Number of the terminal if the terminal bit is set. Adjacencies of some other kinds also have this bit, so the
    /// result is only a hint.
    #[inline(always)]
    pub fn terminal_bits(self) -> Option<u32> {
        (self.0 & Self::TERMINAL != 0).then_some(self.0 & (Self::TERMINAL - 1))
    }
    /// Removes the terminal's number from the adjacency of a terminal, because the link header of a terminal is stored
    /// elsewhere. Other adjacencies are returned unchanged.
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
    /// Whether a route determined the adjacency. Adjacencies of bridges and sites are not determined by routes.
    #[inline(always)]
    pub fn is_routed(self) -> bool {
        !self.is_bridge() && self.as_terminal().is_none()
    }
    /// Whether the adjacency refers to an entry of the neighbour table. Sessions hold a reference to that entry.
    #[inline(always)]
    pub fn has_neighbour(self) -> bool {
        self != Self::HAIRPIN && self.neighbour() & Self::TERMINAL == 0
    }
    /// The egress interface.
    #[inline(always)]
    pub fn interface(self) -> usize {
        (self.0 >> 21) as usize
    }
    /// The number of the neighbour.
    #[inline(always)]
    pub fn neighbour(self) -> u32 {
        self.0 & Self::BRIDGED
    }
}
