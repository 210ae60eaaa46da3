//! The libraries in C that inspection stands on, behind safe interfaces. No other module of the crate holds unsafe code.
#![allow(unsafe_code)]

pub mod expression;
pub mod ndpi;
pub mod vectorscan;
