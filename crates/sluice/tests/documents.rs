//! Compares the documents with the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_config::api::Description;
use sluice_config::api::operation::{self, OperationKind};
use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, Problem, check, parse};
use sluice_dpdk::eal::{HugepageFault, HugepageReason};
use sluice_dpdk::pci::{CardFault, Mode, Process};
use sluice_engine::control::graph::{Edge, edges};
use sluice_engine::nodes::NODES;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns a fenced block of a document. Blocks whose first line begins with `fence` are counted from 0, and `number`
/// selects one of them.
fn block(document: &str, fence: &str, number: usize) -> String {
    let opening = format!("```{fence}\n");
    let mut blocks = document.split(opening.as_str()).skip(1);
    let rest = blocks
        .nth(number)
        .unwrap_or_else(|| panic!("no block {number} of {fence}"));
    rest.split("```").next().unwrap_or_default().to_owned()
}

/// The arrows of a mermaid diagram as `(from, to)`, without their labels.
fn arrows(picture: &str) -> BTreeSet<(String, String)> {
    let name = |text: &str| text.trim().split('(').next().unwrap_or_default().to_owned();
    let arrow = |line: &str| {
        let (from, to) = line.split_once("-->")?;
        Some((name(from.split(" -- ").next()?), name(to)))
    };
    picture.lines().filter_map(arrow).collect()
}

/// Dependencies between packages of the workspace, according to the manifests. Dependencies of tests are excluded.
fn dependencies() -> BTreeSet<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let short = |name: &str| name.strip_prefix("sluice-").unwrap_or(name).to_owned();
    let mut found = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            if dependency["path"].is_string() && dependency["kind"].is_null() {
                let name = |value: &serde_json::Value| short(value["name"].as_str().expect("a name"));
                found.insert((name(package), name(dependency)));
            }
        }
    }
    found
}

#[test]
fn architecture_picture_of_crates_is_what_the_manifests_say() {
    let drawn = arrows(&block(&read("docs/architecture.md"), "mermaid", 0));
    let real = dependencies();
    let lines = |set: BTreeSet<&(String, String)>| {
        set.iter()
            .map(|(from, to)| format!("    {from} --> {to}\n"))
            .collect::<String>()
    };
    assert_eq!(
        real,
        drawn,
        "\nmissing in docs/architecture.md:\n{}drawn, but not so:\n{}",
        lines(real.difference(&drawn).collect()),
        lines(drawn.difference(&real).collect())
    );
}

#[test]
fn architecture_table_of_crates_names_every_crate() {
    let document = read("docs/architecture.md");
    for folder in std::fs::read_dir(root().join("crates")).expect("crates/ is there") {
        let name = folder
            .expect("a folder")
            .file_name()
            .into_string()
            .expect("a plain name");
        assert!(
            document.contains(&format!("| `{name}` |")),
            "crates/{name} is not in the table"
        );
    }
}

#[test]
fn architecture_picture_of_nodes_is_what_the_folder_holds() {
    let drawn: BTreeSet<String> = arrows(&block(&read("docs/architecture.md"), "mermaid", 1))
        .into_iter()
        .flat_map(|(from, to)| [from, to])
        .filter(|node| node != "receive" && node != "transmit")
        .collect();
    let listed: BTreeSet<_> = NODES.iter().map(|node| node.name.to_owned()).collect();
    assert!(drawn.iter().all(|node| listed.contains(node)));
    assert_eq!(drawn.len() + 2, listed.len());
    let files = std::fs::read_dir(root().join("crates/engine/src/nodes")).expect("the nodes are there");
    let real = files.map(|file| {
        file.expect("a file")
            .path()
            .file_stem()
            .expect("a name")
            .to_str()
            .expect("a plain name")
            .replace('_', "-")
    });
    // Modules that are not nodes, the ends of the graph, and a node that exists only in tests.
    let others = ["declaration", "dispatch", "receive", "transmit", "test-node"];
    let real: BTreeSet<_> = real.filter(|file| !others.contains(&file.as_str())).collect();
    assert_eq!(real, drawn);
}

