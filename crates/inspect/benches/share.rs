//! Measures the cost of inspection relative to the cost of its pattern search: `cargo bench -p sluice-inspect --bench
//! share -- FILE KIND BYTES`. FILE is a file of Snort 3 rules; the default is the Snort community rules, if they are
//! present. KIND and BYTES restrict the run to one kind and segment size.
//!
//! Connections are processed in turn. Each connection has a request and a response with typical words of protocols, in
//! segments of one size. The *search* only replays the Vectorscan calls that a run recorded. The replay scans the same
//! bytes in the same segments, and starts each stream at the same scan.

use std::sync::Arc;
use std::time::Instant;

use sluice_inspect::evaluate::{IpFields, PacketFields, TcpFields};
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{
    BurstContext, DetectionContext, FlowHandle, FlowPacket, Inspector, InspectorCapacity, Settings, Verdict,
};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::{OrderedRules, Ruleset};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::Toward;
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream;
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::Direction;

const RUNS: usize = 7;
const CONNECTIONS: usize = 512;
/// Length of each response in bytes.
const BODY: usize = 64 << 10;
const WORDS: [&str; 12] = [
    "the ",
    "and ",
    "of ",
    "<div class=\"",
    "\">",
    "</div>\n",
    "session=",
    "index",
    ".html",
    "0",
    "a1b2",
    "&",
];

struct Drawn(u64);

impl Drawn {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * count as u128) >> 64) as usize
    }
}

fn response(kind: &str, drawn: &mut Drawn) -> Vec<u8> {
    let mut body = Vec::with_capacity(BODY + 16);
    while body.len() < BODY {
        body.extend_from_slice(WORDS[drawn.below(WORDS.len())].as_bytes());
    }
    body.truncate(BODY);
    match kind {
        "http" => {
            let head = format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {BODY}\r\n\r\n");
            [head.as_bytes(), &body].concat()
        }
        _ => [b"\x00\x01binary: ".as_slice(), &body].concat(),
    }
}

fn segment(ports: [u16; 2], numbers: [u32; 2], flags: u8, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[0..2].copy_from_slice(&ports[0].to_be_bytes());
    segment[2..4].copy_from_slice(&ports[1].to_be_bytes());
    segment[4..8].copy_from_slice(&numbers[0].to_be_bytes());
    segment[8..12].copy_from_slice(&numbers[1].to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, flags);
    segment.extend_from_slice(data);
    segment
}

/// Endpoints of a packet from a client.
fn client(connection: usize) -> Endpoints {
    let [high, low] = (connection as u16).to_be_bytes();
    Endpoints {
        source: [10, 0, high, low].into(),
        destination: [198, 51, 100, 7].into(),
        ports: [40_000, 80],
        protocol: 6,
        toward: Toward::Server,
        established: true,
        service: None,
    }
}

struct Rig {
    inspector: Inspector<'static>,
    tools: DetectionContext,
    rates: HostTable,
    handles: Vec<FlowHandle>,
}

impl Rig {
    fn new(rules: &Arc<Ruleset>) -> Self {
        let plan = InspectorCapacity {
            flows: CONNECTIONS as u32,
            streams: stream::StreamCapacity::of(CONNECTIONS),
            protocols: ParserCapacity {
                messages: CONNECTIONS as u32 * 2,
                ..ParserCapacity::default()
            },
        };
        let memory = vec![Line([0; 8]); plan.streams.lines()].leak();
        let scratch = rules.prefilter().scratch().expect("memory");
        let mut inspector = Inspector::new(&plan, rules.clone(), memory, Hasher::new([1, 2])).expect("memory");
        let handles = (0..CONNECTIONS)
            .map(|connection| {
                let handle = inspector.create_flow(true).expect("a place");
                inspector.start_flow(handle, client(connection), 0, 0);
                handle
            })
            .collect();
        Self {
            inspector,
            tools: DetectionContext::new(scratch, rules),
            rates: HostTable::new(64, [3, 4]),
            handles,
        }
    }

    fn packet(&mut self, connection: usize, direction: Direction, segment: &mut [u8], fired: &mut u64) {
        let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().expect("four bytes"));
        let facts = PacketFields {
            ip: IpFields {
                ttl: 64,
                protocol: 6,
                ..IpFields::default()
            },
            tcp: Some(TcpFields {
                flags: segment[13],
                sequence: number(4),
                acknowledgement: number(8),
                window: 65_535,
            }),
            payload: segment.len() as u32 - 20,
            ..PacketFields::default()
        };
        let ends = match direction {
            Direction::Forward => client(connection),
            Direction::Reverse => client(connection).reversed(),
        };
        let mut report = |_| *fired += 1;
        let mut round = BurstContext {
            settings: &Settings::default(),
            hosts: &self.rates,
            context: &mut self.tools,
            now: 1_000_000_000,
            matches: &mut report,
            log: &mut |_, _| {},
        };
        let seen = FlowPacket {
            ends,
            fields: facts,
            direction,
            segment,
            payload: 20,
            own_side: true,
        };
        let verdict = self.inspector.inspect(self.handles[connection], seen, &mut round);
        assert_eq!(Verdict::Pass, verdict);
    }
}

