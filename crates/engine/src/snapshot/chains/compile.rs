//! Compilation of configured chains into one array in which steps only jump forward.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_filter::{Rule, RuleNumber};

use super::{
    Chains, Classify, ENTRY, Finder, ListedStep, MAX_STEPS, Policer, PolicerName, PolicerRate, Step, StepIndex, Tally,
    TallyIndex,
};

/// A configured chain.
#[derive(Clone, Debug)]
pub struct ChainText {
    /// Name of the chain.
    pub name: String,
    /// Steps of the chain, in order.
    pub steps: Vec<ClassText>,
}

/// A configured step.
#[derive(Clone, Debug)]
pub struct ClassText {
    /// Text of the step in lists.
    pub text: String,
    /// Action of the step.
    pub action: Action,
}

/// The action of a step. The action refers to other chains by name.
#[derive(Clone, Debug)]
pub enum Action {
    /// Count packets with a named counter. Several steps may share the counter.
    Count(String),
    /// Packets that match one of the hyperrectangles continue at a chain.
    Classify {
        /// Hyperrectangles for IPv4.
        v4: Vec<Rule<u32>>,
        /// Hyperrectangles for IPv6.
        v6: Vec<Rule<u128>>,
        /// Name of the target chain.
        to: String,
    },
    /// Drop packets above a rate limit, or let them continue at a chain.
    Police(PolicerRate, Option<String>),
    /// Drop packets above a rate limit, or let them continue at a chain. The policer has a name; all steps with this
    /// name share the policer, including steps of other routers.
    PoliceBy(String, PolicerRate, Option<String>),
    /// Send copies of packets through an interface.
    Mirror(u16),
    /// Continue at a chain.
    To(String),
    /// Drop packets.
    Drop,
    /// Continue at session lookup, and then at routing.
    Sessions,
    /// Route packets without a session.
    Forward,
}

/// Reason for which chains can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The entry chain is missing.
    #[error("the chain `{ENTRY}`, at which packets enter, is missing")]
    NoEntry,
    /// A chain does not exist.
    #[error("there is no chain `{0}`")]
    Unknown(String),
    /// The last step of a chain is not a final action, such as a drop.
    #[error("the chain `{0}` has no final step")]
    Endless(String),
    /// The steps of a chain form a loop that returns to this chain.
    #[error("the chain `{0}` is part of a loop")]
    Loop(String),
    /// The chains have too many steps.
    #[error("{0} steps exceed the maximum of {MAX_STEPS}")]
    TooMany(usize),
}

impl Action {
    /// The chain, if any, at which all or some packets of the step continue.
    fn to(&self) -> Option<&String> {
        match self {
            Self::Classify { to, .. } | Self::To(to) => Some(to),
            Self::Police(_, exceed) | Self::PoliceBy(_, _, exceed) => exceed.as_ref(),
            _ => None,
        }
    }

    /// Whether the step is final, so that no packet continues at the next step.
    fn ends(&self) -> bool {
        matches!(self, Self::To(_) | Self::Drop | Self::Sessions | Self::Forward)
    }
}

impl Chains {
    /// Compiles chains for a number of workers.
    ///
    /// # Errors
    /// See [`ChainError`].
    pub fn new(written: &[ChainText], workers: usize) -> Result<Self, ChainError> {
        let count = written.iter().map(|chain| chain.steps.len()).sum();
        if count > MAX_STEPS {
            return Err(ChainError::TooMany(count));
        }
        let mut order = Order::of(written);
        order.visit(ENTRY)?;
        let mut compile = Compile {
            workers,
            chains: Chains::default(),
            begins: HashMap::new(),
            counts: HashMap::new(),
            texts: HashMap::new(),
            tallied: HashMap::new(),
        };
        // The topological order is built from its end. The reversal puts a chain before the chains at which its packets continue.
        let ordered: Vec<&ChainText> = order.done.iter().rev().copied().collect();
        let mut next = 0;
        for chain in &ordered {
            compile.begins.insert(&chain.name, next as StepIndex);
            next += runs(&chain.steps).count();
        }
        for chain in ordered {
            for (first, run) in runs(&chain.steps) {
                compile.step(chain, first, run)?;
            }
        }
        for chain in written.iter() {
            for (place, step) in chain.steps.iter().enumerate() {
                compile.chains.listed.push(ListedStep {
                    chain: chain.name.clone(),
                    text: step.text.clone(),
                    to: step.action.to().cloned(),
                    tally: compile.tallied.get(&(chain.name.as_str(), place)).copied(),
                });
            }
        }
        Ok(compile.chains)
    }
}

