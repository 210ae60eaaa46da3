//! The generators as their controller sees them: processes that answer lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum;

use super::generator::Own;
use super::topology::{GENERATOR, GENERATOR_INTERFACE, Topology};

/// Why the generator does not do as it is told.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// It does not start or its pipes break.
    #[error("the generator: {0}")]
    Pipe(#[from] std::io::Error),
    /// It answers something else.
    #[error("the generator answered {answer:?}, not {expected:?}")]
    Answer {
        /// What it said.
        answer: String,
        /// What it should say.
        expected: &'static str,
    },
}

/// A flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// Of so many flows, opened before.
    Established(u32),
    /// Each opens a flow.
    New,
}

impl Flows {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Established(_) => "established",
            Self::New => "new",
        }
    }
}

/// Which rules the packets match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Hits {
    /// The last one alone: who tries one after the other tries all.
    Last,
    /// All, equally often: who tries one after the other tries half of them.
    Uniform,
}

impl Hits {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Uniform => "uniform",
        }
    }

    /// The first rule of those that are matched, and how many they are.
    fn of(self, rules: u32) -> (u32, u32) {
        match self {
            Self::Last => (rules.saturating_sub(1), 1),
            Self::Uniform => (0, rules.max(1)),
        }
    }
}

/// Most flows that one trial opens.
pub const NEW_FLOWS: u32 = 3_500_000;

/// Flows that are opened before any trial, to see that packets arrive.
pub const OPENED: u32 = 8_000;

/// Running generators, one or more.
#[derive(Debug)]
pub struct Traffic {
    first: Generator,
    others: Vec<Generator>,
}

impl Traffic {
    /// Start them in their namespace, for frames of `bytes` bytes from the hosts of the rules that are to be hit.
    pub fn start(topology: &Topology, bytes: usize, hits: Hits, rules: u32, xdp: bool) -> Result<Self, TrafficError> {
        let start = |core| Generator::start(core, bytes, hits, rules, xdp);
        let others = topology.cores.more.iter().map(|&core| start(core));
        Ok(Self {
            first: start(topology.cores.traffic)?,
            others: others.collect::<Result<_, _>>()?,
        })
    }

    /// A process in their namespace.
    pub fn process(&self) -> u32 {
        self.first.child.id()
    }

    /// Send one packet of each of the first flows, `rate` a second.
    pub fn open(&mut self, flows: u32, rate: u32) -> Result<(), TrafficError> {
        self.first.tell(&format!("open {flows} {rate}"))?;
        self.first.expect("opened").map(drop)
    }

    /// Begin to send, at most `rate` packets per second all together, each generator flows of its own; 0 is no limit.
    pub fn begin(&mut self, flows: Flows, rate: u32) -> Result<(), TrafficError> {
        let generators = 1 + self.others.len() as u32;
        let rate = rate.div_ceil(generators);
        for (number, generator) in self.all().enumerate() {
            let number = number as u32;
            match flows {
                Flows::Established(flows) => {
                    let Own { from, step, count } = Own::of(flows, number, generators);
                    generator.tell(&format!("established {from} {step} {count} {rate}"))?;
                }
                Flows::New => {
                    let count = NEW_FLOWS / generators;
                    let from = OPENED + number * count;
                    generator.tell(&format!("new {from} {count} {rate}"))?;
                }
            }
        }
        Ok(())
    }

    /// Stop to send.
    pub fn stop(&mut self) -> Result<(), TrafficError> {
        self.all().try_for_each(|generator| generator.tell("stop"))?;
        self.all().try_for_each(|generator| generator.expect("sent").map(drop))
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Generator> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

/// One generator.
#[derive(Debug)]
struct Generator {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Generator {
    fn start(core: usize, bytes: usize, hits: Hits, rules: u32, xdp: bool) -> Result<Self, TrafficError> {
        let core = core.to_string();
        let (first, networks) = hits.of(rules);
        let inside = super::topology::inside_network(first).to_string();
        let server = super::topology::SERVER.to_string();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", GENERATOR, "taskset", "-c", &core]);
        command.arg(std::env::current_exe()?).arg("generate");
        command.args([
            "--interface",
            GENERATOR_INTERFACE,
            "--core",
            &core,
            "--bytes",
            &bytes.to_string(),
        ]);
        command.args([
            "--inside",
            &inside,
            "--networks",
            &networks.to_string(),
            "--server",
            &server,
        ]);
        if xdp {
            command.arg("--xdp");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let mut generator = Self {
            child,
            input,
            output: BufReader::new(output.ok_or_else(closed)?),
        };
        generator.expect("ready")?;
        Ok(generator)
    }

    fn tell(&mut self, line: &str) -> Result<(), TrafficError> {
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let input = self.input.as_mut().ok_or_else(closed)?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    /// The next answer, which begins with a word; DPDK's own lines before it are passed over.
    fn expect(&mut self, expected: &'static str) -> Result<String, TrafficError> {
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(TrafficError::Answer { answer, expected });
            }
            if line.trim().split(' ').next() == Some(expected) {
                return Ok(line.trim().into());
            }
            answer = line.trim().into();
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // The end of its input ends it in order.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_rule_is_hit_alone_and_uniform_hits_are_of_all() {
        assert_eq!((9_999, 1), Hits::Last.of(10_000));
        assert_eq!((0, 10_000), Hits::Uniform.of(10_000));
        assert_eq!(((0, 1), (0, 1)), (Hits::Last.of(0), Hits::Uniform.of(0)));
    }
}
