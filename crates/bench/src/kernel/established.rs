//! Linux with iptables and established flows, for other benches that put it beside their figures.

use super::outside;
use crate::rows::{Failure, Row, Run};

/// Take the rows of iptables with so many rules, by `more` options of `kernel`.
pub fn iptables(rules: u32, more: &str, quick: bool, take: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let words =
        format!("kernel --cases iptables --flows established --hits last --receiver traffic --rules {rules} {more}");
    let words = words
        .split(' ')
        .chain(quick.then_some("--quick"))
        .map(Into::into)
        .collect();
    outside::run(&mut Run { quick, row: take }, words)
}
