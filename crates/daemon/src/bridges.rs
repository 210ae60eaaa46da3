//! Link state propagation of bridges. Like a cable, a bridge takes the link of one side down or up when the link of the
//! other side goes down or up. The link of a side on a VLAN is only monitored, since the device carries other traffic
//! as well.

use std::time::{Duration, Instant};

use sluice_config::config::InterfaceIndex;
use sluice_engine::packet::io::NO_PORT;

use crate::control::Control;

/// Interval between checks of the link states.
const PERIOD: Duration = Duration::from_millis(100);

/// Time for a released link to come up, including the card's auto-negotiation.
const GRACE: Duration = Duration::from_secs(5);

/// State of the link propagation of one bridge.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Sides whose link is held down.
    held: [bool; 2],
    /// Whether a change of a link state has failed because the device can't change its link. The failure is logged
    /// once, and the change is not retried.
    unable: bool,
    /// Deadline by which the link of a released side must be up.
    grace: [Option<Instant>; 2],
}

/// Action on the link of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Take the link down.
    Hold(usize),
    /// Bring the link up.
    Release(usize),
}

impl Pair {
    /// Determine the next action. `up` states which links are up, and `may_follow` states which links may be changed.
    fn step(&mut self, up: [bool; 2], may_follow: [bool; 2], now: Instant) -> Option<Act> {
        if self.unable {
            return None;
        }
        for side in [0, 1] {
            if up[side] || self.grace[side].is_some_and(|until| now >= until) {
                self.grace[side] = None;
            }
        }
        for (side, other) in [(0, 1), (1, 0)] {
            let is_down = !up[other] && !self.held[other] && self.grace[other].is_none();
            if self.held[side] && up[other] {
                self.held[side] = false;
                self.grace[side] = Some(now + GRACE);
                return Some(Act::Release(side));
            }
            if is_down && up[side] && may_follow[side] {
                self.held[side] = true;
                return Some(Act::Hold(side));
            }
        }
        None
    }
}

impl Control {
    /// Interface pairs of all bridges with link propagation.
    fn followers(&self) -> Vec<[InterfaceIndex; 2]> {
        let config = self.config();
        let interfaces = (0..).zip(&config.interfaces);
        let pair = |(index, interface): (InterfaceIndex, &sluice_config::config::Interface)| {
            let bridge = interface.bridge.as_ref()?;
            (index < bridge.peer && bridge.settings.follow_link).then_some([index, bridge.peer])
        };
        interfaces.filter_map(pair).collect()
    }

