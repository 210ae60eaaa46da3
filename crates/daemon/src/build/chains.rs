//! Chains of routers as the data plane takes them.

use std::sync::Arc;

use sluice_config::Config;
use sluice_config::chain::{Chain, PoliceRate, Step, StepAction};
use sluice_engine::chains::{Action, Chains, Described, Rate, Written};

use super::BuildError;
use super::filter::{boxes4, boxes6};

/// The chains by router; nothing where no router has any.
///
/// # Errors
/// They lead back, or nowhere.
pub fn chains(config: &Config) -> Result<Vec<Option<Arc<Chains>>>, BuildError> {
    if config.chains.is_empty() {
        return Ok(Vec::new());
    }
    let workers = config.cores.len().max(1);
    let mut all = vec![None; config.routers.len()];
    for of in &config.chains {
        let written = of.chains.iter().map(chain).collect::<Result<Vec<_>, _>>()?;
        if let Some(own) = all.get_mut(usize::from(of.router)) {
            *own = Some(Arc::new(Chains::new(&written, workers)?));
        }
    }
    Ok(all)
}

fn chain(chain: &Chain) -> Result<Written, BuildError> {
    let mut steps: Vec<Described> = Vec::new();
    for step in &chain.steps {
        let described = described(step)?;
        match steps.last_mut() {
            // What comes out of the sessions is always routed.
            Some(last) if matches!(last.action, Action::Sessions) => {
                last.text = format!("{}, {}", last.text, described.text);
            }
            _ => steps.push(described),
        }
    }
    let name = chain.name.clone();
    Ok(Written { name, steps })
}

fn described(step: &Step) -> Result<Described, BuildError> {
    let action = match &step.action {
        StepAction::Count(name) => Action::Count(name.clone()),
        StepAction::Classify(selection, to) => Action::Classify {
            four: boxes4(selection, None)?,
            six: boxes6(selection, None)?,
            to: to.clone(),
        },
        StepAction::Police(rate, exceed) => {
            let rate = match *rate {
                PoliceRate::Packets(rate, burst) => Rate::Packets(rate, burst),
                PoliceRate::Bits(rate, burst) => Rate::Bits(rate, burst),
            };
            Action::Police(rate, exceed.clone())
        }
        StepAction::Mirror(interface) => Action::Mirror(*interface),
        StepAction::To(to) => Action::To(to.clone()),
        StepAction::Drop => Action::Drop,
        StepAction::Sessions => Action::Sessions,
        StepAction::Forward => Action::Forward,
    };
    let text = step.text.clone();
    Ok(Described { text, action })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::tests::config;

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
        let made = chains(&config).unwrap();
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
