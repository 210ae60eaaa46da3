//! Header views over bytes, validity, incremental checksums, and the keys of flows.
//!
//! Nothing here owns a buffer: a [`Packet`] borrows the room that a driver lends for the length of a burst.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod key;
pub mod packet;

pub use key::{Context, Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};
pub use packet::{Checksums, Packet, Window};
