//! The grammar of the command line. Help, man pages and completion all derive from it.

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

/// A carrier-grade middlebox: translates addresses, routes, filters.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true, after_long_help = EXIT_STATUS)]
pub struct Arguments {
    /// What to do.
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

/// Where a daemon listens whose configuration says nothing else.
pub const DEFAULT_SOCKET: &str = "/run/sluice/control";

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  failed; the message says what to do
  2  the command line is wrong
  3  the configuration is wrong; each fault is named with file, line and a hint
  4  the running daemon can't take the configuration over: restart it
  5  no daemon answers at the control socket";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground until SIGINT or SIGTERM
    ///
    /// Both signals end in order: what is in flight goes out, devices are closed, the counters are printed. The
    /// configuration is checked first; a wrong one is refused whole.
    Run {
        /// The configuration.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },

    /// Check a configuration and print what would run
    ///
    /// Prints interfaces with driver and limits, cards with how they are bound, the cores of the workers, and the memory of
    /// each table. What would keep a device from being opened is an error, with the command that mends it. Opens no device
    /// and needs no daemon.
    Check {
        /// The configuration.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Go on where a rule of inspection that lets pass is refused, as with `partial = true` for each file of rules.
        #[arg(long)]
        partial: bool,
    },

    /// Give a network card to DPDK, or list the cards of this machine
    ///
    /// The card leaves its kernel driver, and its kernel interface disappears: vfio-pci has it where an IOMMU is, else
    /// uio_pci_generic. Modules are loaded; where the new driver refuses the card, its former one gets it back. Needs root,
    /// and no daemon.
    Bind(Bind),

    /// Give a network card back to the kernel's own driver
    ///
    /// Its kernel interface appears again. The rule that `sluice bind --save` wrote is removed.
    Unbind(Unbind),

    /// Turn a listing of iptables or nftables into a configuration
    ///
    /// Reads what `iptables-save`, `ip6tables-save` and `nft -j list ruleset` write. Prints the tables [filter] and [nat],
    /// with a stub for each interface that rules name; what has no counterpart is listed line by line, in comments and
    /// on standard error. Exit status: 0, all is carried over; 1, some is not; 2, this is no listing.
    Import(Import),

    /// Give the running daemon another configuration
    ///
    /// The difference is taken over as one commit, without losing a packet or a session that is still allowed, or it
    /// is refused whole and the running configuration goes on.
    Apply {
        /// The configuration.
        file: PathBuf,
        /// Say what would change and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },

    /// Send capture files through the engine: no root, no hugepages, no card
    ///
    /// Frames enter by their timestamps, on a clock that they drive: the same captures give the same bytes, whatever
    /// the machine and the number of workers. Records of inspection are written where the configuration says, with the
    /// timestamps of the captures; none is lost.
    Replay(Replay),

    /// Ask rules about a capture and print what matches: no configuration, no root, no daemon
    ///
    /// Prints a line for each alert: time, [generator:signature:revision], message, class, priority, {protocol}, source ->
    /// destination. The engine that runs on a bridge does it, in detect mode: who sends first is the client, and both ends of a
    /// connection are in the one capture. A summary on standard error has packets, flows, rules in force and refused, and what
    /// was not inspected and why. Transport checksums are not verified unless --checksums says so: a machine that captures its
    /// own packets has not computed them yet.
    Inspect(Inspect),

    /// Measure what a configuration costs on this machine, and tell on which cores it runs best
    ///
    /// The engine runs on one core, in memory, with this configuration and the packets of captures, of live interfaces or of a
    /// carrier's mix. From the cycles of each part and of hand-overs between cores follow the packets per second of every
    /// sensible placement. No device is opened and no daemon needed; what devices cost is assumed by their drivers.
    Plan(Plan),

    /// List what the running daemon knows
    #[command(subcommand)]
    Show(Show),

    /// Watch workers, interfaces and drops of the running daemon
    ///
    /// For each worker: how busy it is, what a packet costs it by stage, and how many packets a second it would carry at
    /// that cost if it were fully busy. The line of the gateway says how many would get through until the busiest worker
    /// is full, distributed as they are now. The keys q, Esc and Ctrl-C end it, up and down move among the workers. Where
    /// standard output is no terminal, one snapshot is printed as with --once.
    Top(Top),

    /// Remove sessions, mappings or neighbours
    #[command(subcommand)]
    Clear(Clear),

    /// Insert or remove single rules of the packet filter that runs
    ///
    /// They are in force for new flows at once, and for those that are under way within a second. The configuration's file
    /// stays as it is: the next `apply` brings back what that says.
    #[command(subcommand)]
    Filter(FilterEdit),

    /// List and change sets of addresses, networks or ports that rules of the packet filter name
    ///
    /// Changes are in force for new flows at once, and for those that are under way within a second. Elements stay until they are
    /// removed, or their time is over; a restart begins with those of the configuration.
    #[command(subcommand)]
    Set(SetEdit),

    /// Print what every node does with the next packets that match
    Trace(Trace),

    /// Write packets of an interface, or dropped ones, as pcapng
    Capture(Capture),

    /// Compile the patterns on standard input: the daemon calls it, for the memory that it takes goes with its process
    #[command(hide = true)]
    CompileSignatures {
        /// File for what is compiled.
        #[arg(value_name = "FILE")]
        into: PathBuf,
    },

    /// Print the completion of this command line for a shell
    ///
    /// For bash: sluice completion bash > /etc/bash_completion.d/sluice
    Completion {
        /// The shell.
        shell: Shell,
    },

    /// Print the manual page, or write those of all commands into a folder
    Man {
        /// The folder.
        #[arg(value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

/// `sluice bind`
#[derive(Args, Debug)]
pub struct Bind {
    /// PCI address of the card, as 0000:3b:00.0 or 3b:00.0; all network cards are listed where none is given.
    #[arg(value_name = "PCI", value_parser = card)]
    pub card: Option<PciAddress>,
    /// Kernel driver that the card gets in place of the one that suits the machine.
    #[arg(long, value_name = "NAME", value_parser = DRIVERS, requires = "card")]
    pub driver: Option<String>,
    /// Bind it even if this machine is managed over it, or a process uses it.
    #[arg(long, requires = "card")]
    pub force: bool,
    /// Write a udev rule that binds it after each boot, and when it comes back.
    #[arg(long, requires = "card")]
    pub save: bool,
    /// Print the commands that would do it, and do nothing.
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
    /// Take it even from a process that uses it.
    #[arg(long)]
    pub force: bool,
    /// Print the commands that would do it, and do nothing.
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
    /// The listings, `-` for standard input; those of both families make one filter.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// What they are: iptables, ip6tables, nft or ipset; told from what is in them where not given.
    #[arg(long, value_parser = format)]
    pub format: Option<Format>,
    /// Address of an interface, for rules that take it without naming it; with the length of its prefix, the interface
    /// gets it.
    #[arg(long = "address", value_name = "INTERFACE=ADDRESS[/LENGTH]", value_parser = own_address)]
    pub addresses: Vec<(String, OwnAddress)>,
    /// Print JSON: the configuration, what is not carried over, and what is in another form.
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
    /// The configuration.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What an interface receives: pcap or pcapng, `-` for standard input. Packets of raw IP, Linux cooked, null and loopback
    /// captures get an Ethernet header; what a snap length cut off is zeros.
    #[arg(long = "in", value_name = "INTERFACE=CAPTURE", value_parser = interface_file, required = true)]
    pub inputs: Vec<InterfaceFile>,
    /// Where what an interface sends is written; dropped where not given.
    #[arg(long = "out", value_name = "INTERFACE=CAPTURE", value_parser = interface_file)]
    pub outputs: Vec<InterfaceFile>,
    /// Write the records of inspection to this file, made anew, in place of where the configuration says.
    #[arg(long, value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Workers in place of those configured; the bytes are the same with any number.
    #[arg(long, value_name = "NUMBER")]
    pub workers: Option<u16>,
    /// Print the counters as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sluice inspect`
#[derive(Args, Debug)]
pub struct Inspect {
    /// The capture, pcap or pcapng; `-` is standard input.
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// A file of rules; several are in force together.
    #[arg(short = 'S', long, value_name = "FILE", required = true)]
    pub rules: Vec<PathBuf>,
    /// The language of the rules: suricata, snort2 or snort3.
    #[arg(long, value_name = "DIALECT", default_value = "suricata", value_parser = dialect)]
    pub dialect: SignatureDialect,
    /// A classification.config: the priorities of rules' classes.
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// What $HOME_NET stands for: networks, with commas between them; the private ranges where not given.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub home_net: Vec<NetFilter>,
    /// Another variable of rules, for addresses or ports, as in HTTP_PORTS=[80,8080].
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, String)>,
    /// Write alerts, flows, HTTP, DNS and TLS records to this file, as lines of EVE JSON.
    #[arg(long, value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Leave packets out whose TCP, UDP or ICMP checksum is wrong.
    #[arg(long)]
    pub checksums: bool,
    /// Flows that are inspected at a time; each takes about 10 KiB.
    #[arg(long, value_name = "NUMBER", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(64..=1 << 22))]
    pub flows: u32,
    /// List every rule that is refused, not the first ten only.
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
        _ => Err("write the variable's name, `=`, and what it stands for".into()),
    }
}

/// `sluice plan`
#[derive(Args, Debug)]
pub struct Plan {
    /// The configuration.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What an interface receives: pcap or pcapng, Ethernet; the carrier mix where none is given.
    #[arg(long = "in", value_name = "INTERFACE=CAPTURE", value_parser = interface_file)]
    pub inputs: Vec<InterfaceFile>,
    /// What the interfaces receive now, for so long (5s where no time is given): those of the daemon that answers at the
    /// socket of the configuration, or at --socket; where none does, interfaces of the kernel, which are only listened on.
    /// At most 65,536 packets and 64 MiB are kept.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "5s",
        value_parser = live_time,
        conflicts_with = "inputs"
    )]
    pub live: Option<Duration>,
    /// Cores to use: 0-3,8. Those that `workers` names where not given, or all that this process may use.
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub cores: Option<Cores>,
    /// How many cores this load needs: bits per second and what they are of, a profile (sfr) or frames of so many bytes:
    /// "10G sfr", "2.5G 64"; the traffic that is measured where only a rate is given: "400M".
    #[arg(long = "for", value_name = "LOAD")]
    pub demand: Option<Demand>,
    /// How many of the placements to list.
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
    /// Time between two looks at the counters, such as 500ms or 2s.
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME")]
    pub interval: Duration,
    /// Print one snapshot as text.
    #[arg(long)]
    pub once: bool,
    /// Print each snapshot as a JSON object on a line.
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
    /// Insert rules, side by side in their order: before all others, unless told otherwise
    Insert {
        /// What a rule says, as in the file: 'name = "x", action = "drop", from = "192.0.2.7"'. Each has a name.
        #[arg(value_name = "RULE", required_unless_present = "file")]
        rules: Vec<String>,
        /// Rules as `[[filter.rules]]` in a file, `-` for standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "rules")]
        file: Option<PathBuf>,
        /// The router whose filter takes them.
        #[arg(long, value_name = "NAME")]
        router: Option<String>,
        /// Before the rule of this name.
        #[arg(long, value_name = "NAME", conflicts_with = "last")]
        before: Option<String>,
        /// Behind all others.
        #[arg(long)]
        last: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove rules
    Remove {
        /// Which.
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
    /// List sets, or the elements of one
    List {
        /// Which.
        #[command(flatten)]
        filter: SetFilter,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// `sluice set add`
    #[command(about = operation::AddToSet::DESCRIPTION.summary())]
    Add {
        /// The set, as `sluice set list` lists it.
        #[arg(value_name = "NAME")]
        name: String,
        /// Addresses, networks or ports, whichever the set has.
        #[arg(value_name = "ELEMENT", required = true)]
        elements: Vec<SetElement>,
        /// How long they stay, such as 1h; the time of the set where not given.
        #[arg(long, value_name = "TIME")]
        timeout: Option<Period>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// `sluice set remove`
    #[command(about = operation::RemoveFromSet::DESCRIPTION.summary())]
    Remove {
        /// The set.
        #[arg(value_name = "NAME")]
        name: String,
        /// Addresses, networks or ports, whichever the set has.
        #[arg(value_name = "ELEMENT", required = true)]
        elements: Vec<SetElement>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// `sluice set flush`
    #[command(about = operation::FlushSet::DESCRIPTION.summary())]
    Flush {
        /// The set.
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
        /// Which.
        #[command(flatten)]
        filter: SessionFilter,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
    /// `sluice clear mappings`
    #[command(about = operation::ClearMappings::DESCRIPTION.summary())]
    Mappings {
        /// Which.
        #[command(flatten)]
        filter: MappingFilter,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
    /// `sluice clear neighbours`
    #[command(about = operation::ClearNeighbours::DESCRIPTION.summary())]
    Neighbours {
        /// Which.
        #[command(flatten)]
        filter: NeighbourFilter,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
}

/// `sluice trace`
#[derive(Args, Debug)]
pub struct Trace {
    /// Which, and how many.
    #[command(flatten)]
    pub request: TraceRequest,
    /// Print a JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// `sluice capture`
#[derive(Args, Debug)]
pub struct Capture {
    /// The interface.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "dropped",
        conflicts_with = "dropped"
    )]
    pub interface: Option<String>,
    /// Which way through the interface: in, out or both.
    #[arg(long, default_value = "both", value_parser = direction, value_name = "WAY")]
    pub direction: CaptureDirection,
    /// Dropped packets, each with its reason as comment.
    #[arg(long)]
    pub dropped: bool,
    /// Dropped for this reason alone.
    #[arg(long, value_name = "NAME", requires = "dropped")]
    pub reason: Option<String>,
    /// Stop after so many packets.
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    pub count: u32,
    /// Stop after so many seconds.
    #[arg(long, default_value_t = 60, value_name = "NUMBER")]
    pub seconds: u32,
    /// Most bytes of each packet.
    #[arg(long, default_value_t = u16::MAX, value_name = "NUMBER")]
    pub bytes: u16,
    /// The file; `-` for standard output.
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
