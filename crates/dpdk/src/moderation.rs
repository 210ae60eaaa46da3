//! Interrupt moderation: how often the kernel polls a card for AF_XDP.
//!
//! By default, a card may raise an interrupt for each frame. The kernel then runs a receive pass for each frame, and
//! the worker gets bursts of one frame. With moderation, the kernel fetches several frames together while frames keep
//! arriving, but still delivers a single frame immediately. If the driver supports busy polling through a socket, these
//! settings also leave polling to the worker (`Documentation/networking/napi.rst`).
//!
//! Virtual interfaces (veth) have no interrupts, and late polls by a timer would delay their senders. For virtual
//! interfaces, the worker coalesces frames instead ([`crate::coalescing`]).

use std::fs;
use std::path::{Path, PathBuf};

/// Number of empty polls before the interface may raise interrupts again.
const EMPTY_FETCHES: &str = "2";

/// Interval between polls in nanoseconds.
const PAUSE: &str = "200000";

/// Settings to change: for each setting, its file in the interface's /sys directory, and the value to write.
const SETTINGS: [(&str, &str); 2] = [("napi_defer_hard_irqs", EMPTY_FETCHES), ("gro_flush_timeout", PAUSE)];

/// Changed settings of an interface. Dropping this value restores the previous settings.
#[derive(Debug)]
pub(crate) struct Moderation {
    before: Vec<(PathBuf, String)>,
}

impl Moderation {
    /// Change the settings of an interface. `None` for an interface without a card. Keeps settings that the
    /// administrator has changed. Changes no setting if /sys is not writable.
    pub(crate) fn set(interface: &str) -> Option<Self> {
        card(interface).map(|folder| Self::set_in(&folder))
    }

    fn set_in(folder: &Path) -> Self {
        let set = |(name, value): (&str, &str)| {
            let file = folder.join(name);
            let before = fs::read_to_string(&file).ok().filter(|before| before.trim() == "0")?;
            fs::write(&file, value).ok()?;
            Some((file, before))
        };
        Self {
            before: SETTINGS.into_iter().filter_map(set).collect(),
        }
    }
}

impl Drop for Moderation {
    fn drop(&mut self) {
        for (file, before) in &self.before {
            // Ignore the error, because the interface may no longer exist.
            let _ = fs::write(file, before);
        }
    }
}

/// Whether the interface belongs to a card, but this process can't change the interface's settings.
pub(crate) fn refused(interface: &str) -> bool {
    let writable = |file: PathBuf| fs::OpenOptions::new().write(true).open(file).is_ok();
    card(interface).is_some_and(|folder| !SETTINGS.iter().all(|(name, _)| writable(folder.join(name))))
}

/// Directory of a card's interface in /sys. `None` for an interface without a card, or if /sys shows another network
/// namespace.
fn card(interface: &str) -> Option<PathBuf> {
    let folder = folder(interface)?;
    folder.join("device").exists().then_some(folder)
}

fn folder(interface: &str) -> Option<PathBuf> {
    let folder = Path::new("/sys/class/net").join(interface);
    let shown: u32 = fs::read_to_string(folder.join("ifindex")).ok()?.trim().parse().ok()?;
    let name = std::ffi::CString::new(interface).ok()?;
    // SAFETY: the argument is a C string that is read during the call.
    let ours = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (shown == ours).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_without_a_card_is_left_alone() {
        for name in ["no-such", "lo"] {
            assert!(!refused(name), "{name}");
            assert!(Moderation::set(name).is_none(), "{name}");
        }
    }

    #[test]
    fn moderation_leaves_what_an_operator_has_set_and_puts_back_what_was() {
        let folder = std::env::temp_dir().join(format!("sluice-moderation-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder of our own");
        let [fetches, pause] = SETTINGS.map(|(name, _)| folder.join(name));
        let settings = || [&fetches, &pause].map(|file| fs::read_to_string(file).expect("a file of our own"));
        for (before, during) in [(["0\n", "0\n"], ["2", "200000"]), (["0\n", "77\n"], ["2", "77\n"])] {
            for (file, text) in [&fetches, &pause].into_iter().zip(before) {
                fs::write(file, text).expect("a file of our own");
            }
            let moderation = Moderation::set_in(&folder);
            assert_eq!(during.map(str::to_owned), settings());
            drop(moderation);
            assert_eq!(before.map(str::to_owned), settings());
        }
        fs::remove_dir_all(&folder).expect("a folder of our own");
    }

    #[test]
    fn folder_is_that_of_our_own_namespace() {
        let shown = Path::new("/sys/class/net/lo/ifindex");
        let ours = fs::read_to_string(shown).is_ok_and(|index| index.trim() == "1");
        assert_eq!(ours, folder("lo").is_some());
    }
}
