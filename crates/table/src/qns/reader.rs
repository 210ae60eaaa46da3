//! Lookup of rules for packets.

use std::sync::Arc;

use super::filter::{Candidates, Filter};
use super::key::sealed::Layout;
use super::key::{Address, Candidate, Match, Query, block, discriminator};
use super::line::{self, SLOTS, tag_of};
use super::segments::Lines;
use super::sync::{AtomicU64, Ordering};
use crate::hash::Hasher;
use crate::prefetch::prefetch_read;

/// Maximum number of queries that a batch lookup processes together.
pub const BATCH: usize = 64;

/// Maximum number of lines in a bucket, which the writer enforces. Several groups of rules that differ only in protocol and
/// interface may share a bucket; the configuration allows 256 rules per group.
pub const CHAIN: usize = 512;

/// State that the readers and the writer share.
#[derive(Debug)]
pub struct Shared<A: Address> {
    /// Number of buckets in the low 32 bits; counter of moves in the high 32 bits.
    pub state: AtomicU64,
    pub filter: Filter,
    pub buckets: Lines<A>,
    pub overflow: Lines<A>,
    pub hasher: Hasher,
}

/// Bucket of a hash. `state` contains the number of buckets. For a bucket that has been split, the bucket number has
/// one more bit of the hash.
#[inline(always)]
pub fn bucket(hash: u64, state: u64) -> u32 {
    let buckets = state as u32;
    let mask = u32::MAX >> (buckets | 1).leading_zeros();
    let bucket = hash as u32 & mask;
    if bucket < buckets { bucket } else { bucket & (mask >> 1) }
}

/// A worker's access to a table. A clone is cheap. Each lookup reads the current rules.
#[derive(Debug)]
pub struct QnsReader<A: Address> {
    pub(super) shared: Arc<Shared<A>>,
}

