//! Linux with iptables and established flows, for other benches that put it beside their figures.

use std::ffi::OsString;

use super::outside::{self, KernelError};
use crate::rows::{Row, Run};

/// Take the rows of iptables with so many rules, by `more` options of `kernel`.
pub fn iptables(rules: u32, more: &[&str], quick: bool, take: &mut dyn FnMut(Row)) -> Result<(), KernelError> {
    outside::run(&mut Run { quick, row: take }, words(rules, more, quick))
}

/// The command line of `kernel` for it.
fn words(rules: u32, more: &[&str], quick: bool) -> Vec<OsString> {
    let words = format!("kernel --cases iptables --flows established --hits last --receiver traffic --rules {rules}");
    let quick = quick.then_some("--quick");
    let words = words.split(' ').chain(more.iter().copied()).chain(quick);
    words.map(Into::into).collect()
}

/// Least, median and most of a figure in a row of `kernel`; `None` where it does not have it.
pub fn range(of_kernel: &Row, name: &str) -> Option<[f64; 3]> {
    let (_, figure) = of_kernel.figures().find(|(other, _)| *other == name)?;
    Some([figure.min, figure.median, figure.max])
}

/// Millions of packets per second.
pub fn mpps(of_kernel: &Row) -> [f64; 3] {
    range(of_kernel, "packets_per_s")
        .unwrap_or_default()
        .map(|rate| rate / 1e6)
}
