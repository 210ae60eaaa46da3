//! Assistance: receiving workers borrow whole shards of overloaded session workers, and return them later.
//!
//! In a pipeline, I/O workers receive and parse packets, and session workers process sessions. If a session worker is
//! overloaded, an I/O worker requests a shard from it and processes the shard; see [`controller`] for the conditions.
//! The shard moves as described in [`owners`](crate::snapshot::shard_owners), but the control thread takes no part in
//! the move. The I/O worker writes its request to a memory location that the session worker reads once per round (one
//! iteration of its main loop). Round counters show when every worker has seen a change.
//!
//! The control thread's operations on all shards (a commit) or on one shard (a move) must not overlap with assistance.
//! The control thread therefore [`pause`](Assist::pause)s assistance. A worker is never involved in two moves
//! simultaneously.

pub mod controller;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::packet::io::WorkerIndex;

/// Settings of assistance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// If the ring from an I/O worker to a session worker contains more packets than this number, the I/O worker takes
    /// over a shard.
    pub threshold: u32,
    /// Length of the time slice in which an I/O worker processes borrowed shards before it receives again, in cycles of
    /// the worker's cycle counter.
    pub slice: u64,
}

/// State of assistance that all workers share.
#[derive(Debug)]
pub struct Assist {
    settings: Settings,
    posts: Box<[Post]>,
    /// Number of calls of `pause` that have not been revoked, and number of shards that are moving.
    paused: AtomicU32,
    moving_shards: AtomicU32,
}

/// State of one worker, in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Post {
    /// Number of rounds that the worker has started.
    rounds: AtomicU64,
    /// Request from another worker, until the answer to this request replaces it; 0 if there is neither.
    queried: AtomicU64,
}

/// Request of an I/O worker to a session worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssistRequest {
    /// Direction of the requested move.
    pub direction: ShardMove,
    /// The shard to move.
    pub shard: u16,
    /// The requesting worker.
    pub by: WorkerIndex,
}

/// Direction in which a shard moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardMove {
    /// To the requesting worker.
    ToRequester,
    /// Back from the requesting worker.
    FromRequester,
}

const ACCEPTED: u64 = 3;
const REFUSED: u64 = 4;

impl AssistRequest {
    fn pack(self) -> u64 {
        let direction = match self.direction {
            ShardMove::ToRequester => 1,
            ShardMove::FromRequester => 2,
        };
        direction | u64::from(self.shard) << 16 | u64::from(self.by) << 32
    }

    fn unpack(word: u64) -> Option<Self> {
        let direction = match word & 0xff {
            1 => ShardMove::ToRequester,
            2 => ShardMove::FromRequester,
            _ => return None,
        };
        Some(Self {
            direction,
            shard: (word >> 16) as u16,
            by: (word >> 32) as WorkerIndex,
        })
    }
}

impl Assist {
    /// Creates the state for a number of workers.
    pub fn new(workers: usize, settings: Settings) -> Self {
        Self {
            settings,
            posts: (0..workers).map(|_| Post::default()).collect(),
            paused: AtomicU32::new(0),
            moving_shards: AtomicU32::new(0),
        }
    }

    /// The settings of assistance.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Prevents further moves from starting until [`resume`](Self::resume). Shards that are moving still arrive; see
    /// [`is_quiet`](Self::is_quiet).
    pub fn pause(&self) {
        self.paused.fetch_add(1, Ordering::SeqCst);
    }

