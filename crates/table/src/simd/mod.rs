//! Instructions that not every processor has, behind functions that any may call.

pub(crate) mod aes;
pub mod lanes;
pub mod tags;
pub mod words;