fn main() {
    let default = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/data/signatures/snort3-community.rules"
    );
    let named = |number| {
        std::env::args()
            .skip(1)
            .filter(|argument| !argument.starts_with("--"))
            .nth(number)
    };
    let Ok(text) = std::fs::read(named(0).as_deref().unwrap_or(default)) else {
        return println!("no file of rules is named, and the Snort community's are not there");
    };
    let file = read(&text, Dialect::Snort3, &Variables::default(), &Classes::default());
    let ordered = OrderedRules::new(file.signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).expect("patterns");
    let rules = Arc::new(ordered.with_prefilter(prefilter));
    println!(
        "{} rules; cycles or ns per segment, medians of {RUNS} runs",
        rules.rules().len()
    );
    println!(
        "{:>6} {:>6} {:>10} {:>10} {:>7} {:>7} {:>7} {:>6}",
        "kind", "bytes", "inspected", "search", "share", "scans", "bytes", "fired"
    );
    let is_wanted = |number: usize, value: &str| named(number).is_none_or(|wanted| wanted == value);
    for kind in ["http", "other"].into_iter().filter(|kind| is_wanted(1, kind)) {
        let sizes = [64, 128, 256, 512, 1024, 1460].into_iter();
        for bytes in sizes.filter(|bytes| is_wanted(2, &bytes.to_string())) {
            one(kind, bytes, &rules);
        }
    }
}

fn one(kind: &str, bytes: usize, rules: &Arc<Ruleset>) {
    let mut drawn = Drawn(7);
    let request = match kind {
        "http" => b"GET /index.html?session=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: x\r\n\r\n".as_slice(),
        _ => b"\x00\x02ask",
    };
    let responses: Vec<_> = (0..CONNECTIONS).map(|_| response(kind, &mut drawn)).collect();
    let (mut inspected, mut searched, mut fired) = (Vec::new(), Vec::new(), 0);
    let pieces = responses[0].len().div_ceil(bytes);
    let mut calls = None;
    // The first run is not timed, because it records the scans.
    for run in 0..=RUNS {
        let mut rig = Rig::new(rules);
        for connection in 0..CONNECTIONS {
            let ports = [40_000, 80];
            rig.packet(
                connection,
                Direction::Forward,
                &mut segment(ports, [0, 0], 2, b""),
                &mut fired,
            );
            rig.packet(
                connection,
                Direction::Reverse,
                &mut segment([80, 40_000], [0, 1], 18, b""),
                &mut fired,
            );
            rig.packet(
                connection,
                Direction::Forward,
                &mut segment(ports, [1, 1], 16, request),
                &mut fired,
            );
        }
        // Segments are built before the clock starts, in the order in which they are sent.
        let mut segments = Vec::new();
        for piece in 0..pieces {
            for response in &responses {
                let from = piece * bytes;
                let data = &response[from..response.len().min(from + bytes)];
                segments.push(segment(
                    [80, 40_000],
                    [1 + from as u32, 1 + request.len() as u32],
                    24,
                    data,
                ));
            }
        }
        if run == 0 {
            rig.inspector.record_scans(&mut rig.tools, 0);
        }
        let mut taken = 0.0;
        for (piece, segments) in segments.chunks_mut(CONNECTIONS).enumerate() {
            let start = Instant::now();
            for (connection, data) in segments.iter_mut().enumerate() {
                rig.packet(connection, Direction::Reverse, data, &mut fired);
            }
            taken += start.elapsed().as_secs_f64();
            // The receiver acknowledges the data while the clock is stopped.
            let numbers = [1 + request.len() as u32, 1 + ((piece + 1) * bytes) as u32];
            for connection in 0..CONNECTIONS {
                let mut empty = segment([40_000, 80], numbers, 16, b"");
                rig.packet(connection, Direction::Forward, &mut empty, &mut fired);
            }
        }
        let taken = taken * 1e9 / segments.len() as f64;
        let calls = calls.get_or_insert_with(|| rig.tools.take_scan_log().expect("calls"));
        if run == 0 {
            continue;
        }
        inspected.push(taken);
        let mut replay = rules.prefilter().replay(2 * CONNECTIONS as u32).expect("memory");
        let start = Instant::now();
        assert!(replay.run(calls) < u64::MAX);
        searched.push(start.elapsed().as_secs_f64() * 1e9 / segments.len() as f64);
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (inspected, searched) = (median(inspected), median(searched));
    let (share, segments) = (searched / inspected, (pieces * CONNECTIONS) as f64);
    let calls = calls.expect("a run");
    println!(
        "{kind:>6} {bytes:>6} {inspected:>9.0}n {searched:>9.0}n {:>6.0}% {:>7.2} {:>7.0} {:>6}",
        share * 100.0,
        calls.count() as f64 / segments,
        calls.bytes() as f64 / segments,
        fired / (RUNS + 1) as u64
    );
}
