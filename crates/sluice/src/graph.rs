//! `sluice show graph`: prints the packet processing graph.

use std::io::Write;

use clap::Args;
use sluice_daemon::config::api::{Graph, GraphChain, NodeWork, operation};

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::ShowAnswer;

use Align::{Left, Right};

/// Options of `show graph`.
#[derive(Args, Clone, Copy, Debug)]
pub struct GraphOptions {
    /// Print the graph in the DOT language: `sluice show graph --dot | dot -Tsvg`.
    #[arg(long, conflicts_with = "json")]
    dot: bool,
}

impl ShowAnswer for operation::Graph {
    type Options = GraphOptions;

    fn text(graph: &Graph, options: &GraphOptions, output: &mut dyn Write) -> Result<(), CommandError> {
        match options.dot {
            true => Ok(output.write_all(dot(graph).as_bytes())?),
            false => write_text(graph, output),
        }
    }
}

fn write_text(graph: &Graph, output: &mut dyn Write) -> Result<(), CommandError> {
    for node in &graph.nodes {
        writeln!(output, "{}: {}{}", node.name, node.help, done(node.work))?;
        for edge in graph.edges.iter().filter(|edge| edge.from == node.name) {
            match edge.why.as_str() {
                "" => writeln!(output, "    --> {}", edge.to)?,
                why => writeln!(output, "    -- {why} --> {}", edge.to)?,
            }
        }
        if !node.leaves.is_empty() {
            writeln!(output, "    or: {}", node.leaves.join(", "))?;
        }
    }
    if graph.chains.is_empty() {
        return Ok(());
    }
    writeln!(output)?;
    let titles = [
        ("ROUTER", Left),
        ("CHAIN", Left),
        ("STEP", Left),
        ("TO", Left),
        ("PACKETS", Right),
        ("BYTES", Right),
    ];
    let mut columns = Columns::new(&titles);
    let number = |number: Option<u64>| number.map_or("-".into(), grouped);
    for chain in &graph.chains {
        for step in &chain.steps {
            columns.row([
                chain.router.clone(),
                chain.name.clone(),
                step.step.clone(),
                step.to.clone().unwrap_or("-".into()),
                number(step.packets),
                number(step.bytes),
            ]);
        }
    }
    columns.flush(output)?;
    if graph.copies_lost > 0 {
        writeln!(
            output,
            "mirrored packets that were not sent: {}",
            grouped(graph.copies_lost)
        )?;
    }
    Ok(())
}

/// Format the counters of a node. Empty if the node has processed nothing.
fn done(work: Option<NodeWork>) -> String {
    match work {
        Some(NodeWork { runs, packets, cycles }) if packets > 0 => format!(
            " [{} packets, {:.1} a run, {} cycles each]",
            grouped(packets),
            packets as f64 / runs.max(1) as f64,
            grouped(cycles / packets)
        ),
        _ => String::new(),
    }
}

/// Format the graph for Graphviz: the nodes, and a box for each chain with the steps of the chain.
pub fn dot(graph: &Graph) -> String {
    let mut text = String::from("digraph sluice {\n    rankdir = LR\n    node [shape = box]\n");
    let shape = |name: &str| match name {
        "receive" | "transmit" => ", shape = oval",
        _ => "",
    };
    for node in &graph.nodes {
        let (name, shape) = (&node.name, shape(&node.name));
        text += &format!("    {} [tooltip = {}{shape}]\n", quoted(name), quoted(&node.help));
    }
    for edge in &graph.edges {
        text += &arrow(&edge.from, &edge.to, &edge.why);
    }
    for chain in &graph.chains {
        let name = named(&chain.router, &chain.name);
        let lines = chain.steps.iter().map(|step| match step.packets {
            Some(packets) => format!("{}: {}\\l", escaped(&step.step), grouped(packets)),
            None => format!("{}\\l", escaped(&step.step)),
        });
        let label: String = lines.collect();
        text += &format!("    {} [label = \"{}\\n{label}\"]\n", quoted(&name), escaped(&name));
        text += &leads(chain, &name);
    }
    text + "}\n"
}

