//! Header views over bytes, validity, incremental checksums, and the keys of flows.
//!
//! Nothing here owns a buffer: a [`Packet`] borrows the room that a driver lends for the length of a burst.
//!
//! **The contract of every view and function here.** A view's constructor checks the length once, and is `None` where
//! the fixed part of the header does not fit. After it, no accessor panics, whatever the bytes say: a number read
//! behind the end is zero, a write there does nothing. What [`layers::parse`] returns are offsets within the frame that
//! was parsed; used with another frame they give other bytes, or none, and do no harm. Numbers are in host order,
//! lengths and offsets in bytes.
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod echo;
pub mod ethernet;
pub mod fault;
pub mod field;
pub mod fragments;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod key;
pub mod layers;
pub mod named;
pub mod ndp;
pub mod packet;
pub mod plain;
pub mod quote;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod validity;
pub mod vlan;

pub use fault::Fault;
pub use field::Mac;
pub use key::{Context, Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};
pub use layers::{Class, Flags, Fragment, Layers, parse};
pub use packet::{Checksums, Packet, Window};
pub use plain::{plain4, plain6, transit4};
pub use quote::{Quoted, quoted};
pub use validity::{Policy, Validity, complete_checksum, validate};
