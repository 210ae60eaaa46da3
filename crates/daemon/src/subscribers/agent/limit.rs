//! Limits the rate of sent messages, and detects servers that do not respond.

use sluice_table::token_bucket::TokenBucket;

use super::Nanoseconds;
use super::event::Servers;

/// A full bucket. The bucket never grants more than `rate` tokens within any second.
pub(super) fn full_bucket(rate: u32, now: Nanoseconds) -> TokenBucket {
    let (rate, burst) = fill_rate(rate);
    TokenBucket::new(rate, burst, now)
}

/// An empty bucket. Replacing a bucket by an empty bucket grants no additional tokens.
pub(super) fn empty_bucket(rate: u32, now: Nanoseconds) -> TokenBucket {
    let (rate, burst) = fill_rate(rate);
    TokenBucket::empty(rate, burst, now)
}

/// Fill rate and capacity of a bucket. The capacity is the number of tokens that `rate` yields in ten milliseconds. The
/// fill rate is `rate` minus the capacity, so that at most `rate` tokens are granted within any second.
fn fill_rate(rate: u32) -> (u64, u64) {
    let rate = u64::from(rate.max(1));
    let burst = (rate / 100).max(1);
    (rate - burst + 1, burst)
}

/// Tracks how the servers respond. If a server is down or rejects all requests, the agent must not flood the server.
#[derive(Debug)]
pub(super) struct Health {
    /// Number of requests since the last reply.
    unanswered: u32,
    /// Time of the first unanswered request.
    since: Nanoseconds,
    /// Number of rejections since the last acknowledgement.
    refused: u32,
    /// Maximum response time of a server.
    response_time: Nanoseconds,
    reported: Servers,
}

impl Health {
    /// Number of unanswered requests after which servers count as not responding.
    const UNANSWERED: u32 = 128;
    /// Number of consecutive rejections after which servers count as rejecting.
    const REFUSED: u32 = 64;

    pub fn new(response_time: Nanoseconds) -> Self {
        Self {
            unanswered: 0,
            since: 0,
            refused: 0,
            response_time,
            reported: Servers::Answering,
        }
    }

    /// Record a DHCPDISCOVER or a request for confirmation.
    pub fn ask(&mut self, now: Nanoseconds) {
        if self.unanswered == 0 {
            self.since = now;
        }
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Record a reply of any type.
    pub fn answer(&mut self) {
        self.unanswered = 0;
    }

    /// Record a DHCPACK.
    pub fn acknowledge(&mut self) {
        (self.unanswered, self.refused) = (0, 0);
    }

    /// Record a DHCPNAK.
    pub fn refuse(&mut self) {
        self.unanswered = 0;
        self.refused = self.refused.saturating_add(1);
    }

    pub fn servers(&self, now: Nanoseconds) -> Servers {
        if self.unanswered >= Self::UNANSWERED && now.saturating_sub(self.since) >= self.response_time {
            Servers::Silent
        } else if self.refused >= Self::REFUSED {
            Servers::Refusing
        } else {
            Servers::Answering
        }
    }

    /// If the behaviour of the servers has changed, returns the new and the former behaviour.
    pub fn change(&mut self, now: Nanoseconds) -> Option<(Servers, Servers)> {
        let (before, servers) = (self.reported, self.servers(now));
        self.reported = servers;
        (before != servers).then_some((before, servers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscribers::agent::SECOND;

    #[test]
    fn bucket_gives_its_rate_and_never_more_within_a_second() {
        for rate in [1, 2, 7, 100, 999, 1_000, 50_000] {
            let mut bucket = full_bucket(rate, 0);
            let mut times = Vec::new();
            let mut now = 0;
            while now < 5 * SECOND {
                while bucket.take(now) {
                    times.push(now);
                }
                now = bucket.next_token(now);
            }
            let within = |start: u64| {
                times
                    .iter()
                    .filter(|time| (start..start + SECOND).contains(time))
                    .count()
            };
            let max = times
                .iter()
                .step_by(rate as usize / 8 + 1)
                .map(|start| within(*start))
                .max();
            assert!(max.expect("some") <= rate as usize, "{max:?} of {rate}");
            assert!(times.len() >= rate as usize * 5 * 98 / 100, "{} of {rate}", times.len());
        }
    }

    #[test]
    fn health_silent_ends_with_the_first_answer() {
        let mut health = Health::new(8 * SECOND);
        (0..Health::UNANSWERED).for_each(|_| health.ask(SECOND));
        assert_eq!(Servers::Answering, health.servers(8 * SECOND));
        assert_eq!(Some((Servers::Answering, Servers::Silent)), health.change(9 * SECOND));
        health.answer();
        assert_eq!(Some((Servers::Silent, Servers::Answering)), health.change(9 * SECOND));
        assert_eq!(None, health.change(10 * SECOND));
    }

    #[test]
    fn health_refusing_ends_with_an_acknowledgement_only() {
        let mut health = Health::new(8 * SECOND);
        (0..Health::REFUSED).for_each(|_| health.refuse());
        health.answer();
        assert_eq!(Servers::Refusing, health.servers(0));
        health.acknowledge();
        assert_eq!(Servers::Answering, health.servers(0));
    }
}
