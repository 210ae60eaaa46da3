//! Network address translation: rules, pools, port allocation, rewrites, ICMP errors, connection tracking.
//!
//! The slow path makes one decision for each session: [`rule::Rules`] selects the translation, [`ports::Ports`]
//! allocates an outside port, and [`decision::translate`] creates the reverse key and the [`Decision`]. The fast path
//! translates packets: [`rewrite`] needs only the two keys of the session and the decision.
//!
//! All code is generic over the address family ([`family::Tuple`]). IPv4 is translated to IPv4, and IPv6 to IPv6 with
//! port translation.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod bindings;
pub mod decision;
pub mod deterministic;
pub mod event;
pub mod family;
pub mod icmp;
mod keyed;
pub mod meter;
pub mod pool;
pub mod ports;
pub mod reason;
pub mod rewrite;
pub mod rss_ports;
pub mod rule;
pub mod shard;
pub mod sites;
pub mod timeout;
pub mod tracking;

pub use behaviour::{
    Behaviour, Blocks, Filtering, Limits, MappingBehaviour, PortSelection, Quarantine, SubscriberLimits,
};
pub use bindings::Bindings;
pub use decision::{Decision, Resources, Translation};
pub use deterministic::{Deterministic, Plan};
pub use family::{Address, Tuple};
pub use keyed::Secret;
pub use pool::{Pairing, Pool, PoolIndex, Pools};
pub use ports::{Exhausted, Layout, Lease, PortClass, Ports};
pub use reason::Reason;
pub use rss_ports::RssPorts;
pub use rule::{DestinationRule, Prefix, RuleId, Rules, SourceRule, Target};
pub use timeout::{Schedule, TimeoutClass, Timeouts};
pub use tracking::{Segment, TcpState, Tracking};
