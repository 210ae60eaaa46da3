//! Scenarios of the placements: traffic, devices and work.

use crate::rig::measure::Direction;
use crate::rig::scenario::{Opens, Scenario, Skew};

/// Scenario with which hand-overs are measured.
pub const HAND_OVER: Scenario = Scenario::new("hand-over");

/// Scenarios of established and new flows in either direction, from which P0's pairings are predicted.
pub const PLAIN: [&str; 4] = ["established up", "established down", "new up", "new down"];

pub const ALL: [Scenario; 20] = [
    Scenario::new("established up").from(Direction::Up),
    Scenario::new("established down").from(Direction::Down),
    Scenario::new("new up").from(Direction::Up).opening(Opens::OneIn(1)),
    Scenario::new("new down")
        .from(Direction::Down)
        .opening(Opens::FromOutside),
    Scenario::new("carrier mix").mixed(),
    Scenario::new("carrier mix, one queue").mixed().one_queue(),
    Scenario::new("one queue").one_queue(),
    Scenario::new("new up, one queue")
        .from(Direction::Up)
        .opening(Opens::OneIn(1))
        .one_queue(),
    Scenario::new("forwarding").forwarding(0),
    Scenario::new("forwarding, one queue").forwarding(0).one_queue(),
    Scenario::new("slow filter").forwarding(300),
    Scenario::new("slow filter, one queue").forwarding(50).one_queue(),
    Scenario::new("elephant of 90 %").skewed(Skew::Flow(0.9)),
    Scenario::new("elephant alone").skewed(Skew::Flow(1.0)),
    Scenario::new("skewed shards").skewed(Skew::Shard(0.4)),
    Scenario::new("slow transmit").paced(0, 200),
    Scenario::new("slow transmit, one queue").paced(0, 200).one_queue(),
    Scenario::new("slow receive, one queue").paced(200, 0).one_queue(),
    Scenario::new("checksums of 1518 bytes").computed(),
    Scenario::new("checksums of 1518 bytes, one queue")
        .computed()
        .one_queue(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_have_names_of_their_own() {
        let names: std::collections::HashSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(ALL.len(), names.len());
        assert!(PLAIN.iter().all(|name| names.contains(name)));
    }
}
