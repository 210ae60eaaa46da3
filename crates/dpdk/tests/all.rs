//! All tests of the crate in one program, so that shared code is built and linked once.

mod acl;
mod bonding;
mod fib;
mod hot_plug;
mod kernel_ports;
mod memory_ports;
mod metadata;
mod pools;
mod shared_ports;
mod start_errors;
mod steering;
mod support;
mod survivors;
