//! `dataset`: lists that rules share by name, in files that are named from the folder of the rules.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::draft::Draft;
use super::{Fault, range, syntax};
use crate::datasets::{Dataset, Kind, MOST_PLACES, PLACES};
use crate::signature::{Condition, DatasetCommand, DatasetTest, DatasetValue};

/// The largest file that is read.
const LARGEST: u64 = 256 << 20;

/// Lists of all files of rules that are in force together.
#[derive(Clone, Debug, Default)]
pub struct Lists(Rc<RefCell<Known>>);

#[derive(Debug, Default)]
struct Known {
    folder: Option<PathBuf>,
    sets: HashMap<Box<str>, (Option<PathBuf>, Arc<Dataset>)>,
}

impl Lists {
    /// The same lists, with files named from a folder.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> Self {
        self.0.borrow_mut().folder = Some(folder.to_owned());
        self
    }

    fn dataset(&self, name: &str, kind: Kind, load: Option<&str>, places: usize) -> Result<Arc<Dataset>, Fault> {
        let mut known = self.0.borrow_mut();
        let path = match (load, &known.folder) {
            (None, _) => None,
            (Some(file), Some(folder)) => Some(folder.join(file)),
            (Some(file), None) => {
                return Err(Fault::List {
                    path: file.into(),
                    why: "these rules are in no folder".into(),
                });
            }
        };
        if let Some((from, set)) = known.sets.get(name) {
            // Who comes later need not say again where it is from.
            return match set.kind() == kind && (path.is_none() || *from == path) {
                true => Ok(set.clone()),
                false => Err(Fault::OtherList(name.into())),
            };
        }
        let fault = |why: String| Fault::List {
            path: path.as_deref().unwrap_or(Path::new(name)).display().to_string().into(),
            why: why.into(),
        };
        let text = match &path {
            None => String::new(),
            Some(path) => {
                let length = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
                if length > LARGEST {
                    return Err(fault(format!("it has more than {LARGEST} bytes")));
                }
                std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?
            }
        };
        let set = Dataset::new(name, kind, places, &text).map_err(|wrong| fault(wrong.to_string()))?;
        let set = Arc::new(set);
        known.sets.insert(name.into(), (path, set.clone()));
        Ok(set)
    }
}

/// `dataset:isset,name,type string,load names.lst[,hashsize 1024]`.
pub(super) fn dataset(draft: &mut Draft, value: &str) -> Result<(), Fault> {
    let arguments = syntax::arguments(value)?;
    let [command, name, ref rest @ ..] = arguments[..] else {
        return Err(Fault::MissingPart("command, name, type"));
    };
    let command = match command {
        "isset" => DatasetCommand::IsSet,
        "isnotset" => DatasetCommand::IsNotSet,
        "set" => DatasetCommand::Set,
        "unset" => DatasetCommand::Unset,
        other => return Err(Fault::PartNotInspected(other.into())),
    };
    if name.is_empty() {
        return Err(Fault::MissingPart("name"));
    }
    let (mut kind, mut load, mut places) = (None, None, PLACES);
    for part in rest {
        match syntax::word(part) {
            ("type", text) => kind = Some(Kind::named(text).ok_or_else(|| Fault::PartNotInspected((*part).into()))?),
            ("load", file) if !file.is_empty() => load = Some(file),
            ("hashsize", count) => places = range::number::<u32>(count)? as usize,
            // Memory is bounded by the number of values.
            ("memcap", _) => {}
            _ => return Err(Fault::PartNotInspected((*part).into())),
        }
    }
    if places == 0 || places > MOST_PLACES {
        return Err(Fault::OutOfRange(format!("hashsize {places}").into()));
    }
    let kind = kind.ok_or(Fault::MissingPart("type"))?;
    let set = draft.lists.dataset(name, kind, load, places)?;
    let value = match draft.address {
        Some(track) if kind.is_address() => DatasetValue::Address(track),
        None if !kind.is_address() => DatasetValue::Buffer(draft.buffer()),
        _ => return Err(Fault::NotOfList(name.into())),
    };
    let changes = matches!(command, DatasetCommand::Set | DatasetCommand::Unset);
    if changes {
        set.may_be_added_to();
    }
    let test = Condition::Dataset(DatasetTest { set, value, command });
    match value {
        DatasetValue::Buffer(_) => draft.push_search(test, false),
        DatasetValue::Address(_) => {
            draft.push(test);
            Ok(())
        }
    }
}
