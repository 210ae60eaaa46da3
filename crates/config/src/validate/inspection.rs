//! Validation of inspection: interfaces, files and exceptions.

use std::path::{Path, PathBuf};

use super::Check;
use crate::config::{EveTarget, Inspection, Interface, SignatureFile};
use crate::problem::InspectionProblem;
use crate::read::place;
use crate::schema;
use crate::schema::EXCEPTIONS;

impl Check<'_> {
    /// Settings of inspection, with interfaces by index. `None` if inspection is not configured.
    pub(super) fn inspection(&mut self, interfaces: &[Interface]) -> Option<Inspection> {
        let written = self.document.inspection.as_ref()?;
        self.inspection_sizes(written);
        if written.interfaces.is_empty() {
            self.report(place!["inspection"], InspectionProblem::Nothing.into());
        }
        if written.signatures.is_empty() {
            self.report(place!["inspection"], InspectionProblem::NoSignatures.into());
        }
        let inspected = self.chosen("inspection", &written.interfaces, interfaces);
        for name in written.exceptions.keys() {
            if !EXCEPTIONS.contains(&name.as_str()) {
                let unknown = InspectionProblem::Exception(name.clone());
                self.report(place!["inspection", "exceptions", name.as_str()], unknown.into());
            }
        }
        let folder = Path::new(self.name).parent().unwrap_or(Path::new("")).to_owned();
        let at = |file: &str| -> PathBuf { folder.join(file) };
        let files = written.signatures.iter().map(|signatures| SignatureFile {
            path: at(&signatures.file),
            dialect: signatures.dialect,
            partial: signatures.partial,
        });
        Some(Inspection {
            interfaces: inspected,
            signatures: files.collect(),
            classes: written.classes.as_deref().map(at),
            cache: (!written.cache.is_empty()).then(|| at(&written.cache)),
            eve: written.eve.as_ref().and_then(|eve| self.eve(eve, at)),
        })
    }

    /// Target of EVE records. Exactly one target must be specified.
    fn eve(&mut self, written: &schema::Eve, at: impl Fn(&str) -> PathBuf) -> Option<EveTarget> {
        let place = |key| place!["inspection", "eve", key].to_vec();
        self.whole_seconds(
            &place("stats-interval"),
            "how often statistics are written",
            written.stats_interval,
        );
        let range = 16..=1 << 20;
        self.in_range(&place("records"), "a number of records", written.records, range);
        if let Some(bytes) = written.rotate_bytes {
            self.in_range(&place("rotate-bytes"), "a number of bytes", bytes, 1 << 16..=1 << 40);
        }
        self.in_range(
            &place("rotate-kept"),
            "a number of files",
            written.rotate_kept,
            1..=1000,
        );
        let types = written.types.iter().enumerate();
        for (k, _) in types.filter(|(k, kind)| written.types[..*k].contains(kind)) {
            self.report(
                place!["inspection", "eve", "types", k],
                InspectionProblem::EveTypeTwice.into(),
            );
        }
        match (&written.file, &written.stream, &written.datagram) {
            (Some(file), None, None) => Some(EveTarget::File(at(file))),
            (None, Some(socket), None) => Some(EveTarget::Stream(at(socket))),
            (None, None, Some(socket)) => Some(EveTarget::Datagram(at(socket))),
            _ => {
                self.report(place!["inspection", "eve"], InspectionProblem::EveTarget.into());
                None
            }
        }
    }

    fn inspection_sizes(&mut self, written: &schema::Inspection) {
        let at = |key| place!["inspection", key].to_vec();
        self.in_range(&at("flows"), "a number of flows", written.flows, 64..=1 << 24);
        self.in_range(&at("window"), "a number of bytes", written.window, 512..=1 << 20);
        let reassembly = &at("reassembly-bytes");
        self.in_range(
            reassembly,
            "a number of bytes",
            written.reassembly_bytes,
            1 << 20..=u32::MAX,
        );
        self.in_range(&at("messages"), "a number of messages", written.messages, 64..=1 << 20);
        self.in_range(&at("decoders"), "a number of decoders", written.decoders, 1..=u16::MAX);
        self.in_range(&at("alerts"), "a number of alerts", written.alerts, 16..=1 << 20);
        self.in_range(&at("fragments"), "a number of datagrams", written.fragments, 1..=4096);
        self.in_range(
            &at("fragment-bytes"),
            "a number of bytes",
            written.fragment_bytes,
            1 << 16..=1 << 28,
        );
        if let Some(overload) = &written.overload {
            self.overload(overload);
        }
        for (k, class) in written.bypass.iter().enumerate() {
            if class.protocol.is_none() && class.ports.is_empty() && class.networks.is_empty() {
                self.report(place!["inspection", "bypass", k], InspectionProblem::BypassesAll.into());
            }
        }
    }

    fn overload(&mut self, written: &schema::Overload) {
        let schema::Overload {
            threshold: begins,
            ends,
            ..
        } = *written;
        let at = place!["inspection", "overload", "threshold"];
        // Devices deliver bursts of 64 packets, so a smaller threshold would be exceeded all the time.
        self.in_range(at, "a number of packets", begins, 64..=1 << 20);
        if ends >= begins {
            let marks = InspectionProblem::Marks { begins, ends };
            self.report(place!["inspection", "overload", "ends"], marks.into());
        }
        for (k, class) in written.classes.iter().enumerate() {
            if written.classes[..k].iter().any(|other| other.name == class.name) {
                let twice = InspectionProblem::ClassTwice(class.name.clone());
                self.report(place!["inspection", "overload", "classes", k, "name"], twice.into());
            }
            let wrong = match (class.action, class.depth) {
                (schema::OverloadAction::InspectLess, None | Some(0)) => InspectionProblem::NoDepth,
                (schema::OverloadAction::InspectLess, Some(_)) | (_, None) => continue,
                (_, Some(_)) => InspectionProblem::NeedlessDepth,
            };
            self.report(place!["inspection", "overload", "classes", k], wrong.into());
        }
    }
}
