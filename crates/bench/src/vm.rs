//! `vm`: Linux and Sluice by turns in one guest, on the same two cards that QEMU emulates, with one processor.
//!
//! Generator and receiver are those of `kernel`, at two taps outside of the guest. In one guest the rate is raised until packets
//! get lost; in another, whose clock counts instructions, it is counted what a packet takes of these. Emulation makes interrupts
//! and a card's registers dear and has no caches: what it shows of time is no more than that both can be measured alike, while
//! instructions are the same with any processor.
//!
//! The guest is built by the lab (`lab/vm-image`); everything runs in private namespaces and goes with them.

pub mod card;
pub mod clock;
pub mod counted;
pub mod gateway;
pub mod guest;
pub mod inside;
pub mod rounds;
pub mod search;
pub mod shell;
pub mod trial;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::kernel::frame::MOST_NETWORKS;
use crate::kernel::machine::Cores;
use crate::kernel::outside::{self};
use crate::rig::lanes;
use crate::rows::{Failure, Run};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Packets per second, and processor time.
    Time,
    /// Instructions per packet.
    Instructions,
}

/// What is to be compared.
#[derive(Args, Clone, Debug)]
pub struct VmArguments {
    /// Kinds of cards; virtio and e1000e where none is named, virtio with --quick.
    #[arg(long = "card", value_delimiter = ',', value_name = "CARD")]
    cards: Vec<card::Card>,
    /// Cases, by the names that the rows have; all where none is named.
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<gateway::Case>,
    /// Numbers of source-NAT rules, of which the last one matches.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_NETWORKS.into()))]
    rules: Vec<u32>,
    /// Sizes of frames in bytes, check sequence counted.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1518))]
    bytes: Vec<u32>,
    /// Which way the packets go: from inside, from outside, or half of them each way.
    #[arg(
        long = "direction",
        value_delimiter = ',',
        value_name = "DIRECTION",
        default_value = "up,down"
    )]
    directions: Vec<trial::Way>,
    /// Parts to measure; both by default.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PART",
        default_value = "time,instructions"
    )]
    only: Vec<Part>,
    /// Rounds, each with every case in an order drawn anew; 7 where not given, 1 with --quick.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Length of a trial in milliseconds; 1500 where not given, 700 with --quick.
    #[arg(long, value_name = "MS")]
    window: Option<u64>,
    /// On these two cores: traffic and the emulated cards on the first, the guest's processor on the second; the first two that
    /// this process may use where none is named.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// The program `sluice`; beside this one where not given.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
    /// The lab, which builds the guest: the folder `lab` of a checkout.
    #[arg(long, value_name = "FOLDER", default_value = "lab")]
    lab: PathBuf,
    /// A command that is run in the guest when Linux is set up, to try other settings (the cards' interfaces are slb-in and
    /// slb-out).
    #[arg(long, value_name = "COMMAND", default_value = "", hide_default_value = true)]
    linux: String,
    /// Set in the process that runs inside the namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

impl VmArguments {
    fn cores(&self) -> Result<Cores, Failure> {
        let of = lanes::cores(&self.on, usize::MAX);
        Cores::apart(&of).ok_or_else(|| crate::kernel::ONE_CORE.into())
    }

    fn cards(&self, quick: bool) -> Vec<card::Card> {
        match (self.cards.is_empty(), quick) {
            (false, _) => self.cards.clone(),
            (true, true) => vec![card::Card::Virtio],
            (true, false) => vec![card::Card::Virtio, card::Card::E1000e],
        }
    }

    fn cases(&self) -> Vec<gateway::Case> {
        let wanted = |case: &gateway::Case| self.cases.is_empty() || self.cases.contains(case);
        gateway::Case::value_variants().iter().copied().filter(wanted).collect()
    }

    fn clocks(&self) -> Vec<guest::Clock> {
        let clock = |part: &Part| match part {
            Part::Time => guest::Clock::Time,
            Part::Instructions => guest::Clock::Instructions,
        };
        self.only.iter().map(clock).collect()
    }

    fn rounds(&self, quick: bool) -> usize {
        self.rounds.unwrap_or(if quick { 1 } else { 7 }).max(1)
    }

    fn window(&self, quick: bool) -> Duration {
        Duration::from_millis(self.window.unwrap_or(if quick { 700 } else { 1_500 }).max(100))
    }
}

pub fn run(arguments: &VmArguments, run: &mut Run<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let seconds = inside::estimate(arguments, run.quick).as_secs();
    eprintln!(
        "sluice-bench: this takes about {} minutes; keep the machine quiet",
        seconds.div_ceil(60)
    );
    outside::enter(run, std::env::args_os().skip(1).collect())
}
