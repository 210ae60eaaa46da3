//! `sluice show inspection`.

use std::io::Write;

use sluice_daemon::config::api::{InspectionStatus, operation};
use sluice_daemon::config::text::escaped;

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowAnswer};

use Align::{Left, Right};

impl ShowAnswer for operation::Inspection {
    type Options = NoOptions;

    fn text(status: &InspectionStatus, _: &NoOptions, output: &mut dyn Write) -> Result<(), CommandError> {
        let number = |columns: &mut Columns, name: &str, number| columns.row([name.to_owned(), grouped(number)]);
        let mut columns = Columns::new(&[("INSPECTION", Left), ("", Right)]);
        for (name, of) in [
            ("rules active", status.signatures),
            ("rules refused", status.refused.len() as u64),
            ("bytes of the search database", status.search_bytes),
        ] {
            number(&mut columns, name, of);
        }
        let search = &status.search;
        let how = if search.loaded { "  loaded" } else { "  compiled" };
        columns.row([how.to_owned(), format!("in {} ms", grouped(search.milliseconds))]);
        if let Some([done, total]) = search.compiling {
            let how_far = format!("{} of {}", grouped(done), grouped(total));
            columns.row(["  compiling other rules".to_owned(), how_far]);
        }
        for (name, of) in [
            ("packets received", status.received),
            ("  inspected", status.inspected),
            ("  bypassed", status.bypassed),
        ] {
            number(&mut columns, name, of);
        }
        for reason in &status.bypassed_by_reason {
            number(&mut columns, &format!("    {}", reason.reason), reason.packets);
        }
        number(&mut columns, "  dropped", status.dropped);
        for reason in &status.dropped_by_reason {
            number(&mut columns, &format!("    {}", reason.reason), reason.packets);
        }
        for (name, of) in [
            ("  waiting", status.waiting),
            ("bytes searched", status.searched),
            ("urgent pointers cleared", status.urgent_cleared),
            ("flows no longer inspected", status.bypassed_flows),
            ("flows changed to new rules", status.reopened),
        ] {
            number(&mut columns, name, of);
        }
        for (title, met) in [("anomalies", &status.anomalies), ("limits reached", &status.limits)] {
            number(&mut columns, title, met.iter().map(|met| met.packets).sum());
            for met in met {
                number(&mut columns, &format!("  {}", met.reason), met.packets);
            }
        }
        for (name, of) in [
            ("workers overloaded", status.overloaded),
            ("overloads so far", status.overloads),
            ("matches not counted", status.uncounted),
            ("events not recorded", status.unrecorded),
            ("alerts", status.alerts),
            ("alerts lost", status.alerts_lost),
            ("records written", status.records),
            ("records lost", status.records_lost),
            ("records not written to the file", status.records_failed),
        ] {
            number(&mut columns, name, of);
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
