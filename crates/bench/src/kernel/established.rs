//! Linux with iptables and established flows, for comparison in other benchmarks.

use super::traffic::NEW_FLOWS;
use crate::inside::{Widened, enter};
use crate::rows::{Failure, Row, Run};

/// Runs `kernel` with iptables and this number of rules, with additional options `more`, and passes its rows to `take`.
pub fn iptables(rules: u32, more: &str, quick: bool, take: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let words =
        format!("kernel --cases iptables --flows established --hits last --receiver traffic --rules {rules} {more}");
    let words = words.split(' ').chain(quick.then_some("--quick"));
    let _widened = Widened::conntrack(NEW_FLOWS)?;
    enter(&mut Run { quick, row: take }, words.map(Into::into).collect())
}
