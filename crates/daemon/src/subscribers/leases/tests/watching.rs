use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::*;

/// Maximum wait. The limit is longer than any expected delay.
const PATIENCE: Duration = Duration::from_secs(60);

fn watch(path: &Path, limit: usize) -> (Watcher, Receiver<Vec<Change>>) {
    let (hand, handed) = channel();
    let settings = WatcherSettings {
        path: path.to_owned(),
        format: Format::Kea,
        limit,
    };
    let watcher = Watcher::start(settings, move |changes| drop(hand.send(changes))).expect("it runs");
    (watcher, handed)
}

/// Receive at least this number of changes.
fn next(handed: &Receiver<Vec<Change>>, count: usize) -> Vec<String> {
    let mut changes = Vec::new();
    while changes.len() < count {
        changes.extend(handed.recv_timeout(PATIENCE).expect("changes come"));
    }
    words(&changes)
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("it is there");
    file.write_all(text.as_bytes()).expect("it is written");
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is after 1970")
        .as_secs()
}

/// Wait until the status satisfies a condition.
fn until(watcher: &Watcher, stands: impl Fn(&WatcherStatus) -> bool) {
    let started_at = Instant::now();
    while !stands(&watcher.status()) {
        assert!(started_at.elapsed() < PATIENCE, "{:?}", watcher.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn watcher_hands_on_what_each_way_of_writing_changes() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("sub").join("kea-leases4.csv");
    let (watcher, handed) = watch(&path, 100);
    let begin = now();
    let of = |last, terminal| line(last, terminal, begin + 1000);
    // The directory and the file are created.
    until(&watcher, |status| !status.watched);
    fs::create_dir(path.parent().unwrap()).expect("it is made");
    fs::write(&path, format!("{HEADER}{}", of(1, 1))).expect("it is written");
    assert_eq!(vec!["+1=1"], next(&handed, 1));
    until(&watcher, |status| status.watched);
    append(&path, &of(2, 2));
    assert_eq!(vec!["+2=2"], next(&handed, 1));
    let half = of(3, 3);
    append(&path, &half[..15]);
    append(&path, &half[15..]);
    assert_eq!(vec!["+3=3"], next(&handed, 1));
    // The file is rotated.
    let renamed = path.with_file_name("kea-leases4.csv.1");
    fs::rename(&path, &renamed).expect("it is renamed");
    fs::write(&path, format!("{HEADER}{}", of(4, 4))).expect("it is written");
    assert_eq!(vec!["+4=4"], next(&handed, 1));
    fs::remove_file(&renamed).expect("it is removed");
    // The file is rewritten in place.
    fs::write(&path, format!("{HEADER}{}{}", of(1, 1), of(4, 5))).expect("it is written");
    assert_eq!(vec!["4=4>5", "-2 vanished", "-3 vanished"], next(&handed, 3));
    // The file is replaced.
    let fresh = path.with_file_name("fresh");
    fs::write(&fresh, format!("{HEADER}{}{}", of(1, 1), of(5, 5))).expect("it is written");
    fs::rename(&fresh, &path).expect("it is renamed");
    assert_eq!(vec!["+5=5", "-4 vanished"], next(&handed, 2));
    // The file is removed and created again.
    fs::remove_file(&path).expect("it is removed");
    until(&watcher, |status| !status.there);
    fs::write(&path, format!("{HEADER}{}{}{}", of(1, 1), of(5, 5), of(6, 6))).expect("it is written");
    assert_eq!(vec!["+6=6"], next(&handed, 1));
    until(&watcher, |status| status.there && status.leases == 3);
    // The directory is replaced.
    fs::rename(path.parent().unwrap(), folder.path().join("away")).expect("it is renamed");
    until(&watcher, |status| !status.there);
    fs::create_dir(path.parent().unwrap()).expect("it is made");
    fs::write(&path, format!("{HEADER}{}", of(1, 7))).expect("it is written");
    assert_eq!(vec!["1=1>7", "-5 vanished", "-6 vanished"], next(&handed, 3));
    assert_eq!(0, watcher.status().panics);
}

#[test]
fn watcher_whose_receiver_panics_begins_again() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("kea-leases4.csv");
    let begin = now();
    fs::write(&path, format!("{HEADER}{}", line(1, 1, begin))).expect("it is written");
    let (hand, handed) = channel();
    let mut first = true;
    let settings = WatcherSettings {
        path: path.clone(),
        format: Format::Kea,
        limit: 10,
    };
    let watcher = Watcher::start(settings, move |changes| {
        assert!(!std::mem::take(&mut first), "a panic that is meant");
        drop(hand.send(changes));
    });
    let watcher = watcher.expect("it runs");
    until(&watcher, |status| status.panics == 1);
    append(&path, &line(2, 2, begin));
    assert_eq!(vec!["+2=2"], next(&handed, 1));
}

#[test]
fn watcher_of_many_leases_hands_on_all_of_them() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("kea-leases4.csv");
    let end = now() + 1000;
    let mut text = HEADER.to_owned();
    for number in 0..100_000_u32 {
        let [_, high, middle, low] = number.to_be_bytes();
        let circuit = format!("0x0107{:014x}", number / 4);
        text.push_str(&format!(
            "10.{high}.{middle}.{low},02:00:00:{high:02x}:{middle:02x}:{low:02x},01:02:00:00:{high:02x}:{middle:02x}:{low:02x},\
             1000,{end},1,0,0,,0,{{ \"ISC\": {{ \"relay-agent-info\": \"{circuit}\" }} }}\n"
        ));
    }
    // The first address becomes free and another one is leased.
    text = text.replacen("10.0.0.0,", "10.200.0.1,", 1);
    fs::write(&path, &text).expect("it is written");
    let started_at = Instant::now();
    let (watcher, handed) = watch(&path, 200_000);
    assert_eq!(100_000, next(&handed, 100_000).len());
    println!("100,000 leases: {:?}", started_at.elapsed());
    until(&watcher, |status| {
        status.leases == 100_000 && status.counts.faults.iter().all(|&count| count == 0)
    });
    // Rewriting the same content causes no changes. The new file is renamed into place, because a file that is written
    // in place may be complete before the watcher checks it.
    let fresh = path.with_file_name("fresh");
    fs::write(&fresh, &text).expect("it is written");
    fs::rename(&fresh, &path).expect("it is renamed");
    until(&watcher, |status| status.counts.readings == 2);
    let mut longest = Duration::ZERO;
    for terminal in 1..100 {
        let started_at = Instant::now();
        append(
            &path,
            &format!("10.200.1.1,02:00:00:00:01:{terminal:02x},,1000,{end},1,0,0,,0,\n"),
        );
        append(&path, &format!("10.200.1.1,,,0,{end},1,0,0,,0,\n"));
        assert_eq!(vec![format!("+1={terminal:x}"), "-1 released".into()], next(&handed, 2));
        longest = longest.max(started_at.elapsed());
    }
    println!("a change to such a file: at most {longest:?}");
}
