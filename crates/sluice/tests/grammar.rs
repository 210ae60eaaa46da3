//! Tests the grammar: help of every command, completions and manual pages.

use std::process::{Command, Output};

use clap::{CommandFactory, Parser};
use sluice_command::arguments::{Arguments, Command as Typed};
use sluice_config::api::operation;

fn sluice(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(words)
        .env_remove("SLUICE_SOCKET")
        .output()
        .unwrap()
}

fn every_command(command: &clap::Command, words: &[String], each: &mut dyn FnMut(&clap::Command, &[String])) {
    each(command, words);
    for below in command.get_subcommands() {
        let words = [words, &[below.get_name().to_owned()]].concat();
        every_command(below, &words, each);
    }
}

#[test]
fn grammar_built_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn help_of_every_command_is_printed_and_names_every_option() {
    let mut count = 0;
    every_command(&Arguments::command(), &[], &mut |command, words| {
        let mut words: Vec<_> = words.iter().map(String::as_str).collect();
        words.push("--help");
        let output = sluice(&words);
        assert!(output.status.success(), "{words:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for option in command.get_opts() {
            let long = option.get_long().unwrap();
            assert!(text.contains(&format!("--{long}")), "{words:?} does not name --{long}");
            assert!(option.get_help().is_some(), "{words:?}: --{long} has no help");
        }
        count += 1;
    });
    assert!(count >= 18);
}

#[test]
fn show_has_a_command_for_every_operation_that_names_one() {
    let arguments = Arguments::command();
    let show = arguments.find_subcommand("show").unwrap();
    let named = operation::ALL.iter().filter(|operation| operation.command.is_some());
    let mut count = 0;
    for operation in named {
        let command = show.find_subcommand(operation.command.unwrap());
        let command = command.unwrap_or_else(|| panic!("no command prints {}", operation.path));
        assert_eq!(
            Some(operation.summary().to_owned()),
            command.get_about().map(ToString::to_string)
        );
        assert!(
            command
                .get_opts()
                .chain(command.get_arguments())
                .any(|option| option.get_id() == "json")
        );
        count += 1;
    }
    assert_eq!(count, show.get_subcommands().count());
}

#[test]
fn everything_that_can_be_read_has_a_command() {
    let without = operation::ALL
        .iter()
        .filter(|operation| operation.kind.method() == "GET" && operation.command.is_none());
    let without: Vec<_> = without.map(|operation| operation.path).collect();
    // `top`, `set list` and `show mapping` print the results of these operations, which have no command of their own.
    assert_eq!(["/v1/status", "/v1/sets", "/v1/port-blocks", "/v1/shares"], *without);
}

#[test]
fn completion_of_every_shell_is_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = sluice(&["completion", shell]);
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains("neighbours"));
    }
}

#[test]
fn command_that_nobody_types_is_in_no_help_completion_or_page() {
    let folder = tempfile::tempdir().unwrap();
    assert!(sluice(&["man", folder.path().to_str().unwrap()]).status.success());
    assert!(!folder.path().join("sluice-compile-signatures.1").exists());
    for words in [
        &["--help"][..],
        &["completion", "bash"],
        &["completion", "zsh"],
        &["man"],
    ] {
        let text = String::from_utf8(sluice(words).stdout).unwrap();
        assert!(
            text.contains("capture") && !text.contains("compile-signatures"),
            "{words:?}"
        );
    }
}

