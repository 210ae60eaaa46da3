use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A lease file in a temporary directory, a reader of the file, and two clocks.
struct Followed {
    folder: TempDir,
    source: Source,
    now: Now,
}

impl Followed {
    fn new(format: Format) -> Self {
        Self::with_limit(format, 100)
    }

    fn with_limit(format: Format, limit: usize) -> Self {
        let folder = TempDir::new().expect("a folder");
        let source = Source::new(&folder.path().join("leases"), format, limit, Default::default());
        let (unix, monotonic) = (1000, 0);
        Self {
            folder,
            source,
            now: Now { unix, monotonic },
        }
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.path().join(format!("leases{ending}"))
    }

    fn write(&self, ending: &str, text: &str) {
        fs::write(self.path(ending), text).expect("it is written");
    }

    fn append(&self, text: &str) {
        append(&self.path(""), text);
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("it is renamed");
    }

    fn look(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        self.source.look(self.now, &mut changes).expect("it can be read");
        words(&changes)
    }

    /// Advance the clock, and return the changes.
    fn after(&mut self, seconds: u64) -> Vec<String> {
        self.now.monotonic += seconds * SECOND;
        self.now.unix += seconds;
        self.look()
    }

    fn leases(&self) -> Vec<String> {
        let leases = sorted(self.source.table());
        let word = |lease: &Lease| format!("{}={:x}", lease.address.octets()[3], lease.hardware[5]);
        leases.iter().map(word).collect()
    }