/// Targets of a chain: other chains, and the nodes that follow the end of the chain.
fn leads(chain: &GraphChain, name: &str) -> String {
    let mut text = String::new();
    if chain.name == "input" {
        text += &arrow("chain", name, &chain.router);
    }
    for step in &chain.steps {
        if let Some(to) = &step.to {
            text += &arrow(name, &named(&chain.router, to), &step.step);
        }
    }
    let words: Vec<&str> = chain.steps.iter().map(|step| step.step.as_str()).collect();
    match words.as_slice() {
        [.., "sessions, forward"] => text += &arrow(name, "session-lookup", "sessions"),
        [.., "forward"] => text += &arrow(name, "forward", ""),
        _ => {}
    }
    text
}

fn named(router: &str, chain: &str) -> String {
    format!("{router}/{chain}")
}

fn arrow(from: &str, to: &str, why: &str) -> String {
    match why {
        "" => format!("    {} -> {}\n", quoted(from), quoted(to)),
        why => format!("    {} -> {} [label = {}]\n", quoted(from), quoted(to), quoted(why)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_daemon::config::api::{GraphEdge, GraphNode, GraphStep};

    fn graph() -> Graph {
        let node = |name: &str| GraphNode {
            name: name.into(),
            help: format!("what {name} does"),
            leaves: match name {
                "parse" => vec!["drop".into()],
                _ => Vec::new(),
            },
            work: (name == "chain").then_some(NodeWork {
                runs: 100,
                packets: 1_234,
                cycles: 123_499,
            }),
        };
        let step = |step: &str, to: Option<&str>, packets: Option<u64>| GraphStep {
            step: step.into(),
            to: to.map(Into::into),
            packets,
            bytes: packets.map(|packets| packets * 60),
        };
        let chain = |name: &str, steps: Vec<GraphStep>| GraphChain {
            router: "campus".into(),
            name: name.into(),
            steps,
        };
        Graph {
            nodes: ["receive", "parse", "chain"].map(node).into(),
            edges: [("receive", "parse", ""), ("parse", "chain", "its router has chains")]
                .map(|(from, to, why)| GraphEdge {
                    from: from.into(),
                    to: to.into(),
                    why: why.into(),
                })
                .into(),
            chains: vec![
                chain(
                    "input",
                    vec![
                        step("classify to-port \"@voice\"", Some("voice"), Some(1_234)),
                        step("to", Some("rest"), None),
                    ],
                ),
                chain("voice", vec![step("forward", None, Some(1_234))]),
                chain("rest", vec![step("sessions, forward", None, Some(5))]),
            ],
            copies_lost: 2,
        }
    }

    #[test]
    fn text_lists_nodes_with_their_ways_and_chains_with_their_counters() {
        let mut output = Vec::new();
        write_text(&graph(), &mut output).unwrap();
        let expected = "\
receive: what receive does
    --> parse
parse: what parse does
    -- its router has chains --> chain
    or: drop
chain: what chain does [1,234 packets, 12.3 a run, 100 cycles each]

ROUTER  CHAIN  STEP                       TO     PACKETS   BYTES
campus  input  classify to-port \"@voice\"  voice    1,234  74,040
campus  input  to                         rest         -       -
campus  voice  forward                    -        1,234  74,040
campus  rest   sessions, forward          -            5     300
mirrored packets that were not sent: 2
";
        assert_eq!(expected, String::from_utf8(output).unwrap());
    }

    #[test]
    fn dot_has_a_box_for_each_chain_and_quotes_what_is_written() {
        let text = dot(&graph());
        for line in [
            "    \"receive\" -> \"parse\"\n",
            "    \"parse\" -> \"chain\" [label = \"its router has chains\"]\n",
            "    \"chain\" -> \"campus/input\" [label = \"campus\"]\n",
            "    \"campus/input\" -> \"campus/voice\" [label = \"classify to-port \\\"@voice\\\"\"]\n",
            "    \"campus/input\" -> \"campus/rest\" [label = \"to\"]\n",
            "    \"campus/rest\" -> \"session-lookup\" [label = \"sessions\"]\n",
            "    \"campus/voice\" -> \"forward\"\n",
            "    \"campus/voice\" [label = \"campus/voice\\nforward: 1,234\\l\"]\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.starts_with("digraph sluice {\n") && text.ends_with("}\n"));
    }
}
