//! Replays recorded scans, to measure the search alone.

use std::sync::Arc;

use super::{Block, Database, Error, MatchAction, ScanLog, ScanStreams, Scratch, Streaming};

/// Databases of the replayed scans, and the states of their streams.
#[derive(Debug)]
pub struct Replay<'d> {
    blocks: Vec<&'d Database<Block>>,
    streams: Vec<ScanStreams>,
    scratch: Scratch,
}

impl<'d> Replay<'d> {
    /// Creates a replay with these databases, and `count` streams for each streaming database.
    ///
    /// # Errors Returns an error if no memory is left.
    pub fn new(
        blocks: Vec<&'d Database<Block>>,
        streams: &[Arc<Database<Streaming>>],
        count: u32,
    ) -> Result<Self, Error> {
        let mut scratch = Scratch::new();
        for database in &blocks {
            scratch.serve(database)?;
        }
        let mut pools = Vec::new();
        for database in streams {
            scratch.serve(database)?;
            let mut pool = ScanStreams::new(database.clone(), count)?;
            while pool.open().is_some() {}
            pools.push(pool);
        }
        Ok(Self {
            blocks,
            streams: pools,
            scratch,
        })
    }

    /// Replays all scans, and returns the number of matches.
    ///
    /// # Panics Panics if a recorded scan used a database or a stream that this replay does not contain.
    pub fn run(&mut self, calls: &ScanLog) -> u64 {
        let mut found = 0;
        let mut sink = |_, _| {
            found += 1;
            MatchAction::Continue
        };
        for (database, stream, data) in calls.iter() {
            match stream {
                Some((stream, starts)) => {
                    let mut pools = self.streams.iter_mut();
                    let pool = pools.find(|pool| pool.database().serial() == database);
                    let pool = pool.expect("a database of streams");
                    if starts {
                        pool.reset(stream);
                    }
                    pool.scan(stream, data, &mut self.scratch, &mut sink);
                }
                None => {
                    let block = self.blocks.iter().find(|block| block.serial() == database);
                    block.expect("a database").scan(data, &mut self.scratch, &mut sink);
                }
            }
        }
        found
    }
}
