//! Validation of rules.

use core::net::IpAddr;

use thiserror::Error;

use super::{DestinationAction, DestinationRule, FROM_HOST, Prefix, RuleId, SourceAction, SourceRule};
use crate::ports::PortClass;
use crate::{Address, PoolIndex, Pools};

/// Why a rule is invalid. Rules that are validated together are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The prefix is longer than an address.
    #[error("rule {rule}: the prefix length {length} exceeds the length of an address")]
    TooLong {
        /// Number of the rule.
        rule: RuleId,
        /// Length of the rule's prefix.
        length: u8,
    },
    /// The address of the prefix has host bits that are not 0.
    #[error("rule {rule}: {address}/{length} has bits set beyond its prefix length")]
    HostBits {
        /// Number of the rule.
        rule: RuleId,
        /// Address of the rule's prefix.
        address: IpAddr,
        /// Length of the rule's prefix.
        length: u8,
    },
    /// The pool does not exist.
    #[error("source rule {rule} names pool {pool}, which does not exist")]
    UnknownPool {
        /// Number of the rule.
        rule: RuleId,
        /// Index of the pool.
        pool: PoolIndex,
    },
    /// Two source rules have equal match conditions.
    #[error("source rules {rule} and {other} match the same packets")]
    SameSource {
        /// First rule.
        rule: RuleId,
        /// Second rule.
        other: RuleId,
    },
    /// The rule has ports but no protocol, or a protocol without ports.
    #[error("rule {rule} has ports, but its protocol is neither TCP nor UDP")]
    PortsWithoutProtocol {
        /// Number of the rule.
        rule: RuleId,
    },
    /// The port range is empty, or a target port would exceed 65535.
    #[error(
        "destination rule {rule}: ports {first}-{last} are not a valid range, or the target ports would exceed \
         65535"
    )]
    BadPorts {
        /// Number of the rule.
        rule: RuleId,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// The rule has a target port but no external ports.
    #[error("destination rule {rule} has a target port, but no ports")]
    TargetPortAlone {
        /// Number of the rule.
        rule: RuleId,
    },
    /// Two destination rules overlap, and neither is more specific than the other.
    #[error("destination rules {rule} and {other} overlap, but neither contains the other")]
    SameDestination {
        /// First rule.
        rule: RuleId,
        /// Second rule.
        other: RuleId,
    },
    /// A destination rule matches an address and port that a pool can allocate.
    #[error("destination rule {rule} forwards {address} port {first}-{last}, which belongs to pool {pool}")]
    Allocated {
        /// Number of the rule.
        rule: RuleId,
        /// Address that the rule forwards.
        address: IpAddr,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
        /// Index of the pool.
        pool: PoolIndex,
    },
    /// The number of rules or of their ports exceeds the capacity of the tables.
    #[error(
        "rule {rule} exceeds the maximum of {} source or destination rules, or of {ENTRIES} ports in these rules",
        RuleId::MAX
    )]
    TooMany {
        /// Number of the rule.
        rule: RuleId,
    },
    /// Too many rules have one prefix and port, and differ only in protocol or interface.
    #[error("rule {rule}: too many rules have the same prefix and port and differ only in protocol or interface")]
    Crowded {
        /// Number of the rule.
        rule: RuleId,
    },
}

/// Maximum number of entries in a rule table. A rule without ports takes one entry. A rule with ports takes one entry
/// for each port.
pub const ENTRIES: usize = 1 << 23;

/// First and last port of a destination rule.
pub fn ports<A>(rule: &DestinationRule<A>) -> (u16, u16) {
    rule.ports.unwrap_or((0, u16::MAX))
}

fn prefix<A: Address>(rule: RuleId, prefix: Prefix<A>) -> Result<(), RuleError> {
    let length = prefix.length;
    if length > A::BITS {
        return Err(RuleError::TooLong { rule, length });
    }
    if prefix.address.number() & prefix.host_bits() != 0 {
        let address = prefix.address.display();
        return Err(RuleError::HostBits { rule, address, length });
    }
    Ok(())
}

/// Validates a single source rule.
pub fn source<A: Address>(rule: RuleId, named: &SourceRule<A>, pools: &Pools<A>) -> Result<(), RuleError> {
    let length = named.inside.length;
    prefix(rule, named.inside)?;
    if named.port.is_some() && !matches!(named.protocol, None | Some(6 | 17)) {
        return Err(RuleError::PortsWithoutProtocol { rule });
    }
    match named.action {
        SourceAction::Pool(pool) if pools.get(pool).is_none_or(|pool| pool.addresses() == 0) => {
            Err(RuleError::UnknownPool { rule, pool })
        }
        SourceAction::Static(address) => prefix(rule, Prefix { address, length }),
        _ => Ok(()),
    }
}

/// Validates a single destination rule.
pub fn destination<A: Address>(rule: RuleId, named: &DestinationRule<A>, pools: &Pools<A>) -> Result<(), RuleError> {
    let (first, last) = ports(named);
    let length = named.external.length;
    prefix(rule, named.external)?;
    if named.ports.is_some() && !matches!(named.protocol, None | Some(6 | 17)) {
        return Err(RuleError::PortsWithoutProtocol { rule });
    }
    let target_port = match named.action {
        DestinationAction::Host(_, port) | DestinationAction::Hosts(_, port) => port,
        DestinationAction::Static(address) => {
            prefix(rule, Prefix { address, length })?;
            None
        }
        DestinationAction::Exempt => None,
    };
    if named.ports.is_none() && target_port.is_some() {
        return Err(RuleError::TargetPortAlone { rule });
    }
    if last < first || target_port.is_some_and(|target| u32::from(target) + u32::from(last - first) > 65_535) {
        return Err(RuleError::BadPorts { rule, first, last });
    }
    let shares = named
        .protocol
        .is_none_or(|number| PortClass::of(number, A::BITS).is_some());
    let (from, to) = (named.external.address, named.external.last());
    // A rule with an inbound interface may match pool addresses. The operator is responsible for packets that arrive
    // through this interface and are addressed to pool addresses.
    if shares
        && named.inbound.is_none()
        && named.context & FROM_HOST == 0
        && named.action != DestinationAction::Exempt
        && let Some((pool, address)) = pools.pool_within(named.context, (from, to), first, last)
    {
        let address = address.display();
        return Err(RuleError::Allocated {
            rule,
            address,
            first,
            last,
            pool,
        });
    }
    Ok(())
}
