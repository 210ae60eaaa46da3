//! Functions with instructions that only some processors have. The functions are safe to call on any processor.

pub(crate) mod aes;
pub mod bytes;
pub mod lanes;
pub mod tags;
pub mod words;
