//! Converts the routers' chains.

use std::sync::Arc;

use sluice_config::Config;
use sluice_config::chain::{Chain, PoliceRate, Step, StepAction};
use sluice_engine::snapshot::chains::{Action, ChainText, Chains, ClassText, NamedPolicers, PolicerRate};

use super::VALIDATED;
use super::filter::{hyperrectangles4, hyperrectangles6};

/// Chains of each router. Empty if no router has a chain.
pub fn chains(config: &Config) -> Vec<Option<Arc<Chains>>> {
    if config.chains.is_empty() {
        return Vec::new();
    }
    let workers = config.cores.len().max(1);
    let (mut all, mut named) = (vec![None; config.routers.len()], NamedPolicers::default());
    for of in &config.chains {
        let written: Vec<_> = of.chains.iter().map(chain).collect();
        if let Some(own) = all.get_mut(usize::from(of.router)) {
            let mut made = Chains::new(&written, workers).expect(VALIDATED);
            made.share_named(&mut named);
            *own = Some(Arc::new(made));
        }
    }
    all
}

fn chain(chain: &Chain) -> ChainText {
    let mut steps: Vec<ClassText> = Vec::new();
    for step in &chain.steps {
        let described = described(step);
        match steps.last_mut() {
            // After the session lookup, packets are always routed.
            Some(last) if matches!(last.action, Action::Sessions) => {
                last.text = format!("{}, {}", last.text, described.text);
            }
            _ => steps.push(described),
        }
    }
    let name = chain.name.clone();
    ChainText { name, steps }
}

fn described(step: &Step) -> ClassText {
    let action = match &step.action {
        StepAction::Count(name) => Action::Count(name.clone()),
        StepAction::Classify(selection, to) => Action::Classify {
            v4: hyperrectangles4(selection, None),
            v6: hyperrectangles6(selection, None),
            to: to.clone(),
        },
        StepAction::Police(name, rate, exceed) => {
            let rate = match *rate {
                PoliceRate::Packets(rate, burst) => PolicerRate::Packets(rate, burst),
                PoliceRate::Bits(rate, burst) => PolicerRate::Bits(rate, burst),
            };
            match name {
                Some(name) => Action::PoliceBy(name.clone(), rate, exceed.clone()),
                None => Action::Police(rate, exceed.clone()),
            }
        }
        StepAction::Mirror(interface) => Action::Mirror(*interface),
        StepAction::To(to) => Action::To(to.clone()),
        StepAction::Drop => Action::Drop,
        StepAction::Sessions => Action::Sessions,
        StepAction::Forward => Action::Forward,
    };
    let text = step.text.clone();
    ClassText { text, action }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::tests::config;

    #[test]
    fn policer_of_the_configuration_is_one_for_all_routers_that_name_it() {
        let config = config(
            r#"
[interfaces.a]
device = "null:"

[policers.slow]
packets = 1
burst = 2

[routers.default.chains]
input = [{ police = "slow" }, { police = { packets = 1, burst = 2 } }, "forward"]

[routers.red.chains]
input = [{ police = "slow" }, "forward"]
"#,
        );
        let made = chains(&config);
        let admits = |router: usize, policer| made[router].as_ref().unwrap().policer(policer).unwrap().admits(1, 5);
        assert_eq!(
            [true, true, false, false],
            [admits(0, 0), admits(1, 0), admits(0, 0), admits(1, 0)]
        );
        assert!(admits(0, 1));
        assert_eq!("police slow", made[1].as_ref().unwrap().listed()[0].text);
    }

    #[test]
    fn chains_of_the_configuration_become_those_of_the_engine() {
        let config = config(
            r#"
[interfaces.a]
device = "null:"
router = "red"

[interfaces.b]
device = "null:"

[routers.red.chains]
input = [
    { count = "all" },
    { classify = { from = ["10.0.0.0/8", "2001:db8::/32"], to-port = [1, 2] }, to = "few" },
    { police = { bits = "1M" }, exceed = "few" },
    { mirror = "b" },
    { to = "last" },
]
few = ["forward"]
last = ["sessions", "forward"]
"#,
        );
        let made = chains(&config);
        assert!(made[0].is_none());
        let red = made[1].as_deref().unwrap();
        let listed: Vec<_> = red
            .listed()
            .iter()
            .map(|listed| (listed.chain.as_str(), listed.text.as_str(), listed.to.as_deref()))
            .collect();
        let expected = vec![
            ("input", "count all", None),
            (
                "input",
                "classify from 10.0.0.0/8 2001:db8::/32, to-port 1 2",
                Some("few"),
            ),
            ("input", "police 1M bit/s", Some("few")),
            ("input", "mirror b", None),
            ("input", "to", Some("last")),
            ("few", "forward", None),
            ("last", "sessions, forward", None),
        ];
        assert_eq!(expected, listed);
    }
}