/// Groups the steps that are compiled together, each group with the position of its first step. Consecutive classes
/// form one step.
fn runs(steps: &[ClassText]) -> impl Iterator<Item = (usize, &[ClassText])> {
    let is_class = |step: &ClassText| matches!(step.action, Action::Classify { .. });
    let mut first = 0;
    steps
        .chunk_by(move |one, other| is_class(one) && is_class(other))
        .map(move |run| {
            first += run.len();
            (first - run.len(), run)
        })
}

/// The reachable chains in topological order: a chain is listed after all chains to which it jumps.
struct Order<'w> {
    named: HashMap<&'w str, &'w ChainText>,
    in_progress: Vec<&'w str>,
    done: Vec<&'w ChainText>,
}

impl<'w> Order<'w> {
    fn of(written: &'w [ChainText]) -> Self {
        Self {
            named: written.iter().map(|chain| (chain.name.as_str(), chain)).collect(),
            in_progress: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The number of chains, which is at most the number of steps, limits the depth of the recursion.
    fn visit(&mut self, name: &'w str) -> Result<(), ChainError> {
        let chain = match self.named.get(name) {
            Some(chain) => *chain,
            None if name == ENTRY => return Err(ChainError::NoEntry),
            None => return Err(ChainError::Unknown(name.into())),
        };
        if self.in_progress.contains(&name) {
            return Err(ChainError::Loop(name.into()));
        }
        if self.done.iter().any(|done| done.name == name) {
            return Ok(());
        }
        let ends = chain.steps.iter().position(|step| step.action.ends());
        if ends.is_none_or(|end| end + 1 != chain.steps.len()) {
            return Err(ChainError::Endless(name.into()));
        }
        self.in_progress.push(name);
        for to in chain.steps.iter().filter_map(|step| step.action.to()) {
            self.visit(to)?;
        }
        self.in_progress.pop();
        self.done.push(chain);
        Ok(())
    }
}

struct Compile<'w> {
    workers: usize,
    chains: Chains,
    /// Index of the first step of each chain.
    begins: HashMap<&'w str, StepIndex>,
    /// Tallies of `count` steps, by name.
    counts: HashMap<&'w str, TallyIndex>,
    /// How often a text has occurred in its chain so far. The number distinguishes steps with equal texts.
    texts: HashMap<(&'w str, &'w str), usize>,
    /// Tallies by chain and position of the step in the chain.
    tallied: HashMap<(&'w str, usize), TallyIndex>,
}

impl<'w> Compile<'w> {
    fn step(&mut self, chain: &'w ChainText, first: usize, run: &'w [ClassText]) -> Result<(), ChainError> {
        let Some(step) = run.first() else { return Ok(()) };
        let at = (chain.name.as_str(), first);
        let step = match &step.action {
            Action::Classify { .. } => Step::Classify(Box::new(self.classify(chain, first, run)?)),
            Action::Count(name) => Step::Count(match self.counts.get(name.as_str()) {
                Some(&tally) => {
                    self.tallied.insert(at, tally);
                    tally
                }
                None => {
                    let tally = self.tally(at, format!("count {name}"));
                    self.counts.insert(name, tally);
                    tally
                }
            }),
            Action::Police(rate, exceed) | Action::PoliceBy(_, rate, exceed) => {
                let key = self.key(chain, &step.text);
                let policer = self.chains.policers.len() as u16;
                let called = match &step.action {
                    Action::PoliceBy(name, ..) => PolicerName::Name(name.clone()),
                    _ => PolicerName::Text(key.clone()),
                };
                self.chains.policers.push((called, Policer::new(*rate).into()));
                Step::Police {
                    policer,
                    tally: self.tally(at, key),
                    exceed: exceed.as_ref().map(|exceed| self.start(exceed)).transpose()?,
                }
            }
            Action::Mirror(interface) => Step::Mirror {
                interface: *interface,
                tally: self.text_tally(chain, at, &step.text),
            },
            Action::To(to) => Step::Jump(self.start(to)?),
            Action::Drop => Step::Drop(self.text_tally(chain, at, &step.text)),
            Action::Sessions => Step::Sessions(self.text_tally(chain, at, &step.text)),
            Action::Forward => Step::Forward(self.text_tally(chain, at, &step.text)),
        };
        self.chains.steps.push(step);
        Ok(())
    }

    fn classify(&mut self, chain: &'w ChainText, first: usize, run: &'w [ClassText]) -> Result<Classify, ChainError> {
        let (mut all_v4, mut all_v6, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (place, step) in (first..).zip(run) {
            let Action::Classify { v4, v6, to } = &step.action else {
                continue;
            };
            let number = targets.len() as RuleNumber;
            all_v4.extend(v4.iter().map(|rule| (number, rule.clone())));
            all_v6.extend(v6.iter().map(|rule| (number, rule.clone())));
            let tally = self.text_tally(chain, (&chain.name, place), &step.text);
            targets.push((self.start(to)?, tally));
        }
        Ok(Classify {
            v4: Finder::new(all_v4),
            v6: Finder::new(all_v6),
            targets,
        })
    }

    fn start(&self, chain: &str) -> Result<StepIndex, ChainError> {
        let start = self.begins.get(chain).copied();
        start.ok_or_else(|| ChainError::Unknown(chain.into()))
    }

    fn key(&mut self, chain: &'w ChainText, text: &'w str) -> String {
        let seen = self.texts.entry((&chain.name, text)).or_default();
        *seen += 1;
        format!("{} {text} {seen}", chain.name)
    }

    fn text_tally(&mut self, chain: &'w ChainText, at: (&'w str, usize), text: &'w str) -> TallyIndex {
        let key = self.key(chain, text);
        self.tally(at, key)
    }

    fn tally(&mut self, at: (&'w str, usize), key: String) -> TallyIndex {
        let index = self.chains.tallies.len() as TallyIndex;
        let tally = Arc::new(Tally::new(self.workers));
        self.chains.tallies.push((key, tally));
        self.tallied.insert(at, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::super::NamedPolicers;
    use super::*;

    fn chain(name: &str, actions: Vec<Action>) -> ChainText {
        let text = |action: &Action| match action {
            Action::Count(name) => format!("count {name}"),
            other => format!("{other:?}")
                .split(['(', ' '])
                .next()
                .unwrap_or_default()
                .to_lowercase(),
        };
        let steps = actions.into_iter().map(|action| ClassText {
            text: text(&action),
            action,
        });
        ChainText {
            name: name.into(),
            steps: steps.collect(),
        }
    }

    fn to(chain: &str) -> Action {
        Action::Classify {
            v4: vec![Rule::any()],
            v6: Vec::new(),
            to: chain.into(),
        }
    }

    fn count(name: &str) -> Action {
        Action::Count(name.into())
    }

    #[test]
    fn every_step_leads_to_later_ones() {
        let written = [
            chain("late", vec![count("late"), Action::Drop]),
            chain("input", vec![to("middle"), to("late"), count("all"), Action::Sessions]),
            chain("middle", vec![to("late"), Action::To("late".into())]),
        ];
        let chains = Chains::new(&written, 1).unwrap();
        let targets = |step: &Step| match step {
            Step::Classify(classify) => classify.targets.iter().map(|target| target.0).collect(),
            Step::Jump(to) => vec![*to],
            _ => Vec::new(),
        };
        let mut seen = 0;
        for (place, step) in (0..).zip(chains.steps()) {
            for target in targets(step) {
                assert!(target > place && usize::from(target) < chains.steps().len());
                seen += 1;
            }
        }
        assert_eq!(4, seen);
        // Two consecutive classes form one step.
        assert_eq!(7, chains.steps().len());
        assert_eq!(8, chains.listed().len());
    }

    #[test]
    fn loops_dead_ends_and_chains_that_are_not_there_are_refused() {
        let refused = |written: &[ChainText]| Chains::new(written, 1).map(|_| ()).unwrap_err();
        let input = |to: &str| chain("input", vec![Action::To(to.into())]);
        assert_eq!(ChainError::NoEntry, refused(&[]));
        assert_eq!(ChainError::Unknown("a".into()), refused(&[input("a")]));
        let back = chain("a", vec![Action::To("input".into())]);
        assert_eq!(ChainError::Loop("input".into()), refused(&[input("a"), back]));
        let open = chain("a", vec![count("b")]);
        assert_eq!(ChainError::Endless("a".into()), refused(&[input("a"), open]));
        let behind = chain("a", vec![Action::Drop, count("b")]);
        assert_eq!(ChainError::Endless("a".into()), refused(&[input("a"), behind]));
        let many = chain(
            "input",
            (0..MAX_STEPS).map(|_| count("a")).chain([Action::Drop]).collect(),
        );
        assert_eq!(ChainError::TooMany(MAX_STEPS + 1), refused(&[many]));
    }

    #[test]
    fn policer_with_a_name_is_one_for_all_that_name_it_and_stays_as_long_as_its_rate() {
        let of = |rate| {
            vec![
                Action::PoliceBy("p".into(), PolicerRate::Packets(1, rate), None),
                Action::Drop,
            ]
        };
        let made = |rate: u64, named: &mut NamedPolicers| {
            let mut chains = Chains::new(&[chain("input", of(rate))], 1).unwrap();
            chains.share_named(named);
            chains
        };
        let mut named = NamedPolicers::default();
        let [one, other] = [(); 2].map(|()| made(2, &mut named));
        let admits = |chains: &Chains| chains.policer(0).unwrap().admits(1, 5);
        assert_eq!([true, true, false], [admits(&one), admits(&other), admits(&one)]);
        // A chain of a later router uses the same policer.
        let mut named = NamedPolicers::default();
        other.note_named(&mut named);
        assert!(!admits(&made(2, &mut named)));
        let [changed, same] = [(); 2].map(|()| made(1, &mut named));
        assert_eq!([true, false], [admits(&changed), admits(&same)]);
    }

    #[test]
    fn counters_and_policers_go_on_where_name_and_text_stay() {
        let police = || Action::Police(PolicerRate::Packets(1, 1), None);
        let before = Chains::new(&[chain("input", vec![count("a"), police(), Action::Drop])], 1).unwrap();
        before.tally(0).unwrap().add(0, 3, 200);
        assert!(before.policer(0).unwrap().admits(1, 5));
        let written = [chain("input", vec![count("b"), police(), count("a"), Action::Sessions])];
        let mut after = Chains::new(&written, 1).unwrap();
        after.adopt(&before);
        let totals: Vec<_> = after
            .listed()
            .iter()
            .map(|listed| after.tally(listed.tally.unwrap()).unwrap().total())
            .collect();
        assert_eq!(vec![(0, 0), (0, 0), (3, 200), (0, 0)], totals);
        assert!(!after.policer(0).unwrap().admits(1, 6));
        // Two steps with the same name share a counter.
        let twice = Chains::new(&[chain("input", vec![count("a"), count("a"), Action::Drop])], 1).unwrap();
        assert_eq!(twice.listed()[0].tally, twice.listed()[1].tally);
    }
}
