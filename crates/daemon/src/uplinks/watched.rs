//! State of one uplink, and its update by the results of checks.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use sluice_config::config::Uplink;

/// Why an uplink is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The link of the uplink's interface is down.
    Link,
    /// No host replies.
    NoAnswer,
    /// No routing daemon has the required route.
    NoRoute,
    /// The uplink was down, and too few checks have succeeded since then.
    Recovering,
}

impl Cause {
    /// Name of the cause.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Link => "link-down",
            Cause::NoAnswer => "no-answer",
            Cause::NoRoute => "no-route",
            Cause::Recovering => "recovering",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Link => "the interface of the uplink has no link",
            Cause::NoAnswer => "no host answers through the uplink",
            Cause::NoRoute => "no routing daemon has the checked route through the uplink",
            Cause::Recovering => "too few checks have succeeded since the uplink was down",
        })
    }
}

/// A host that is probed.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address of the host.
    pub address: IpAddr,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered in time.
    pub answered: u64,
    /// Round-trip time of the last probe.
    pub round_trip: Option<Duration>,
    /// Whether the request of the current check has not been sent yet.
    pub is_due: bool,
}

/// A monitored uplink. Times are relative to the start of the engine's clock.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Configuration of the uplink.
    pub uplink: Uplink,
    /// Why the uplink is down. `None` if the uplink is up.
    pub down: Option<Cause>,
    /// Time of the last change between up and down.
    pub since: Duration,
    /// Number of changes between up and down.
    pub changes: u64,
    /// Number of consecutive checks whose result contradicts the current state.
    pub contrary: u8,
    /// Hosts that are probed.
    pub targets: Vec<Target>,
    /// Start of the current check. `None` if no check is in progress.
    started_at: Option<Duration>,
    /// Start of the next check.
    next: Duration,
}

impl Watched {
    /// Creates an uplink, which counts as up until checks have failed.
    pub fn new(uplink: Uplink, now: Duration) -> Self {
        let targets = uplink.health.iter().flat_map(|health| &health.ping);
        let targets = targets.map(|&address| Target {
            address,
            sent: 0,
            answered: 0,
            round_trip: None,
            is_due: false,
        });
        Self {
            targets: targets.collect(),
            uplink,
            down: None,
            since: now,
            changes: 0,
            contrary: 0,
            started_at: None,
            next: now,
        }
    }

    /// Apply a changed configuration. The uplink keeps its state. If the configuration of the checks has changed, the
    /// checks start again.
    pub fn renewed(&self, uplink: Uplink, now: Duration) -> Self {
        let checked = match self.uplink.health == uplink.health {
            true => self.clone(),
            false => Self::new(uplink.clone(), now),
        };
        Self {
            uplink,
            down: self.down,
            since: self.since,
            changes: self.changes,
            started_at: None,
            next: now,
            ..checked
        }
    }

    /// Whether routes may use the uplink.
    pub fn is_up(&self) -> bool {
        self.down.is_none()
    }

    /// Start a check if it is due. Returns whether hosts must be probed.
    pub fn start(&mut self, now: Duration) -> bool {
        let Some(health) = &self.uplink.health else {
            return false;
        };
        if self.started_at.is_some() || now < self.next {
            return false;
        }
        self.started_at = Some(now);
        self.next = (self.next + health.interval.duration()).max(now);
        self.targets.iter_mut().for_each(|target| target.is_due = true);
        !self.targets.is_empty()
    }

    /// End the current check once all hosts have replied or the timeout has expired. `None` if the check continues.
    /// `answer` returns the round-trip time of a host's reply.
    fn end(&mut self, now: Duration, answer: impl Fn(usize) -> Option<Duration>) -> Option<bool> {
        let (started_at, health) = (self.started_at?, self.uplink.health.as_ref()?);
        let timeout = health.timeout.duration();
        let answers: Vec<_> = (0..self.targets.len())
            .map(|place| answer(place).filter(|&took| took <= timeout))
            .collect();
        let (any, all) = (answers.iter().any(Option::is_some), answers.iter().all(Option::is_some));
        // Wait for all hosts until the timeout expires, so that each reply is counted.
        let is_over = all || now >= started_at + timeout;
        if !is_over {
            return None;
        }
        self.started_at = None;
        for (target, answer) in self.targets.iter_mut().zip(answers) {
            target.is_due = false;
            target.answered += u64::from(answer.is_some());
            target.round_trip = answer.or(target.round_trip);
        }
        Some(any || self.targets.is_empty())
    }

    /// Update the state from the link state, the required route and the hosts' replies. Returns whether the uplink went
    /// up or down.
    pub fn judge(
        &mut self,
        now: Duration,
        has_link: bool,
        has_route: bool,
        answer: impl Fn(usize) -> Option<Duration>,
    ) -> bool {
        let ended = self.end(now, answer);
        if !has_link {
            return self.set(Some(Cause::Link), now);
        }
        let Some(health) = self.uplink.health.as_ref() else {
            return self.set(None, now);
        };
        // The loss of a route takes effect without damping, since the routing daemon has already verified the loss.
        if !has_route {
            return self.set(Some(Cause::NoRoute), now);
        }
        if matches!(self.down, Some(Cause::Link | Cause::NoRoute)) {
            self.down = Some(Cause::Recovering);
            self.contrary = 0;
        }
        let Some(succeeded) = ended else { return false };
        if succeeded == self.is_up() {
            self.contrary = 0;
            if let (false, Some(down)) = (succeeded, &mut self.down) {
                *down = Cause::NoAnswer;
            }
            return false;
        }
        self.contrary = self.contrary.saturating_add(1);
        match succeeded {
            true if self.contrary >= health.successes => self.set(None, now),
            false if self.contrary >= health.failures => self.set(Some(Cause::NoAnswer), now),
            _ => false,
        }
    }

