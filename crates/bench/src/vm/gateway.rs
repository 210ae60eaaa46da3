//! Gateways in the guest: Linux or Sluice, set up for each trial and removed after it.

use std::path::Path;
use std::time::Duration;

use super::card::{ADDRESSES, Card};
use super::guest::{Clock, Guest};
use super::shell::LIMIT;
use crate::kernel::gateway::linux;
use crate::kernel::gateway::sluice::{Place, configuration_at};
use crate::kernel::topology::{INSIDE, INSIDE_NETWORKS, OUTSIDE};
use crate::process::await_every;
use crate::rows::Failure;

/// A gateway to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Case {
    /// Linux forwards.
    LinuxForward,
    /// Sluice forwards.
    SluiceForward,
    /// Linux translates by iptables.
    Iptables,
    /// Linux translates by nftables, with a map if there are several rules.
    Nftables,
    /// Sluice translates.
    Sluice,
}

impl Case {
    pub fn translates(self) -> bool {
        !matches!(self, Self::LinuxForward | Self::SluiceForward)
    }

    fn is_sluice(self) -> bool {
        matches!(self, Self::SluiceForward | Self::Sluice)
    }

    /// The case of Linux with which this case is compared.
    pub fn beside(self) -> Self {
        match self.translates() {
            true => Self::Iptables,
            false => Self::LinuxForward,
        }
    }
}

/// Folder of Sluice's files in the guest.
const FOLDER: &str = "/run/lab";

/// Maximum time until Sluice has its routes.
const START: Duration = Duration::from_secs(180);

/// Kernel modules that process packets by rules; each module comes before the modules on which it depends. The checksum
/// module is not listed, because nft fails without it.
const FILTERS: &str =
    "iptable_nat ip_tables xt_nat x_tables nft_chain_nat nft_nat nft_masq nft_ct nf_tables nf_nat nf_conntrack";

/// Maximum number of Sluice's sessions, and number of buckets in the connection tracking table of Linux; both suffice
/// for all flows.
const SESSIONS: u32 = 65_536;

/// Starts a case with this number of source-NAT rules; for Linux, the command `more` is run in the guest after the
/// setup.
pub fn start(guest: &mut Guest, case: Case, rules: u32, card: Card, clock: Clock, more: &str) -> Result<(), Failure> {
    match case.is_sluice() {
        true => start_sluice(guest, if case.translates() { rules } else { 0 }, clock),
        false => start_linux(guest, case, rules, card, more),
    }
}

pub fn stop(guest: &mut Guest, case: Case) -> Result<(), Failure> {
    if case.is_sluice() {
        guest.run(&format!(
            "read pid <{FOLDER}/pid; kill -TERM $pid; while kill -0 $pid 2>/dev/null; do usleep 20000; done"
        ))?;
        return Ok(());
    }
    guest.run(&format!(
        "for name in {INSIDE} {OUTSIDE}; do ip link set $name down; ip address flush dev $name; done\n\
         [ ! -e /proc/net/ip_tables_names ] || printf '*nat\\nCOMMIT\\n' | iptables-legacy-restore\n\
         nft flush ruleset 2>/dev/null\n\
         for round in 1 2 3; do for module in {FILTERS}; do rmmod $module 2>/dev/null; done; done\n\
         ! grep -E '^(nf_conntrack|ip_tables|nf_tables) ' /proc/modules"
    ))?;
    Ok(())
}

fn start_linux(guest: &mut Guest, case: Case, rules: u32, card: Card, more: &str) -> Result<(), Failure> {
    guest.run(&card.to_linux([INSIDE, OUTSIDE]))?;
    let addresses = linux::addresses().map(|line| format!("ip {line}\n")).concat();
    guest.run(&format!(
        "set -e\nsysctl -q -w {}\n\
         for name in {INSIDE} {OUTSIDE}; do ethtool -K $name gro off 2>/dev/null || true; ip link set $name up; done\n{addresses}",
        linux::settings()
    ))?;
    let (program, text) = match (case, rules) {
        (Case::Iptables, _) => ("iptables-legacy-restore", linux::iptables(rules)),
        (Case::Nftables, 1) => ("nft -f", linux::nftables_linear(rules)),
        (Case::Nftables, _) => ("nft -f", linux::nftables_map(rules)),
        _ => ("", String::new()),
    };
    if !text.is_empty() {
        let file = format!("{FOLDER}/rules");
        guest.shell().put(&file, text.as_bytes())?;
        guest.run(&format!(
            "modprobe crc32c_generic; modprobe nf_conntrack && \
             echo {SESSIONS} >/sys/module/nf_conntrack/parameters/hashsize && {program} {file}"
        ))?;
    }
    if !more.is_empty() {
        guest.run(more)?;
    }
    // An e1000e card takes some time until its link is up.
    guest.run(&format!(
        "for name in {INSIDE} {OUTSIDE}; do until [ \"$(cat /sys/class/net/$name/carrier)\" = 1 ]; do usleep 20000; done; done"
    ))?;
    Ok(())
}

fn start_sluice(guest: &mut Guest, rules: u32, clock: Clock) -> Result<(), Failure> {
    let idle = match clock {
        Clock::Time => "",
        // A polling worker would always execute instructions, with or without packets, so the worker sleeps whenever
        // there are no packets.
        Clock::Instructions => "\n[system.idle]\nspin = 0\npause = 0\nsleep = \"1ms\"\n",
    };
    let place = Place {
        core: 0,
        devices: ADDRESSES,
        folder: Path::new(FOLDER),
        sessions: SESSIONS,
        // At this level the daemon logs its start message, for which the setup waits.
        log: "info",
        more: idle,
    };
    let text = configuration_at(rules, &place);
    guest.shell().put(&format!("{FOLDER}/gateway.toml"), text.as_bytes())?;
    guest.run(&Card::to_program())?;
    let up = format!(
        "cd {FOLDER}; rm -f log\nsluice run -c gateway.toml >log 2>&1 &\necho $! >pid\n\
         until grep -q 'answers at' log; do usleep 50000; kill -0 $! || {{ cat log; exit 1; }}; done"
    );
    guest.shell().run_within(&up, START)?;
    let socket = crate::daemon::socket(Path::new(FOLDER));
    let show = format!("sluice show routes --json --socket {}", socket.display());
    let mut routes = String::new();
    let all = await_every(Duration::from_millis(200), START, || {
        (routes, _) = guest.shell().attempt(&show, LIMIT)?;
        let has = |to: &str| routes.contains(&format!("\"to\":\"{to}\""));
        Ok((has(INSIDE_NETWORKS) && has("0.0.0.0/0")).then_some(()))
    })?;
    if all.is_none() {
        let log = guest.run(&format!("tail -n 5 {FOLDER}/log"))?;
        return Err(format!("sluice does not run in the guest: no routes within {START:?}: {routes}; {log}").into());
    }
    Ok(())
}
