//! All integration tests of the crate in one program, so that shared code is built and linked once.

mod feed;
mod forwarding;
mod kernel_table;
mod neighbour_states;
mod rib;
mod rib_model;
mod ribs;
mod uplinks;
