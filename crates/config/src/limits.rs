//! Maximum sizes of a configuration.

/// Maximum number of sites. The size of a session's context limits this number.
pub const MAX_SITES: u32 = 131_072;

/// Maximum number of terminals of all sites together. The size of the table of terminals limits this number.
pub const MAX_TERMINALS: u32 = 1_048_575;

/// Maximum number of virtual routers. The size of tables that are indexed by router limits this number.
pub const MAX_ROUTERS: usize = 4096;

/// Maximum number of interfaces. The width of the index of a packet's next hop limits this number.
pub const MAX_INTERFACES: usize = 2047;

/// Maximum number of IPv4 and IPv6 neighbours together. The width of the index of a packet's next hop limits this
/// number.
pub const MAX_NEIGHBOURS: u32 = 1 << 20;

/// Maximum number of shards. The ports of an outside address are divided among shards in units of 64.
pub const MAX_SHARDS: u16 = 1024;

/// Maximum number of source rules, and of destination rules.
pub const MAX_RULES: usize = 1 << 20;

/// Maximum number of ports that destination rules name. A rule without ports counts as one port.
pub const MAX_RULE_PORTS: u64 = 1 << 23;

/// Maximum number of destination rules with several hosts. The index of such a list has 16 bits.
pub const MAX_HOST_SETS: usize = 1 << 16;

/// Maximum number of rules that differ only in their protocol and interface. A lookup compares such rules one after
/// another.
pub const MAX_EQUAL_RULES: usize = 256;

/// Maximum number of MAC addresses that filter rules name.
pub const MAX_MACS: usize = 65_533;

/// Maximum number of bridges. The data plane has the same limit.
pub const MAX_BRIDGES: usize = 64;

/// Maximum number of steps of a router, summed over its chains.
pub const MAX_STEPS: usize = 256;
