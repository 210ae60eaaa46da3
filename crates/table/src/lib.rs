//! Tables of the data plane.

pub mod prefix;
