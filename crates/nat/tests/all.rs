//! All integration tests of the crate in one program, so that shared code is built and linked once.

mod bindings;
mod fitting;
mod icmp;
mod ports;
mod rewrite;
mod rules;
mod shared_ports;
mod tracking;
