//! Assist: workers that receive take whole shards over from workers that have too much to do, and give them back.
//!
//! Where receive and parse are on other workers than the sessions (roles: I/O and inspection), the sessions may be more than their
//! workers can do. Then an I/O worker asks one of them for a shard, and works on it itself: see [`controller`] for when. The shard
//! goes as [`owners`](crate::snapshot::shard_owners) says, but the workers do every step themselves: who asks puts the question where the other
//! looks once a round, and that every worker has seen a change is told by the rounds that each counts here.
//!
//! What the control thread does to all shards at once (a commit) and what it does to one (a move) keep out of the way of this:
//! it [`pause`](Assist::pause)s lending, and no worker takes part in two moves.

pub mod controller;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::packet::io::WorkerIndex;

/// When workers assist, and for how long at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Packets in the ring from an I/O worker to one with sessions, above which the I/O worker takes a shard over.
    pub threshold: u32,
    /// Cycles that an I/O worker spends on its shards before it receives again, by the clock that the worker was given.
    pub slice: u64,
}

/// What all workers share to lend shards.
#[derive(Debug)]
pub struct Assist {
    settings: Settings,
    posts: Box<[Post]>,
    /// How many want that nothing is lent, and how many shards are on their way.
    paused: AtomicU32,
    under_way: AtomicU32,
}

/// One worker's, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Post {
    /// Rounds begun.
    rounds: AtomicU64,
    /// What another worker asks it, and its answer: 0 where nobody asks.
    asked: AtomicU64,
}

/// What an I/O worker asks one with sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssistRequest {
    /// Which way the shard goes.
    pub what: ShardMove,
    /// The shard.
    pub shard: u16,
    /// Who asks.
    pub by: WorkerIndex,
}

/// Which way a shard goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardMove {
    /// To who asks.
    Lend,
    /// Back from who asks.
    TakeBack,
}

const YES: u64 = 3;
const NO: u64 = 4;

impl AssistRequest {
    fn pack(self) -> u64 {
        let what = match self.what {
            ShardMove::Lend => 1,
            ShardMove::TakeBack => 2,
        };
        what | u64::from(self.shard) << 16 | u64::from(self.by) << 32
    }

    fn unpack(word: u64) -> Option<Self> {
        let what = match word & 0xff {
            1 => ShardMove::Lend,
            2 => ShardMove::TakeBack,
            _ => return None,
        };
        Some(Self {
            what,
            shard: (word >> 16) as u16,
            by: (word >> 32) as WorkerIndex,
        })
    }
}

impl Assist {
    /// For so many workers.
    pub fn new(workers: usize, settings: Settings) -> Self {
        Self {
            settings,
            posts: (0..workers).map(|_| Post::default()).collect(),
            paused: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
        }
    }

    /// When, and for how long.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// From now on no shard sets out, until [`resume`](Self::resume). Those that are on their way still arrive: see
    /// [`is_quiet`](Self::is_quiet).
    pub fn pause(&self) {
        self.paused.fetch_add(1, Ordering::SeqCst);
    }

