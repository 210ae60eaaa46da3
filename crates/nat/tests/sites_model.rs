//! Model test of the site table: compiles its source with the atomics of a model checker.

#![allow(dead_code, unused_imports, missing_docs)]

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "../src/sites/context.rs"]
mod context;
#[path = "../src/sites/index.rs"]
mod index;
#[path = "../src/keyed.rs"]
mod keyed;
#[path = "../src/sites/table.rs"]
mod table;
#[path = "../src/sites/writer.rs"]
mod writer;

use loom::thread;
use writer::{SiteWriter, Terminal};

const OLD: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEW: [u8; 6] = [2, 9, 9, 9, 9, 9];

fn explored(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn terminal(site: u32, address: u32, mac: [u8; 6]) -> Terminal {
    Terminal {
        context: context::context(site, 0, false),
        address,
        mac,
        interface: 1,
        tags: [None; 2],
    }
}

#[test]
fn line_that_comes_to_another_terminal_is_never_taken_for_it() {
    explored(|| {
        // The table has only one line, so the second terminal reuses the line of the first terminal.
        let (mut writer, sites) = SiteWriter::new(2, 1, &[(0, 100, 200)], [1, 2]);
        writer.add_terminal(&terminal(0, 7, OLD)).expect("room");
        let reader = sites.clone();
        let reading = thread::spawn(move || {
            let first = context::context(0, 0, false);
            if let Some(view) = reader.view(0, first, 7) {
                assert_eq!(table::word_of(OLD), view.mac);
            }
            let second = context::context(1, 0, false);
            if let Some(view) = reader.view(0, second, 8) {
                assert_eq!(table::word_of(NEW), view.mac);
            }
        });
        writer.remove_terminal(context::context(0, 0, false), 7);
        writer.add_terminal(&terminal(1, 8, NEW)).expect("room");
        reading.join().unwrap();
    });
}

#[test]
fn address_of_a_site_is_read_whole_and_its_owner_has_it() {
    explored(|| {
        let (mut writer, sites) = SiteWriter::new(2, 1, &[(0, 100, 200)], [1, 2]);
        writer.add_terminal(&terminal(0, 7, OLD)).expect("room");
        writer.set_public(0, 0, Some(100)).expect("nobody has it");
        let reader = sites.clone();
        let reading = thread::spawn(move || {
            let own = context::context(0, 0, false);
            let public = reader.view(0, own, 7).expect("there all the time").public;
            assert!([0, 100, 200].contains(&public));
            if let Some(owner) = reader.owner(0, 200) {
                assert_eq!(0, owner);
            }
        });
        writer.set_public(0, 0, Some(200)).expect("nobody has it");
        reading.join().unwrap();
    });
}
