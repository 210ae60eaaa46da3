//! Translation behaviour of a pool, in the terms of RFC 4787, 5382, 5508, 6888 and 7857. All types are plain data.

use sluice_table::token_bucket::TokenRate;

/// Condition under which two flows that come from the same inside address and port share an outside port (RFC 4787,
/// section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MappingBehaviour {
    /// All flows share the outside port (RFC 4787, REQ-1).
    #[default]
    EndpointIndependent,
    /// Only flows to the same remote address and port share the outside port.
    AddressAndPortDependent,
}

/// Remote endpoints that may send to a mapped outside port (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Every remote endpoint (RFC 4787, REQ-8, for transparency).
    #[default]
    EndpointIndependent,
    /// Remote addresses to which the inside host has sent from this mapping (RFC 4787, REQ-8, for stricter filtering).
    AddressDependent,
    /// Remote addresses and ports to which the inside host has sent from this mapping.
    AddressAndPortDependent,
}

/// Mapping behaviour and filtering behaviour of one port class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Behaviour {
    /// Mapping behaviour.
    pub mapping: MappingBehaviour,
    /// Filtering behaviour. An address-and-port-dependent mapping ignores this setting and always filters by address
    /// and port.
    pub filtering: Filtering,
}

impl Behaviour {
    /// Each flow gets a separate outside port.
    pub const ADDRESS_AND_PORT_DEPENDENT: Self = Self {
        mapping: MappingBehaviour::AddressAndPortDependent,
        filtering: Filtering::AddressAndPortDependent,
    };
}

/// How the outside port of a mapping is selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortSelection {
    /// A random free port, which is hard to guess (RFC 6056; RFC 6888, REQ-15).
    #[default]
    Random,
    /// The inside port, if it is free as an outside port. Port preservation requires that all ports of an outside
    /// address belong to one shard.
    Preserve,
}

/// Port block allocation. A block belongs to one subscriber at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Number of ports in a block: a power of two, at least 64.
    pub size: u16,
    /// Maximum number of blocks per subscriber.
    pub max: u16,
    /// Whether a subscriber keeps one empty block until its last session ends. Later sessions then need no new block.
    pub spare: bool,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            size: 512,
            max: 8,
            spare: true,
        }
    }
}

/// Quarantine of released ports and blocks (RFC 6888, REQ-8). TCP ports are not quarantined, because TCP connections
/// are tracked. Ports with address-dependent or address-and-port-dependent filtering are not quarantined either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// Duration of the quarantine in seconds; 0 disables it.
    pub seconds: u32,
    /// Maximum number of quarantined ports and blocks in a shard. If the maximum is reached, further ports are freed
    /// immediately, and a counter counts them.
    pub max: u32,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self {
            seconds: 120,
            max: 4096,
        }
    }
}

/// Limits of one subscriber (RFC 6888, REQ-4 and REQ-5). `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriberLimits {
    /// Maximum number of outside ports of each class: TCP, UDP, ICMP queries.
    pub ports: [Option<u32>; 3],
    /// Maximum number of sessions.
    pub sessions: Option<u32>,
    /// Rate limit of new sessions.
    pub rate: Option<TokenRate>,
}

/// Limits of a pool or of a virtual router. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Maximum number of sessions.
    pub sessions: Option<u32>,
    /// Rate limit of new sessions.
    pub rate: Option<TokenRate>,
}
