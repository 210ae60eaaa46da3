//! Named lists to which rules refer (`dataset`), and lists of file hashes (`filesha256`). File names are relative to
//! the folder of the rules.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::draft::SignatureDraft;
use super::{RuleError, range, syntax};
use crate::datasets::{DEFAULT_HASH_SIZE, Dataset, DatasetType, InvalidEntry, MAX_HASH_SIZE};
use crate::signature::{Buffer, Condition, DatasetCommand, DatasetTest, DatasetValue};

/// Maximum size of a list file.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Lists of all rule files that are loaded together.
#[derive(Clone, Debug, Default)]
pub struct Lists(Rc<RefCell<LoadedLists>>);

#[derive(Debug, Default)]
struct LoadedLists {
    folder: Option<PathBuf>,
    sets: HashMap<Box<str>, (Option<PathBuf>, Arc<Dataset>)>,
}

impl Lists {
    /// Makes the file names of lists relative to a folder.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> Self {
        self.0.borrow_mut().folder = Some(folder.to_owned());
        self
    }

    fn dataset(
        &self,
        name: &str,
        kind: DatasetType,
        load: Option<&str>,
        places: usize,
    ) -> Result<Arc<Dataset>, RuleError> {
        let path = load.map(|file| self.path(file)).transpose()?;
        self.get_or_load(name, kind, path, |text| Dataset::new(name, kind, places, text))
    }

    /// Returns the list of hashes in a file, for an option.
    fn hashes(&self, option: &str, kind: DatasetType, file: &str) -> Result<Arc<Dataset>, RuleError> {
        let path = self.path(file)?;
        let name = format!("{option} {}", path.display());
        self.get_or_load(&name, kind, Some(path), |text| Dataset::from_hashes(&name, kind, text))
    }

    /// Path of a file that a rule names.
    fn path(&self, file: &str) -> Result<PathBuf, RuleError> {
        match &self.0.borrow().folder {
            Some(folder) => Ok(folder.join(file)),
            None => Err(RuleError::List {
                path: file.into(),
                why: "the rules were not read from a folder".into(),
            }),
        }
    }

    /// Returns the list of this name, and loads it from its file if it is not loaded yet.
    fn get_or_load(
        &self,
        name: &str,
        kind: DatasetType,
        path: Option<PathBuf>,
        make: impl FnOnce(&str) -> Result<Dataset, InvalidEntry>,
    ) -> Result<Arc<Dataset>, RuleError> {
        let mut known = self.0.borrow_mut();
        if let Some((from, set)) = known.sets.get(name) {
            // A later rule may omit the file name.
            return match set.kind() == kind && (path.is_none() || *from == path) {
                true => Ok(set.clone()),
                false => Err(RuleError::OtherList(name.into())),
            };
        }
        let fault = |why: String| RuleError::List {
            path: path.as_deref().unwrap_or(Path::new(name)).display().to_string().into(),
            why: why.into(),
        };
        let text = match &path {
            None => String::new(),
            Some(path) => {
                let length = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
                if length > MAX_FILE_BYTES {
                    return Err(fault(format!("the file has more than {MAX_FILE_BYTES} bytes")));
                }
                std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?
            }
        };
        let set = Arc::new(make(&text).map_err(|wrong| fault(wrong.to_string()))?);
        known.sets.insert(name.into(), (path, set.clone()));
        Ok(set)
    }
}

/// `dataset:isset,name,type string,load names.lst[,hashsize 1024]`.
pub(super) fn dataset(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let [command, name, ref rest @ ..] = arguments[..] else {
        return Err(RuleError::MissingPart("command, name, type"));
    };
    let command = match command {
        "isset" => DatasetCommand::IsSet,
        "isnotset" => DatasetCommand::IsNotSet,
        "set" => DatasetCommand::Set,
        "unset" => DatasetCommand::Unset,
        other => return Err(RuleError::PartNotInspected(other.into())),
    };
    if name.is_empty() {
        return Err(RuleError::MissingPart("name"));
    }
    let (mut kind, mut load, mut places) = (None, None, DEFAULT_HASH_SIZE);
    for part in rest {
        match syntax::word(part) {
            ("type", text) => {
                kind = Some(DatasetType::named(text).ok_or_else(|| RuleError::PartNotInspected((*part).into()))?)
            }
            ("load", file) if !file.is_empty() => load = Some(file),
            ("hashsize", count) => places = range::number::<u32>(count)? as usize,
            // `memcap` is ignored, because the maximum number of values already limits the memory.
            ("memcap", _) => {}
            _ => return Err(RuleError::PartNotInspected((*part).into())),
        }
    }
    if places == 0 || places > MAX_HASH_SIZE {
        return Err(RuleError::OutOfRange(format!("hashsize {places}").into()));
    }
    let kind = kind.ok_or(RuleError::MissingPart("type"))?;
    let set = draft.lists.dataset(name, kind, load, places)?;
    let value = match draft.address {
        Some(track) if kind.is_address() => DatasetValue::Address(track),
        None if !kind.is_address() => DatasetValue::Buffer(draft.buffer()),
        _ => return Err(RuleError::NotOfList(name.into())),
    };
    let changes = matches!(command, DatasetCommand::Set | DatasetCommand::Unset);
    if changes {
        set.reserve();
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

/// `filemd5:[!]bad.md5`
pub(super) fn file_md5(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    file_hash(draft, value, DatasetType::Md5, Buffer::FileMd5)
}

/// `filesha1:[!]bad.sha1`
pub(super) fn file_sha1(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    file_hash(draft, value, DatasetType::Sha1, Buffer::FileSha1)
}

/// `filesha256:[!]bad.sha256`
pub(super) fn file_sha256(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    file_hash(draft, value, DatasetType::Sha256, Buffer::FileSha256)
}

/// Tests whether the hash of a file is in a list, or is absent from it.
fn file_hash(draft: &mut SignatureDraft, value: &str, kind: DatasetType, buffer: Buffer) -> Result<(), RuleError> {
    let value = value.trim();
    let (file, command) = match value.strip_prefix('!') {
        Some(rest) => (rest.trim_start(), DatasetCommand::IsNotSet),
        None => (value, DatasetCommand::IsSet),
    };
    if file.is_empty() {
        return Err(RuleError::MissingPart("file"));
    }
    let set = draft.lists.hashes(draft.option, kind, file)?;
    let value = DatasetValue::Buffer(buffer);
    draft.push(Condition::Dataset(DatasetTest { set, value, command }));
    Ok(())
}
