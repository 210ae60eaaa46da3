//! `sluice inspect`: applies inspection rules to a capture.
//!
//! The engine runs as a bridge. The order of a frame's two addresses determines the side of the bridge on which the
//! frame arrives. The two endpoints of a flow are thus on different sides. The side is also correct for fragments, and
//! if some packets were not captured. The sender of the first packet is the client, as on a real bridge.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_config::api::NetFilter;
use sluice_config::memory::EntryBytes;
use sluice_config::schema::{self, SignatureDialect};
use sluice_config::{Config, Machine, api};
use sluice_engine::packet::io::{BURST_SIZE, PortIndex};
use sluice_engine::packet::reason::Reason;
use sluice_inspect::Skipped;
use sluice_wire::Checksums;

use super::captures::Input;
use super::eve::{Journal, Lines};
use super::flow::flow;
use super::world::{self, World};
use super::{ReplayError, TYPES, records};
use crate::compiling::Compiler;
use crate::lowering::{self, Secrets, SignatureReport};

/// Initial size of each buffer in bytes. Larger frames get larger buffers.
const BUFFER_BYTES: usize = 2_048;
/// MTU of both sides, large enough for any captured frame.
const MTU: u16 = 65_000;
/// Number of frames between two progress reports.
const PERIOD: u64 = 1 << 16;
/// Frames captured within this interval may be searched together. Alerts of frames that are searched together have the
/// time of the first frame.
const TOGETHER: Duration = Duration::from_micros(100);
/// Length of a packet header in a capture file.
const PACKET_HEADER: u64 = 16;

/// Parameters of an inspection.
#[derive(Clone, Debug)]
pub struct Inspect {
    /// Path of the capture; `-` is standard input.
    pub capture: PathBuf,
    /// Paths of the rule files to apply.
    pub rules: Vec<PathBuf>,
    /// Language of the rules.
    pub dialect: SignatureDialect,
    /// Path of a `classification.config`.
    pub classes: Option<PathBuf>,
    /// Networks of `$HOME_NET`. By default, the private address ranges.
    pub home: Vec<NetFilter>,
    /// Variables of the rules except `$HOME_NET`. The names of variables are without `$`.
    pub variables: Vec<(String, String)>,
    /// Path of a file for records of all types.
    pub eve: Option<PathBuf>,
    /// Whether packets with wrong transport checksums are excluded from inspection.
    pub checks: bool,
    /// Maximum number of concurrently inspected flows.
    pub flows: u32,
}

/// A match of a rule.
pub struct Found<'a> {
    /// The alert.
    pub alert: &'a api::Alert,
    /// Function that creates the EVE JSON line of the alert.
    pub line: &'a dyn Fn() -> Vec<u8>,
}

/// Progress of the inspection.
#[derive(Clone, Copy, Debug)]
pub struct InspectionProgress {
    /// Packets read so far.
    pub packets: u64,
    /// Fraction of the capture that has been read. `None` if the length of the capture is unknown.
    pub share: Option<f64>,
}

/// Number of packets that were not inspected for one reason.
#[derive(Clone, Debug)]
pub struct Uninspected {
    /// Name of the reason.
    pub reason: &'static str,
    /// Explanation of the reason.
    pub help: &'static str,
    /// Number of packets.
    pub packets: u64,
}

/// Summary of an inspection.
#[derive(Clone, Debug)]
pub struct InspectSummary {
    /// Packets in the capture.
    pub packets: u64,
    /// Bytes of the counted packets on the wire.
    pub bytes: u64,
    /// Flows.
    pub flows: u64,
    /// Alerts.
    pub alerts: u64,
    /// Packets inspected.
    pub inspected: u64,
    /// Packets not inspected, by reason.
    pub uninspected: Vec<Uninspected>,
    /// Alerts and records lost.
    pub lost: u64,
    /// Frames truncated by the snap length.
    pub truncated: u64,
    /// Truncated frames skipped because a header is incomplete.
    pub truncated_headers: u64,
    /// Frames skipped because they exceed the maximum length.
    pub too_long: u64,
    /// Time from the first to the last packet, by the capture's timestamps.
    pub duration: Duration,
    /// Processing time, without loading the rules.
    pub took: Duration,
    /// Result of loading the rules.
    pub rules: SignatureReport,
}

