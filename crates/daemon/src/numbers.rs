//! Quarantine for the numbers of removed interfaces and virtual routers. Packets in flight and sessions may still
//! contain such a number. A number is therefore reused only after a delay, and only if no other number is free.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sluice_config::{Number, Numbering, Numbers};

/// Minimum time in quarantine.
const REST: Duration = Duration::from_secs(60);

/// Number of free numbers that are kept in reserve.
const RESERVE: usize = 16;

/// Quarantined numbers, with the start of their quarantine.
#[derive(Debug, Default)]
pub struct Resting {
    interfaces: HashMap<usize, Instant>,
    routers: HashMap<usize, Instant>,
}

impl Resting {
    /// Numbers that a new configuration must keep, and quarantined numbers that it must not assign. `room` is the
    /// maximum number of interfaces and of routers.
    pub fn numbering(&self, running: &Numbering, room: [usize; 2], now: Instant) -> Numbering {
        let mut numbering = running.clone();
        release(&mut numbering.interfaces, &self.interfaces, room[0], now);
        release(&mut numbering.routers, &self.routers, room[1], now);
        // All workers have processed the removal of the port, so its number is not referenced any more.
        let ports = numbering.ports.0.iter_mut();
        ports
            .filter(|port| **port == Number::Rests)
            .for_each(|port| *port = Number::Free);
        numbering
    }

    /// Update the quarantine for a new running numbering.
    pub fn follow(&mut self, running: &Numbering, now: Instant) {
        follow(&mut self.interfaces, &running.interfaces, now);
        follow(&mut self.routers, &running.routers, now);
    }
}

fn release(numbers: &mut Numbers, resting: &HashMap<usize, Instant>, room: usize, now: Instant) {
    if numbers.0.len() + RESERVE <= room {
        return;
    }
    for (number, whose) in numbers.0.iter_mut().enumerate() {
        let since = resting.get(&number);
        if *whose == Number::Rests && since.is_some_and(|since| now.duration_since(*since) >= REST) {
            *whose = Number::Free;
        }
    }
}

fn follow(resting: &mut HashMap<usize, Instant>, numbers: &Numbers, now: Instant) {
    let rests = |number: &usize| numbers.0.get(*number) == Some(&Number::Rests);
    resting.retain(|number, _| rests(number));
    for number in (0..numbers.0.len()).filter(rests) {
        resting.entry(number).or_insert(now);
    }
}

/// Names that the old numbering has and the new numbering lacks, with their numbers.
pub fn gone<'n>(old: &'n Numbers, new: &Numbers) -> Vec<(usize, &'n str)> {
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
        assert_eq!(vec![(1, "b")], gone(&first.interfaces, &second.interfaces));
        let mut resting = Resting::default();
        resting.follow(&second, now);
        let of_new = |room, after| {
            let numbering = resting.numbering(&second, [room, room], now + after);
            numbering.interfaces.with(["a", "c"].into_iter()).of("c")
        };
        assert_eq!(Some(2), of_new(2, REST / 2));
        assert_eq!(Some(1), of_new(2, REST));
        assert_eq!(Some(2), of_new(100, REST));
    }
}
