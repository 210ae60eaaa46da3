//! Limits of fragments that are parked until the other fragments of their datagram arrive.

/// Limits of the table of fragmented datagrams in virtual reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Maximum number of incomplete datagrams.
    pub datagrams: usize,
    /// Maximum number of parked fragments of all datagrams together.
    pub parked: usize,
    /// Time for which a datagram is kept, in nanoseconds.
    pub timeout: u64,
}

impl Default for FragmentLimits {
    /// The default timeout is the value of FRAGMENT_MIN in RFC 6146.
    fn default() -> Self {
        Self {
            datagrams: 4_096,
            parked: 1_024,
            timeout: 2_000_000_000,
        }
    }
}

/// Limits of datagram reassembly for inspection in one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Maximum number of datagrams. Each datagram has a buffer of 64 KiB.
    pub datagrams: usize,
    /// Maximum number of bytes in the fragments of all datagrams together.
    pub bytes: usize,
    /// Time for which a parked fragment is kept, in nanoseconds.
    pub timeout: u64,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self {
            datagrams: 64,
            bytes: 1 << 20,
            timeout: 2_000_000_000,
        }
    }
}
