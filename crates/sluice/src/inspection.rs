//! `sluice show inspection`.

use std::io::Write;

use sluice_daemon::config::api::{CounterValue, InspectionStatus, operation};
use sluice_daemon::config::text::escaped;
use sluice_daemon::counters::{InspectionCounters, InspectionServiceCounters};

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowAnswer};

use Align::{Left, Right};

impl ShowAnswer for operation::Inspection {
    type Options = NoOptions;

    fn text(status: &InspectionStatus, _: &NoOptions, output: &mut dyn Write) -> Result<(), CommandError> {
        let mut columns = Columns::new(&[("INSPECTION", Left), ("", Right), ("", Left)]);
        let mut row = |name: &str, number, unit: &str| columns.row([name.to_owned(), grouped(number), unit.to_owned()]);
        row("rules active", status.signatures, "");
        row("rules refused", status.refused.len() as u64, "");
        row("search database", status.search_bytes, "bytes");
        let search = &status.search;
        let how = if search.loaded { "  loaded in" } else { "  compiled in" };
        row(how, search.milliseconds, "ms");
        if let Some([done, total]) = search.compiling {
            row("  compiling other rules", done, &format!("of {}", grouped(total)));
        }
        for (name, count) in &status.counters.0 {
            let unit = unit(name);
            match count {
                CounterValue::Single(count) => row(name, *count, unit),
                // The total of `bypassed-by-reason` is the counter `bypassed`.
                CounterValue::ByLabel(_) if name.contains("-by-") => {}
                CounterValue::ByLabel(_) => row(name, count.total(), unit),
            }
            if let CounterValue::ByLabel(values) = count {
                for value in values {
                    row(&format!("  {}", value.reason), value.packets, unit);
                }
            }
        }
        columns.flush(output)?;
        if let Some(why) = &search.why {
            writeln!(output, "\nnot loaded: {}", escaped(why))?;
        }
        if !status.refused.is_empty() {
            writeln!(output)?;
            let mut columns = Columns::new(&[("REFUSED", Right), ("LINE", Left), ("WHY", Left)]);
            for refused in &status.refused {
                let rule = refused.signature.map_or_else(String::new, |number| number.to_string());
                columns.row([rule, format!("{}:{}", refused.file, refused.line), refused.why.clone()]);
            }
            columns.flush(output)?;
        }
        Ok(())
    }
}

/// Unit of a counter of inspection. Empty for a counter that only the daemon knows.
fn unit(name: &str) -> &'static str {
    let workers = InspectionCounters::NAMED.iter().map(|known| (known.name, known.unit));
    let service = InspectionServiceCounters::NAMED
        .iter()
        .map(|known| (known.name, known.unit));
    let mut known = workers.chain(service);
    known
        .find(|(known, _)| *known == name)
        .map_or("", |(_, unit)| unit.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_daemon::config::api::{CounterValues, InspectionReason};

    #[test]
    fn counters_of_the_answer_are_shown_with_their_units_and_reasons() {
        let reason = |reason: &str, packets| InspectionReason {
            reason: reason.into(),
            help: String::new(),
            packets,
        };
        let status = InspectionStatus {
            signatures: 1_000,
            counters: CounterValues(vec![
                ("bypassed".into(), CounterValue::Single(5)),
                (
                    "bypassed-by-reason".into(),
                    CounterValue::ByLabel(vec![reason("class", 2), reason("overload", 3)]),
                ),
                ("searched".into(), CounterValue::Single(12_345)),
                ("limits".into(), CounterValue::ByLabel(vec![reason("flows-evicted", 7)])),
                ("of-another-version".into(), CounterValue::Single(1)),
            ]),
            ..InspectionStatus::default()
        };
        let mut output = Vec::new();
        operation::Inspection::text(&status, &NoOptions {}, &mut output).expect("output in memory");
        let expected = "\
INSPECTION
rules active         1,000
rules refused            0
search database          0  bytes
  compiled in            0  ms
bypassed                 5  packets
  class                  2  packets
  overload               3  packets
searched            12,345  bytes
limits                   7  times
  flows-evicted          7  times
of-another-version       1
";
        assert_eq!(expected, String::from_utf8(output).expect("text"));
    }
}
