//! CPU time as reported by the kernel of a guest and by its emulator: non-idle time of the guest, and CPU time of the
//! thread that emulates its processor.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A reading of the guest's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub now: u64,
    /// Idle time of the guest until the reading, in nanoseconds.
    pub idle: u64,
}

/// Guest command that prints a [`Reading`]: /proc/timer_list contains both values in nanoseconds.
pub const COMMAND: &str = "grep -E '^now at|idle_sleeptime' /proc/timer_list";

impl Reading {
    /// Parses the output of [`COMMAND`] from a guest with one processor; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |name: &str| {
            let line = text.lines().find(|line| line.contains(name))?;
            line.split_whitespace().find_map(|word| word.parse().ok())
        };
        Some(Self {
            now: number("now at")?,
            idle: number("idle_sleeptime")?,
        })
    }

    /// Time since an earlier reading, and the non-idle part of that time.
    pub fn since(&self, before: &Self) -> Span {
        let whole = self.now.saturating_sub(before.now) as f64;
        let idle = self.idle.saturating_sub(before.idle) as f64;
        Span {
            whole,
            worked: (whole - idle).max(0.0),
        }
    }
}

/// A period of the guest's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub whole: f64,
    /// Non-idle time of the guest.
    pub worked: f64,
}

impl Span {
    /// Share of the time in which the guest was not idle.
    pub fn share(&self) -> f64 {
        self.worked / self.whole.max(1.0)
    }

    /// Work of the guest, without background work. Background work has the same share as in the period `idle`, but only
    /// of the time that the other work leaves.
    pub fn beyond(&self, idle: &Self) -> f64 {
        let share = idle.share();
        ((self.worked - share * self.whole) / (1.0 - share).max(1e-9)).max(0.0)
    }
}

/// Threads of an emulator, as folders in /proc.
#[derive(Clone, Debug)]
pub struct Threads {
    process: u32,
    processor: PathBuf,
}

impl Threads {
    /// Finds the threads of a process by QEMU's thread names; `None` if no thread emulates a processor.
    pub fn of(process: u32) -> Option<Self> {
        let name = |thread: &PathBuf| fs::read_to_string(thread.join("comm")).unwrap_or_default();
        let processor = tasks(process).find(|thread| name(thread).trim().ends_with("/TCG"))?;
        Some(Self { process, processor })
    }

    /// CPU time of the thread that emulates the guest's processor, and of all threads.
    pub fn times(&self) -> [Duration; 2] {
        [
            time(&self.processor),
            tasks(self.process).map(|thread| time(&thread)).sum(),
        ]
    }

    /// Number of each thread, and whether the thread emulates the guest's processor.
    pub fn numbers(&self) -> impl Iterator<Item = (String, bool)> {
        tasks(self.process).map(move |thread| {
            let number = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (number, thread == self.processor)
        })
    }
}

fn tasks(process: u32) -> impl Iterator<Item = PathBuf> {
    let folder = fs::read_dir(format!("/proc/{process}/task"));
    folder.into_iter().flatten().flatten().map(|thread| thread.path())
}

fn time(thread: &Path) -> Duration {
    ran(&fs::read_to_string(thread.join("schedstat")).unwrap_or_default())
}

/// Parses the first field: nanoseconds for which the thread has run.
fn ran(schedstat: &str) -> Duration {
    let field = schedstat.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(field.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_of_the_list_of_timers() {
        let text = "now at 22873088968 nsecs\n  .idle_sleeptime : 19000000001 nsecs\n";
        let expected = Reading {
            now: 22_873_088_968,
            idle: 19_000_000_001,
        };
        assert_eq!(Some(expected), Reading::parse(text));
        assert_eq!(None, Reading::parse("now at 1 nsecs\n"));
    }

    #[test]
    fn work_is_what_is_neither_idle_nor_done_without_packets() {
        let at = |now, idle| Reading { now, idle };
        let idle = at(1_000, 900).since(&at(0, 0));
        assert_eq!(100.0, idle.worked);
        // 400 ns of work for packets, and background work in a tenth of the other 600 ns.
        let busy = at(2_000, 1_440).since(&at(1_000, 900));
        assert_eq!(460.0, busy.worked);
        assert!((busy.beyond(&idle) - 400.0).abs() < 1e-6);
        assert_eq!(0.0, idle.beyond(&busy), "less than nothing");
    }

    #[test]
    fn time_of_a_thread_is_the_first_field() {
        assert_eq!(Duration::from_nanos(1_234), ran("1234 55 6\n"));
        assert_eq!(Duration::ZERO, ran(""));
        let all = tasks(std::process::id()).map(|thread| time(&thread));
        assert!(all.sum::<Duration>() > Duration::ZERO);
        assert!(
            Threads::of(std::process::id()).is_none(),
            "it has no emulated processor"
        );
    }
}