/// Names of the two sides of the bridge.
const SIDES: [&str; 2] = ["lower", "higher"];

/// Format a text as a TOML string. TOML accepts the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether a variable contains ports. The name or the value of the variable determines this.
fn is_of_ports(name: &str, value: &str) -> bool {
    let is_numeric = value.contains(|c: char| c.is_ascii_digit())
        && !value.contains("::")
        && value.chars().all(|c| c.is_ascii_digit() || "[]!,: ".contains(c));
    name.contains("PORT") || is_numeric
}

impl Inspect {
    /// Text of the configuration that runs the inspection.
    fn text(&self) -> String {
        let [lower, higher] = SIDES;
        let mut text = format!(
            "[system]\nshards = 1\nworkers = 1\n\
             [sessions]\nipv4 = {sessions}\nipv6 = {sessions}\n\
             [interfaces.{lower}]\ndevice = \"null:\"\n[interfaces.{higher}]\ndevice = \"null:\"\n\
             [bridges.capture]\ninterfaces = [\"{lower}\", \"{higher}\"]\nfail = \"open\"\n\
             [inspection]\ninterfaces = [\"{lower}\", \"{higher}\"]\nmode = \"detect\"\ncache = \"\"\nflows = {flows}\n\
             reassembly-bytes = {reassembly}\n",
            sessions = self.flows.saturating_mul(4).clamp(1 << 16, 1 << 24),
            flows = self.flows,
            reassembly = 64 << 20,
        );
        let mut line = |words: std::fmt::Arguments<'_>| {
            // Writing to a string can't fail.
            let _ = text.write_fmt(words);
            text.push('\n');
        };
        if let Some(classes) = &self.classes {
            line(format_args!("classes = {}", quoted(&classes.to_string_lossy())));
        }
        let dialect = match self.dialect {
            SignatureDialect::Suricata => "suricata",
            SignatureDialect::Snort2 => "snort2",
            SignatureDialect::Snort3 => "snort3",
        };
        for file in &self.rules {
            let file = quoted(&file.to_string_lossy());
            line(format_args!(
                "[[inspection.signatures]]\nfile = {file}\ndialect = \"{dialect}\""
            ));
        }
        let (ports, addresses): (Vec<_>, Vec<_>) = self
            .variables
            .iter()
            .partition(|(name, value)| is_of_ports(name, value));
        line(format_args!("[inspection.addresses]"));
        if !self.home.is_empty() {
            let nets: Vec<_> = self.home.iter().map(NetFilter::to_string).collect();
            line(format_args!("HOME_NET = \"[{}]\"", nets.join(",")));
        }
        for (name, value) in addresses {
            line(format_args!("{} = {}", quoted(name), quoted(value)));
        }
        line(format_args!("[inspection.ports]"));
        for (name, value) in ports {
            line(format_args!("{} = {}", quoted(name), quoted(value)));
        }
        text
    }

    fn config(&self) -> Result<Config, ReplayError> {
        let machine = Machine {
            cores: vec![0],
            ..crate::machine(EntryBytes::default())?
        };
        let checked = sluice_config::check("sluice-inspect.toml", &self.text(), &machine);
        let mut config = checked.map_err(ReplayError::Configuration)?.config.into_inner();
        for interface in &mut config.interfaces {
            interface.mtu = MTU;
        }
        if let (Some(_), Some(written)) = (&self.eve, &mut config.document.inspection) {
            written.eve = Some(schema::Eve {
                types: TYPES.into(),
                ..schema::Eve::default()
            });
        }
        Ok(config)
    }
}

/// Frames that are searched together, like the frames that a busy worker receives in one burst. All frames are from the
/// same side, so that no reply is processed before the frame that it answers.
#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    side: PortIndex,
    started_at: Duration,
    frames: usize,
}

