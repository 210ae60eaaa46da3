//! All tests of the crate, in one program: what they share is built and linked once.

mod bindings;
mod fitting;
mod icmp;
mod ports;
mod rewrite;
mod rules;
mod shared_ports;
mod tracking;
