//! The default matcher while individual rules are inserted and removed, including the background rebuilds of its tree
//! (folds).

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use sluice_dpdk::tsc;
use sluice_filter::{
    Action, ChangeResult, CompiledRule, Counters, DecidedBy, FilterError, Filters, MatcherKind, RuleList, Settings,
    Verdict,
};
use sluice_table::publish::{Publisher, Reader};

use super::sets::Set;
use super::timing::{self, BATCH};
use super::traces::Traffic;
use super::{Failure, row_of};
use crate::rig::frames::Random;
use crate::rows::{Run, Runs};

/// Number of insertions and removals per second.
const UPDATES: f64 = 1_000.0;
/// Interval at which the editor makes the changes that have become due.
const TICK: Duration = Duration::from_millis(1);
/// Duration of one run in seconds: long enough for several folds.
const SECONDS: f64 = 1.0;

/// CPU time used for changes, in microseconds.
#[derive(Default)]
struct Spent {
    /// Time of each insertion and each deletion.
    updates: Vec<f64>,
    /// Total time that the control thread spends on folds, without the changes themselves.
    folding: f64,
    /// Time of each fold in the background thread.
    folds: Vec<f64>,
    anew: usize,
}

/// State of the control thread.
struct Editor {
    list: RuleList<usize>,
    publisher: Publisher<Arc<Filters>>,
    random: Random,
    /// The removed rule with its former position and its index in the rule set.
    gone: Option<(usize, CompiledRule, usize)>,
}

fn written(set: &Set) -> impl Iterator<Item = (CompiledRule, usize)> {
    let one = |rule: &sluice_filter::Rule<u32>| CompiledRule {
        action: Action::Decide(Verdict::Accept),
        v4: vec![rule.clone()],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    };
    set.rules.iter().map(one).zip(0..)
}

impl Editor {
    fn new(set: &Set) -> Result<Self, FilterError> {
        let settings = Settings {
            kind: MatcherKind::Best,
            default: Verdict::Drop,
            sessions: false,
            workers: 1,
        };
        let list = RuleList::new(written(set), settings, Counters::new(set.rules.len()))?;
        Ok(Self {
            publisher: Publisher::new(list.filters().clone()),
            list,
            random: Random(0x2014_0603),
            gone: None,
        })
    }

    /// Removes a random rule, or inserts the previously removed rule again at its former position. Returns the time in
    /// microseconds.
    fn edit(&mut self, spent: &mut Spent) -> Result<(), FilterError> {
        let (begin, change);
        match self.gone.take() {
            Some((index, rule, number)) => {
                begin = tsc::now();
                change = self.list.insert(index, rule, number)?;
            }
            None => {
                let index = self.random.below(self.list.len() as u64) as usize;
                let rule = self.list.compiled(index).cloned();
                let number = self.list.iter().nth(index).map(|(_, number)| *number);
                self.gone = rule.zip(number).map(|(rule, number)| (index, rule, number));
                begin = tsc::now();
                change = self.list.remove(index)?;
            }
        }
        if change == ChangeResult::Rebuilt {
            self.publisher.publish(self.list.filters().clone());
            spent.anew += 1;
        }
        spent.updates.push(microseconds(tsc::now() - begin));
        Ok(())
    }

