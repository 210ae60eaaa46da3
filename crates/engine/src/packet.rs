//! Buffers, what is known of a packet, and how packets leave a burst.

pub mod batch;
pub mod counters;
pub mod io;
pub mod reason;
pub mod time;