    /// Revokes one [`pause`](Self::pause).
    pub fn resume(&self) {
        self.paused.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether no shard is moving now.
    pub fn is_quiet(&self) -> bool {
        self.moving_shards.load(Ordering::SeqCst) == 0
    }

    /// Records that a shard starts to move. Returns `false` if assistance is paused, so that the shard must not move.
    pub(crate) fn depart(&self) -> bool {
        // This call and a concurrent pause both write before they read, so at least one of the two sees the write of the other.
        self.moving_shards.fetch_add(1, Ordering::SeqCst);
        let may = self.paused.load(Ordering::SeqCst) == 0;
        if !may {
            self.arrive();
        }
        may
    }

    /// Records that a shard has arrived, or that its move did not start.
    pub(crate) fn arrive(&self) {
        self.moving_shards.fetch_sub(1, Ordering::SeqCst);
    }

    /// Records that a worker starts a round. Packets that the worker handed off in earlier rounds are already in the
    /// rings. If another worker has published a change and then reads the round counter, a round with a greater number
    /// uses this change.
    #[inline(always)]
    pub(crate) fn start_round(&self, own: WorkerIndex) {
        if let Some(post) = self.posts.get(usize::from(own)) {
            let rounds = post.rounds.load(Ordering::Relaxed);
            post.rounds.store(rounds.wrapping_add(1), Ordering::Release);
            // The owners of shards must be read after this point; see `observe_rounds`.
            fence(Ordering::SeqCst);
        }
    }

    /// Records the current round of each worker. Called after the publication of a change that all workers must see.
    pub(crate) fn observe_rounds(&self, rounds: &mut [u64]) {
        // If a round starts concurrently, either this thread reads the new round number, or the new round sees the
        // published change.
        fence(Ordering::SeqCst);
        for (post, rounds) in self.posts.iter().zip(rounds) {
            *rounds = post.rounds.load(Ordering::Acquire);
        }
    }

    /// Whether every other worker has completed its round recorded in `rounds`.
    pub(crate) fn have_completed(&self, own: WorkerIndex, rounds: &[u64]) -> bool {
        let mut all = self.posts.iter().zip(rounds).enumerate();
        all.all(|(worker, (post, then))| worker == usize::from(own) || post.rounds.load(Ordering::Acquire) != *then)
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.posts.len()
    }

    /// Sends a request to a worker. Returns `false` if the worker has another pending request.
    pub(crate) fn request(&self, peer: WorkerIndex, assist_request: AssistRequest) -> bool {
        let queried = self.posts.get(usize::from(peer)).map(|post| &post.queried);
        queried.is_some_and(|queried| {
            let put = queried.compare_exchange(0, assist_request.pack(), Ordering::AcqRel, Ordering::Relaxed);
            put.is_ok()
        })
    }

    /// The pending request to a worker.
    #[inline(always)]
    pub(crate) fn requested(&self, own: WorkerIndex) -> Option<AssistRequest> {
        AssistRequest::unpack(self.posts.get(usize::from(own))?.queried.load(Ordering::Acquire))
    }

    /// Answers the pending request to this worker.
    pub(crate) fn answer(&self, own: WorkerIndex, accepted: bool) {
        if let Some(post) = self.posts.get(usize::from(own)) {
            post.queried
                .store(if accepted { ACCEPTED } else { REFUSED }, Ordering::Release);
        }
    }

    /// The answer to a request, if it is available. Once the answer was read, the worker accepts other requests.
    pub(crate) fn answered(&self, peer: WorkerIndex) -> Option<bool> {
        let queried = &self.posts.get(usize::from(peer))?.queried;
        let accepted = match queried.load(Ordering::Acquire) {
            ACCEPTED => true,
            REFUSED => false,
            _ => return None,
        };
        queried.store(0, Ordering::Release);
        Some(accepted)
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
        let assist_request = AssistRequest {
            direction: ShardMove::FromRequester,
            shard: 1023,
            by: 2,
        };
        assert!(assist.request(1, assist_request));
        assert!(!assist.request(
            1,
            AssistRequest {
                by: 0,
                ..assist_request
            }
        ));
        assert_eq!(None, assist.answered(1));
        assert_eq!((Some(assist_request), None), (assist.requested(1), assist.requested(0)));
        assist.answer(1, true);
        assert_eq!(None, assist.requested(1));
        assert!(!assist.request(1, assist_request));
        assert_eq!(Some(true), assist.answered(1));
        assert!(assist.request(
            1,
            AssistRequest {
                direction: ShardMove::ToRequester,
                ..assist_request
            }
        ));
        assert!(!assist.request(3, assist_request), "there is no such worker");
    }

    #[test]
    fn rounds_have_ended_once_every_other_worker_has_begun_another() {
        let assist = assist();
        let mut rounds = [0; 3];
        assist.start_round(0);
        assist.observe_rounds(&mut rounds);
        assert_eq!([1, 0, 0], rounds);
        assist.start_round(1);
        assert!(!assist.have_completed(2, &rounds));
        assist.start_round(0);
        assert!(assist.have_completed(2, &rounds));
        assert!(!assist.have_completed(1, &rounds));
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
