//! Maximum sizes of a configuration.

/// Maximum number of sites, given by the size of a session's context.
pub const MOST_SITES: u32 = 131_072;

/// Maximum number of terminals of all sites together, given by the size of their table.
pub const MOST_TERMINALS: u32 = 1_048_575;

/// Maximum number of virtual routers, given by the size of tables that are indexed by router.
pub const MOST_ROUTERS: usize = 4096;

/// Maximum number of bridges, as in the data plane.
pub const MOST_BRIDGES: usize = 64;

/// Maximum number of steps in all chains of a router.
pub const MOST_STEPS: usize = 256;
