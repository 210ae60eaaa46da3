//! Tests that every valid configuration can be converted to parameters that the data plane accepts. Generated
//! configurations and changed examples are validated, and each valid one is converted up to the state of the control
//! thread.

mod choices;
mod filter;
mod gateway;
mod links;
mod mutation;
mod translation;

use std::cell::Cell;
use std::fmt;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use sluice_config::config::Config;
use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check};
use sluice_daemon::Stages;
use sluice_daemon::lowering::{self, Secrets};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::time::Now;
use sluice_nat::sites::SiteWriter;

use choices::Choices;

/// A text that the report of a failed case contains with its original line breaks.
#[derive(Clone)]
struct Text(String);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", self.0)
    }
}

/// The configuration of a text, if it is valid on a machine with enough cores and memory.
fn valid(text: &str) -> Option<Config> {
    let machine = Machine {
        cores: (0..64).collect(),
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    Some(check("test", text, &machine).ok()?.config.into_inner())
}

/// Converts a configuration to the state of the control thread.
fn lower(config: &Config) -> Result<(), Box<dyn std::error::Error>> {
    let stages = Stages::new(config.stages.clone());
    let workers = config.cores.len();
    let macs: Vec<_> = (0..)
        .map(|port| [2, 0, 0, 0, 1, port])
        .take(lowering::ports(config).len())
        .collect();
    let secrets = Secrets::FIXED;
    let start_parameters = lowering::start_parameters(config, macs.len(), (stages, workers), secrets);
    let rules = lowering::filters(config, None)?;
    let pools = lowering::pool_names(config, &Vec::new());
    let sites = config.subscribers.as_ref().map(|subscribers| {
        let (sites, terminals) = (subscribers.sites(), subscribers.terminals);
        SiteWriter::new(sites, terminals, &lowering::site_networks(config), secrets.subscribers).1
    });
    let mut policy = lowering::policy(config, &macs, &pools, rules.as_ref(), None, sites.as_ref())?;
    policy.senders = vec![[lowering::FIRST].into(); macs.len()];
    let routes = lowering::routes(config, &policy.interfaces)?;
    let virtual_macs = lowering::virtual_macs(config)?;
    let secret = sluice_nat::Secret(secrets.subscribers);
    let parameters = lowering::subscribers(config, &policy.interfaces, &pools, virtual_macs, secret);
    assert_eq!(config.subscribers.is_some(), parameters.is_some());
    let limits = lowering::neighbour_limits(config);
    ControlPlane::new(start_parameters, policy, &routes, limits, workers, Now::at(0))?;
    Ok(())
}

/// Converts `cases` texts that `text` creates, and returns how many of them are valid.
fn valid_ones_lower(cases: u32, text: impl Fn(&mut Choices) -> String) -> u32 {
    let cases = Cases {
        cases,
        failure_persistence: None,
        ..Cases::default()
    };
    let numbers = prop::collection::vec(any::<u32>(), 0..400);
    let texts = numbers.prop_map(|numbers| Text(text(&mut Choices::new(numbers))));
    let count = Cell::new(0);
    let result = TestRunner::new(cases).run(&texts, |Text(text)| {
        if let Some(config) = valid(&text) {
            count.set(count.get() + 1);
            lower(&config).map_err(|error| TestCaseError::fail(error.to_string()))?;
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    count.get()
}

#[test]
fn generated_configuration_that_is_valid_lowers() {
    let valid = valid_ones_lower(4_000, gateway::configuration);
    assert!(valid >= 200, "{valid}");
}

#[test]
fn changed_example_that_is_valid_lowers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    let examples: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    for example in &examples {
        lower(&valid(example).expect("valid")).unwrap();
    }
    let valid = valid_ones_lower(3_000, |choose| mutation::example(choose, &examples));
    assert!(valid >= 300, "{valid}");
}
