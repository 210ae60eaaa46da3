//! State of a routing daemon's initial replay: whether the feed still waits for routes that the daemon has not sent
//! again.

use std::time::Duration;

/// State of a routing daemon. Times are relative to a start that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The daemon is sending all of its routes. `before` is the number of stale routes when the daemon connected.
    Replaying {
        since: Duration,
        last_received: Duration,
        before: usize,
    },
    /// The daemon has sent all routes.
    Settled,
    /// The daemon has disconnected.
    Disconnected { since: Duration },
    /// The daemon has never connected, or its routes have been removed.
    Absent,
}

/// Tracks a daemon's connection and replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Time for which stale routes are kept.
    grace: Duration,
    /// Time without data after which a replay counts as complete.
    quiet: Duration,
    state: State,
}

/// If the daemon stops sending data, its replay counts as complete only if at most this fraction (one in `SHARE`) of
/// its earlier routes is still stale. A restarted daemon also sends no data while it waits for its own BGP peers.
const SHARE: usize = 10;

impl Replay {
    /// Initial state, without a daemon.
    pub fn new(grace: Duration, quiet: Duration) -> Self {
        Self {
            grace,
            quiet,
            state: State::Absent,
        }
    }

    /// The daemon has connected. `stale` is the number of the daemon's stale routes.
    pub fn begin(&mut self, now: Duration, stale: usize) {
        self.state = State::Replaying {
            since: now,
            last_received: now,
            before: stale,
        };
    }

    /// The daemon has sent data.
    pub fn receive(&mut self, now: Duration) {
        if let State::Replaying { last_received, .. } = &mut self.state {
            *last_received = now;
        }
    }

    /// The daemon has signalled that its replay is complete.
    pub fn settle(&mut self) {
        self.state = State::Settled;
    }

    /// The daemon has disconnected.
    pub fn lose(&mut self, now: Duration) {
        self.state = State::Disconnected { since: now };
    }

    /// Time of the next check whether stale routes must be removed.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Replaying {
                since, last_received, ..
            } => {
                let (grace, quiet) = (since + self.grace, last_received + self.quiet);
                Some(if last_received + self.quiet < since + self.grace {
                    quiet
                } else {
                    grace
                })
            }
            State::Disconnected { since } => Some(since + self.grace),
            State::Settled | State::Absent => None,
        }
    }

    /// Latest time at which stale routes are removed.
    pub fn end(&self) -> Option<Duration> {
        match self.state {
            State::Replaying { since, .. } | State::Disconnected { since } => Some(since + self.grace),
            State::Settled | State::Absent => None,
        }
    }

    /// Whether the stale routes must be removed now. `stale` is the number of stale routes. This function must be
    /// called again after each deadline.
    pub fn is_over(&mut self, now: Duration, stale: usize) -> bool {
        let (over, next) = match self.state {
            State::Replaying {
                since,
                last_received,
                before,
            } => {
                let complete = stale <= before / SHARE && now >= last_received + self.quiet;
                (complete || now >= since + self.grace, State::Settled)
            }
            State::Disconnected { since } => (now >= since + self.grace, State::Absent),
            State::Settled | State::Absent => (false, self.state),
        };
        if over {
            self.state = next;
        } else if let State::Replaying {
            since, last_received, ..
        } = &mut self.state
            && now >= *last_received + self.quiet
        {
            // The daemon sends no data, but too many routes are stale. If no more data arrives, the stale routes are
            // removed at the end of the grace period.
            *last_received = (*since + self.grace).max(now);
        }
        over
    }

    /// Name of the state.
    pub fn word(&self) -> &'static str {
        match self.state {
            State::Replaying { .. } => "replaying",
            State::Settled => "settled",
            State::Disconnected { .. } => "gone",
            State::Absent => "absent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn replay() -> Replay {
        Replay::new(at(120), at(5))
    }

    #[test]
    fn silence_ends_a_replay_that_brought_back_nearly_all() {
        let mut replay = replay();
        replay.begin(at(100), 1_000);
        replay.receive(at(103));
        assert_eq!((Some(at(108)), Some(at(220))), (replay.deadline(), replay.end()));
        assert!(!replay.is_over(at(107), 100));
        assert!(replay.is_over(at(108), 100));
        assert_eq!((None, "settled"), (replay.deadline(), replay.word()));
        assert!(!replay.is_over(at(500), 0));
    }

    #[test]
    fn silence_of_a_daemon_that_waits_for_its_peers_ends_nothing_until_the_grace_period_is_over() {
        let mut replay = replay();
        replay.begin(at(100), 1_000);
        assert!(!replay.is_over(at(105), 900));
        assert_eq!(Some(at(220)), replay.deadline());
        // The BGP peers of the routing daemon connect.
        replay.receive(at(150));
        assert_eq!(Some(at(155)), replay.deadline());
        assert!(!replay.is_over(at(155), 101));
        assert!(!replay.is_over(at(219), 101));
        assert!(replay.is_over(at(220), 101));
    }

    #[test]
    fn first_visit_ends_by_silence() {
        let mut replay = replay();
        assert_eq!((None, "absent"), (replay.deadline(), replay.word()));
        replay.begin(at(1), 0);
        assert!(replay.is_over(at(6), 0));
    }

    #[test]
    fn daemon_that_is_gone_keeps_its_routes_for_the_grace_period_and_one_that_comes_back_longer() {
        let mut replay = replay();
        replay.begin(at(0), 0);
        replay.lose(at(10));
        assert_eq!((Some(at(130)), Some(at(130))), (replay.deadline(), replay.end()));
        assert!(!replay.is_over(at(129), 50));
        replay.begin(at(129), 50);
        assert!(!replay.is_over(at(130), 50));
        replay.lose(at(131));
        assert!(!replay.is_over(at(250), 50));
        assert!(replay.is_over(at(251), 50));
        assert_eq!("absent", replay.word());
    }
}