impl Burst {
    fn new(side: PortIndex, started_at: Duration) -> Self {
        Self {
            side,
            started_at,
            frames: 0,
        }
    }

    fn takes(&self, side: PortIndex, at: Duration) -> bool {
        side == self.side && self.frames < BURST_SIZE && at - self.started_at < TOGETHER
    }
}

/// Side of the bridge on which a frame arrives.
fn side(frame: &[u8]) -> PortIndex {
    let (_, [a, b, c, d], [source, destination]) = flow(frame);
    PortIndex::from(([a, b], source) > ([c, d], destination))
}

/// Apply rules to a capture. `found` receives the matches in the order of the capture. `progress` is called
/// periodically.
///
/// # Errors
/// A file can't be read or written, or no rule is usable.
pub fn inspect(
    request: &Inspect,
    found: &mut dyn FnMut(Found<'_>) -> std::io::Result<()>,
    progress: &mut dyn FnMut(InspectionProgress),
) -> Result<InspectSummary, ReplayError> {
    let config = request.config()?;
    let mut input = Input::open(&request.capture)?;
    let lines = lines(request, &config)?;
    let (mut inspection, rules) = lowering::inspection(&config, Secrets::FIXED, &Compiler::here())?.unzip();
    if let (Some(inspection), Some(written)) = (&mut inspection, &config.document.inspection) {
        records::enlarge(Arc::make_mut(inspection), written.messages as usize);
    }
    let mut memory = World::memory(&config, 1)?.allocate();
    let mut world = World::with(&config, 1, &mut memory, world::NO_CYCLES, inspection.as_ref())?;
    world.set_room(BUFFER_BYTES);
    world.record();
    let size = size(&request.capture);
    let start = input.next_time().unwrap_or_default();
    let mut journal = Journal::new(lines, &world, start);
    journal.rename(&request.capture.to_string_lossy());
    let (mut packets, mut bytes, mut read) = (0u64, 0u64, 0u64);
    let started_at = Instant::now();
    let (mut burst, mut at) = (Burst::default(), Duration::ZERO);
    let mut search = |world: &mut World<'_>, until: Duration| -> Result<(), ReplayError> {
        world.drain_bridges();
        let recorded = journal.write_events(world, false)?;
        print(&journal, world, &recorded, found)?;
        world.advance(until.as_nanos() as u64, &mut |_, _, _| Ok(()))?;
        Ok(())
    };
    while let Some(frame) = input.take()? {
        packets += 1;
        bytes += u64::from(frame.length);
        read += frame.bytes.len() as u64 + PACKET_HEADER;
        at = frame.at.saturating_sub(start);
        if let Some((bytes, is_cut)) = world.whole(&frame) {
            let checksums = match request.checks && !is_cut {
                true => Checksums::Unverified,
                false => Checksums::Vouched,
            };
            let side = side(&bytes);
            if !burst.takes(side, at) {
                search(&mut world, at)?;
                burst = Burst::new(side, at);
            }
            world.feed(side, &bytes, checksums);
            burst.frames += 1;
        }
        if packets.is_multiple_of(PERIOD) {
            progress(InspectionProgress {
                packets,
                share: size.map(|size| (read as f64 / size as f64).min(1.0)),
            });
        }
    }
    search(&mut world, at)?;
    let took = started_at.elapsed();
    let flows = sum(&world, |worker| &worker.sessions_created);
    let duration = Duration::from_nanos(world.now());
    journal.finish(&mut world)?;
    let cut = world.cut();
    Ok(InspectSummary {
        packets,
        bytes,
        flows,
        alerts: sum(&world, |worker| &worker.inspection.alerts),
        inspected: sum(&world, |worker| &worker.inspection.inspected),
        uninspected: uninspected(&world),
        lost: world.lost(),
        truncated: cut.truncated,
        truncated_headers: cut.headless,
        too_long: cut.too_long,
        duration,
        took,
        rules: rules.unwrap_or_default(),
    })
}

