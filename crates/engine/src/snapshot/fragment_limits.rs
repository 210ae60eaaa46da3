//! Limits of what waits for the other fragments of a datagram.

/// Limits of the table of datagrams in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Datagrams under way.
    pub datagrams: usize,
    /// Fragments that wait, of all datagrams together.
    pub parked: usize,
    /// How long a datagram is remembered, in nanoseconds.
    pub patience: u64,
}

impl Default for FragmentLimits {
    /// With the patience of RFC 6146 (FRAGMENT_MIN).
    fn default() -> Self {
        Self {
            datagrams: 4_096,
            parked: 1_024,
            patience: 2_000_000_000,
        }
    }
}

/// How much waits in one worker at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Datagrams, each in a buffer of 64 KiB.
    pub datagrams: usize,
    /// Bytes of the fragments of all of them.
    pub bytes: usize,
    /// How long the fragments of one wait, in nanoseconds.
    pub patience: u64,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self {
            datagrams: 64,
            bytes: 1 << 20,
            patience: 2_000_000_000,
        }
    }
}
