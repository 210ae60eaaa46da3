use sluice_inspect::signatures::Dialect;

use super::traffic::FLOWS;
use super::*;
use crate::turn::turn;
use sluice_dpdk::eal::Eal;

/// Text that the test's rule matches.
const PLANTED: &str = "planted-signature";
/// Number of pages; only the flows that send one specific page contain the text.
const PAGES: u32 = 16;
const PAGE: usize = 3;

const MODELS: [Model; 5] = [
    Model::Rss,
    Model::Even,
    Model::EvenMoving,
    Model::RoleSplit,
    Model::RoleSplitSending,
];

fn ruleset() -> Arc<Ruleset> {
    let rule = format!("drop ip any any -> any any (msg:\"planted\"; content:\"{PLANTED}\"; sid:1; rev:1;)\n");
    let file = std::env::temp_dir().join(format!("sluice-bench-{}.rules", std::process::id()));
    std::fs::write(&file, rule).expect("a file");
    let rules = plane::rules(&file, Dialect::Suricata).expect("a rule");
    std::fs::remove_file(&file).expect("the file");
    assert_eq!(1, rules.rules().len());
    rules
}

fn case(model: Model, cores: usize) -> Case {
    Case {
        model,
        cores,
        bytes: 512,
        kind: Kind::Rfc2544,
        transport: Transport::Both,
        inspects: true,
        help: model.splits().then_some(Help::USUAL),
    }
}

/// Creates a benchmark whose rigs use some cores, with rig numbers from 1.
fn bench<'a>(
    (eal, rigs): (&'static Eal, u32),
    on: &'a [usize],
    (rules, pages): &'a (Arc<Ruleset>, Arc<Pages>),
) -> Bench<'a> {
    Bench {
        means: Means { eal, rules, pages },
        on,
        cycles: 0,
        rigs,
        transport: Transport::Both,
    }
}

/// Runs a model with packets, some of which contain the signature; returns the numbers of output, dropped and reordered
/// packets.
fn outcome(case: &Case, pages: Pages, packets: usize) -> (u64, u64, u64) {
    let (eal, mut turn) = turn();
    let content = (ruleset(), Arc::new(pages));
    let mut bench = bench((eal, *turn), &[0, 1], &content);
    let result = bench.with(case, |rig| {
        let (sent, came) = rig.packets();
        assert_eq!((sent, 0), (came, rig.matched()), "flows are open");
        rig.pass(packets)?;
        let (sent_in_all, came_in_all) = rig.packets();
        assert_eq!(packets as u64, sent_in_all - sent, "{:?}", case.model);
        if !case.model.shares() {
            let (inspected, matched) = (rig.inspected(), rig.matched());
            assert!(
                inspected <= sent_in_all && inspected + matched >= sent_in_all,
                "{inspected} of {sent_in_all}"
            );
        }
        Ok((came_in_all - came, rig.matched(), rig.reordered()))
    });
    *turn = bench.rigs;
    result.unwrap_or_else(|error| panic!("{:?}: {error}", case.model))
}

#[test]
fn every_model_passes_what_nothing_is_planted_in_and_in_order() {
    for model in MODELS {
        assert_eq!(
            (8_192, 0, 0),
            outcome(&case(model, 2), Pages::new(), 8_192),
            "{model:?}"
        );
    }
}

#[test]
fn baselines_drop_what_the_engine_drops() {
    // With one lane, the source draws the same flows in every model.
    let of = |model| outcome(&case(model, 1), Pages::with(PAGE, PLANTED), 4_096);
    let engine = of(Model::Rss);
    assert_eq!((4_096, 0), (engine.0 + engine.1, engine.2));
    let share = f64::from(engine.1 as u32) / 4_096.0 * f64::from(PAGES);
    assert!((0.7..1.3).contains(&share), "one flow in {PAGES} of {FLOWS}: {share}");
    assert_eq!(engine, of(Model::Even));
}

#[test]
fn planted_signature_is_dropped_by_every_model() {
    for model in MODELS {
        let (came, dropped, reordered) = outcome(&case(model, 2), Pages::with(PAGE, PLANTED), 4_096);
        assert_eq!((4_096, 0), (came + dropped, reordered), "{model:?}");
        let share = f64::from(dropped as u32) / 4_096.0 * f64::from(PAGES);
        assert!(
            (0.7..1.3).contains(&share),
            "{model:?}: one flow in {PAGES} of {FLOWS}: {share}"
        );
    }
}

#[test]
fn elephant_has_half_of_the_packets_of_every_model() {
    for model in MODELS {
        let case = Case {
            kind: Kind::Elephant,
            ..case(model, 2)
        };
        // The elephant flow sends a page without the text, so none of its packets is dropped. The other flows send only
        // half of all packets, so half as many packets are dropped. A connection can send 512 KiB without
        // acknowledgment, which is more than it sends here. It therefore does not stop while the acknowledging core
        // does not run.
        let (_, dropped, _) = outcome(&case, Pages::with(PAGE, PLANTED), 2_048);
        let share = f64::from(dropped as u32) / 2_048.0 * f64::from(PAGES);
        assert!((0.3..0.7).contains(&share), "{model:?}: {share}");
    }
}

#[test]
fn share_is_of_the_scans_of_the_run() {
    let (eal, mut turn) = turn();
    let content = (ruleset(), Arc::new(Pages::new()));
    let mut bench = bench((eal, *turn), &[0], &content);
    let case = Case {
        transport: Transport::Udp,
        ..case(Model::Rss, 1)
    };
    let calls = bench.with(&case, |rig| {
        rig.record();
        rig.pass(2_048)?;
        Ok(rig.take_scans().expect("scans"))
    });
    *turn = bench.rigs;
    let calls = calls.unwrap_or_else(|error| panic!("{error}"));
    // The payload of each datagram is scanned once.
    assert_eq!((2_048, 2_048 * (512 - 4 - 42)), (calls.count(), calls.bytes()));
}
