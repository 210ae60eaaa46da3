//! Marks and DSCPs of sessions, if filter rules set any. The session records don't contain marks, so that sessions
//! without marks need no memory for them.

use core::sync::atomic::{AtomicU32, Ordering};

use bytemuck::allocation::zeroed_slice_box;
use sluice_filter::TrafficClass;
use sluice_table::flow::RecordIndex;
use sluice_wire::checksum::Delta;
use sluice_wire::layers::Layers;

use crate::session::family::Family;
use crate::snapshot::StartParameters;
use crate::snapshot::shared_capacity;

/// A table with a mark of 4 bytes for every possible session record of both families.
#[derive(Debug)]
pub struct Marks {
    marks: [Box<[AtomicU32]>; 2],
    /// Maximum number of records in a shard for each family, including the shared capacity.
    records: [usize; 2],
}

impl Marks {
    /// Creates a table in which all marks are 0.
    pub fn new(start: &StartParameters) -> Self {
        let (own, records) = (start.sessions_per_shard(), shared_capacity::max_sessions(start));
        let shards = start.steering.shards().count() as usize;
        let marks = [0, 1].map(|family| {
            // Marks of records in the shared capacity occupy no physical memory until a shard uses these records.
            let marks: Box<[AtomicU32]> = zeroed_slice_box(records[family] * shards);
            for shard in marks.chunks(records[family].max(1)) {
                let own = shard.iter().take(own[family]);
                own.for_each(|mark| mark.store(0, Ordering::Relaxed));
            }
            marks
        });
        Self { marks, records }
    }

    fn of<F: Family>(&self, shard: u16, RecordIndex(index): RecordIndex) -> Option<&AtomicU32> {
        let family = usize::from(F::IS_V6);
        let (index, records) = (index as usize, self.records[family]);
        let marks = self.marks[family].get(usize::from(shard) * records..)?;
        marks.get(..records)?.get(index)
    }

    /// The mark of a session.
    pub fn get<F: Family>(&self, shard: u16, index: RecordIndex) -> u32 {
        self.of::<F>(shard, index)
            .map_or(0, |mark| mark.load(Ordering::Relaxed))
    }

    /// Sets the mark of a session. The mark of a new session must be set even if the mark is 0, because the record's
    /// former session may have had a mark.
    pub fn set<F: Family>(&self, shard: u16, index: RecordIndex, mark: u32) {
        if let Some(of) = self.of::<F>(shard, index) {
            of.store(mark, Ordering::Relaxed);
        }
    }
}

/// Encodes a traffic class as a mask of the bits that the class sets, and the values of these bits. The result is 0 if
/// the class sets no bits.
pub fn of_class(class: TrafficClass) -> u32 {
    let (value, mask) = class.parts();
    u16::from_be_bytes([mask, value]).into()
}

/// Decodes a traffic class.
pub fn class_of(kept: u32) -> Option<TrafficClass> {
    let [mask, value] = (kept as u16).to_be_bytes();
    let class = TrafficClass::new(value, mask);
    (!class.is_any()).then_some(class)
}

/// Sets the traffic class of a packet. The IPv4 checksum is updated incrementally (RFC 1624), so that a wrong checksum
/// of the received packet stays wrong.
pub fn set_class<F: Family>(frame: &mut [u8], layers: &Layers, class: TrafficClass) {
    let header = frame.get_mut(usize::from(layers.l3)..).unwrap_or_default();
    let Some(first) = header.first_chunk_mut() else { return };
    let old = u16::from_be_bytes(*first);
    let shift = if F::IS_V6 { 4 } else { 0 };
    let new = old & !(0xff << shift) | u16::from(class.set((old >> shift) as u8)) << shift;
    *first = new.to_be_bytes();
    if !F::IS_V6
        && let Some(sum) = header.get_mut(10..).and_then(|rest| rest.first_chunk_mut())
    {
        *sum = Delta::default()
            .word(old, new)
            .apply(u16::from_be_bytes(*sum))
            .to_be_bytes();
    }
}
