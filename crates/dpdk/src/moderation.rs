//! How often the kernel fetches frames for AF_XDP.
//!
//! Left alone, an interface that has no interrupts of its own (veth) hands each frame over as it comes: a run of the
//! kernel's half for one frame, and a burst of one for the worker. Moderated, frames are fetched together while they
//! keep coming; a lone frame still comes at once. Where the driver lets a socket poll it, the same settings leave the
//! fetching to the worker (`Documentation/networking/napi.rst`).

use std::fs;
use std::path::{Path, PathBuf};

/// Fetches that find nothing before the interface may interrupt again.
const EMPTY_FETCHES: &str = "2";

/// Nanoseconds from one fetch to the next.
const PAUSE: &str = "200000";

/// The files that say so, below the interface's folder, with what we write there.
const SETTINGS: [(&str, &str); 2] = [("napi_defer_hard_irqs", EMPTY_FETCHES), ("gro_flush_timeout", PAUSE)];

/// Settings of an interface, put back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    before: Vec<(PathBuf, String)>,
}

impl Moderation {
    /// Moderate an interface. What somebody has set already stays, and so does all where /sys can't be written.
    pub(crate) fn set(interface: &str) -> Self {
        let mut moderation = Self::default();
        let Some(folder) = folder(interface) else {
            return moderation;
        };
        for (name, value) in SETTINGS {
            let file = folder.join(name);
            match fs::read_to_string(&file) {
                Ok(before) if before.trim() == "0" && fs::write(&file, value).is_ok() => {
                    moderation.before.push((file, before));
                }
                _ => {}
            }
        }
        moderation
    }
}

impl Drop for Moderation {
    fn drop(&mut self) {
        for (file, before) in &self.before {
            // The interface may be gone.
            let _ = fs::write(file, before);
        }
    }
}

/// Can this process moderate an interface?
pub(crate) fn possible(interface: &str) -> bool {
    let writable = |name: &str| {
        let file = folder(interface)?.join(name);
        fs::OpenOptions::new().write(true).open(file).ok()
    };
    SETTINGS.iter().all(|(name, _)| writable(name).is_some())
}

/// The interface's folder below /sys, which may show another network namespace than ours.
fn folder(interface: &str) -> Option<PathBuf> {
    let folder = Path::new("/sys/class/net").join(interface);
    let shown: u32 = fs::read_to_string(folder.join("ifindex")).ok()?.trim().parse().ok()?;
    let name = std::ffi::CString::new(interface).ok()?;
    // SAFETY: a C string, read during the call.
    let ours = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (shown == ours).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_that_is_not_there_is_left_alone() {
        assert!(!possible("no-such"));
        assert!(Moderation::set("no-such").before.is_empty());
    }

    #[test]
    fn folder_is_that_of_our_own_namespace() {
        let shown = Path::new("/sys/class/net/lo/ifindex");
        let ours = fs::read_to_string(shown).is_ok_and(|index| index.trim() == "1");
        assert_eq!(ours, folder("lo").is_some());
    }
}
