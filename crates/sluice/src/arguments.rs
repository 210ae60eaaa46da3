//! The grammar of the command line. Help, man pages and completions are derived from this grammar.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use sluice_daemon::bind::{DRIVERS, PciAddress};
use sluice_daemon::config::api::{
    CaptureDirection, MappingFilter, NeighbourFilter, NetFilter, Operation, RemoveRequest, SessionFilter, SetFilter,
    TraceRequest, operation,
};
use sluice_daemon::config::import::{Format, OwnAddress};
use sluice_daemon::config::schema::SignatureDialect;
use sluice_daemon::config::value::{Period, SetElement};
use sluice_daemon::core_list;
use sluice_daemon::plan::Demand;

use crate::show::Show;

/// Carrier-grade middlebox: NAT, routing, packet filter and inspection
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true, after_long_help = EXIT_STATUS)]
pub struct Arguments {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,

    /// Control socket of the running daemon.
    #[arg(
        long,
        global = true,
        env = "SLUICE_SOCKET",
        default_value = DEFAULT_SOCKET,
        value_name = "PATH"
    )]
    pub socket: PathBuf,
}

/// Default path of the control socket, if the configuration of the daemon does not set it.
pub const DEFAULT_SOCKET: &str = "/run/sluice/control";

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  failed; the message says what to do
  2  the command line is wrong
  3  the configuration is wrong; each fault is named with file, line and a hint
  4  the running daemon can't change to this configuration: restart it
  5  no daemon answers at the control socket";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground until SIGINT or SIGTERM
    ///
    /// Checks the configuration first and starts nothing if it has a fault. On SIGINT or SIGTERM the daemon sends the packets that it
    /// holds, closes its devices and prints the counters.
    Run {
        /// Configuration file.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },

    /// Check a configuration and print what would run
    ///
    /// Prints the interfaces with their drivers and limits, the binding of each card, the cores of the workers and the memory of
    /// each table. Reports what would prevent a device from being opened, with the command that corrects it. Opens no device and needs
    /// no daemon.
    Check {
        /// Configuration file.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Accept rule files with `pass` rules that can't be compiled, as if each had `partial = true`.
        #[arg(long)]
        partial: bool,
    },

    /// Bind a network card to a driver for DPDK, or list the cards of this machine
    ///
    /// Unbinds the card from its kernel driver, so that its kernel interface disappears, and binds the card to vfio-pci if the machine
    /// has an IOMMU, otherwise to uio_pci_generic. Loads the kernel modules. If the new driver refuses the card, the card is bound to
    /// its former driver again. Needs root, and must run before the daemon starts.
    Bind(Bind),

    /// Bind a network card to its kernel driver again
    ///
    /// The kernel interface of the card appears again. Removes the udev rule that `sluice bind --save` wrote.
    Unbind(Unbind),

    /// Convert a listing of iptables or nftables to a configuration
    ///
    /// Reads the output of `iptables-save`, `ip6tables-save` and `nft -j list ruleset`. Prints the tables [filter] and [nat] and a stub
    /// for each interface that a rule names. Lists, in comments and on standard error, each line that has no counterpart. Exit status: 0
    /// if everything was converted, 1 if a line was not, 2 if the file is not a listing.
    Import(Import),

    /// Change the running daemon to another configuration
    ///
    /// The daemon applies the difference as one commit and keeps all sessions that the new configuration allows. If a part of the
    /// difference can't be applied, the daemon changes nothing.
    Apply {
        /// Configuration file.
        file: PathBuf,
        /// Print the changes without applying them.
        #[arg(long)]
        dry_run: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },

    /// Process capture files with the engine, without root, hugepages or a card
    ///
    /// The timestamps of the frames drive the engine's clock, so the same captures give the same output on every machine and with any
    /// number of workers. Writes inspection records to the log of the configuration, with the timestamps of the captures.
    Replay(Replay),

    /// Inspect a capture file with rules and print the alerts, without configuration, root or daemon
    ///
    /// Prints a line for each alert: time, [generator:signature:revision], message, class, priority, {protocol}, source ->
    /// destination. Uses the inspection engine in detect mode. The host that sends the first packet of a flow is its client; the capture
    /// has to contain both directions. Prints a summary on standard error: packets, flows, loaded and refused rules, and, for
    /// each reason, the number of packets that were not inspected. Verifies transport checksums only with --checksums, because captures of a machine's own
    /// packets contain checksums that its card has not computed yet.
    Inspect(Inspect),

    /// Measure the cost of a configuration on this machine and recommend a placement on its cores
    ///
    /// Runs the engine on one core, in memory, with this configuration and packets of captures, of live interfaces or of a carrier's
    /// traffic mix. Predicts the packets per second of each placement from the cycles of each stage and of hand-overs between cores.
    /// Opens no device and needs no daemon; the costs of devices are assumed from their drivers.
    Plan(Plan),

    /// Show the state of the running daemon
    #[command(subcommand)]
    Show(Show),

    /// Watch workers, interfaces and drops of the running daemon
    ///
    /// Shows the load of each worker, the cycles of a packet by stage, and the packets per second that the worker could process at full
    /// load. The line `gateway` shows the packets per second at which the busiest worker is fully loaded if the traffic is distributed
    /// as now. Press q, Esc or Ctrl-C to quit, up and down to select a worker. Prints one snapshot, as with --once, if standard output
    /// is not a terminal.
    Top(Top),

    /// Remove sessions, mappings or neighbours
    #[command(subcommand)]
    Clear(Clear),

    /// Insert or remove rules of the running packet filter
    ///
    /// Changes apply to new flows immediately and to existing flows within a second. They are not written to the configuration file: the
    /// next `sluice apply` replaces them with the rules of the file.
    #[command(subcommand)]
    Filter(FilterEdit),

    /// List and change sets of addresses, networks or ports that filter rules use
    ///
    /// Changes apply to new flows immediately and to existing flows within a second. An element stays until it is removed or its timeout
    /// ends. After a restart, a set has the elements of the configuration.
    #[command(subcommand)]
    Set(SetEdit),

    /// Print each node that the next matching packets pass, and the action of the node
    Trace(Trace),

    /// Capture packets of an interface, or dropped packets, as pcapng
    Capture(Capture),

    /// Compile the patterns on standard input; the daemon runs this command as a separate process to free the memory afterwards
    #[command(hide = true)]
    CompileSignatures {
        /// Output file for the compiled patterns.
        #[arg(value_name = "FILE")]
        into: PathBuf,
    },

    /// Print the shell completion of this command
    ///
    /// For bash: sluice completion bash > /etc/bash_completion.d/sluice
    Completion {
        /// Shell to print the completion for.
        shell: Shell,
    },

    /// Print the manual page, or write the pages of all commands to a folder
    Man {
        /// Folder for the pages.
        #[arg(value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

/// `sluice bind`
#[derive(Args, Debug)]
pub struct Bind {
    /// PCI address of the card, as 0000:3b:00.0 or 3b:00.0. Without it, all network cards are listed.
    #[arg(value_name = "PCI", value_parser = card)]
    pub card: Option<PciAddress>,
    /// Kernel driver to bind, in place of the driver chosen for this machine.
    #[arg(long, value_name = "NAME", value_parser = DRIVERS, requires = "card")]
    pub driver: Option<String>,
    /// Bind the card even if this machine is managed through the card, or a process uses the card.
    #[arg(long, requires = "card")]
    pub force: bool,
    /// Write a udev rule that binds the card after each boot and when it is plugged in again.
    #[arg(long, requires = "card")]
    pub save: bool,
    /// Print the commands without running them.
    #[arg(long, requires = "card")]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sluice unbind`
#[derive(Args, Debug)]
pub struct Unbind {
    /// PCI address of the card, as 0000:3b:00.0 or 3b:00.0.
    #[arg(value_name = "PCI", value_parser = card)]
    pub card: PciAddress,
    /// Unbind the card even if a process uses it.
    #[arg(long)]
    pub force: bool,
    /// Print the commands without running them.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn card(text: &str) -> Result<PciAddress, String> {
    let whole = match text.matches(':').count() {
        1 => format!("0000:{text}"),
        _ => text.into(),
    };
    whole
        .parse()
        .map_err(|_| "write a PCI address such as 0000:3b:00.0; sluice bind lists the cards".into())
}

/// `sluice import`
#[derive(Args, Debug)]
pub struct Import {
    /// Listings, `-` for standard input. Listings of IPv4 and IPv6 are merged into one filter.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Format of the listings: iptables, ip6tables, nft or ipset [default: detected from the content].
    #[arg(long, value_parser = format)]
    pub format: Option<Format>,
    /// Address of an interface, for rules such as MASQUERADE that use it without naming it. With a prefix length, the address is also
    /// configured on the interface.
    #[arg(long = "address", value_name = "INTERFACE=ADDRESS[/LENGTH]", value_parser = own_address)]
    pub addresses: Vec<(String, OwnAddress)>,
    /// Print JSON: the configuration, the lines that were not converted and those that were converted to another form.
    #[arg(long)]
    pub json: bool,
    /// Write the configuration to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "iptables" => Ok(Format::Iptables),
        "ip6tables" => Ok(Format::Ip6tables),
        "nft" => Ok(Format::Nft),
        "ipset" => Ok(Format::Ipset),
        _ => Err("write iptables, ip6tables, nft or ipset".into()),
    }
}

fn own_address(text: &str) -> Result<(String, OwnAddress), String> {
    match text.split_once('=') {
        Some((interface, address)) if !interface.is_empty() => Ok((interface.into(), address.parse()?)),
        _ => Err("write the interface's name, `=`, and its address".into()),
    }
}

/// `sluice replay`
#[derive(Args, Debug)]
pub struct Replay {
    /// Configuration file.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Capture that an interface receives: pcap or pcapng, `-` for standard input. Packets of raw IP, Linux cooked, null and loopback
    /// captures get an Ethernet header; bytes beyond the snap length are filled with zeros.
    #[arg(long = "in", value_name = "INTERFACE=CAPTURE", value_parser = interface_file, required = true)]
    pub inputs: Vec<InterfaceFile>,
    /// Capture file for the packets that an interface sends. Without this option, these packets are discarded.
    #[arg(long = "out", value_name = "INTERFACE=CAPTURE", value_parser = interface_file)]
    pub outputs: Vec<InterfaceFile>,
    /// Write inspection records to this file, in place of the log of the configuration; an existing file is overwritten.
    #[arg(long, value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Number of workers, in place of the configured number. The output does not depend on the number of workers.
    #[arg(long, value_name = "NUMBER")]
    pub workers: Option<u16>,
    /// Print the counters as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sluice inspect`
#[derive(Args, Debug)]
pub struct Inspect {
    /// Capture file, pcap or pcapng; `-` for standard input.
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Rule file; may be given several times.
    #[arg(short = 'S', long, value_name = "FILE", required = true)]
    pub rules: Vec<PathBuf>,
    /// Rule language: suricata, snort2 or snort3.
    #[arg(long, value_name = "DIALECT", default_value = "suricata", value_parser = dialect)]
    pub dialect: SignatureDialect,
    /// classification.config file with the priorities of the rule classes.
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Networks of $HOME_NET, separated by commas [default: the private ranges].
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub home_net: Vec<NetFilter>,
    /// Another rule variable for addresses or ports, as in HTTP_PORTS=[80,8080].
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, String)>,
    /// Write alerts, flows, HTTP, DNS and TLS records to this file, as lines of EVE JSON.
    #[arg(long, value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Skip packets with a wrong TCP, UDP or ICMP checksum.
    #[arg(long)]
    pub checksums: bool,
    /// Maximum number of flows inspected at the same time; each flow needs about 10 KiB.
    #[arg(long, value_name = "NUMBER", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(64..=1 << 22))]
    pub flows: u32,
    /// List all refused rules, not only the first ten.
    #[arg(long)]
    pub refused: bool,
    /// Print alerts as lines of EVE JSON.
    #[arg(long)]
    pub json: bool,
}

fn dialect(text: &str) -> Result<SignatureDialect, String> {
    match text {
        "suricata" => Ok(SignatureDialect::Suricata),
        "snort2" => Ok(SignatureDialect::Snort2),
        "snort3" => Ok(SignatureDialect::Snort3),
        _ => Err("write suricata, snort2 or snort3".into()),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.trim_start_matches('$').split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write the variable's name, `=`, and its value".into()),
    }
}

/// `sluice plan`
#[derive(Args, Debug)]
pub struct Plan {
    /// Configuration file.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Capture that an interface receives: pcap or pcapng, Ethernet [default: a carrier's traffic mix].
    #[arg(long = "in", value_name = "INTERFACE=CAPTURE", value_parser = interface_file)]
    pub inputs: Vec<InterfaceFile>,
    /// Measure with packets that the interfaces receive during this time (5s if no value is given). Captures on the interfaces of the daemon at
    /// the socket of the configuration or at --socket; if none answers, listens on the kernel's interfaces. Keeps at most 65,536 packets
    /// and 64 MiB.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "5s",
        value_parser = live_time,
        conflicts_with = "inputs"
    )]
    pub live: Option<Duration>,
    /// Cores to use, as 0-3,8 [default: those of `workers`, or all cores that this process may use].
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub cores: Option<Cores>,
    /// Print the number of cores for a load: bits per second and a traffic profile (sfr) or a frame size in bytes, as "10G sfr" or
    /// "2.5G 64". A rate alone, as "400M", stands for the measured traffic.
    #[arg(long = "for", value_name = "LOAD")]
    pub demand: Option<Demand>,
    /// Maximum number of placements to list.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub candidates: u16,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Numbers of this machine's cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<u16>);

fn cores(text: &str) -> Result<Cores, String> {
    core_list(text)
        .filter(|cores| !cores.is_empty())
        .map(Cores)
        .ok_or_else(|| "write cores as 0-3,8".into())
}

/// An interface, and the capture file that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFile {
    /// Name of the interface in the configuration.
    pub interface: String,
    /// Path of the file.
    pub path: PathBuf,
}

