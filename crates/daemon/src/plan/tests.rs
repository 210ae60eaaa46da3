//! Plans for small configurations, with real measurements.

use sluice_config::{Machine, Valid, check};

use super::*;

const GATEWAY: &str = r#"
[sessions]
ipv4 = 4096
ipv6 = 1024
[interfaces.inside]
device = "null:"
addresses = ["10.0.0.1/24"]
[interfaces.outside]
device = "null:"
addresses = ["198.51.100.1/24"]
[[routes]]
to = "0.0.0.0/0"
via = "198.51.100.254"
[nat.pools.public]
addresses = ["198.51.100.10-198.51.100.13"]
[[nat.source]]
from = "10.0.0.0/24"
out = "outside"
pool = "public"
"#;

fn config(text: &str) -> Valid<Config> {
    let machine = Machine {
        cores: machine(EntryBytes::default()).unwrap().cores,
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    check("test", text, &machine).unwrap_or_else(|e| panic!("{e}")).config
}

#[test]
fn mix_is_established_forwarded_and_costs_something_in_every_part() {
    let measured = measure(
        &config(GATEWAY),
        Source::Mix(Profile::sfr()),
        sluice_wire::Checksums::Unverified,
    )
    .unwrap();
    assert_eq!(1024, measured.sessions);
    assert_eq!(1.0, measured.forwarded, "{:?}", measured.dropped_for);
    assert!(measured.parts.iter().all(|cycles| *cycles > 0.0), "{measured:?}");
    // The express lane takes packets past `parse`.
    let [receive, _, session, transmit] = measured.undivided;
    assert!(
        [receive, session, transmit].iter().all(|cycles| *cycles > 0.0),
        "{measured:?}"
    );
    assert!((570.0..600.0).contains(&measured.bytes), "{}", measured.bytes);
    assert_eq!(None, measured.busiest);
}

#[test]
fn choice_for_the_start_is_a_placement_on_the_configured_cores() {
    let config = config(GATEWAY);
    let chosen = choose(&config).unwrap();
    assert_eq!(config.cores, chosen.placement.workers());
    assert!(chosen.reasons.iter().any(|reason| reason.contains("is the bottleneck")));
}

#[test]
fn load_beyond_the_machine_is_answered_with_more_cores() {
    let config = config(&GATEWAY.replace("[sessions]", "[system]\nshards = 64\n[sessions]"));
    let request = PlanRequest {
        cores: Some(config.cores.clone()),
        demand: Some("200G sfr".parse().unwrap()),
        ..PlanRequest::default()
    };
    let facts = facts(&config, &request).unwrap();
    let demand = request.demand.unwrap();
    let answer = facts.answer(&config, &demand);
    let needed = demand.packets(1.0) * facts.costs.total() / facts.hz();
    let cores = answer.cores.unwrap();
    assert!(
        (needed..2.0 * needed + 2.0).contains(&(cores as f64)),
        "{needed} {cores}"
    );
    assert!(answer.beyond && answer.placement.unwrap().busy.unwrap() <= 1.0);
}

#[test]
fn configuration_without_a_way_through_asks_for_captures() {
    let error = choose(&config("[interfaces.a]\ndevice = \"null:\"\n")).unwrap_err();
    assert!(error.to_string().contains("--in INTERFACE=CAPTURE"), "{error}");
}

#[test]
fn filter_that_lets_nothing_pass_asks_for_captures() {
    let closed = format!("{GATEWAY}[filter]\ndefault = \"drop\"\n");
    let error = choose(&config(&closed)).unwrap_err();
    assert!(matches!(error, PlanError::NothingPasses), "{error}");
}

#[test]
fn hand_over_between_two_cores_costs_something() {
    let cores = machine(EntryBytes::default()).unwrap().cores;
    let [one, other, ..] = cores[..] else { return };
    // The measurement returns nothing if other processes occupy the cores.
    if let Some(cost) = rings::measure(one, other) {
        assert!(cost.out > 0.0 && cost.take > 0.0, "{cost:?}");
    }
}
