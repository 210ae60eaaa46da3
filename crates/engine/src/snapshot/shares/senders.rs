//! Whether a router has a queue to itself, though others could send into it.

use sluice_route::RouterIndex;

/// Nanoseconds after which who has sent nothing counts as gone: longer than hellos of routing protocols are apart.
const SILENCE: u64 = 15_000_000_000;

/// Who has sent into a queue lately, as far as was looked.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentSenders {
    last: Option<RouterIndex>,
    /// Until then somebody else counts as there.
    until: u64,
}

impl RecentSenders {
    /// A burst has these routers' packets. Returns whether one router is all that there was lately.
    pub fn observe(&mut self, routers: impl Iterator<Item = RouterIndex>, now: u64) -> bool {
        for router in routers {
            if self.last.is_some_and(|last| last != router) {
                self.until = now.saturating_add(SILENCE);
            }
            self.last = Some(router);
        }
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn company_one_router_is_alone_until_another_comes_and_again_after_its_silence() {
        let mut company = RecentSenders::default();
        let mut see = |routers: &[RouterIndex], now| company.observe(routers.iter().copied(), now);
        assert_eq!([true; 3], [see(&[], 0), see(&[3], 1), see(&[3], 2 * SILENCE)]);
        let now = 3 * SILENCE;
        assert_eq!(
            [false; 3],
            [see(&[3, 4], now), see(&[4], now + 1), see(&[4], now + SILENCE - 1)]
        );
        assert_eq!([true, false], [see(&[4], now + SILENCE), see(&[3], now + SILENCE)]);
    }
}
