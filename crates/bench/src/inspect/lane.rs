//! One core's part of a run: the component under test, and source and sink of the core.

use std::sync::{Arc, Mutex, MutexGuard};

use arrayvec::ArrayVec;
use sluice_dpdk::tsc;
use sluice_wire::Checksums;

use super::even::Even;
use super::moving::Moving;
use super::traffic::{Draw, Pages, Seen, read, since, write};
use crate::frames::histogram::Histogram;
use crate::frames::pace::{self, Pace};
use crate::rig::Source;
use crate::rig::gateway::{Clock, Rounds};
use crate::rig::lanes::{self, Done, Traffic};
use crate::rig::slices::Slices;

/// Number of frames sent per side and call.
const EACH: usize = 32;

/// The component under test: the engine's worker, or the baseline.
pub enum Middle<'s, 'm> {
    /// The engine's worker.
    Engine(Box<Rounds<'m>>),
    /// The baseline of P3: a flow table shared by all cores, with locks.
    Even(Box<Even<'s, 'm>>, Clock),
}

impl lanes::Middle for Middle<'_, '_> {
    #[inline(always)]
    fn round(&mut self) -> usize {
        match self {
            Self::Engine(rounds) => rounds.round(),
            Self::Even(even, clock) => even.round(clock.now()),
        }
    }

    fn count(&self, done: &mut Done) {
        match self {
            Self::Engine(rounds) => done.count(&rounds.counters),
            Self::Even(even, _) => done.waited = even.waited,
        }
    }
}

/// Traffic source of one side; it is shared by all cores to which the side's interface may be assigned.
pub type Side = Arc<Mutex<(Draw, Option<Pace>)>>;

/// Source and sink of one core.
pub struct Ends {
    pub own: usize,
    /// Traffic sources of this core, one per side of the bridge.
    pub sides: Vec<Side>,
    pub pages: Arc<Pages>,
    /// Interval in cycles between frames of one side, if the frames have due times.
    pub distance: Option<f64>,
    /// Latency of the frames that have a due time.
    pub latency: Histogram,
    /// Latency of the frames in the current time slice.
    pub current: Histogram,
    /// Number of frames that remain to be sent, if the number is limited.
    pub left: Option<usize>,
    /// Current assignment of interfaces to cores, if interfaces are moved between cores.
    pub moving: Option<Arc<Moving>>,
    pub seen: Arc<Mutex<Seen>>,
}

/// Time slices of a lane, each long enough for several bursts of the largest frames.
pub fn slices() -> Slices<Done> {
    let millisecond = tsc::frequency() / 1_000;
    Slices::new(2 * millisecond, millisecond)
}

pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Traffic for Ends {
    /// Sends frames for each side that is currently assigned to this lane: as many as are due, or as many as the queue
    /// accepts.
    #[inline(always)]
    fn send(&mut self, far: &mut Source, has_room: impl Fn() -> bool, now: u64, done: &mut Done) -> usize {
        let has_room = has_room();
        let mut sides = ArrayVec::<_, 2>::new();
        let (mut ports, mut times) = (ArrayVec::<(u16, usize), 2>::new(), [[now; EACH]; 2]);
        for side in &self.sides {
            let Ok(mut side) = side.try_lock() else { continue };
            let (draw, pace) = &mut *side;
            if let Some(moving) = &self.moving {
                let comes = moving.is_at(draw.side, self.own);
                // Wait until the core that had the interface before has processed its packets, so that no packet
                // overtakes them.
                if !comes || (draw.at != self.own && !moving.is_empty(draw.side)) {
                    continue;
                }
                draw.at = self.own;
            }
            let count = match pace {
                None => EACH,
                Some(pace) => {
                    let due: ArrayVec<u64, { pace::BURST }> = pace.due(now);
                    let count = due.len().min(EACH);
                    times[usize::from(draw.side)][..count].copy_from_slice(&due[..count]);
                    pace.pass(count);
                    done.due += count as u64;
                    done.lost += if has_room { 0 } else { count as u64 };
                    count
                }
            };
            let sent: usize = ports.iter().map(|(_, count)| count).sum();
            let count = count.min(self.left.map_or(EACH, |left| left - sent));
            if has_room && count > 0 {
                ports.push((draw.side, count));
                sides.push(side);
            }
        }
        if ports.is_empty() {
            return 0;
        }
        let (pages, mut places) = (&self.pages, [0; 2]);
        let (count, _) = far.send(&ports, |port, packet| {
            let Some(side) = sides.iter_mut().find(|side| side.0.side == port) else {
                return false;
            };
            let place = &mut places[usize::from(port)];
            let (frame, segment, length) = side.0.next(times[usize::from(port)][*place % EACH]);
            *place += 1;
            packet.set_len(length);
            packet.set_checksums(Checksums::Vouched);
            write(packet.bytes_mut(), &frame, segment, pages);
            true
        });
        if let Some(moving) = &self.moving {
            ports
                .iter()
                .for_each(|&(side, count)| moving.sent(side, self.own, count));
        }
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        count
    }

    #[inline(always)]
    fn receive(&mut self, far: &mut Source, port: u16, now: u64) -> usize {
        let (mut seen, current) = (None, &mut self.current);
        let count = far.drain(port, |bytes| {
            let seen = seen.get_or_insert_with(|| locked(&self.seen));
            if let Some((frame, data)) = read(bytes) {
                seen.see(&frame, data);
                current.record(since(frame.due, now));
            }
        });
        if let Some(moving) = &self.moving {
            moving.came(1 - port, self.own, count);
        }
        count
    }

    fn begin(&mut self) {
        for side in &self.sides {
            locked(side).1 = self.distance.map(|distance| Pace::new(tsc::now(), distance));
        }
        self.latency.clear();
    }

    /// Skips frames that became due while this core was preempted.
    fn late(&mut self, now: u64) {
        let paces = self.sides.iter().map(|side| locked(side));
        paces.for_each(|mut side| side.1.iter_mut().for_each(|pace| pace.skip(now)));
    }

    fn slice(&mut self, is_quiet: bool) {
        if is_quiet {
            self.latency.add(&self.current);
        }
        self.current.clear();
    }

    fn end(&mut self) {
        self.sides.iter().for_each(|side| locked(side).1 = None);
    }
}
