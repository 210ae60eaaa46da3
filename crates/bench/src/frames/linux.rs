//! Linux with iptables at these sizes, on the wires of `kernel`: 1,000 rules, as many flows, established.

use crate::kernel;
use crate::rows::{Row, Run};

use super::{Failure, FramesArguments, STYLE, line, row};
use crate::nat_path::Direction;

/// Measure it.
pub fn iptables(run: &mut Run<'_>, arguments: &FramesArguments) -> Result<(), Failure> {
    let words = words(&arguments.sizes(run.quick), run.quick);
    let mut take = |of_kernel: Row| (run.row)(translated(&of_kernel));
    let mut inner = Run {
        quick: run.quick,
        row: &mut take,
    };
    kernel::outside::run(&mut inner, words)?;
    Ok(())
}

/// The command line of `kernel` for it.
fn words(sizes: &[usize], quick: bool) -> Vec<std::ffi::OsString> {
    let bytes: Vec<_> = sizes.iter().map(usize::to_string).collect();
    let (bytes, rules) = (bytes.join(","), STYLE.rules.to_string());
    let words = [
        "kernel",
        "--cases",
        "iptables",
        "--flows",
        "established",
        "--hits",
        "last",
    ];
    let more = ["--rules", &rules, "--bytes", &bytes];
    let quick = quick.then_some("--quick");
    words.into_iter().chain(more).chain(quick).map(Into::into).collect()
}

/// A row of `kernel` as one of this bench.
fn translated(of_kernel: &Row) -> Row {
    let bytes = of_kernel.text_of("bytes").parse().unwrap_or(0);
    let row = row(&of_kernel.text_of("case"), bytes, Direction::Up)
        .key("cores", 1)
        // Connection tracking looks at each.
        .key("checksums", "computed")
        .key("limited_by", of_kernel.text_of("limited_by"));
    let rate = of_kernel.figures().find(|(name, _)| *name == "packets_per_s");
    let runs = rate.map_or([0.0; 3], |(_, rate)| [rate.min, rate.median, rate.max]);
    let mpps = runs.map(|rate| rate / 1e6);
    let gbps = mpps.map(|mpps| line::gbps(mpps, bytes));
    row.figure("mpps", &mpps).figure("gbps", &gbps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_kernel() {
        let words = words(&[64, 1518], true);
        let text = words.join(" ".as_ref()).into_string();
        let expected = "kernel --cases iptables --flows established --hits last --rules 1000 --bytes 64,1518 --quick";
        assert_eq!(Ok(expected.to_owned()), text);
    }

    #[test]
    fn row_of_kernel_becomes_one_of_this_bench_with_its_range() {
        let of_kernel = Row::new("iptables")
            .key("rules", 1_000)
            .key("bytes", 1000)
            .key("limited_by", "gateway")
            .figure("packets_per_s", &[400_000.0, 500_000.0, 450_000.0])
            .figure("busy_share", &[1.0]);
        let row = translated(&of_kernel);
        assert_eq!("iptables 1000 up none 1 gateway", {
            let keys = ["case", "bytes", "direction", "site", "cores", "limited_by"];
            keys.map(|name| row.text_of(name)).join(" ")
        });
        let (_, mpps) = row.figures().next().expect("a figure");
        assert_eq!((0.4, 0.45, 0.5), (mpps.min, mpps.median, mpps.max));
        assert_eq!(Some(3.6), row.median("gbps"));
    }
}
