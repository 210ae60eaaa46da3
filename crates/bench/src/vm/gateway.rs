//! Gateways in the guest: Linux or Sluice, set up for each trial and removed after it.

use std::path::Path;
use std::time::Duration;

use super::card::{ADDRESSES, Card};
use super::guest::{Clock, Guest};
use crate::daemon::{has_routes, listing, socket};
use crate::kernel::gateway::{self, linux, sluice};
use crate::kernel::topology::{INSIDE, OUTSIDE};
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

    /// The case of Linux with which this case is compared.
    pub fn beside(self) -> Self {
        match self.translates() {
            true => Self::Iptables,
            false => Self::LinuxForward,
        }
    }

    /// The case of `kernel` with the same setup.
    fn setup(self, rules: u32) -> gateway::Case {
        match (self, rules) {
            (Self::LinuxForward, _) => gateway::Case::LinuxForward,
            (Self::SluiceForward, _) => gateway::Case::SluiceForward,
            (Self::Iptables, _) => gateway::Case::Iptables,
            (Self::Nftables, 1) => gateway::Case::NftablesLinear,
            (Self::Nftables, _) => gateway::Case::NftablesMap,
            (Self::Sluice, _) => gateway::Case::Sluice,
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
    let rules = if case.translates() { rules } else { 0 };
    let setup = case.setup(rules);
    if setup.is_sluice() {
        return start_sluice(guest, rules, clock);
    }
    guest
        .shell
        .put(&format!("{FOLDER}/linux"), linux::script(setup, rules).as_bytes())?;
    guest.run(&card.to_linux())?;
    let conntrack = match case.translates() {
        true => format!(
            "modprobe crc32c_generic; modprobe nf_conntrack || exit\n\
             echo {SESSIONS} >/sys/module/nf_conntrack/parameters/hashsize\n"
        ),
        false => String::new(),
    };
    // An e1000e card takes some time until its link is up.
    guest.run(&format!(
        "for name in {INSIDE} {OUTSIDE}; do ethtool -K $name gro off 2>/dev/null; ip link set $name up || exit; done\n\
         {conntrack}sh -e {FOLDER}/linux || exit\n{more}\n[ $? = 0 ] || exit\n\
         for name in {INSIDE} {OUTSIDE}; do until [ \"$(cat /sys/class/net/$name/carrier)\" = 1 ]; do usleep 20000; done; done"
    ))?;
    Ok(())
}

pub fn stop(guest: &mut Guest, case: Case) -> Result<(), Failure> {
    let sluice =
        format!("read pid <{FOLDER}/pid; kill -TERM $pid; while kill -0 $pid 2>/dev/null; do usleep 20000; done");
    let linux = format!(
        "for name in {INSIDE} {OUTSIDE}; do ip link set $name down; ip address flush dev $name; done\n\
         [ ! -e /proc/net/ip_tables_names ] || printf '*nat\\nCOMMIT\\n' | iptables-legacy-restore\n\
         nft flush ruleset 2>/dev/null\n\
         for round in 1 2 3; do for module in {FILTERS}; do rmmod $module 2>/dev/null; done; done\n\
         ! grep -E '^(nf_conntrack|ip_tables|nf_tables) ' /proc/modules"
    );
    let is_sluice = case.setup(0).is_sluice();
    guest.run(if is_sluice { &sluice } else { &linux }).map(drop)
}

fn start_sluice(guest: &mut Guest, rules: u32, clock: Clock) -> Result<(), Failure> {
    let mut configuration = sluice::configuration(rules, 0, ADDRESSES, Path::new(FOLDER), SESSIONS);
    // At this level the daemon logs its start message, for which the setup waits.
    configuration["control"]["log"] = "info".into();
    if clock == Clock::Instructions {
        // A polling worker would always execute instructions, with or without packets, so the worker sleeps whenever
        // there are no packets.
        configuration["system"]["idle"] = serde_json::json!({"spin": 0, "pause": 0, "sleep": "1ms"});
    }
    let text = toml::to_string(&configuration)?;
    guest.shell.put(&format!("{FOLDER}/gateway.toml"), text.as_bytes())?;
    guest.run(&Card::to_program())?;
    guest.run(&format!(
        "cd {FOLDER}; rm -f log\nsluice run -c gateway.toml >log 2>&1 &\necho $! >pid\n\
         until grep -q 'answers at' log; do usleep 50000; kill -0 $! || {{ cat log; exit 1; }}; done"
    ))?;
    let show = format!(
        "sluice show routes --json --socket {}",
        socket(Path::new(FOLDER)).display()
    );
    let mut routes = String::new();
    let all = await_every(Duration::from_millis(200), START, || {
        (routes, _) = guest.shell.attempt(&show, START)?;
        let has_all = listing(&routes).is_ok_and(|routes| has_routes(&routes, &sluice::NETWORKS));
        Ok(has_all.then_some(()))
    })?;
    if all.is_none() {
        let log = guest.run(&format!("tail -n 5 {FOLDER}/log"))?;
        return Err(format!("sluice does not run in the guest: no routes within {START:?}: {routes}; {log}").into());
    }
    Ok(())
}