impl<A: Address> Clone for QnsReader<A> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<A: Address> QnsReader<A> {
    /// Whether there is no rule.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shared.filter.is_empty()
    }

    /// The most specific matching rule.
    #[inline]
    pub fn lookup(&self, query: &Query<A>) -> Option<Match<A::Value>> {
        let shared = &*self.shared;
        let state = shared.state.load(Ordering::Acquire);
        let regions = shared.filter.regions::<A>();
        let mut remaining = shared.filter.candidates(&regions, query);
        let discriminator = discriminator(query);
        while remaining.any() {
            let first = remaining.next();
            let one = block(query, first);
            // Process two candidates at a time, so that the line of the second one is fetched while the first one is
            // compared.
            if remaining.any() {
                let second = remaining.next();
                let blocks = [one, block(query, second)];
                let hashes = [0, 1].map(|place| A::hash_one(&shared.hasher, &blocks[place]));
                let lines = hashes.map(|hash| shared.buckets.get(bucket(hash, state)));
                if let Some(line) = lines[1] {
                    prefetch_read(line);
                }
                if let Some(value) = shared.probe(lines[0], state, hashes[0], &blocks[0], discriminator) {
                    return Some(found(value, first));
                }
                if let Some(value) = shared.probe(lines[1], state, hashes[1], &blocks[1], discriminator) {
                    return Some(found(value, second));
                }
            } else {
                let hash = A::hash_one(&shared.hasher, &one);
                let line = shared.buckets.get(bucket(hash, state));
                if let Some(value) = shared.probe(line, state, hash, &one, discriminator) {
                    return Some(found(value, first));
                }
            }
        }
        shared.lookup_zero(query)
    }

    /// Looks up a rule like [`QnsReader::lookup`]. Also returns the number of cache lines that the lookup has read:
    /// bitmaps, buckets and overflow lines.
    pub fn lookup_counted(&self, query: &Query<A>) -> (Option<Match<A::Value>>, usize) {
        let shared = &*self.shared;
        let regions = shared.filter.regions::<A>();
        let mut remaining = shared.filter.candidates(&regions, query);
        let mut lines = 1 + usize::from(regions.is_some());
        while remaining.any() {
            let candidate = remaining.next();
            let (value, read) = shared.check(query, candidate);
            lines += read;
            if let Some(value) = value {
                return (Some(found(value, candidate)), lines);
            }
        }
        (shared.lookup_zero(query), lines)
    }

    /// Looks up several `queries` and writes the results to `matches`. If the slices differ in length, the shortest
    /// length applies. Each pass prefetches the data that the next pass reads.
    pub fn lookup_batch(&self, queries: &[Query<A>], matches: &mut [Option<Match<A::Value>>]) {
        for (queries, matches) in queries.chunks(BATCH).zip(matches.chunks_mut(BATCH)) {
            self.lookup_lanes(queries, matches);
        }
    }

    #[inline]
    fn lookup_lanes(&self, queries: &[Query<A>], matches: &mut [Option<Match<A::Value>>]) {
        let shared = &*self.shared;
        let count = queries.len().min(matches.len()).min(BATCH);
        let (queries, matches) = (&queries[..count], &mut matches[..count]);
        let regions = shared.filter.regions::<A>();
        if let Some(regions) = regions.filter(|regions| regions.are_large()) {
            for query in queries {
                regions.prefetch(query);
            }
        }
        let mut remaining = [Candidates::<A>::default(); BATCH];
        // Indexes of the queries that still have candidates, mostly in the original order.
        let mut lanes = [0u8; BATCH];
        let mut open = 0;
        for (lane, (query, remaining)) in queries.iter().zip(&mut remaining).enumerate() {
            *remaining = shared.filter.candidates(&regions, query);
            lanes[open % BATCH] = lane as u8;
            open += usize::from(remaining.any());
        }
        matches.fill(None);
        let mut checked = [Candidate(0); BATCH];
        let mut blocks = [A::Block::default(); BATCH];
        let mut hashes = [0u64; BATCH];
        let mut lines = [None; BATCH];
        while open > 0 {
            for place in 0..open.min(BATCH) {
                let lane = usize::from(lanes[place]) % BATCH;
                checked[place] = remaining[lane].next();
                blocks[place] = block(&queries[lane], checked[place]);
            }
            <A as Layout>::hash(&shared.hasher, &blocks[..open.min(BATCH)], &mut hashes);
            let state = shared.state.load(Ordering::Acquire);
            for place in 0..open.min(BATCH) {
                lines[place] = shared.buckets.get(bucket(hashes[place], state));
                if let Some(line) = lines[place] {
                    prefetch_read(line);
                }
            }
            let active = open.min(BATCH);
            open = 0;
            for place in 0..active {
                let lane = usize::from(lanes[place]) % BATCH;
                let discriminator = discriminator(&queries[lane]);
                let value = shared.probe(lines[place], state, hashes[place], &blocks[place], discriminator);
                if let Some(value) = value {
                    matches[lane] = Some(found(value, checked[place]));
                } else {
                    lanes[open % BATCH] = lane as u8;
                    open += usize::from(remaining[lane].any());
                }
            }
        }
        if shared.filter.zero() != 0 {
            for (query, found) in queries.iter().zip(matches) {
                if found.is_none() {
                    *found = shared.lookup_zero(query);
                }
            }
        }
    }
}

#[inline(always)]
fn found<V>(value: V, candidate: Candidate) -> Match<V> {
    Match {
        value,
        length: candidate.length(),
        port: candidate.has_port(),
    }
}

