//! Tests the memory per session, including the index entries of both directions.

use sluice_engine::session::record::{Session4, Session6};
use sluice_table::flow::{FlowTable, Record};
use sluice_table::memory::Line;

fn bytes_per_session<R: Record>(capacity: usize) -> f64 {
    (FlowTable::<R>::lines_for(capacity) * size_of::<Line>()) as f64 / capacity as f64
}

#[test]
fn session_at_capacity_takes_no_more_memory_than_promised() {
    for capacity in [1_024, 8_000, 65_536, 1_000_000, 16_000_000] {
        let (v4, v6) = (
            bytes_per_session::<Session4>(capacity),
            bytes_per_session::<Session6>(capacity),
        );
        assert!(v4 <= 160.0, "{v4} bytes for each of {capacity} IPv4 sessions");
        assert!(v6 <= 224.0, "{v6} bytes for each of {capacity} IPv6 sessions");
    }
}
