//! A second thread that adds and removes rules.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_table::qns::{Key, QnsTable, Value4};

use crate::rig::frames::Random;

/// Interval at which the thread makes its changes.
const TICK: Duration = Duration::from_micros(200);
/// Number of rules that the thread adds and removes.
const OTHERS: usize = 8192;

/// Writer of the table, and the rules that it adds and removes.
pub struct Changes {
    table: QnsTable<u32>,
    others: Vec<Key<u32>>,
    added: usize,
}

impl Changes {
    /// Creates changes of rules whose keys are not in `keys`.
    pub fn new(table: QnsTable<u32>, keys: &[Key<u32>], random: &mut Random) -> Self {
        let mut others = super::others(keys, OTHERS, random);
        // Shuffle the rules, because they are sorted by prefix length.
        random.shuffle(&mut others);
        Self {
            table,
            others,
            added: 0,
        }
    }

    pub fn table(&self) -> &QnsTable<u32> {
        &self.table
    }

    /// Changes `per_second` rules per second, half additions and half removals, while `lookups` runs. Returns the
    /// result of `lookups`, and the median time of an addition in microseconds.
    pub fn during(&mut self, per_second: u32, lookups: impl FnOnce() -> f64) -> (f64, f64) {
        let done = AtomicBool::new(false);
        let each = (f64::from(per_second) * TICK.as_secs_f64()) as usize;
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                let mut times = Vec::new();
                let mut due = Instant::now();
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..each / 2 {
                        let key = &self.others[self.added % self.others.len()];
                        let begin = Instant::now();
                        let added = self.table.insert(key, Value4::default());
                        times.push(begin.elapsed().as_secs_f64() * 1e6);
                        assert!(added.is_ok());
                        self.table.remove(key);
                        self.added += 1;
                    }
                    due += TICK;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                times.sort_by(f64::total_cmp);
                times.get(times.len() / 2).copied().unwrap_or_default()
            });
            let result = lookups();
            done.store(true, Ordering::Relaxed);
            (result, changing.join().unwrap_or_default())
        })
    }
}
