//! Model test of publication: compiles the source of the protocol with the types of a model checker, which explores
//! interleavings of a publisher and its readers.

#![allow(dead_code, missing_docs)]

mod sync {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicU64, Ordering};

    /// Replacement of `arc_swap` for the model checker.
    #[derive(Debug)]
    pub struct Root<T>(loom::sync::Mutex<Arc<T>>);

    impl<T> Root<T> {
        pub fn new(snapshot: Arc<T>) -> Self {
            Root(loom::sync::Mutex::new(snapshot))
        }

        pub fn load(&self) -> Arc<T> {
            self.0.lock().unwrap().clone()
        }

        pub fn swap(&self, snapshot: Arc<T>) -> Arc<T> {
            std::mem::replace(&mut self.0.lock().unwrap(), snapshot)
        }
    }
}
#[path = "../src/publish/protocol.rs"]
mod protocol;

use loom::thread;
use protocol::Publisher;

/// A snapshot that only its creating thread may free.
struct Snapshot {
    number: u64,
    maker: thread::ThreadId,
}

fn snapshot(number: u64) -> Snapshot {
    Snapshot {
        number,
        maker: thread::current().id(),
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        assert_eq!(self.maker, thread::current().id(), "freed by a worker");
    }
}

/// Explores every interleaving of a model with at most `preemptions` preemptions.
fn explored(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn retired_snapshot_is_freed_by_the_publisher_after_its_readers_let_go() {
    explored(3, || {
        let mut publisher = Publisher::new(snapshot(1));
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let mut reader = publisher.reader();
                thread::spawn(move || {
                    let first = reader.load().number;
                    if worker == 0 {
                        reader.offline();
                    }
                    let second = reader.load().number;
                    assert!(
                        (1..=2).contains(&first) && (first..=2).contains(&second),
                        "{first}, {second}"
                    );
                    reader.offline();
                })
            })
            .collect();
        assert_eq!(2, publisher.publish(snapshot(2)));
        assert!(publisher.collect() <= 1);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(0, publisher.collect());
        assert_eq!(2, publisher.current().number);
    });
}

#[test]
fn load_after_a_publication_it_knows_of_is_that_snapshot() {
    explored(3, || {
        let mut publisher = Publisher::new(snapshot(1));
        let mut reader = publisher.reader();
        let worker = thread::spawn(move || {
            for _ in 0..2 {
                let number = reader.load().number;
                assert!(number >= reader.generation());
            }
            reader.offline();
        });
        publisher.publish(snapshot(2));
        publisher.publish(snapshot(3));
        publisher.collect();
        worker.join().unwrap();
        assert_eq!(0, publisher.collect());
    });
}
