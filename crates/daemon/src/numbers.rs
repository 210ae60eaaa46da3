//! Quarantine for the numbers of removed interfaces and virtual routers. Packets in flight and sessions may still
//! contain such a number. A number is therefore reused only after a delay, and only if no other number is free.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sluice_config::{Number, Numbering, Numbers};

/// Minimum time in quarantine.
const QUARANTINE: Duration = Duration::from_secs(60);

/// Number of free numbers that are kept in reserve.
const RESERVE: usize = 16;

/// Quarantined numbers, with the start of their quarantine.
#[derive(Debug, Default)]
pub struct NumberQuarantine {
    interfaces: HashMap<usize, Instant>,
    routers: HashMap<usize, Instant>,
}

impl NumberQuarantine {
    /// Numbers that a new configuration must keep, and quarantined numbers that it must not assign. `capacity` is the
    /// maximum number of interfaces and of routers.
    pub fn numbering(&self, running: &Numbering, capacity: [usize; 2], now: Instant) -> Numbering {
        let mut numbering = running.clone();
        release(&mut numbering.interfaces, &self.interfaces, capacity[0], now);
        release(&mut numbering.routers, &self.routers, capacity[1], now);
        // All workers have processed the removal of the port, so its number is not referenced any more.
        let ports = numbering.ports.0.iter_mut();
        ports
            .filter(|port| **port == Number::Quarantined)
            .for_each(|port| *port = Number::Free);
        numbering
    }

    /// Update the quarantine after the numbering in use has changed.
    pub fn follow(&mut self, running: &Numbering, now: Instant) {
        follow(&mut self.interfaces, &running.interfaces, now);
        follow(&mut self.routers, &running.routers, now);
    }
}

fn release(numbers: &mut Numbers, quarantine: &HashMap<usize, Instant>, capacity: usize, now: Instant) {
    if numbers.0.len() + RESERVE <= capacity {
        return;
    }
    for (number, state) in numbers.0.iter_mut().enumerate() {
        let since = quarantine.get(&number);
        if *state == Number::Quarantined && since.is_some_and(|since| now.duration_since(*since) >= QUARANTINE) {
            *state = Number::Free;
        }
    }
}

fn follow(quarantine: &mut HashMap<usize, Instant>, numbers: &Numbers, now: Instant) {
    let is_quarantined = |number: &usize| numbers.0.get(*number) == Some(&Number::Quarantined);
    quarantine.retain(|number, _| is_quarantined(number));
    for number in (0..numbers.0.len()).filter(is_quarantined) {
        quarantine.entry(number).or_insert(now);
    }
}

/// Names that the old numbering has and the new numbering lacks, with their numbers.
pub fn removed<'n>(old: &'n Numbers, new: &Numbers) -> Vec<(usize, &'n str)> {
    let named = old
        .names()
        .enumerate()
        .filter_map(|(number, name)| Some((number, name?)));
    named.filter(|(_, name)| new.of(name).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(names: &[&str]) -> Numbering {
        Numbering {
            interfaces: Numbers::default().with(names.iter().copied()),
            routers: Numbers::default().with(["default"].into_iter()),
            ports: Numbers::default().with(names.iter().copied()),
        }
    }

    #[test]
    fn number_of_something_gone_rests_and_is_given_again_only_where_room_is_short() {
        let (first, now) = (numbering(&["a", "b"]), Instant::now());
        let second = Numbering {
            interfaces: first.interfaces.with(["a"].into_iter()),
            ..first.clone()
        };
        assert_eq!(vec![(1, "b")], removed(&first.interfaces, &second.interfaces));
        let mut quarantine = NumberQuarantine::default();
        quarantine.follow(&second, now);
        let of_new = |capacity, after| {
            let numbering = quarantine.numbering(&second, [capacity, capacity], now + after);
            numbering.interfaces.with(["a", "c"].into_iter()).of("c")
        };
        assert_eq!(Some(2), of_new(2, QUARANTINE / 2));
        assert_eq!(Some(1), of_new(2, QUARANTINE));
        assert_eq!(Some(2), of_new(100, QUARANTINE));
    }
}
