//! Safe interfaces to the C libraries that inspection uses. No other module of the crate contains unsafe code.
#![allow(unsafe_code)]

pub mod expression;
pub mod ndpi;
pub mod vectorscan;