#[test]
fn architecture_picture_of_nodes_has_the_ways_of_the_engines_table() {
    let picture = block(&read("docs/architecture.md"), "mermaid", 1);
    let name = |text: &str| text.trim().split('(').next().unwrap_or_default().to_owned();
    let arrow = |line: &str| {
        let (from, to) = line.split_once("-->")?;
        let (from, why) = from.split_once(" -- ").unwrap_or((from, ""));
        Some((name(from), name(to), why.trim().to_owned()))
    };
    let drawn: BTreeSet<_> = picture.lines().filter_map(arrow).collect();
    let edge = |edge: Edge| (edge.from.to_owned(), edge.to.to_owned(), edge.why.to_owned());
    let real: BTreeSet<_> = edges().map(edge).collect();
    let lines = |set: BTreeSet<&(String, String, String)>| format!("{set:#?}");
    assert!(
        real == drawn,
        "missing in docs/architecture.md: {}drawn, but not in the table: {}",
        lines(real.difference(&drawn).collect()),
        lines(drawn.difference(&real).collect())
    );
}

#[test]
fn readme_configuration_is_valid_and_ten_lines_at_most() {
    let text = block(&read("README.md"), "toml", 0);
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    match check("README.md", &text, &machine) {
        Ok(checked) => assert_eq!("", checked.advice.to_string()),
        Err(diagnosis) => panic!("{}", diagnosis.render(100, false)),
    }
    assert!(text.trim_end().lines().count() <= 10);
}

#[test]
fn filter_guide_example_is_right_and_names_what_exists() {
    let guide = read("docs/filter.md");
    let interfaces = "[interfaces.inside1]\ndevice = \"null:\"\naddresses = [\"192.168.1.1/24\"]\n";
    let text = format!("{interfaces}{}", block(&guide, "toml", 0));
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    match check("docs/filter.md", &text, &machine) {
        Ok(checked) => assert_eq!("", checked.advice.to_string()),
        Err(diagnosis) => panic!("{}", diagnosis.render(100, false)),
    }
    for reason in sluice_engine::packet::reason::Reason::all().filter(|reason| reason.node() == "filter") {
        let name = reason.name();
        assert!(guide.contains(name), "{name} is not explained");
    }
}

#[test]
fn graph_guide_example_is_right_and_names_what_exists() {
    let guide = read("docs/graph.md");
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    match check("docs/graph.md", &block(&guide, "toml", 0), &machine) {
        Ok(checked) => assert_eq!("", checked.advice.to_string()),
        Err(diagnosis) => panic!("{}", diagnosis.render(100, false)),
    }
    for reason in sluice_engine::packet::reason::Reason::all().filter(|reason| reason.name().starts_with("chain-")) {
        assert!(guide.contains(reason.name()), "{} is not explained", reason.name());
    }
}

#[test]
fn subscribers_guide_explains_every_counter() {
    use sluice_daemon::subscribers::agent::Counters;
    use sluice_daemon::subscribers::leases::{Lost, Reason, WatcherStatus};
    use sluice_daemon::subscribers::relay::{Noted, Refused, Tally};
    use sluice_daemon::subscribers::service::Count;
    let guide = read("docs/subscribers.md");
    let of_files = Reason::ALL
        .map(Reason::name)
        .into_iter()
        .chain(Lost::ALL.map(Lost::name));
    let of_relay = Refused::ALL
        .map(Refused::name)
        .into_iter()
        .chain(Noted::ALL.map(Noted::name));
    for name in of_files.chain(of_relay) {
        assert!(guide.contains(&format!("`{name}`")), "{name} is not explained");
    }
    let files = WatcherStatus::default().named().into_iter();
    let others = Tally::default().named().into_iter().chain(Counters::default().named());
    for (name, _) in files.chain(others) {
        assert!(guide.contains(&format!("`{name}`")), "{name} is not explained");
    }
    for count in Count::ALL {
        let row = format!("| `{}` | {} |", count.name(), count.help());
        assert_eq!(1, guide.matches(&row).count(), "docs/subscribers.md lacks {row}");
    }
}

