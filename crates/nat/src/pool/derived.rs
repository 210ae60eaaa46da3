//! Values derived from a pool's settings.

use super::{Source, ValidPool};
use crate::Address;
use crate::behaviour::{Limits, MappingBehaviour, PortSelection, SubscriberLimits};
use crate::ports::PortClass;

/// Values derived from a pool's settings. The values are computed in advance, because every new session needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Derived {
    /// For each port class: how ports are allocated, and whether sessions are counted for each subscriber.
    pub(super) classes: [(Source, bool); 3],
    pub(super) bits: bool,
    pub(super) limits: bool,
    pub(super) subscriber_limits: bool,
}

impl Derived {
    pub(super) fn of<A: Address>(pool: &ValidPool<A>) -> Self {
        let subscriber_limits = pool.subscriber != SubscriberLimits::default();
        let source = |class: PortClass| match pool.behaviour[class as usize].mapping {
            MappingBehaviour::EndpointIndependent => Source::Mapping,
            MappingBehaviour::AddressAndPortDependent if pool.overlap => Source::Overlap,
            MappingBehaviour::AddressAndPortDependent => Source::Session,
        };
        let counted = |class| source(class) == Source::Mapping || pool.blocks.is_some() || subscriber_limits;
        let bits = match pool.plan {
            Some(_) => pool.blocks.is_some() && pool.dynamic_range().is_some(),
            None => {
                pool.selection == PortSelection::Random
                    && PortClass::ALL.iter().any(|&class| source(class) != Source::Overlap)
            }
        };
        Self {
            classes: PortClass::ALL.map(|class| (source(class), counted(class))),
            bits,
            limits: pool.limits != Limits::default(),
            subscriber_limits,
        }
    }
}