fn interface_file(text: &str) -> Result<InterfaceFile, String> {
    match text.split_once('=') {
        Some((interface, path)) if !interface.is_empty() && !path.is_empty() => Ok(InterfaceFile {
            interface: interface.into(),
            path: path.into(),
        }),
        _ => Err("write the interface's name, `=`, and the path of the capture".into()),
    }
}

/// `sluice top`
#[derive(Args, Debug)]
pub struct Top {
    /// Interval between two updates, such as 500ms or 2s.
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME")]
    pub interval: Duration,
    /// Print one snapshot as text.
    #[arg(long)]
    pub once: bool,
    /// Print each snapshot as a JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

fn live_time(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(600);
    match humantime::parse_duration(text) {
        Ok(time) if range.contains(&time) && time.subsec_nanos() == 0 => Ok(time),
        _ => Err("write whole seconds from 1s to 10m, such as 5s or 1m".into()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time >= Duration::from_millis(10) => Ok(time),
        _ => Err("write a time of 10ms or more, such as 500ms or 2s".into()),
    }
}

/// `sluice filter`
#[derive(Debug, Subcommand)]
pub enum FilterEdit {
    /// Insert rules in their order, before all others by default
    Insert {
        /// Rule in the syntax of the configuration: 'name = "x", action = "drop", from = "192.0.2.7"'. A name is required.
        #[arg(value_name = "RULE", required_unless_present = "file")]
        rules: Vec<String>,
        /// File with rules as `[[filter.rules]]`, `-` for standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "rules")]
        file: Option<PathBuf>,
        /// Virtual router of the filter.
        #[arg(long, value_name = "NAME")]
        router: Option<String>,
        /// Insert before the rule with this name.
        #[arg(long, value_name = "NAME", conflicts_with = "last")]
        before: Option<String>,
        /// Insert after all other rules.
        #[arg(long)]
        last: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove rules
    Remove {
        /// Selection.
        #[command(flatten)]
        request: RemoveRequest,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `sluice set`
#[derive(Debug, Subcommand)]
pub enum SetEdit {
    /// List the sets, or the elements of one set
    List {
        /// Selection.
        #[command(flatten)]
        filter: SetFilter,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// `sluice set add`
    #[command(about = operation::AddToSet::DESCRIPTION.summary())]
    Add {
        /// Name of the set; `sluice set list` lists the names.
        #[arg(value_name = "NAME")]
        name: String,
        /// Addresses, networks or ports, by the type of the set.
        #[arg(value_name = "ELEMENT", required = true)]
        elements: Vec<SetElement>,
        /// Timeout of the elements, such as 1h [default: the timeout of the set].
        #[arg(long, value_name = "TIME")]
        timeout: Option<Period>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// `sluice set remove`
    #[command(about = operation::RemoveFromSet::DESCRIPTION.summary())]
    Remove {
        /// Name of the set.
        #[arg(value_name = "NAME")]
        name: String,
        /// Addresses, networks or ports, by the type of the set.
        #[arg(value_name = "ELEMENT", required = true)]
        elements: Vec<SetElement>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// `sluice set flush`
    #[command(about = operation::FlushSet::DESCRIPTION.summary())]
    Flush {
        /// Name of the set.
        #[arg(value_name = "NAME")]
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `sluice clear`
#[derive(Debug, Subcommand)]
pub enum Clear {
    /// `sluice clear sessions`
    #[command(about = operation::ClearSessions::DESCRIPTION.summary())]
    Sessions {
        /// Selection.
        #[command(flatten)]
        filter: SessionFilter,
        /// Clear all entries.
        #[arg(long)]
        all: bool,
    },
    /// `sluice clear mappings`
    #[command(about = operation::ClearMappings::DESCRIPTION.summary())]
    Mappings {
        /// Selection.
        #[command(flatten)]
        filter: MappingFilter,
        /// Clear all entries.
        #[arg(long)]
        all: bool,
    },
    /// `sluice clear neighbours`
    #[command(about = operation::ClearNeighbours::DESCRIPTION.summary())]
    Neighbours {
        /// Selection.
        #[command(flatten)]
        filter: NeighbourFilter,
        /// Clear all entries.
        #[arg(long)]
        all: bool,
    },
}

/// `sluice trace`
#[derive(Args, Debug)]
pub struct Trace {
    /// Selection.
    #[command(flatten)]
    pub request: TraceRequest,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// `sluice capture`
#[derive(Args, Debug)]
pub struct Capture {
    /// Interface to capture on.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "dropped",
        conflicts_with = "dropped"
    )]
    pub interface: Option<String>,
    /// Direction of the packets: in, out or both.
    #[arg(long, default_value = "both", value_parser = direction, value_name = "DIRECTION")]
    pub direction: CaptureDirection,
    /// Capture dropped packets, each with the drop reason as comment.
    #[arg(long)]
    pub dropped: bool,
    /// Capture only packets dropped for this reason.
    #[arg(long, value_name = "NAME", requires = "dropped")]
    pub reason: Option<String>,
    /// Stop after this number of packets.
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    pub count: u32,
    /// Stop after this number of seconds.
    #[arg(long, default_value_t = 60, value_name = "NUMBER")]
    pub seconds: u32,
    /// Maximum number of bytes of each packet.
    #[arg(long, default_value_t = u16::MAX, value_name = "NUMBER")]
    pub bytes: u16,
    /// Output file; `-` for standard output.
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub write: PathBuf,
}

fn direction(text: &str) -> Result<CaptureDirection, String> {
    match text {
        "in" => Ok(CaptureDirection::In),
        "out" => Ok(CaptureDirection::Out),
        "both" => Ok(CaptureDirection::Both),
        _ => Err("write in, out or both".into()),
    }
}
