//! P1's matchers: the trie, and tries with lists of recently used intervals.

use sluice_filter::{CachedTrie, ListSearch, Matcher, Trie};

use super::timing::{self, Costs, check};
use super::traces::Traffic;
use super::{Failure, row, sets::Set};
use crate::rows::Run;

/// Maximum size of a trie in bytes.
pub const MOST: usize = 256 << 20;
/// Search methods for a list, each with its name in rows.
pub const PROBES: [(ListSearch, &str); 2] = [(ListSearch::InOrder, "in-order"), (ListSearch::Bisection, "bisection")];

/// Measure the trie, built in the given number of milliseconds.
pub fn trie(
    run: &mut Run<'_>,
    set: &Set,
    (trie, build): (&Trie<u32>, f64),
    traffic: &[Traffic],
    runs: usize,
) -> Result<(), Failure> {
    for traffic in traffic {
        check(trie, set, traffic)?;
        let row = row(set, "trie", traffic).figure("build_ms", &[build]);
        let row = timing::costs(trie, traffic, runs).onto(row);
        (run.row)(timing::sized(row, trie.bytes(), set.rules.len()));
    }
    Ok(())
}

/// Measures tries with lists of several lengths. Each is measured in turn with the plain trie, so that the rows show
/// the gain from the lists.
pub fn lists(
    run: &mut Run<'_>,
    set: &Set,
    trie: &Trie<u32>,
    traffic: &[Traffic],
    sizes: &[u16],
    runs: usize,
) -> Result<(), Failure> {
    for traffic in traffic {
        for &size in sizes {
            for (probe, name) in PROBES {
                let cached = CachedTrie::new(trie.clone(), size, probe);
                check(&cached, set, traffic)?;
                let [with, without] = by_turns(&cached, traffic, runs);
                let row = row(set, "cached-trie", traffic)
                    .key("list_size", size)
                    .key("list_search", name);
                let mut row = with.onto(row);
                if size > 0 {
                    row = row.figure("gain_per_kb", &gain(&cached, &with, &without));
                }
                let bytes = cached.bytes() + cached.cache_bytes();
                row = timing::sized(row, bytes, set.rules.len());
                for (name, count) in searches(&cached, traffic) {
                    row = row.figure(name, &[count]);
                }
                (run.row)(row);
            }
        }
    }
    Ok(())
}

/// Measures a trie in turn with and without its lists.
fn by_turns(cached: &CachedTrie<u32>, traffic: &Traffic, runs: usize) -> [Costs; 2] {
    let (mut with, mut without, mut core) = (Costs::default(), Costs::default(), cached.cache());
    for _ in 0..runs {
        timing::one_more(&mut with, cached, &mut core, traffic);
        timing::one_more(&mut without, cached.trie(), &mut (), traffic);
    }
    [with, without]
}

/// Increase in lookups per second over the trie without lists, per KB of lists, for each run (P1, Fig. 14).
pub fn gain(cached: &CachedTrie<u32>, with: &Costs, without: &Costs) -> Vec<f64> {
    let kilobytes = cached.cache_bytes() as f64 / 1e3;
    let rates = with.rates.iter().zip(&without.rates);
    rates.map(|(with, without)| (with - without) / kilobytes).collect()
}

/// Number of searches per packet (P1, Fig. 15).
fn searches(cached: &CachedTrie<u32>, traffic: &Traffic) -> [(&'static str, f64); 3] {
    let mut core = cached.cache();
    let mut found = vec![None; traffic.headers.len()];
    cached.first_of_batch(&mut core, &traffic.headers, &mut found);
    let share = |count: u64| count as f64 / traffic.headers.len() as f64;
    [
        ("searches_hit", share(core.searches.hits)),
        ("searches_miss", share(core.searches.misses)),
        ("searches_binary", share(core.searches.binary)),
    ]
}