/// Writer of EVE lines. `None` if neither the request nor the configuration specifies a file for EVE lines.
fn lines(request: &Inspect, config: &Config) -> Result<Option<Lines>, ReplayError> {
    let inspection = config.document.inspection.as_ref();
    match (&request.eve, inspection.and_then(|inspection| inspection.eve.as_ref())) {
        (Some(path), Some(written)) => Ok(Some(Lines::create(path, written)?)),
        _ => Ok(None),
    }
}

fn print(
    journal: &Journal,
    world: &World<'_>,
    recorded: &[records::EveEvent],
    found: &mut dyn FnMut(Found<'_>) -> std::io::Result<()>,
) -> Result<(), ReplayError> {
    if recorded.is_empty() {
        return Ok(());
    }
    let mut printed = Ok(());
    journal.alerts(world.plane(), recorded, &mut |alert, line| {
        if printed.is_ok() {
            printed = found(Found { alert, line });
        }
    });
    printed.map_err(ReplayError::Output)
}

/// Size of a capture in bytes. `None` if the capture is not a regular file.
fn size(path: &Path) -> Option<u64> {
    let known = std::fs::metadata(path).ok()?;
    (known.is_file() && known.len() > 0).then_some(known.len())
}

fn sum(
    world: &World<'_>,
    of: fn(&sluice_engine::packet::counters::WorkerCounters) -> &sluice_engine::packet::counters::Counter,
) -> u64 {
    world.plane().counters().iter().map(|worker| of(worker).get()).sum()
}

/// Number of packets for each reason: packets that were not inspected, and packets that a gateway would have dropped.
fn uninspected(world: &World<'_>) -> Vec<Uninspected> {
    let counters = world.plane().counters();
    let bypassed = Skipped::ALL.iter().map(|&why| Uninspected {
        reason: why.name(),
        help: why.help(),
        packets: counters
            .iter()
            .map(|worker| worker.inspection.bypassed[why as usize].get())
            .sum(),
    });
    let dropped = Reason::all().map(|reason| {
        let interfaces = counters.iter().flat_map(|worker| worker.interfaces.iter());
        Uninspected {
            reason: reason.name(),
            help: reason.help(),
            packets: interfaces.map(|interface| interface.drops(reason)).sum(),
        }
    });
    bypassed.chain(dropped).filter(|reason| reason.packets > 0).collect()
}

#[cfg(test)]
mod tests {
    use sluice_testkit::packet;

    use super::*;

    #[test]
    fn both_ends_of_a_flow_have_a_side_of_their_own_and_fragments_that_of_their_sender() {
        let [forward, reverse] = [("10.0.0.2:5000", "10.0.0.1:53"), ("10.0.0.1:53", "10.0.0.2:5000")];
        let [forward, reverse] = [forward, reverse].map(|(from, to)| packet::udp4(from, to).payload(&[1; 64]).build());
        assert_eq!([1, 0], [side(&forward), side(&reverse)]);
        let mut later = forward.clone();
        // A fragment with a nonzero offset contains no port numbers.
        later[20..22].copy_from_slice(&[0, 1]);
        assert_eq!(1, side(&later));
        let own = |from: &str, to: &str| side(&packet::tcp4(from, to).build());
        assert_eq!(
            [0, 1],
            [
                own("127.0.0.1:80", "127.0.0.1:4000"),
                own("127.0.0.1:4000", "127.0.0.1:80")
            ]
        );
        assert_eq!(0, side(&[1; 60]));
    }

    #[test]
    fn variable_of_ports_is_told_from_one_of_addresses() {
        for (name, value) in [("HTTP_PORTS", "any"), ("WEB", "[80,443]"), ("WEB", "!1024:")] {
            assert!(is_of_ports(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("DNS_SERVERS", "any"),
            ("A", "10.0.0.1"),
            ("A", "[::1]"),
            ("A", "$HOME_NET"),
        ] {
            assert!(!is_of_ports(name, value), "{name}={value}");
        }
    }
}