#[test]
fn manual_pages_of_all_commands_are_written() {
    let folder = tempfile::tempdir().unwrap();
    assert!(sluice(&["man", folder.path().to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(folder.path().join("sluice-show-sessions.1")).unwrap();
    assert!(page.contains("conntrack"));
    let output = sluice(&["man"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(".ie"));
}

#[test]
fn replay_with_captures_is_read() {
    let words = [
        "sluice",
        "replay",
        "-c",
        "f",
        "--in",
        "inside=a.pcap",
        "--in",
        "outside=b.pcap",
        "--out",
        "inside=c",
    ];
    assert!(Arguments::try_parse_from(words).is_ok());
    assert!(Arguments::try_parse_from(["sluice", "replay", "-c", "f", "--in", "inside"]).is_err());
}

#[test]
fn plan_with_cores_and_a_load_is_read() {
    let words = ["sluice", "plan", "-c", "f", "--cores", "0-3,8", "--for", "10G sfr"];
    assert!(Arguments::try_parse_from(words).is_ok());
    assert!(Arguments::try_parse_from(["sluice", "plan"]).is_err());
}

#[test]
fn plan_on_live_traffic_is_read_with_and_without_a_time() {
    let live = |more: &[&str]| {
        let words = [&["sluice", "plan", "-c", "f"], more].concat();
        match Arguments::try_parse_from(words).ok()?.command {
            Typed::Plan(plan) => Some(plan.live.map(|time| time.as_secs())),
            _ => None,
        }
    };
    assert_eq!(Some(None), live(&[]));
    assert_eq!(Some(Some(5)), live(&["--live"]));
    assert_eq!(Some(Some(60)), live(&["--live", "1m", "--json"]));
    for wrong in [
        &["--live", "0s"][..],
        &["--live", "1500ms"],
        &["--live", "--in", "inside=f"],
    ] {
        assert_eq!(None, live(wrong), "{wrong:?}");
    }
}

#[test]
fn card_is_named_by_its_address_with_and_without_the_domain() {
    let card = |words: &[&str]| match Arguments::try_parse_from([&["sluice", "bind"], words].concat()) {
        Ok(Arguments {
            command: Typed::Bind(bind),
            ..
        }) => Some(bind.card.map(|card| card.to_string())),
        _ => None,
    };
    assert_eq!(Some(None), card(&["--json"]));
    let written = Some(Some("0000:3b:00.1".to_owned()));
    assert_eq!(written, card(&["3b:00.1", "--driver", "vfio-pci", "--save"]));
    assert_eq!(written, card(&["0000:3b:00.1", "--dry-run", "--force"]));
    for wrong in [
        &["eth0"][..],
        &["3b:00.1", "--driver", "e1000e"],
        &["--save"],
        &["3b:20.1"],
    ] {
        assert_eq!(None, card(wrong), "{wrong:?}");
    }
    assert!(Arguments::try_parse_from(["sluice", "unbind"]).is_err());
}

#[test]
fn card_that_is_not_there_is_neither_bound_nor_opened() {
    for command in ["bind", "unbind"] {
        let output = sluice(&[command, "ffff:ff:1f.7"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(Some(1), output.status.code(), "{text}");
        assert!(text.contains("no PCI device ffff:ff:1f.7"), "{text}");
    }
    let output = sluice(&["bind", "--json"]);
    assert!(output.status.success());
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(listed.is_array(), "{listed}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.toml");
    std::fs::write(&path, "[interfaces.inside]\ndevice = \"ffff:ff:1f.7\"\n").unwrap();
    let output = sluice(&["check", "--json", path.to_str().unwrap()]);
    assert_eq!(Some(3), output.status.code());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fault = &document["faults"][0];
    assert_eq!("interfaces.inside.device", fault["key"]);
    assert_eq!("inside: there is no PCI device ffff:ff:1f.7", fault["what"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("card.toml:2:10") && text.contains("`sluice bind` lists"),
        "{text}"
    );
}

#[test]
fn wrong_command_line_exits_with_2() {
    for words in [
        &["frobnicate"][..],
        &["show", "sessions", "--protocol", "tcpp"],
        &["show", "sessions", "--json", "--conntrack"],
    ] {
        assert_eq!(Some(2), sluice(words).status.code(), "{words:?}");
    }
}

#[test]
fn wrong_configuration_exits_with_3_and_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    std::fs::write(&path, "[sessions]\nipv5 = 3\n").unwrap();
    let output = sluice(&["check", path.to_str().unwrap()]);
    assert_eq!(Some(3), output.status.code());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("wrong.toml:2:1") && text.contains("did you mean `ipv"),
        "{text}"
    );
}

#[test]
fn valid_configuration_checked_prints_what_would_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("right.toml");
    let text =
        "[sessions]\nipv4 = 1000\nipv6 = 0\n[interfaces.inside]\ndevice = \"null:\"\naddresses = [\"10.0.0.1/8\"]\n";
    std::fs::write(&path, text).unwrap();
    let output = sluice(&["check", path.to_str().unwrap()]);
    assert_eq!(Some(0), output.status.code(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "inside",
        "null:",
        "10.0.0.1/8",
        "IPv4 sessions",
        "KiB",
        "Workers on cores",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let output = sluice(&["check", "--json", path.to_str().unwrap()]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!("inside", document["interfaces"][0]["name"]);
}

#[test]
fn configuration_with_a_device_that_is_not_there_is_printed_and_refused_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent.toml");
    std::fs::write(&path, "[interfaces.inside]\ndevice = \"nowhere0\"\n").unwrap();
    let output = sluice(&["check", path.to_str().unwrap()]);
    assert_eq!(Some(3), output.status.code());
    assert!(String::from_utf8(output.stdout).unwrap().contains("INTERFACE"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("absent.toml:2:10") && text.contains("nowhere0"), "{text}");
}

#[test]
fn command_without_a_daemon_exits_with_5_and_says_how_to_start_one() {
    let output = sluice(&["show", "sessions", "--socket", "/nowhere/control"]);
    assert_eq!(Some(5), output.status.code());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("/nowhere/control") && text.contains("sluice run"),
        "{text}"
    );
}

#[test]
fn clear_without_filter_is_refused() {
    let output = sluice(&["clear", "sessions", "--socket", "/nowhere/control"]);
    assert_eq!(Some(2), output.status.code());
    assert!(String::from_utf8(output.stderr).unwrap().contains("--all"));
}

/// 198.51.100.0/28 is translated to 192.0.2.1 with 16 shares, two of which are reserved for dynamic blocks.
const DETERMINISTIC: &str = r#"
[interfaces.inside]
device = "null:"
[nat.pools.example]
addresses = ["192.0.2.1"]
block = { size = 64 }
deterministic = { inside = "198.51.100.1-198.51.100.14", compression = 14, dynamic = 2 }
"#;

#[test]
fn rfc7422_both_functions_are_answered_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("then.toml");
    std::fs::write(&path, DETERMINISTIC).unwrap();
    let ask = |words: &[&str]| {
        let command = ["show", "mapping", "--config", path.to_str().unwrap()];
        let output = sluice(&[&command[..], words].concat());
        assert_eq!(Some(0), output.status.code(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let title = "POOL     INSIDE        PORTS  OUTSIDE\n";
    let second = "example  198.51.100.2  4,032  192.0.2.1:5056-9087\n";
    assert_eq!(title.to_owned() + second, ask(&["--inside", "198.51.100.2"]));
    assert_eq!(title.to_owned() + second, ask(&["--outside", "192.0.2.1:5056"]));
    assert_eq!(14 + 1, ask(&[]).lines().count());
    let answer = ask(&["--outside", "192.0.2.1:57471", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let expected = serde_json::json!({
        "pool": "example",
        "inside": "198.51.100.14",
        "ports": 4032,
        "spans": [{ "address": "192.0.2.1", "first": 53_440, "last": 57_471, "step": 1 }],
    });
    assert_eq!(serde_json::json!([expected]), document["shares"]);
    let answer = ask(&["--outside", "192.0.2.1:57472", "--json"]);
    assert!(answer.contains("\"shares\":[\n]"), "{answer}");
}