    /// Propagate the links of bridges; runs for the life of the process.
    pub(crate) async fn follow_links(&self) {
        let mut pairs: std::collections::BTreeMap<[InterfaceIndex; 2], Pair> = Default::default();
        loop {
            let wanted = self.followers();
            // The bridge no longer propagates links, so the links that are held down are released.
            pairs.retain(|sides, pair| {
                let stays = wanted.contains(sides);
                for side in [0, 1] {
                    if !stays && pair.held[side] {
                        self.set_link(sides[side], true);
                    }
                }
                stays
            });
            for sides in wanted {
                let pair = pairs.entry(sides).or_default();
                let up = sides.map(|interface| self.has_link(interface));
                let may_follow = sides.map(|interface| self.has_device(interface));
                let (side, wanted) = match pair.step(up, may_follow, Instant::now()) {
                    Some(Act::Hold(side)) => (side, false),
                    Some(Act::Release(side)) => (side, true),
                    None => continue,
                };
                pair.unable = !self.set_link(sides[side], wanted);
                pair.held[side] &= !pair.unable;
            }
            *self.held_links() = pairs
                .iter()
                .flat_map(|(sides, pair)| {
                    [0, 1]
                        .into_iter()
                        .filter(|&side| pair.held[side])
                        .map(|side| sides[side])
                })
                .collect();
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Release all links that are held down; called when the process ends.
    pub(crate) fn release_links(&self) {
        let held = std::mem::take(&mut *self.held_links());
        for interface in held {
            self.set_link(interface, true);
        }
    }

    /// Whether the link of an interface is up. A virtual interface is always up.
    pub(crate) fn has_link(&self, interface: InterfaceIndex) -> bool {
        let port = self
            .plane()
            .snapshot()
            .interface(interface)
            .map(|interface| interface.port);
        port.is_some_and(|port| port == NO_PORT || self.link_is_up(usize::from(port)))
    }

    /// Whether an interface is the only one on its device.
    fn has_device(&self, interface: InterfaceIndex) -> bool {
        let plane = self.plane();
        plane
            .snapshot()
            .interface(interface)
            .is_some_and(|interface| interface.tags.is_empty())
    }

    /// Take the link of an interface up or down. Returns `false` if the device can't change its link.
    fn set_link(&self, interface: InterfaceIndex, up: bool) -> bool {
        let plane = self.plane();
        let Some(interface) = plane.snapshot().interface(interface) else {
            return false;
        };
        let state = if up { "up" } else { "down" };
        match self.set_port_link(usize::from(interface.port), up) {
            Ok(()) => {
                tracing::info!(
                    "{}: the link is set {state}, as the link of the other bridge interface",
                    interface.name
                );
                true
            }
            Err(error) => {
                tracing::warn!("{}: the link can't be set {state}: {error}", interface.name);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [bool; 2] = [true; 2];

    #[test]
    fn other_side_follows_down_and_up_once() {
        let (mut pair, now) = (Pair::default(), Instant::now());
        assert_eq!(None, pair.step([true, true], BOTH, now));
        assert_eq!(Some(Act::Hold(1)), pair.step([false, true], BOTH, now));
        // The second side has no link, because its link is held down. The missing link must not take down the link of
        // the first side.
        assert_eq!(None, pair.step([false, false], BOTH, now));
        assert_eq!(Some(Act::Release(1)), pair.step([true, false], BOTH, now));
        // The released link takes some time to come up.
        assert_eq!(None, pair.step([true, false], BOTH, now + GRACE / 2));
        assert_eq!(None, pair.step([true, true], BOTH, now + GRACE / 2));
        assert_eq!(Some(Act::Hold(0)), pair.step([true, false], BOTH, now + GRACE / 2));
    }

    #[test]
    fn side_that_does_not_come_up_in_time_takes_the_other_down() {
        let (mut pair, now) = (Pair::default(), Instant::now());
        assert_eq!(Some(Act::Hold(1)), pair.step([false, true], BOTH, now));
        assert_eq!(Some(Act::Release(1)), pair.step([true, false], BOTH, now));
        assert_eq!(Some(Act::Hold(0)), pair.step([true, false], BOTH, now + GRACE));
        assert_eq!(None, pair.step([false, false], BOTH, now + GRACE));
        assert_eq!(Some(Act::Release(0)), pair.step([false, true], BOTH, now + 2 * GRACE));
    }

    #[test]
    fn two_sides_that_are_down_are_left_alone() {
        let (mut pair, now) = (Pair::default(), Instant::now());
        assert_eq!(None, pair.step([false, false], BOTH, now));
        assert_eq!(Some(Act::Hold(0)), pair.step([true, false], BOTH, now));
        assert_eq!(Some(Act::Release(0)), pair.step([false, true], BOTH, now));
    }

    #[test]
    fn side_that_is_a_vlan_is_followed_and_follows_not() {
        let (mut pair, now, port) = (Pair::default(), Instant::now(), [true, false]);
        assert_eq!(None, pair.step([false, true], port, now));
        assert_eq!(None, pair.step([true, true], port, now));
        assert_eq!(Some(Act::Hold(0)), pair.step([true, false], port, now));
        assert_eq!(None, pair.step([false, false], port, now));
        assert_eq!(Some(Act::Release(0)), pair.step([false, true], port, now));
    }
}
