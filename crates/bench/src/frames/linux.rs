//! Linux with iptables at these sizes, on the wires of `kernel`: 1,000 rules, as many flows, established.

use crate::kernel::established;
use crate::rows::{Row, Run};

use super::{Failure, FramesArguments, STYLE, line, row};
use crate::nat_path::Direction;

/// Measure it.
pub fn iptables(run: &mut Run<'_>, arguments: &FramesArguments) -> Result<(), Failure> {
    let sizes: Vec<_> = arguments.sizes(run.quick).iter().map(usize::to_string).collect();
    // The generator sends one way.
    let ways = arguments.directions().into_iter().filter(|&way| way != Direction::Both);
    let ways: Vec<_> = ways.map(Direction::name).collect();
    if ways.is_empty() {
        return Ok(());
    }
    let mut take = |of_kernel: Row| (run.row)(translated(&of_kernel));
    let more = ["--bytes", &sizes.join(","), "--direction", &ways.join(",")];
    established::iptables(STYLE.rules, &more, run.quick, &mut take)?;
    Ok(())
}

/// A row of `kernel` as one of this bench.
fn translated(of_kernel: &Row) -> Row {
    let bytes = of_kernel.text_of("bytes").parse().unwrap_or(0);
    let direction = match of_kernel.text_of("direction").as_str() {
        "down" => Direction::Down,
        _ => Direction::Up,
    };
    let row = row(&of_kernel.text_of("case"), bytes, direction)
        .key("cores", 1)
        // Connection tracking looks at each.
        .key("checksums", "computed")
        .key("limited_by", of_kernel.text_of("limited_by"));
    let mpps = established::mpps(of_kernel);
    let gbps = mpps.map(|mpps| line::gbps(mpps, bytes));
    row.figure("mpps", &mpps).figure("gbps", &gbps)
}
