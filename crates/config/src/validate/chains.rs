//! Validation of routers' chains: references, final actions, loops, and bypassed filters.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::Check;
use super::filter::Groups;
use super::routers::{DEFAULT, Scope};
use crate::chain::{Chain, PoliceRate, RouterChains, Step as Written, StepAction};
use crate::config::{Applications, Inspection, Interface, Link};
use crate::limits::MAX_STEPS;
use crate::problem::ChainProblem;
use crate::read::{Step, place};
use crate::schema::{ChainStep, ChainTable, ChainWord, Filter, Police, PoliceBy};

/// Chain at which packets enter.
const INPUT: &str = "input";

/// Minimum burst in bytes of a policer that limits bits per second: the length of the longest Ethernet frame.
const MIN_BURST_BYTES: u64 = 1_514;

/// Maximum burst in packets or bytes.
const MAX_BURST: u64 = 4_000_000_000;

/// Maximum bit rate of a policing step.
const MAX_BIT_RATE: u64 = 10_000_000_000_000;

/// Chains as written.
type Chains = IndexMap<String, Vec<ChainStep>>;

impl Check<'_> {
    /// Chains of all routers. `interfaces`, `inspection` and `applications` are the parts of the file that were
    /// validated before.
    pub(super) fn chains(
        &mut self,
        interfaces: &[Interface],
        inspection: Option<&Inspection>,
        applications: Option<&Applications>,
    ) -> Vec<RouterChains> {
        self.policers();
        let mut all = Vec::new();
        for scope in self.scopes() {
            let name = scope.table.unwrap_or(DEFAULT);
            let Some(router) = self
                .document
                .routers
                .get(name)
                .filter(|router| !router.chains.is_empty())
            else {
                continue;
            };
            let watched = inspection.map(|inspection| &inspection.interfaces);
            let watched = watched
                .into_iter()
                .chain(applications.map(|seeking| &seeking.interfaces));
            let is_watched = watched
                .flat_map(|chosen| interfaces.iter().zip(chosen))
                .any(|(interface, chosen)| *chosen && interface.router == scope.router && interface.bridge.is_none());
            // For the table of the default router, only the settings in that table are validated here.
            self.scope = Scope {
                table: Some(name),
                ..scope
            };
            let is_stateful = is_watched || is_stateful(&scope);
            let chains = self.router_chains(&router.chains, interfaces, is_stateful);
            all.push(RouterChains {
                router: scope.router,
                chains,
            });
        }
        self.scope = Scope::top(self.document);
        all
    }

    fn router_chains(&mut self, written: &Chains, interfaces: &[Interface], is_stateful: bool) -> Vec<Chain> {
        let count = written.values().map(Vec::len).sum();
        if count > MAX_STEPS {
            self.refuse_chain(place!["chains"], ChainProblem::TooMany(count));
        }
        if !written.contains_key(INPUT) {
            self.refuse_chain(place!["chains"], ChainProblem::NoInput);
        }
        // Problems of groups are reported at the definition of the groups, and therefore not reported again for chains.
        let reported = self.found.len();
        let nothing = Filter::default();
        let groups = self.groups_of(self.scope.filter.unwrap_or(&nothing)).without_sets();
        self.found.truncate(reported);
        let mut chains = Vec::new();
        for (name, steps) in written {
            self.name(place!["chains", name], name);
            self.ends(name, steps, is_stateful);
            let steps = steps.iter().enumerate().filter_map(|(k, step)| {
                let at = place!["chains", name, k].to_vec();
                let action = match step {
                    ChainStep::Word(ChainWord::Sessions) => StepAction::Sessions,
                    ChainStep::Word(ChainWord::Forward) => StepAction::Forward,
                    ChainStep::Word(ChainWord::Drop) => StepAction::Drop,
                    ChainStep::Table(table) => self.chain_table(&at, table, written, &groups, interfaces)?,
                };
                let text = text(step);
                Some(Written { text, action })
            });
            let steps = steps.collect();
            chains.push(Chain {
                name: name.clone(),
                steps,
            });
        }
        self.chain_walk(&chains);
        chains
    }

    fn refuse_chain(&mut self, at: &[Step<'_>], problem: ChainProblem) {
        self.report(at, problem.into());
    }

    /// Check that a chain has a final action only as its last step, and that the chain does not bypass a filter.
    fn ends(&mut self, name: &str, steps: &[ChainStep], is_stateful: bool) {
        let is_end = |step: &ChainStep| match step {
            ChainStep::Word(ChainWord::Sessions) => false,
            ChainStep::Word(ChainWord::Forward | ChainWord::Drop) => true,
            ChainStep::Table(table) => table.to.is_some() && **table == only_to(table),
        };
        let end = steps.iter().position(is_end);
        match end {
            None => self.refuse_chain(place!["chains", name], ChainProblem::Endless(name.to_owned())),
            Some(end) if end + 1 < steps.len() => {
                self.refuse_chain(place!["chains", name, end + 1], ChainProblem::BehindTheEnd);
            }
            Some(_) => {}
        }
        let word = |k: usize| match steps.get(k) {
            Some(ChainStep::Word(word)) => Some(*word),
            _ => None,
        };
        let filter = self.scope.filter.is_some_and(|filter| filter.sessions);
        for k in 0..steps.len() {
            let at = place!["chains", name, k];
            match word(k) {
                Some(ChainWord::Sessions) if word(k + 1) != Some(ChainWord::Forward) => {
                    self.refuse_chain(at, ChainProblem::SessionsAlone);
                }
                Some(ChainWord::Sessions) if !is_stateful => self.advise(at, ChainProblem::NoSessions.into()),
                Some(ChainWord::Forward) if filter && (k == 0 || word(k - 1) != Some(ChainWord::Sessions)) => {
                    self.refuse_chain(at, ChainProblem::BypassesFilter);
                }
                _ => {}
            }
        }
    }

    /// Action of a step that is written as a table. `None` if a problem was reported.
    fn chain_table(
        &mut self,
        at: &[Step<'_>],
        table: &ChainTable,
        chains: &Chains,
        groups: &Groups,
        interfaces: &[Interface],
    ) -> Option<StepAction> {
        let of = |key: &'static str| [at, place![key]].concat();
        let does: Vec<_> = [
            ("count", table.count.is_some()),
            ("classify", table.classify.is_some()),
            ("police", table.police.is_some()),
            ("mirror", table.mirror.is_some()),
            ("to", table.to.is_some() && table.classify.is_none()),
        ]
        .into_iter()
        .filter_map(|(key, is_there)| is_there.then_some(key))
        .collect();
        if does.len() != 1 {
            let has = match does.as_slice() {
                [] => "none of these keys".to_owned(),
                several => several
                    .iter()
                    .map(|key| format!("`{key}`"))
                    .collect::<Vec<_>>()
                    .join(" and "),
            };
            self.refuse_chain(at, ChainProblem::NotOne(has));
            return None;
        }
        if table.exceed.is_some() && table.police.is_none() {
            self.refuse_chain(&of("exceed"), ChainProblem::Requires("exceed", "police"));
        }
        for (key, to) in [("to", &table.to), ("exceed", &table.exceed)] {
            if let Some(name) = to.as_ref().filter(|name| !chains.contains_key(*name)) {
                let known = chains.keys().cloned().collect();
                let name = name.clone();
                self.refuse_chain(&of(key), ChainProblem::Unknown { name, known });
            }
        }
        if let Some(name) = &table.count {
            self.name(&of("count"), name);
            return Some(StepAction::Count(name.clone()));
        }
        if let Some(class) = &table.classify {
            let selection = self.selected(&of("classify"), &class.rule(), groups);
            let Some(to) = &table.to else {
                self.refuse_chain(at, ChainProblem::Requires("classify", "to"));
                return None;
            };
            return Some(StepAction::Classify(Box::new(selection), to.clone()));
        }
        if let Some(police) = &table.police {
            let exceed = table.exceed.clone();
            return match police {
                PoliceBy::Rate(rate) => Some(StepAction::Police(None, self.police(&of("police"), rate)?, exceed)),
                PoliceBy::Name(name) => self.police_by(&of("police"), name, exceed),
            };
        }
        if let Some(name) = &table.mirror {
            return self.mirror(&of("mirror"), name, interfaces);
        }
        table.to.clone().map(StepAction::To)
    }

    /// A step with a named policer. Problems of the policer are reported at its definition.
    fn police_by(&mut self, at: &[Step<'_>], name: &str, exceed: Option<String>) -> Option<StepAction> {
        let policers = &self.document.policers;
        let Some(police) = policers.get(name) else {
            let known = policers.keys().cloned().collect();
            let name = name.to_owned();
            self.refuse_chain(at, ChainProblem::UnknownPolicer { name, known });
            return None;
        };
        let reported = self.found.len();
        let rate = self.police(at, police);
        self.found.truncate(reported);
        Some(StepAction::Police(Some(name.to_owned()), rate?, exceed))
    }

    /// Check the policers that steps share.
    fn policers(&mut self) {
        let document = self.document;
        for (name, police) in &document.policers {
            let at = place!["policers", name];
            self.name(at, name);
            self.police(at, police);
            let named = |step: &ChainStep| match step {
                ChainStep::Table(table) => table.police == Some(PoliceBy::Name(name.clone())),
                ChainStep::Word(_) => false,
            };
            let mut chains = document.routers.values().flat_map(|router| router.chains.values());
            if !chains.any(|steps| steps.iter().any(named)) {
                self.advise(at, ChainProblem::UnusedPolicer(name.clone()).into());
            }
        }
    }

    fn police(&mut self, at: &[Step<'_>], police: &Police) -> Option<PoliceRate> {
        let of = |key: &'static str| [at, place![key]].concat();
        let burst = police.burst.map(u64::from);
        match (police.packets, police.bits) {
            (Some(packets), None) => {
                self.in_range(&of("packets"), "a number of packets", packets, 1..=1_000_000_000);
                let burst = burst.unwrap_or(packets.max(1).into());
                self.in_range(&of("burst"), "a number of packets", burst, 1..=MAX_BURST);
                Some(PoliceRate::Packets(packets.into(), burst))
            }
            (None, Some(bits)) => {
                self.in_range(&of("bits"), "a number of bits", bits.bits(), 1..=MAX_BIT_RATE);
                let second = (bits.bits() / 8).clamp(MIN_BURST_BYTES, MAX_BURST);
                let burst = burst.unwrap_or(second);
                self.in_range(&of("burst"), "a number of bytes", burst, MIN_BURST_BYTES..=MAX_BURST);
                Some(PoliceRate::Bits(bits.bits(), burst))
            }
            _ => {
                self.refuse_chain(at, ChainProblem::Rate);
                None
            }
        }
    }

    /// A mirror step. Copies are sent only on devices, and not on a link on which the router receives traffic.
    fn mirror(&mut self, at: &[Step<'_>], name: &str, interfaces: &[Interface]) -> Option<StepAction> {
        let index = self.interface_index(at, name)?;
        let interface = interfaces.get(usize::from(index))?;
        let why = match &interface.link {
            Link::Virtual { .. } => Some(
                "the interface is an end of an inter-router link, but mirrored packets are not addressed to the \
                     other end",
            ),
            Link::Tunnel(_) => Some("the interface is a tunnel, but mirrored packets are sent only on devices"),
            _ if interface.bridge.is_some() => Some("the interface is in a bridge"),
            _ if interface.router == self.scope.router && !interface.addresses.is_empty() => {
                Some("this router receives packets on the interface")
            }
            _ => None,
        };
        if let Some(why) = why {
            self.refuse_chain(at, ChainProblem::Mirror(name.to_owned(), why));
        }
        Some(StepAction::Mirror(index))
    }

    /// Check that packets reach every chain, and that chains do not form a loop.
    fn chain_walk(&mut self, chains: &[Chain]) {
        let mut chain_walk = ChainWalk {
            chains,
            path: Vec::new(),
            reached: HashSet::new(),
            first_loop: None,
        };
        chain_walk.follow(INPUT);
        let (mut first_loop, reached) = (chain_walk.first_loop.take(), chain_walk.reached);
        // Chains that packets do not reach may also form a loop.
        for chain in chains.iter().filter(|chain| !reached.contains(chain.name.as_str())) {
            if reached.contains(INPUT) {
                let problem = ChainProblem::Unreached(chain.name.clone());
                self.refuse_chain(place!["chains", &chain.name], problem);
            }
        }
        if let Some((chain, path)) = first_loop.take() {
            self.refuse_chain(place!["chains", chain], ChainProblem::Loop(path));
        }
    }
}

/// Whether the configuration of a router requires sessions.
fn is_stateful(scope: &Scope<'_>) -> bool {
    let translates = !scope.source.is_empty() || !scope.destination.is_empty() || !scope.one_to_one.is_empty();
    translates || scope.filter.is_some_and(|filter| filter.sessions)
}

/// A table with only the key `to`.
fn only_to(table: &ChainTable) -> ChainTable {
    ChainTable {
        to: table.to.clone(),
        ..ChainTable::default()
    }
}

/// Traversal of chains, beginning at the chain at which packets enter.
struct ChainWalk<'c> {
    chains: &'c [Chain],
    /// Chains on the current path, in order.
    path: Vec<&'c str>,
    /// Chains that packets reach.
    reached: HashSet<&'c str>,
    /// The first loop: the chain that closes it, and the path of the loop.
    first_loop: Option<(&'c str, String)>,
}

impl<'c> ChainWalk<'c> {
    fn follow(&mut self, name: &str) {
        let Some(chain) = self.chains.iter().find(|chain| chain.name == name) else {
            return;
        };
        if let Some(first) = self.path.iter().position(|before| *before == name) {
            let last = self.path.last().copied().unwrap_or_default();
            let path = [&self.path[first..], &[name]].concat().join(" → ");
            self.first_loop.get_or_insert((last, path));
            return;
        }
        if !self.reached.insert(&chain.name) {
            return;
        }
        self.path.push(&chain.name);
        for to in chain.steps.iter().filter_map(|step| step.action.to()) {
            self.follow(to);
        }
        self.path.pop();
    }
}

/// Text that describes a step in lists.
fn text(step: &ChainStep) -> String {
    let table = match step {
        ChainStep::Word(ChainWord::Sessions) => return "sessions".into(),
        ChainStep::Word(ChainWord::Forward) => return "forward".into(),
        ChainStep::Word(ChainWord::Drop) => return "drop".into(),
        ChainStep::Table(table) => table,
    };
    if let Some(name) = &table.count {
        return format!("count {name}");
    }
    if let Some(class) = &table.classify {
        let keys = class.rule().matches();
        let keys = keys.into_iter().map(|(key, value)| format!("{key} {value}"));
        let keys = keys.collect::<Vec<_>>().join(", ");
        return match keys.is_empty() {
            true => "classify all".into(),
            false => format!("classify {keys}"),
        };
    }
    if let Some(police) = &table.police {
        let police = match police {
            PoliceBy::Rate(police) => police,
            PoliceBy::Name(name) => return format!("police {name}"),
        };
        let rate = match (police.packets, police.bits) {
            (Some(packets), _) => format!("{packets} packets/s"),
            (None, bits) => format!("{} bit/s", bits.map_or(String::new(), |bits| bits.to_string())),
        };
        let burst = police.burst.map_or(String::new(), |burst| format!(", burst {burst}"));
        return format!("police {rate}{burst}");
    }
    match &table.mirror {
        Some(interface) => format!("mirror {interface}"),
        None => "to".into(),
    }
}
