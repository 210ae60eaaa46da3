//! One side of a link: a thread that sends or receives as ordered, and counts frames.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_dpdk::workers::{Idle, IdlePolicy, Queues, Worker};
use sluice_engine::packet::io::BURST_SIZE;
use sluice_wire::Checksums;

use crate::rig::Source;
use crate::rig::frames::{Frame, Hosts, SHORTEST, data};
use crate::router::Failure;

/// Task of a side's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The side does nothing.
    Rest,
    /// Receive packets and free them.
    Receive,
    /// Send at maximum rate.
    Flood,
    /// Send frames at the interval of [`Side::pace`].
    Pace,
}

impl Order {
    const ALL: [Self; 4] = [Self::Rest, Self::Receive, Self::Flood, Self::Pace];
}

#[derive(Debug, Default)]
struct Shared {
    order: AtomicU8,
    /// Cycles between two frames, as the bits of a floating-point number.
    pace: AtomicU64,
    packets: AtomicU64,
    rounds: AtomicU64,
    quiet: AtomicU64,
    refused: AtomicU64,
}

impl Shared {
    fn order(&self) -> Order {
        Order::ALL[usize::from(self.order.load(Ordering::Relaxed)) % Order::ALL.len()]
    }
}

/// Counters of a side's thread.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Number of frames sent or received.
    pub packets: u64,
    pub rounds: u64,
    /// Number of rounds without a frame.
    pub quiet: u64,
    /// Number of due frames that the device did not accept.
    pub refused: u64,
    /// CPU time of the thread in nanoseconds.
    pub cpu_ns: u64,
}

pub struct Side {
    shared: Arc<Shared>,
    thread: Worker<Source>,
    /// File from which the thread's CPU time is read.
    schedstat: PathBuf,
}

impl Side {
    /// Starts the thread on a core. A side without a waiting mode polls all the time.
    pub fn start(
        eal: &'static Eal,
        name: &str,
        core: usize,
        source: Source,
        (waiting, queues): (IdlePolicy, Queues),
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let (tell, told) = channel();
        let own = shared.clone();
        let thread = Worker::start(eal, name, core, move |stop| {
            // The path contains this thread's number, which other threads cannot determine.
            let _ = tell.send(std::fs::read_link("/proc/thread-self"));
            let mut loops = Loop::new(source, Idle::new(waiting, queues), &own);
            while !stop.is_stop_requested() {
                loops.round(own.order());
            }
            loops.source
        })?;
        let schedstat = PathBuf::from("/proc").join(told.recv()??).join("schedstat");
        Ok(Self {
            shared,
            thread,
            schedstat,
        })
    }

    /// Set the task of the side.
    pub fn order(&self, order: Order) {
        self.shared.order.store(order as u8, Ordering::Relaxed);
    }

    /// Set the number of cycles between two frames.
    pub fn pace(&self, cycles: f64) {
        self.shared.pace.store(cycles.to_bits(), Ordering::Relaxed);
    }

    pub fn seen(&self) -> Result<Counts, Failure> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let text = std::fs::read_to_string(&self.schedstat)?;
        let cpu_ns = text.split(' ').next().and_then(|word| word.parse().ok());
        Ok(Counts {
            packets: of(&self.shared.packets),
            rounds: of(&self.shared.rounds),
            quiet: of(&self.shared.quiet),
            refused: of(&self.shared.refused),
            cpu_ns: cpu_ns.ok_or("the kernel does not tell how long a thread ran")?,
        })
    }

    pub fn stop(self) -> Result<Source, Failure> {
        Ok(self.thread.stop().map_err(|_| "a side failed")?)
    }
}

struct Loop<'s> {
    source: Source,
    idle: Idle,
    shared: &'s Shared,
    frame: [u8; SHORTEST],
    next: f64,
}

impl<'s> Loop<'s> {
    fn new(source: Source, idle: Idle, shared: &'s Shared) -> Self {
        let mut frame = [0; SHORTEST];
        data(Hosts::Sixteen, 1, None).write(&mut frame);
        Self {
            source,
            idle,
            shared,
            frame,
            next: 0.0,
        }
    }

    fn round(&mut self, order: Order) {
        let moved = match order {
            Order::Rest => {
                // Frames that arrive late do not belong to the next task.
                self.receive();
                self.next = 0.0;
                return std::thread::sleep(Duration::from_micros(100));
            }
            Order::Receive => self.receive(),
            Order::Flood => self.send(BURST_SIZE),
            Order::Pace => {
                let (due, moved) = self.due();
                if due == 0 {
                    return;
                }
                self.shared.refused.fetch_add((due - moved) as u64, Ordering::Relaxed);
                moved
            }
        };
        self.shared.packets.fetch_add(moved as u64, Ordering::Relaxed);
        self.shared.rounds.fetch_add(1, Ordering::Relaxed);
        match moved {
            0 => {
                self.shared.quiet.fetch_add(1, Ordering::Relaxed);
                self.idle.quiet();
            }
            _ => self.idle.busy(),
        }
    }

    fn receive(&mut self) -> usize {
        self.source.discard(0)
    }

    fn send(&mut self, count: usize) -> usize {
        let frame = &self.frame;
        let (_, taken) = self.source.send(&[(0, count)], |_, packet| {
            packet.set_len(SHORTEST);
            packet.set_checksums(Checksums::Vouched);
            packet.bytes_mut().copy_from_slice(frame);
            true
        });
        taken
    }

    /// Sends the due frames; returns the number of due frames, and the number that the device accepted.
    fn due(&mut self) -> (usize, usize) {
        let (now, each) = (
            tsc::now() as f64,
            f64::from_bits(self.shared.pace.load(Ordering::Relaxed)),
        );
        if self.next == 0.0 {
            self.next = now;
        }
        let due = ((now - self.next) / each).clamp(0.0, BURST_SIZE as f64) as usize;
        self.next += due as f64 * each;
        match due {
            0 => (0, 0),
            due => (due, self.send(due)),
        }
    }
}
