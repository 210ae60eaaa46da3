//! Header views of bytes, validity checks, incremental checksums, and flow keys.
//!
//! This crate owns no buffers: a [`Packet`] borrows the buffer that a driver provides for the duration of a burst.
//!
//! **Contract of every view and function in this crate.** The constructor of a view checks the length once, and returns
//! `None` if the bytes are shorter than the fixed part of the header. Accessors of a view never panic: a read beyond
//! the end returns zero, and a write beyond the end has no effect. [`layers::parse`] returns offsets within the parsed
//! frame. Using these offsets with another frame is safe, but they may refer to unrelated or missing bytes. Numbers are
//! in host byte order. Lengths and offsets are in bytes.
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