    /// As before [`pause`](Self::pause).
    pub fn resume(&self) {
        self.paused.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether no shard is on its way.
    pub fn is_quiet(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    /// A shard sets out. False where none may.
    pub(crate) fn depart(&self) -> bool {
        // Of this and a pause one sees the other: both write first, and then look.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let may = self.paused.load(Ordering::SeqCst) == 0;
        if !may {
            self.arrive();
        }
        may
    }

    /// A shard has arrived, or stays after all.
    pub(crate) fn arrive(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// A worker begins a round: all that it has given to others lies in their rings, and what it does from now on it does by
    /// what others had said before they looked at its rounds.
    #[inline(always)]
    pub(crate) fn begin_round(&self, own: WorkerIndex) {
        if let Some(post) = self.posts.get(usize::from(own)) {
            let rounds = post.rounds.load(Ordering::Relaxed);
            post.rounds.store(rounds.wrapping_add(1), Ordering::Release);
            // The owners of shards are read behind this: see `look`.
            fence(Ordering::SeqCst);
        }
    }

    /// Look which round each worker is in, after something was said that all shall see.
    pub(crate) fn observe_rounds(&self, rounds: &mut [u64]) {
        // Either a round that begins is seen here, or it sees what was said.
        fence(Ordering::SeqCst);
        for (post, rounds) in self.posts.iter().zip(rounds) {
            *rounds = post.rounds.load(Ordering::Acquire);
        }
    }

    /// Whether every other worker has ended the round that it was in.
    pub(crate) fn have_ended(&self, own: WorkerIndex, rounds: &[u64]) -> bool {
        let mut all = self.posts.iter().zip(rounds).enumerate();
        all.all(|(worker, (post, then))| worker == usize::from(own) || post.rounds.load(Ordering::Acquire) != *then)
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.posts.len()
    }

    /// Ask a worker. False where another question is there.
    pub(crate) fn request(&self, whom: WorkerIndex, ask: AssistRequest) -> bool {
        let asked = self.posts.get(usize::from(whom)).map(|post| &post.asked);
        asked.is_some_and(|asked| {
            let put = asked.compare_exchange(0, ask.pack(), Ordering::AcqRel, Ordering::Relaxed);
            put.is_ok()
        })
    }

    /// What a worker is asked.
    #[inline(always)]
    pub(crate) fn requested(&self, own: WorkerIndex) -> Option<AssistRequest> {
        AssistRequest::unpack(self.posts.get(usize::from(own))?.asked.load(Ordering::Acquire))
    }

    /// A worker answers what it is asked.
    pub(crate) fn answer(&self, own: WorkerIndex, yes: bool) {
        if let Some(post) = self.posts.get(usize::from(own)) {
            post.asked.store(if yes { YES } else { NO }, Ordering::Release);
        }
    }

    /// The answer to what was asked, once it is there: it is taken away, and others may ask.
    pub(crate) fn answered(&self, whom: WorkerIndex) -> Option<bool> {
        let asked = &self.posts.get(usize::from(whom))?.asked;
        let yes = match asked.load(Ordering::Acquire) {
            YES => true,
            NO => false,
            _ => return None,
        };
        asked.store(0, Ordering::Release);
        Some(yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assist() -> Assist {
        let settings = Settings { threshold: 1, slice: 1 };
        Assist::new(3, settings)
    }

    #[test]
    fn question_waits_for_its_answer_and_keeps_others_out() {
        let assist = assist();
        let ask = AssistRequest {
            what: ShardMove::TakeBack,
            shard: 1023,
            by: 2,
        };
        assert!(assist.request(1, ask));
        assert!(!assist.request(1, AssistRequest { by: 0, ..ask }));
        assert_eq!(None, assist.answered(1));
        assert_eq!((Some(ask), None), (assist.requested(1), assist.requested(0)));
        assist.answer(1, true);
        assert_eq!(None, assist.requested(1));
        assert!(!assist.request(1, ask));
        assert_eq!(Some(true), assist.answered(1));
        assert!(assist.request(
            1,
            AssistRequest {
                what: ShardMove::Lend,
                ..ask
            }
        ));
        assert!(!assist.request(3, ask), "there is no such worker");
    }

    #[test]
    fn rounds_have_ended_once_every_other_worker_has_begun_another() {
        let assist = assist();
        let mut rounds = [0; 3];
        assist.begin_round(0);
        assist.observe_rounds(&mut rounds);
        assert_eq!([1, 0, 0], rounds);
        assist.begin_round(1);
        assert!(!assist.have_ended(2, &rounds));
        assist.begin_round(0);
        assert!(assist.have_ended(2, &rounds));
        assert!(!assist.have_ended(1, &rounds));
    }

    #[test]
    fn nothing_sets_out_during_a_pause_and_what_has_set_out_arrives() {
        let assist = assist();
        assert!(assist.depart());
        assist.pause();
        assist.pause();
        assert!(!assist.depart() && !assist.is_quiet());
        assist.arrive();
        assert!(assist.is_quiet());
        assist.resume();
        assert!(!assist.depart());
        assist.resume();
        assert!(assist.depart());
    }
}