#[test]
fn subscribers_guide_example_is_right() {
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    let text = block(&read("docs/subscribers.md"), "toml", 0);
    match check("docs/subscribers.md", &text, &machine) {
        Ok(checked) => {
            assert_eq!("", checked.advice.to_string());
            let sites = checked
                .config
                .subscribers
                .as_ref()
                .map(|subscribers| subscribers.sites());
            assert_eq!(Some(10_000), sites);
        }
        Err(diagnosis) => panic!("{}", diagnosis.render(100, false)),
    }
}

#[test]
fn subscribers_guide_explains_every_key() {
    let guide = read("docs/subscribers.md");
    let mut count = 0;
    for table in ["", ".sites.a", ".dhcp.a", ".public.a"] {
        let wrong = parse("guide", &format!("[subscribers{table}]\nnothing-known = 0\n"));
        let diagnosis = wrong.expect_err("no such key");
        let known = diagnosis.found().iter().find_map(|located| match &located.problem {
            Problem::UnknownKey { known, .. } => Some(known),
            _ => None,
        });
        for key in known.expect("the keys") {
            assert!(
                guide.contains(&format!("`{key}`")),
                "{key} of [subscribers{table}] is not explained"
            );
            count += 1;
        }
    }
    assert_eq!(29, count);
}

#[test]
fn cards_guide_example_is_right() {
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    match check("docs/cards.md", &block(&read("docs/cards.md"), "toml", 0), &machine) {
        Ok(checked) => assert_eq!("", checked.advice.to_string()),
        Err(diagnosis) => panic!("{}", diagnosis.render(100, false)),
    }
}

/// All card faults, for the cards that the guide uses as examples.
fn card_faults() -> Vec<CardFault> {
    let [address, other] = ["0000:3b:00.0", "0000:3b:00.1"].map(|text| text.parse().expect("an address"));
    let driver = String::from("ixgbe");
    let process = Process {
        id: 4242,
        name: "sluice".into(),
    };
    vec![
        CardFault::Absent(address),
        CardFault::OtherDevice {
            address,
            class: 0x01_08_02,
        },
        CardFault::KernelDriver {
            address,
            driver: driver.clone(),
            interface: Some("eth1".into()),
            to: "vfio-pci",
        },
        CardFault::Unbound {
            address,
            to: "vfio-pci",
        },
        CardFault::NoIommu { address },
        CardFault::Translated { address },
        CardFault::NoType1 { address },
        CardFault::GroupShared {
            address,
            group: 7,
            other,
            driver,
            is_card: true,
        },
        CardFault::InUse {
            address,
            process: Some(process),
        },
        CardFault::NoPermission {
            address,
            what: "/dev/vfio/7, Permission denied".into(),
            advice: "",
        },
    ]
}

/// If a fault is added to the enum, this function fails to compile until the fault is added to `card_faults` and to the guide.
fn place_in_list(fault: &CardFault) -> usize {
    match fault {
        CardFault::Absent(_) => 0,
        CardFault::OtherDevice { .. } => 1,
        CardFault::KernelDriver { .. } => 2,
        CardFault::Unbound { .. } => 3,
        CardFault::NoIommu { .. } => 4,
        CardFault::Translated { .. } => 5,
        CardFault::NoType1 { .. } => 6,
        CardFault::GroupShared { .. } => 7,
        CardFault::InUse { .. } => 8,
        CardFault::NoPermission { .. } => 9,
    }
}

