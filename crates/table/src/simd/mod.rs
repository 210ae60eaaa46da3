//! Instructions that not every processor has, behind functions that are safe to call on any.

pub(crate) mod aes;
pub mod lanes;
pub mod tags;
pub mod words;
