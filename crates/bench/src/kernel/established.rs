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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_kernel() {
        let text = words(1_000, &["--bytes", "64,1518", "--direction", "up"], true)
            .join(" ".as_ref())
            .into_string();
        let expected = "kernel --cases iptables --flows established --hits last --receiver traffic --rules 1000 \
                        --bytes 64,1518 --direction up --quick";
        assert_eq!(Ok(expected.to_owned()), text);
        let line = ["sluice-bench"]
            .into_iter()
            .chain(expected.split(' '))
            .collect::<Vec<_>>();
        assert!(crate::understands(line.iter()));
    }

    #[test]
    fn rate_is_in_millions_with_its_range() {
        let row = Row::new("iptables").figure("packets_per_s", &[400_000.0, 500_000.0, 450_000.0]);
        assert_eq!([0.4, 0.45, 0.5], mpps(&row));
        assert_eq!(None, range(&row, "busy_share"));
    }
}