#[test]
fn cards_guide_explains_every_fault_in_its_own_words() {
    let guide = read("docs/cards.md");
    let mut told: Vec<String> = Vec::new();
    for (place, fault) in card_faults().iter().enumerate() {
        assert_eq!(place, place_in_list(fault));
        told.push(fault.to_string());
    }
    let hugepages = HugepageFault {
        demand: HugepageReason::Card("0000:3b:00.0".parse().expect("an address"), Mode::Uio),
        disabled: false,
        needed: 109,
        free: 0,
        sizes: Vec::new(),
    };
    told.push(
        hugepages
            .to_string()
            .replace("this kernel supports none", "0 MiB are free"),
    );
    for text in told {
        let what = text.split(": ").next().unwrap_or_default();
        assert_eq!(
            1,
            guide.matches(&format!("| {what} |")).count(),
            "docs/cards.md lacks | {what} |"
        );
    }
}

#[test]
fn uplinks_guide_has_configurations_that_check_takes() {
    let guide = read("docs/uplinks.md");
    let blocks = guide.matches("\n```toml\n").count();
    assert!(blocks > 0);
    let machine = Machine {
        cores: vec![0, 1],
        memory: 8 << 30,
        entry: EntryBytes::default(),
    };
    for number in 0..blocks {
        let text = block(&guide, "toml", number);
        match check("docs/uplinks.md", &text, &machine) {
            Ok(checked) => assert_eq!("", checked.advice.to_string(), "{text}"),
            Err(wrong) => panic!("{}", wrong.render(100, false)),
        }
    }
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/api.md",
        "docs/architecture.md",
        "docs/cards.md",
        "docs/cores.md",
        "docs/nat.md",
        "docs/filter.md",
        "docs/graph.md",
        "docs/import.md",
        "docs/routers.md",
        "docs/uplinks.md",
        "docs/subscribers.md",
        "docs/papers.md",
        "docs/performance.md",
        "docs/decisions/0009-steering.md",
    ] {
        let folder = Path::new(document).parent().expect("a folder");
        for link in read(document)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") {
                continue;
            }
            let target = if path.is_empty() {
                document.into()
            } else {
                folder.join(path)
            };
            assert!(
                root().join(&target).exists(),
                "{document} links to {link}, which is not there"
            );
            let text = if place.is_empty() {
                String::new()
            } else {
                std::fs::read_to_string(root().join(&target)).expect("text")
            };
            let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
            assert!(
                place.is_empty() || headings.any(|heading| heading == place),
                "{document} links to {link}, no such heading"
            );
        }
    }
}

/// Anchor that links use for a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn makefile_targets_named_in_documents_exist() {
    let makefile = read("Makefile");
    for document in ["README.md", "CONTRIBUTING.md"] {
        let text = read(document);
        for target in text
            .split("make ")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next())
        {
            let prose = target.is_empty() || ["a", "of"].contains(&target);
            assert!(
                prose || makefile.contains(&format!("\n{target}:")),
                "{document} names make {target}"
            );
        }
    }
}

#[test]
fn api_document_lists_every_operation() {
    let document = read("docs/api.md");
    for operation in operation::ALL {
        let Description {
            kind, path, request, ..
        } = operation;
        let request = match (*request, *kind) {
            ("Unfiltered", _) => "-".to_owned(),
            (request, OperationKind::Pages) => format!("`{request}`, `Position`"),
            (request, _) => format!("`{request}`"),
        };
        let answer = match kind {
            OperationKind::Get | OperationKind::Post => "",
            OperationKind::List | OperationKind::Pages => "list of ",
            OperationKind::Stream => "stream of ",
        };
        let command = operation
            .command
            .map_or("-".to_owned(), |command| format!("`sluice show {command}`"));
        let row = format!(
            "| `{} {path}` | {} | {request} | {answer}`{}` | {command} |",
            kind.method(),
            operation.summary(),
            operation.answer
        );
        assert_eq!(1, document.matches(&row).count(), "docs/api.md lacks {row}");
    }
    assert_eq!(
        operation::ALL.len(),
        document.matches("| `GET ").count() + document.matches("| `POST ").count()
    );
}
