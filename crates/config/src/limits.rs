//! How much a configuration may have.

/// Most sites: what the context of a session has room for.
pub const MOST_SITES: u32 = 131_072;

/// Most terminals of all sites together: what their table has room for.
pub const MOST_TERMINALS: u32 = 1_048_575;

/// Most virtual routers: a context has room for more, tables by router have not.
pub const MOST_ROUTERS: usize = 4096;

/// Most bridges; the data plane has room for as many.
pub const MOST_BRIDGES: usize = 64;

/// Most steps of all chains of a router.
pub const MOST_STEPS: usize = 256;