    fn faults(&self, reason: Reason) -> u64 {
        self.source.counts().faults[reason as usize]
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("it is there");
    file.write_all(text.as_bytes()).expect("it is written");
}

fn kea(text: &str) -> Followed {
    let followed = Followed::new(Format::Kea);
    followed.write("", &format!("{HEADER}{text}"));
    followed
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn file_that_is_not_there_yet_is_read_when_it_comes() {
    let mut followed = Followed::new(Format::Kea);
    assert_eq!((none(), false), (followed.look(), followed.source.exists()));
    followed.write("", &format!("{HEADER}{}", line(1, 7, 1000)));
    assert_eq!((vec!["+1=7".into()], true), (followed.look(), followed.source.exists()));
}

#[test]
fn file_that_grows_tells_what_is_new() {
    let mut followed = kea(&line(1, 7, 1000));
    assert_eq!(vec!["+1=7"], followed.look());
    assert_eq!(none(), followed.look());
    let (first, second) = (line(2, 8, 1000), line(1, 9, 1000));
    followed.append(&first[..20]);
    assert_eq!(none(), followed.look());
    followed.append(&format!("{}{second}", &first[20..]));
    assert_eq!(vec!["+2=8", "1=7>9"], followed.look());
    assert_eq!(1, followed.source.counts().readings);
    assert_eq!(
        (2, 1),
        (followed.source.counts().gained, followed.source.counts().changed)
    );
}

#[test]
fn lease_expires_without_a_word_of_the_file() {
    let mut followed = kea(&line(1, 7, 1000));
    followed.look();
    assert_eq!(none(), followed.after(59));
    assert_eq!(vec!["-1 expired"], followed.after(1));
    assert_eq!([1, 0, 0, 0], followed.source.counts().lost);
}

#[test]
fn file_cut_and_written_anew_loses_what_it_lacks_once_it_is_whole() {
    let mut followed = kea(&format!("{}{}{}", line(1, 7, 1000), line(2, 8, 1000), line(3, 9, 1000)));
    followed.look();
    followed.write("", "");
    assert_eq!(none(), followed.look());
    assert_eq!(none(), followed.after(1), "no header: it is not whole");
    followed.append(HEADER);
    followed.append(&line(2, 8, 1000)[..10]);
    assert_eq!(none(), followed.after(1));
    assert_eq!(none(), followed.after(1), "a line breaks off: it is not whole");
    followed.append(&line(2, 8, 1000)[10..]);
    followed.append(&line(4, 5, 1001));
    assert_eq!(vec!["+4=5"], followed.look());
    assert_eq!(vec!["-1 vanished", "-3 vanished"], followed.after(1));
    assert_eq!(
        (vec!["2=8".to_owned(), "4=5".into()], false),
        (followed.leases(), followed.source.is_unsettled())
    );
}

#[test]
fn file_written_anew_with_older_lines_changes_nothing_in_between() {
    let text = format!("{}{}", line(1, 7, 1000), line(1, 8, 1010));
    let mut followed = kea(&text);
    assert_eq!(vec!["+1=8"], followed.look());
    // The file was only partly copied.
    followed.write("", &format!("{HEADER}{}", line(1, 7, 1000)));
    assert_eq!(none(), followed.look());
    followed.append(&line(1, 8, 1010));
    assert_eq!(none(), followed.look());
    assert_eq!(none(), followed.after(1));
    // An older file is restored, and the server uses it.
    followed.write("", &format!("{HEADER}{}", line(1, 7, 1000)));
    assert_eq!(none(), followed.look());
    assert_eq!(vec!["1=8>7"], followed.after(1));
}

#[test]
fn file_replaced_is_taken_by_the_difference() {
    let mut followed = Followed::new(Format::Dhcpd);
    followed.now.unix = THEN;
    fs::write(followed.path(""), DHCPD).expect("it is written");
    assert_eq!(5, followed.look().len());
    fs::write(followed.path(".new"), DHCPD_REWRITTEN).expect("it is written");
    followed.append(
        "lease 10.77.1.9 {\n  starts epoch 1; ends never; binding state active; hardware ethernet 2:0:0:0:0:9;\n}\n",
    );
    followed.rename(".new", "");
    assert_eq!(vec!["+9=9"], followed.look(), "what the old one was told last");
    assert_eq!(vec!["-9 vanished"], followed.after(1));
    assert_eq!(2, followed.source.counts().readings);
}

#[test]
fn file_that_never_rests_is_settled_all_the_same() {
    let mut followed = kea(&line(1, 7, 1000));
    followed.look();
    followed.write(".new", HEADER);
    followed.rename(".new", "");
    let mut lost = none();
    for second in 0..12 {
        followed.append(&line(9, 9, 1000 + second));
        lost.extend(followed.after(1).into_iter().filter(|word| word.starts_with('-')));
    }
    assert_eq!(vec!["-1 vanished"], lost);
}

#[test]
fn file_deleted_keeps_its_leases_until_it_comes_again() {
    let mut followed = kea(&format!("{}{}", line(1, 7, 1000), line(2, 8, 1000)));
    followed.look();
    fs::remove_file(followed.path("")).expect("it is removed");
    assert_eq!((none(), false), (followed.after(5), followed.source.exists()));
    followed.write("", &format!("{HEADER}{}{}", line(2, 8, 1000), line(3, 9, 1001)));
    assert_eq!(vec!["+3=9"], followed.look());
    assert_eq!(vec!["-1 vanished"], followed.after(1));
    assert_eq!(vec!["2=8", "3=9"], followed.leases());
}

#[test]
fn kea_clean_up_loses_nothing_at_any_of_its_steps() {
    // A reader that has followed the file from the beginning and a reader that starts at this step have the same
    // leases.
    let mut followed = kea(&format!("{}{}{}", line(1, 7, 1000), line(2, 8, 1000), line(1, 7, 1010)));
    followed.write(".2", &format!("{HEADER}{}{}", line(3, 9, 990), line(2, 5, 980)));
    followed.look();
    let expected = vec!["1=7", "2=8", "3=9"];
    let step = |followed: &mut Followed, description: &str| {
        assert_eq!(none(), followed.look(), "{description}");
        assert_eq!(none(), followed.after(1), "{description}");
        assert_eq!(expected, followed.leases(), "{description}");
        let mut fresh = Source::new(&followed.path(""), Format::Kea, 100, Default::default());
        let mut changes = Vec::new();
        fresh.look(followed.now, &mut changes).expect("it can be read");
        assert_eq!(sorted(followed.source.table()), sorted(fresh.table()), "{description}");
    };
    step(&mut followed, "before");
    followed.rename("", ".1");
    assert_eq!(none(), followed.look(), "no file at all");
    followed.write("", HEADER);
    step(&mut followed, "put aside");
    assert_eq!(1, followed.source.counts().rotations);
    let clean = format!("{HEADER}{}{}{}", line(3, 9, 990), line(2, 8, 1000), line(1, 7, 1010));
    followed.write(".output", &clean[..200]);
    step(&mut followed, "being cleaned");
    followed.write(".output", &clean);
    followed.rename(".output", ".completed");
    step(&mut followed, "completed");
    fs::remove_file(followed.path(".2")).expect("it is removed");
    step(&mut followed, "without the last one");
    fs::remove_file(followed.path(".1")).expect("it is removed");
    step(&mut followed, "without what was put aside");
    followed.rename(".completed", ".2");
    step(&mut followed, "done");
    assert_eq!(1, followed.source.counts().readings);
}

#[test]
fn kea_put_aside_with_the_last_lines_unread_loses_none() {
    let mut followed = kea(&line(1, 7, 1000));
    followed.look();
    followed.append(&line(2, 8, 1000));
    followed.rename("", ".1");
    followed.write("", &format!("{HEADER}{}", line(3, 9, 1000)));
    assert_eq!(vec!["+2=8", "+3=9"], followed.look());
    // The file is rotated twice between two checks.
    followed.write(".2", &format!("{HEADER}{}{}", line(1, 7, 1000), line(2, 8, 1000)));
    followed.append(&line(4, 4, 1000));
    followed.rename("", ".1");
    followed.write("", &format!("{HEADER}{}", line(5, 5, 1000)));
    followed.rename("", ".1");
    followed.write(
        ".2",
        &format!("{HEADER}{}{}{}", line(1, 7, 1000), line(2, 8, 1000), line(4, 4, 1000)),
    );
    followed.write("", &format!("{HEADER}{}{}", line(3, 9, 1000), line(6, 6, 1000)));
    assert_eq!(vec!["+4=4", "+5=5", "+6=6"], followed.look());
    assert_eq!(none(), followed.after(1));
}

#[test]
fn line_that_breaks_off_with_its_file_is_counted() {
    let mut followed = kea(&line(1, 7, 1000));
    followed.append("10.77.1.2,02");
    followed.look();
    followed.rename("", ".1");
    followed.write("", HEADER);
    followed.look();
    assert_eq!(1, followed.faults(Reason::Unfinished));
}

#[test]
fn leases_beyond_their_number_are_refused_and_counted_once() {
    let mut followed = Followed::with_limit(Format::Kea, 4);
    let lines: String = (1..=9).map(|last| line(last, last, 1000)).collect();
    followed.write("", &format!("{HEADER}{lines}"));
    assert_eq!(4, followed.look().len());
    assert_eq!((none(), 5), (followed.after(1), followed.faults(Reason::Full)));
    followed.append(&line(10, 10, 1000));
    assert_eq!((none(), 6), (followed.look(), followed.faults(Reason::Full)));
}

#[test]
fn leases_of_a_new_file_find_the_room_of_those_that_vanish() {
    let mut followed = Followed::with_limit(Format::Kea, 2);
    followed.write("", &format!("{HEADER}{}{}", line(1, 1, 1000), line(2, 2, 1000)));
    followed.look();
    followed.write(".new", &format!("{HEADER}{}{}", line(3, 3, 1000), line(4, 4, 1000)));
    followed.rename(".new", "");
    assert_eq!(none(), followed.look());
    assert_eq!(vec!["-1 vanished", "-2 vanished", "+3=3", "+4=4"], followed.after(1));
    assert_eq!(0, followed.faults(Reason::Full));
}

#[test]
fn folder_in_the_place_of_the_file_is_an_error_and_leases_stay() {
    let mut followed = kea(&line(1, 7, 1000));
    followed.look();
    fs::remove_file(followed.path("")).expect("it is removed");
    fs::create_dir(followed.path("")).expect("it is made");
    let error = followed
        .source
        .look(followed.now, &mut Vec::new())
        .expect_err("it is no file");
    assert!(error.to_string().contains("the known leases are kept"), "{error}");
    assert_eq!(vec!["1=7"], followed.leases());
}
