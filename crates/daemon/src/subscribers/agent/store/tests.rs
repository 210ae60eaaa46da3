use std::fs;

use super::*;
use crate::subscribers::Site;

const NOW: Nanoseconds = 1_000 * SECOND;
const PRESENT: Present = Present {
    now: NOW,
    unix: 1_700_000_000,
};

fn lease(last: u8, seconds: u64) -> (Mac, PublicLease) {
    let lease = PublicLease {
        address: Ipv4Addr::new(203, 0, 113, last),
        prefix_length: 24,
        router: Some(Ipv4Addr::new(203, 0, 113, 1)),
        server: Ipv4Addr::new(198, 51, 100, 2),
        renew: NOW + seconds / 2 * SECOND,
        rebind: NOW + seconds * 7 / 8 * SECOND,
        expires: NOW + seconds * SECOND,
    };
    ([2, 0, 0, 0, 0, last], lease)
}

/// Create a file with these leases in a temporary directory.
fn written(leases: &[(Mac, PublicLease)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases");
    let (mut store, loaded) = Store::load(&path, PRESENT);
    assert!(loaded.leases.is_empty() && loaded.problem.is_none());
    store.write(leases.iter().copied(), PRESENT).expect("it is written");
    (folder, path)
}

fn change(path: &Path, change: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).expect("it is there");
    fs::write(path, change(text)).expect("it can be changed");
}

#[test]
fn store_written_and_read_holds_the_same_leases() {
    let mut forever = lease(9, 3_600);
    (forever.1.renew, forever.1.rebind, forever.1.expires, forever.1.router) = (NEVER, NEVER, NEVER, None);
    let leases = [lease(7, 3_600), lease(8, 60), forever];
    let (_folder, path) = written(&leases);
    let loaded = Store::load(&path, PRESENT).1;
    assert_eq!(leases.to_vec(), loaded.leases);
    assert!(loaded.problem.is_none(), "{:?}", loaded.problem);
}

#[test]
fn store_read_later_leaves_out_what_ran_out() {
    let (_folder, path) = written(&[lease(7, 3_600), lease(8, 60)]);
    let later = Present {
        now: 5 * SECOND,
        unix: PRESENT.unix + 100,
    };
    let loaded = Store::load(&path, later).1;
    assert_eq!((1, 1), (loaded.leases.len(), loaded.expired));
    assert_eq!(5 * SECOND + 3_500 * SECOND, loaded.leases[0].1.expires);
}

#[test]
fn store_read_with_a_clock_set_back_makes_no_lease_longer() {
    let (_folder, path) = written(&[lease(7, 3_600)]);
    let earlier = Present {
        now: NOW,
        unix: PRESENT.unix - 1_000_000,
    };
    assert_eq!(vec![lease(7, 3_600)], Store::load(&path, earlier).1.leases);
}

#[test]
fn store_with_a_damaged_line_is_named_and_the_others_are_taken() {
    let leases = [lease(7, 3_600), lease(8, 3_600), lease(9, 3_600)];
    let (_folder, path) = written(&leases);
    change(&path, |text| text.replace("203.0.113.8/", "203.0.113.6/"));
    let loaded = Store::load(&path, PRESENT).1;
    assert_eq!(vec![leases[0], leases[2]], loaded.leases);
    let expected = format!(
        "{}: 1 lines are damaged or missing, beginning with line 3; the other lines are used",
        path.display()
    );
    assert_eq!(expected, loaded.problem.expect("it is damaged").to_string());
}

#[test]
fn store_that_is_cut_is_named_and_what_is_left_is_taken() {
    let leases = [lease(7, 3_600), lease(8, 3_600), lease(9, 3_600)];
    let (_folder, path) = written(&leases);
    change(&path, |text| text[..text.len() - 40].to_owned());
    let cut = Store::load(&path, PRESENT).1;
    assert_eq!(leases[..2].to_vec(), cut.leases);
    assert!(
        matches!(cut.problem, Some(StoreError::Damaged { lines: 1, first: 4, .. })),
        "{:?}",
        cut.problem
    );
    change(&path, |text| {
        text.lines().take(2).map(|line| format!("{line}\n")).collect()
    });
    let shorter = Store::load(&path, PRESENT).1;
    assert_eq!(leases[..1].to_vec(), shorter.leases);
    assert!(
        matches!(shorter.problem, Some(StoreError::Damaged { lines: 2, first: 3, .. })),
        "{:?}",
        shorter.problem
    );
}

#[test]
fn store_that_is_another_file_gives_nothing_and_is_named() {
    let (_folder, path) = written(&[]);
    for text in ["", "\0\u{1}\u{2}", "sluice-public-leases 2 1700000000 0 12345678\n"] {
        fs::write(&path, text).expect("it can be written");
        let loaded = Store::load(&path, PRESENT).1;
        assert!(
            matches!(loaded.problem, Some(StoreError::Title { .. })),
            "{text}: {:?}",
            loaded.problem
        );
        assert!(loaded.leases.is_empty());
    }
}

#[test]
fn store_is_due_once_a_second_at_most_and_renewals_wait() {
    let (_folder, path) = written(&[]);
    let mut store = Store::load(&path, PRESENT).0;
    let bound = Event::Bound(Site(0), lease(7, 60).1);
    assert_eq!(None, store.due());
    store.note(&bound, NOW);
    assert_eq!(Some(NOW), store.due());
    store.write(std::iter::empty(), PRESENT).expect("it is written");
    assert_eq!(None, store.due());
    store.note(&Event::Renewed(Site(0), lease(7, 60).1), NOW);
    assert_eq!(Some(NOW + 30 * SECOND), store.due());
    store.note(&bound, NOW);
    assert_eq!(Some(NOW + SECOND), store.due());
    assert!(!store.is_due(PRESENT));
    assert!(store.is_due(Present {
        now: NOW + SECOND,
        unix: PRESENT.unix + 1
    }));
}

#[test]
fn store_is_due_when_the_wall_clock_was_set() {
    let (_folder, path) = written(&[]);
    let mut store = Store::load(&path, PRESENT).0;
    store.write(std::iter::empty(), PRESENT).expect("it is written");
    let later = |seconds| Present {
        now: NOW + 10 * SECOND,
        unix: PRESENT.unix + seconds,
    };
    assert!(!store.is_due(later(10)));
    assert!(store.is_due(later(5_000)));
    assert!(store.is_due(later(0)));
}

#[test]
fn store_that_can_not_be_written_says_so_and_tries_again_later() {
    let mut store = Store::load(Path::new("/proc/no/such/leases"), PRESENT).0;
    store
        .write(std::iter::empty(), PRESENT)
        .expect_err("there is no such folder");
    assert_eq!(Some(NOW + 10 * SECOND), store.due());
}
