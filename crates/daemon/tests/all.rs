//! All tests of the crate in one program, so that shared code is built and linked once.

mod hosts;
mod leases;
mod lowering;
mod public_leases;
mod routes_property;
mod sites;
