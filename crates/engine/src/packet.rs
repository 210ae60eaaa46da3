//! Packet buffers, packet metadata, and the lists on which packets leave a burst.

pub mod adjacency;
pub mod batch;
pub mod copies;
pub mod counters;
pub mod hand_off;
pub mod icmp_error;
pub mod io;
pub mod lists;
pub mod punt;
pub mod reason;
pub mod task;
pub mod time;
