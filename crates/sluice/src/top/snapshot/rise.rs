//! Increase of a worker's counters between two polls.

use sluice_daemon::config::api::Core;
use sluice_daemon::counters::WorkerCounters;

use super::{STAGES, Spent, counter, difference};

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

/// Number of shards that are currently taken over, and the increases of the other assist counters.
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
        let names = WorkerCounters::NAMES;
        Self {
            packets: difference(before.packets, now.packets),
            spent: STAGES.map(|stage| rise(&format!("{}-{}", names.cycles, stage.name()))),
            waiting: counter(now, names.waiting),
            handed_over: rise(names.all_handed_off),
            taken_over: rise(names.taken_over),
            shed: rise(names.shed) + rise(names.handover_full),
            assist: AssistRise {
                lent: counter(now, names.shards_assisted),
                waiting: counter(now, names.assist_waiting),
                packets: rise(names.assisted),
                slices_ended: rise(names.slices_ended),
                begun: counter(now, names.assists_begun),
                ended: counter(now, names.assists_ended),
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
