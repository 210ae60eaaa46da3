//! Marks of sessions, where rules of the filter set any: beside the records, so that sessions without marks pay nothing.

use core::sync::atomic::{AtomicU32, Ordering};

use sluice_table::flow::RecordIndex;

use crate::family::Family;
use crate::policy::Setup;

/// The mark of every record that there may be, by family: 4 bytes each.
#[derive(Debug)]
pub struct Marks {
    marks: [Box<[AtomicU32]>; 2],
    /// Records of a shard.
    records: [usize; 2],
}

impl Marks {
    /// All 0.
    pub fn new(setup: &Setup) -> Self {
        let records = setup.sessions_per_shard();
        let shards = setup.steering.shards().count() as usize;
        let none = |records: usize| (0..records * shards).map(|_| AtomicU32::new(0)).collect();
        Self {
            marks: records.map(none),
            records,
        }
    }

    fn of<F: Family>(&self, shard: u16, RecordIndex(index): RecordIndex) -> Option<&AtomicU32> {
        let family = usize::from(F::SIX);
        let (index, records) = (index as usize, self.records[family]);
        let marks = self.marks[family].get(usize::from(shard) * records..)?;
        marks.get(..records)?.get(index)
    }

    /// The mark of a session.
    pub fn get<F: Family>(&self, shard: u16, index: RecordIndex) -> u32 {
        self.of::<F>(shard, index)
            .map_or(0, |mark| mark.load(Ordering::Relaxed))
    }

    /// A session gets a mark: also a new one that has none, as its record may have been that of one with a mark.
    pub fn set<F: Family>(&self, shard: u16, index: RecordIndex, mark: u32) {
        if let Some(of) = self.of::<F>(shard, index) {
            of.store(mark, Ordering::Relaxed);
        }
    }
}
