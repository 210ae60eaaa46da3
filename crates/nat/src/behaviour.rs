//! How a pool translates, in the words of RFC 4787, 5382, 5508, 6888 and 7857: decisions as data.

use sluice_table::token_bucket::TokenRate;

/// When two flows of one inside address and port share an outside port (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MappingBehaviour {
    /// Always (REQ-1).
    #[default]
    EndpointIndependent,
    /// Only if they lead to the same address and port.
    AddressAndPortDependent,
}

/// Who may send to a mapped outside port (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Everybody (REQ-8, for transparency).
    #[default]
    EndpointIndependent,
    /// Addresses that the inside host has sent to from there (REQ-8, for strictness).
    AddressDependent,
    /// Addresses and ports that it has sent to.
    AddressAndPortDependent,
}

/// Mapping and filtering of one class of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Behaviour {
    /// Mapping.
    pub mapping: MappingBehaviour,
    /// Filtering. With address-and-port-dependent mapping it is address-and-port-dependent, whatever stands here.
    pub filtering: Filtering,
}

impl Behaviour {
    /// Every flow has a port of its own.
    pub const ADDRESS_AND_PORT_DEPENDENT: Self = Self {
        mapping: MappingBehaviour::AddressAndPortDependent,
        filtering: Filtering::AddressAndPortDependent,
    };
}

/// Which free port a mapping gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortSelection {
    /// One that is hard to guess (RFC 6056; RFC 6888, REQ-15).
    #[default]
    Random,
    /// The inside port as long as it is free. Every address of the pool then belongs to one shard as a whole.
    Preserve,
}

/// Blocks of ports that belong to one subscriber at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Ports of a block: a power of two from 64 on.
    pub size: u16,
    /// Most blocks of a subscriber.
    pub most: u16,
    /// A subscriber keeps one block that has run empty until its last session ends, so that its next session does not
    /// take a new one.
    pub spare: bool,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            size: 512,
            most: 8,
            spare: true,
        }
    }
}

/// How long a port, or a block, stays unused after its last mapping (RFC 6888, REQ-8). TCP ports are tracked and do not
/// wait, nor do those of address- or address-and-port-dependent filtering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// Seconds; 0: not at all.
    pub seconds: u32,
    /// Most ports and blocks that wait, per shard; further ones are free at once, and counted.
    pub most: u32,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self {
            seconds: 120,
            most: 4096,
        }
    }
}

/// Limits of one subscriber (RFC 6888, REQ-4 and REQ-5). What is not given is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriberLimits {
    /// Outside ports by class: TCP, UDP, ICMP queries.
    pub ports: [Option<u32>; 3],
    /// Sessions.
    pub sessions: Option<u32>,
    /// New sessions.
    pub rate: Option<TokenRate>,
}

/// Limits of a pool, or of a virtual router. What is not given is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Sessions.
    pub sessions: Option<u32>,
    /// New sessions.
    pub rate: Option<TokenRate>,
}
