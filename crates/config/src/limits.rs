//! Maximum sizes of a configuration.

/// Maximum number of sites. The size of a session's context limits this number.
pub const MOST_SITES: u32 = 131_072;

/// Maximum number of terminals of all sites together. The size of the table of terminals limits this number.
pub const MOST_TERMINALS: u32 = 1_048_575;

/// Maximum number of virtual routers. The size of tables that are indexed by router limits this number.
pub const MOST_ROUTERS: usize = 4096;

/// Maximum number of bridges. The data plane has the same limit.
pub const MOST_BRIDGES: usize = 64;

/// Maximum number of steps of a router, summed over its chains.
pub const MOST_STEPS: usize = 256;