    /// Makes changes at the given rate until `stop` is set.
    fn keep_on<'s>(&'s mut self, scope: &'s Scope<'s, '_>, stop: &AtomicBool) -> Result<Spent, FilterError> {
        type Built = Result<(RuleList<usize>, f64), FilterError>;
        let mut spent = Spent::default();
        let mut building: Option<ScopedJoinHandle<'s, Built>> = None;
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) || building.is_some() {
            // The editor sleeps, like the control thread, because it may share a physical core with the worker.
            std::thread::sleep(TICK);
            let due = (began.elapsed().as_secs_f64() * UPDATES) as usize;
            while spent.updates.len() < due {
                self.edit(&mut spent)?;
            }
            let begin = tsc::now();
            if let Some(built) = building.take_if(|building| building.is_finished()) {
                let (built, took) = built.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                spent.folds.push(took);
                if self.list.end_rebuild(built)? {
                    self.publisher.publish(self.list.filters().clone());
                }
            }
            self.publisher.collect();
            if building.is_none()
                && let Some(fold) = self.list.begin_rebuild()
            {
                building = Some(scope.spawn(move || {
                    let begin = tsc::now();
                    Ok((fold.build()?, microseconds(tsc::now() - begin)))
                }));
            }
            spent.folding += microseconds(tsc::now() - begin);
        }
        Ok(spent)
    }

    /// Returns an error if the rule found for a header is not the first matching rule of the list.
    fn check(&self, set: &Set, traffic: &Traffic) -> Result<(), Failure> {
        let order: Vec<usize> = self.list.iter().map(|(_, number)| *number).collect();
        for header in timing::sample(traffic) {
            let expected = order.iter().find(|&&number| set.rules[number].matches(&header));
            let found = match self.list.filters().v4.evaluate(&header).by {
                DecidedBy::Rule(place) | DecidedBy::Application(place) => self.list.at(place),
                DecidedBy::Limit(_) | DecidedBy::Default => None,
            };
            if expected != found {
                return Err(format!("{header:?} is for rule {expected:?}, and {found:?} was found").into());
            }
        }
        Ok(())
    }
}

fn microseconds(ticks: u64) -> f64 {
    ticks as f64 / tsc::frequency() as f64 * 1e6
}

/// Looks up headers for the duration of a run; returns lookups per second.
fn look(reader: &mut Reader<Arc<Filters>>, traffic: &Traffic) -> f64 {
    let most = (SECONDS * tsc::frequency() as f64) as u64;
    let mut found = [None; BATCH];
    let (begin, mut lookups) = (tsc::now(), 0);
    loop {
        for headers in traffic.headers.chunks(BATCH) {
            let filters = reader.load();
            filters.v4.first_of_batch(headers, &mut found[..headers.len()]);
            black_box(&found);
            lookups += headers.len();
            let ticks = tsc::now() - begin;
            if ticks >= most {
                return lookups as f64 / ticks as f64 * tsc::frequency() as f64;
            }
        }
    }
}

/// Measures the same lookups without and with concurrent changes, in turn.
pub fn run(run: &mut Run<'_>, set: &Set, traffic: &Traffic, runs: usize) -> Result<(), Failure> {
    let mut editor = Editor::new(set)?;
    let mut reader = editor.publisher.reader();
    let (mut all, mut folds) = (Runs::default(), Vec::new());
    for _ in 0..runs {
        let before = look(&mut reader, traffic);
        let stop = AtomicBool::new(false);
        let (busy, spent) = std::thread::scope(|scope| {
            let (editor, stop, reader) = (&mut editor, &stop, &mut reader);
            let editing = std::thread::Builder::new()
                .spawn_scoped(scope, move || std::thread::scope(|scope| editor.keep_on(scope, stop)));
            let busy = look(reader, traffic);
            stop.store(true, Ordering::Relaxed);
            (busy, editing.map(ScopedJoinHandle::join))
        });
        let spent = spent?.map_err(|_| "the thread that changes rules failed")??;
        editor.check(set, traffic)?;
        let count = spent.updates.len().max(1) as f64;
        let mut updates = spent.updates;
        updates.sort_by(f64::total_cmp);
        let sum = updates.iter().sum::<f64>();
        all.extend([
            ("lookups_per_s", busy),
            ("lookups_per_s_quiet", before),
            ("loss_share", 1.0 - busy / before),
            ("update_us", sum / count),
            ("update_us_p99", updates[(updates.len() - 1) * 99 / 100]),
            ("control_us", (sum + spent.folding) / count),
            ("folds_per_s", spent.folds.len() as f64 / SECONDS),
            ("built_anew", spent.anew as f64),
        ]);
        folds.extend(spent.folds);
    }
    let row = row_of("lookup", set, "best", traffic).key("updates_per_s", UPDATES as u32);
    (run.row)(row.runs(&all).figure("fold_us", &folds));
    Ok(())
}
