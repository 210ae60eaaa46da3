//! All integration tests of the crate in one program, so that shared code is built and linked once.

mod collisions;
mod flow_attack;
mod prefix_oracle;
mod qns_attack;
mod qns_oracle;
