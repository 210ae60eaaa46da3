//! Deterministic NAT (RFC 7422): outside address and ports of an inside address are computed, both ways.

/// Inside addresses that share a pool's addresses by a fixed rule (RFC 7422, section 2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deterministic<A> {
    /// First and last inside address (variable I).
    pub inside: (A, A),
    /// Inside addresses per outside address (variable C).
    pub compression: u16,
    /// Shares of an outside address that are kept for blocks on demand (variable D).
    pub dynamic: u16,
    /// How inside addresses are dealt to outside addresses and ranges of ports (variable A).
    pub algorithm: Algorithm,
}

/// How inside addresses are dealt to outside addresses and ranges of ports (RFC 7422, section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The first inside addresses share the first outside address, in ascending ranges.
    #[default]
    Sequential,
}