impl<A: Address> Shared<A> {
    /// Value of the most specific entry with this hash input that matches the protocol and the interface of a query.
    /// `line` is the first line of the bucket of `hash` at `state`.
    #[inline(always)]
    fn probe(
        &self,
        line: Option<&A::Line>,
        state: u64,
        hash: u64,
        block: &A::Block,
        discriminator: u64,
    ) -> Option<A::Value> {
        let tag = tag_of(hash);
        let mut line = line;
        for _ in 0..CHAIN {
            let Some(words) = line else { break };
            let words = words.as_ref();
            let header = line::header(words);
            let rest = line::rest(words);
            let slots = header.matches(tag);
            if slots == 0 && rest.may_have(tag) {
                line = rest.next().and_then(|next| self.overflow.get(next));
                continue;
            }
            let mut value = None;
            if slots != 0 {
                // Fast path if only one entry of the bucket has this tag.
                if slots == 3 || rest.may_have(tag) {
                    break;
                }
                let entry = line::entry::<A>(words, slots >> 1);
                value = A::rank(&entry, block, discriminator).map(|_| A::value(&entry));
                if line::header(words) != header {
                    break;
                }
            }
            if self.state.load(Ordering::Acquire) != state {
                break;
            }
            return value;
        }
        self.probe_all(hash, block, discriminator).0
    }

    /// Searches a whole bucket. Also returns the number of lines read.
    #[cold]
    #[inline(never)]
    fn probe_all(&self, hash: u64, block: &A::Block, discriminator: u64) -> (Option<A::Value>, usize) {
        let tag = tag_of(hash);
        loop {
            let state = self.state.load(Ordering::Acquire);
            let mut best: Option<(u8, A::Value)> = None;
            let mut line = self.buckets.get(bucket(hash, state));
            let mut lines = 0;
            while let Some(words) = line
                && lines < CHAIN
            {
                lines += 1;
                let words = words.as_ref();
                if let Some((rank, value)) = best_of::<A>(words, tag, block, discriminator)
                    && best.is_none_or(|(other, _)| rank < other)
                {
                    best = Some((rank, value));
                }
                let rest = line::rest(words);
                let next = rest.next().filter(|_| rest.may_have(tag));
                line = next.and_then(|next| self.overflow.get(next));
            }
            // Search again if the writer has moved entries, because the search may have missed a better match.
            if self.state.load(Ordering::Acquire) == state {
                return (best.map(|(_, value)| value), lines);
            }
        }
    }

    fn check(&self, query: &Query<A>, candidate: Candidate) -> (Option<A::Value>, usize) {
        let block = block(query, candidate);
        let hash = A::hash_one(&self.hasher, &block);
        self.probe_all(hash, &block, discriminator(query))
    }

    /// Searches the sub-table of prefix length 0.
    #[inline(always)]
    fn lookup_zero(&self, query: &Query<A>) -> Option<Match<A::Value>> {
        match self.filter.zero() {
            0 => None,
            kinds => self.check_unprefixed(query, kinds),
        }
    }

    #[inline(never)]
    fn check_unprefixed(&self, query: &Query<A>, kinds: u32) -> Option<Match<A::Value>> {
        let with_port = Candidate(1);
        let kinds = kinds & if query.port.is_some() { 3 } else { 1 };
        let candidates = [with_port, Candidate(0)].into_iter();
        let mut candidates = candidates.filter(|candidate| kinds >> candidate.0 & 1 != 0);
        candidates.find_map(|candidate| Some(found(self.check(query, candidate).0?, candidate)))
    }
}

/// The most specific matching entry of a line. The entry is read consistently.
fn best_of<A: Address>(words: &[AtomicU64], tag: u16, block: &A::Block, discriminator: u64) -> Option<(u8, A::Value)> {
    let mut header = line::header(words);
    while header.matches(tag) != 0 {
        let mut best = None;
        for slot in (0..SLOTS).filter(|slot| header.matches(tag) >> slot & 1 != 0) {
            let entry = line::entry::<A>(words, slot);
            if let Some(rank) = A::rank(&entry, block, discriminator)
                && best.is_none_or(|(other, _)| rank < other)
            {
                best = Some((rank, A::value(&entry)));
            }
        }
        let now = line::header(words);
        if now == header {
            return best;
        }
        header = now;
    }
    None
}
