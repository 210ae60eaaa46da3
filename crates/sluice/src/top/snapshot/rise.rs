//! Increase of a worker's counters between two polls.

use sluice_daemon::config::api::Core;

use super::{
    ASSIST_WAITING, ASSISTED, ASSISTS_ENDED, ASSISTS_STARTED, HANDED_OVER, HANDOVER_FULL, SHARDS_ASSISTED, SHED,
    SLICES_ENDED, STAGES, Spent, TAKEN_OVER, WAITING, counter, difference,
};

/// Increases of the counters of one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Rise {
    pub(super) packets: u64,
    pub(super) spent: Spent,
    pub(super) waiting: u64,
    pub(super) handed_over: u64,
    pub(super) taken_over: u64,
    pub(super) shed: u64,
    pub(super) assist: AssistRise,
}

/// Number of shards that are currently taken over, and the increases of the other counters for assisting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AssistRise {
    pub(super) lent: u64,
    pub(super) waiting: u64,
    pub(super) packets: u64,
    pub(super) slices_ended: u64,
    pub(super) begun: u64,
    pub(super) ended: u64,
}

impl Rise {
    pub(super) fn of(before: &Core, now: &Core) -> Self {
        let rise = |name: &str| difference(counter(before, name), counter(now, name));
        Self {
            packets: difference(before.packets, now.packets),
            spent: STAGES.map(|stage| rise(&format!("cycles-{stage}"))),
            waiting: counter(now, WAITING),
            handed_over: rise(HANDED_OVER),
            taken_over: rise(TAKEN_OVER),
            shed: rise(SHED) + rise(HANDOVER_FULL),
            assist: AssistRise {
                lent: counter(now, SHARDS_ASSISTED),
                waiting: counter(now, ASSIST_WAITING),
                packets: rise(ASSISTED),
                slices_ended: rise(SLICES_ENDED),
                begun: counter(now, ASSISTS_STARTED),
                ended: counter(now, ASSISTS_ENDED),
            },
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            spent: std::array::from_fn(|stage| self.spent[stage] + other.spent[stage]),
            waiting: self.waiting + other.waiting,
            handed_over: self.handed_over + other.handed_over,
            taken_over: self.taken_over + other.taken_over,
            shed: self.shed + other.shed,
            assist: AssistRise {
                lent: self.assist.lent + other.assist.lent,
                waiting: self.assist.waiting + other.assist.waiting,
                packets: self.assist.packets + other.assist.packets,
                slices_ended: self.assist.slices_ended + other.assist.slices_ended,
                begun: self.assist.begun + other.assist.begun,
                ended: self.assist.ended + other.assist.ended,
            },
        }
    }
}
