//! `vm`: compares Linux and Sluice, one after the other in the same guest with one processor and the same two network
//! cards emulated by QEMU.
//!
//! Generator and receiver are those of the `kernel` benchmark; they use two TAP interfaces outside the guest. In one
//! guest, the rate is increased until packets are lost. In a second guest, whose clock counts instructions, the
//! instructions per packet are counted. Emulation makes interrupts and accesses to card registers expensive and models
//! no caches. Therefore the times in a guest only show that both gateways can be measured in the same way, whereas
//! instruction counts are valid for any processor.
//!
//! The folder `lab` contains the script that builds the guest (`lab/vm-image`). All components run in private
//! namespaces, which are removed at the end.

mod card;
mod clock;
mod counted;
mod gateway;
mod guest;
mod inside;
mod rounds;
mod search;
mod shell;
mod trial;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
pub use inside::{estimate, run};

use crate::kernel::frame::MOST_NETWORKS;
use crate::kernel::machine::Cores;
use crate::rig::lanes;
use crate::rows::Failure;

/// What to compare.
#[derive(Args, Clone, Debug)]
pub struct VmArguments {
    /// Kinds of cards; by default virtio and e1000e, or virtio with --quick.
    #[arg(long = "card", value_delimiter = ',', value_name = "CARD")]
    cards: Vec<card::Card>,
    /// Cases, by their names in the rows; by default all.
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<gateway::Case>,
    /// Numbers of source-NAT rules; packets match the last rule.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_NETWORKS.into()))]
    rules: Vec<u32>,
    /// Frame sizes in bytes, including the frame check sequence.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1518))]
    bytes: Vec<u32>,
    /// Direction of the packets: from inside, from outside, or half in each direction.
    #[arg(
        long = "direction",
        value_delimiter = ',',
        value_name = "DIRECTION",
        default_value = "up,down"
    )]
    directions: Vec<trial::Way>,
    /// Parts to measure; by default both.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PART",
        default_value = "time,instructions"
    )]
    only: Vec<guest::Clock>,
    /// Number of rounds, each with every case in random order; by default 7, or 1 with --quick.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Duration of a trial in milliseconds; by default 1500, or 700 with --quick.
    #[arg(long, value_name = "MS")]
    window: Option<u64>,
    /// Two cores: the first for traffic and the emulated cards, the second for the guest's processor; by default the
    /// first two that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// The program `sluice`; by default the one in the same folder as `sluice-bench`.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
    /// Folder `lab` of a checkout, which builds the guest.
    #[arg(long, value_name = "FOLDER", default_value = "lab")]
    lab: PathBuf,
    /// A command to run in the guest after Linux is set up, to try other settings (the cards' interfaces are slb-in and
    /// slb-out).
    #[arg(long, value_name = "COMMAND", default_value = "", hide_default_value = true)]
    linux: String,
}

impl VmArguments {
    fn cores(&self) -> Result<Cores, Failure> {
        let of = lanes::cores(&self.on, usize::MAX);
        Cores::apart(&of).ok_or_else(|| crate::kernel::ONE_CORE.into())
    }

    fn cards(&self, quick: bool) -> Vec<card::Card> {
        let usual = [card::Card::Virtio, card::Card::E1000e];
        match (self.cards.is_empty(), quick) {
            (false, _) => self.cards.clone(),
            (true, true) => usual[..1].to_vec(),
            (true, false) => usual.to_vec(),
        }
    }

    fn cases(&self) -> Vec<gateway::Case> {
        let wanted = |case: &gateway::Case| self.cases.is_empty() || self.cases.contains(case);
        gateway::Case::value_variants().iter().copied().filter(wanted).collect()
    }

    fn rounds(&self, quick: bool) -> usize {
        self.rounds.unwrap_or(if quick { 1 } else { 7 }).max(1)
    }

    fn window(&self, quick: bool) -> Duration {
        Duration::from_millis(self.window.unwrap_or(if quick { 700 } else { 1_500 }).max(100))
    }
}
