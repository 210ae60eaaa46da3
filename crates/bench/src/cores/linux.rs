//! Linux with iptables on as many cores (P4, Fig. 5), on the wires of `kernel`: 1,000 rules, 8,000 established flows, 64 bytes.
//!
//! As with Sluice here, each core has a source, the gateway and a sink: what a core's source sends, that core forwards
//! without any steering, and no flow is of two cores. A row more has the source on a core of its own, beside the one core that
//! forwards. The counters of each core's queue say in the row whether the work was where it should be.

use super::{Failure, RULES};
use crate::kernel::established;
use crate::rows::{Row, Run};

/// Measure it with these numbers of cores, of those named.
pub fn iptables(run: &mut Run<'_>, counts: &[usize], on: &[usize]) -> Result<(), Failure> {
    let text = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut together = counts.to_vec();
    if on.len() > 1 {
        together.insert(0, 0);
    }
    let (together, on) = (text(&together), text(on));
    let mut more = vec!["--direction", "up", "--together", &together, "--on", &on];
    if run.quick {
        more.extend(["--window", "400"]);
    }
    let mut take = |of_kernel: Row| (run.row)(translated(&of_kernel));
    established::iptables(RULES, &more, run.quick, &mut take)?;
    Ok(())
}

/// A row of `kernel` as one of this bench.
fn translated(of_kernel: &Row) -> Row {
    let (cores, source) = match of_kernel.text_of("together").parse::<usize>() {
        Ok(cores) => (cores, "included"),
        Err(_) => (1, "beside"),
    };
    let row = Row::new(&of_kernel.text_of("case"))
        .key("cores", cores)
        .key("source", source)
        .key("limited_by", of_kernel.text_of("limited_by"))
        .figure("mpps", &established::mpps(of_kernel));
    let others = [
        "cpu_ns_per_packet",
        "busy_share",
        "least_core_share",
        "other_cores_share",
    ];
    others
        .into_iter()
        .fold(row, |row, name| match established::range(of_kernel, name) {
            Some(range) => row.figure(name, &range),
            None => row,
        })
}
