//! Where a packet goes on: the egress interface and the neighbour behind it.

/// Where a packet goes on: egress interface and neighbour in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyIndex(pub u32);

impl AdjacencyIndex {
    /// No hop.
    pub const NONE: AdjacencyIndex = AdjacencyIndex(u32::MAX);
    /// Back to where translation begins: the packet leads to an inside host by its outside address (RFC 4787, REQ-9).
    pub const HAIRPIN: AdjacencyIndex = AdjacencyIndex(u32::MAX - 1);
    /// A session's, where routes lead nowhere for the moment, or nobody knows yet who is there: each packet asks again.
    pub const UNRESOLVED: AdjacencyIndex = AdjacencyIndex(u32::MAX - 2);
    /// To the router's own host: a rule has led the packet there.
    pub const LOCAL: AdjacencyIndex = AdjacencyIndex(u32::MAX - 3);
    /// Most interfaces that a hop can name.
    pub const MAX_INTERFACES: usize = (1 << 11) - 1;
    /// Most neighbours that a hop can name.
    pub const MAX_NEIGHBOURS: usize = Self::TERMINAL as usize;
    /// The neighbour of whoever is behind a bridge: nobody knows who it is, and the frame says it.
    const BRIDGED: u32 = (1 << 21) - 1;
    /// From here on terminals of subscribers' sites.
    const TERMINAL: u32 = 1 << 20;

    /// The adjacency of a neighbour on the link of an interface.
    #[inline(always)]
    pub fn new(interface: u16, neighbour: u32) -> Self {
        Self((interface as u32) << 21 | neighbour & Self::BRIDGED)
    }
    /// Out by `interface`, as it came.
    #[inline(always)]
    pub fn bridge(interface: u16) -> Self {
        Self::new(interface, Self::BRIDGED)
    }
    /// The terminal `terminal` of a site behind `interface`.
    #[inline(always)]
    pub fn terminal(interface: u16, terminal: u32) -> Self {
        Self::new(interface, Self::TERMINAL | terminal)
    }
    /// The terminal that it leads to, where it leads to one.
    #[inline(always)]
    pub fn as_terminal(self) -> Option<u32> {
        let is_one = self.neighbour() & Self::TERMINAL != 0 && self.neighbour() != Self::BRIDGED;
        (is_one && self.interface() < Self::MAX_INTERFACES).then_some(self.neighbour() & !Self::TERMINAL)
    }
    /// The terminal that it names if it leads to one: most that name one do.
    #[inline(always)]
    pub fn terminal_bits(self) -> Option<u32> {
        (self.0 & Self::TERMINAL != 0).then_some(self.0 & (Self::TERMINAL - 1))
    }
    /// The same by the interface alone, where it leads to a terminal: what a terminal's frames look like is not the hop's to say.
    #[inline(always)]
    pub fn without_terminal(self) -> Self {
        match self.0 & Self::TERMINAL != 0 && self.interface() < Self::MAX_INTERFACES {
            true => Self(self.0 | Self::BRIDGED),
            false => self,
        }
    }
    /// Whether it leads over a bridge.
    #[inline(always)]
    pub fn is_bridge(self) -> bool {
        self.neighbour() == Self::BRIDGED && self.interface() < Self::MAX_INTERFACES
    }
    /// Whether routes say where it leads: neither a bridge nor a site does.
    #[inline(always)]
    pub fn is_routed(self) -> bool {
        !self.is_bridge() && self.as_terminal().is_none()
    }
    /// Whether there is a neighbour behind it, which sessions hold.
    #[inline(always)]
    pub fn has_neighbour(self) -> bool {
        self != Self::HAIRPIN && self.neighbour() & Self::TERMINAL == 0
    }
    /// The egress interface.
    #[inline(always)]
    pub fn interface(self) -> usize {
        (self.0 >> 21) as usize
    }
    /// The neighbour.
    #[inline(always)]
    pub fn neighbour(self) -> u32 {
        self.0 & Self::BRIDGED
    }
}