    fn set(&mut self, down: Option<Cause>, now: Duration) -> bool {
        let has_changed = self.is_up() != down.is_none();
        self.down = down;
        if has_changed {
            self.since = now;
            self.changes += 1;
            self.contrary = 0;
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_config::schema::UplinkHealth;
    use sluice_config::value::Period;

    fn watched(failures: u8, successes: u8) -> Watched {
        let health = UplinkHealth {
            ping: vec![IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])],
            failures,
            successes,
            timeout: Period::milliseconds(500),
            ..UplinkHealth::default()
        };
        Watched::new(
            Uplink {
                name: "fibre".into(),
                interface: 1,
                gateways: vec![IpAddr::from([198, 51, 100, 6])],
                weight: 1,
                health: Some(health),
            },
            Duration::ZERO,
        )
    }

    const SECOND: Duration = Duration::from_secs(1);
    const TOOK: Duration = Duration::from_millis(3);

    /// Run a check that starts at `second` seconds, with the given replies. Returns whether the uplink went up or down.
    fn check(uplink: &mut Watched, second: u32, answers: [bool; 2]) -> bool {
        let now = SECOND * second;
        assert!(uplink.start(now) && uplink.started_at.is_some());
        assert!(!uplink.start(now));
        let answer = |place: usize| answers[place].then_some(TOOK);
        let early = uplink.judge(now + TOOK, true, true, answer);
        let late = uplink.judge(now + SECOND / 2, true, true, answer);
        assert!(uplink.started_at.is_none());
        early || late
    }

    #[test]
    fn uplink_is_down_after_so_many_failures_and_up_after_so_many_successes() {
        let mut uplink = watched(3, 2);
        let none = [false; 2];
        let rounds = [
            (none, false, true),
            (none, false, true),
            // The reply of a single host is sufficient.
            ([false, true], false, true),
            (none, false, true),
            (none, false, true),
            (none, true, false),
            ([true, true], false, false),
            (none, false, false),
            ([true, false], false, false),
            ([true, true], true, true),
        ];
        for (second, (answers, has_changed, is_up)) in (0..).zip(rounds) {
            assert_eq!(has_changed, check(&mut uplink, second, answers), "{second}");
            assert_eq!(is_up, uplink.is_up(), "{second}");
        }
        assert_eq!((2, Some(TOOK)), (uplink.changes, uplink.targets[0].round_trip));
        assert_eq!([3, 3], [uplink.targets[0].answered, uplink.targets[1].answered]);
    }

    #[test]
    fn lost_link_and_withdrawn_route_count_at_once_and_checks_bring_it_back() {
        let nothing = |_| None;
        for (has_link, has_route, cause) in [(false, true, Cause::Link), (true, false, Cause::NoRoute)] {
            let mut uplink = watched(3, 2);
            assert!(uplink.judge(SECOND, has_link, has_route, nothing));
            assert_eq!(Some(cause), uplink.down);
            assert!(!uplink.judge(SECOND, has_link, has_route, nothing));
            assert!(!uplink.judge(SECOND, true, true, nothing));
            assert_eq!(Some(Cause::Recovering), uplink.down);
            assert!(!check(&mut uplink, 2, [true, false]));
            assert!(check(&mut uplink, 3, [true, false]));
            assert!(uplink.is_up());
        }
    }

    #[test]
    fn uplink_stays_down_when_its_checks_are_configured_otherwise() {
        let mut uplink = watched(1, 2);
        assert!(check(&mut uplink, 1, [false; 2]));
        let mut other = uplink.uplink.clone();
        other.health = Some(UplinkHealth {
            ping: vec![IpAddr::from([192, 0, 2, 9])],
            ..watched(1, 1).uplink.health.unwrap()
        });
        let mut uplink = uplink.renewed(other, SECOND);
        assert_eq!(
            (false, 1, 0),
            (uplink.is_up(), uplink.targets.len(), uplink.targets[0].answered)
        );
        assert!(uplink.start(SECOND * 2));
        assert!(uplink.judge(SECOND * 2, true, true, |_| Some(TOOK)) && uplink.is_up());
    }

    #[test]
    fn uplink_without_checks_follows_its_link() {
        let mut uplink = watched(1, 1);
        uplink.uplink.health = None;
        let nothing = |_| None;
        assert!(!uplink.start(SECOND));
        assert!(uplink.judge(SECOND, false, true, nothing) && !uplink.is_up());
        assert!(uplink.judge(SECOND, true, true, nothing) && uplink.is_up());
    }

    proptest! {
        /// Results that alternate too fast for the damping do not change the state.
        #[test]
        fn state_changes_only_after_as_many_like_checks_in_a_row(
            results in prop::collection::vec(any::<bool>(), 1..200),
            failures in 1_u8..6,
            successes in 1_u8..6,
        ) {
            let mut uplink = watched(failures, successes);
            let (mut is_up, mut row) = (true, 0);
            for (second, &result) in (0..).zip(&results) {
                check(&mut uplink, second, [result, false]);
                row = if result == is_up { 0 } else { row + 1 };
                if row == if is_up { failures } else { successes } {
                    (is_up, row) = (!is_up, 0);
                }
                prop_assert_eq!(is_up, uplink.is_up());
            }
        }
    }
}
