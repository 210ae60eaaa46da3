//! Measures the cost of scanning for 4,000 literals, and the size of their database and streams: `cargo bench -p
//! sluice-inspect`.
//!
//! Texts are generated from typical words of protocols, in a working set larger than the second-level cache. One
//! segment in 16 contains a literal. Streams are scanned in random order, so that their states are as rarely in the
//! cache as in operation.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use sluice_inspect::bindings::vectorscan::{Block, Database, MatchAction, Pattern, ScanStreams, Scratch, Streaming};

const LITERALS: usize = 4_000;
const RUNS: usize = 7;
const STREAMS: u32 = 10_000;
const DATA: usize = 8 << 20;

const WORDS: [&str; 24] = [
    "GET /",
    "HTTP/1.1\r\n",
    "Host: ",
    "example",
    ".com",
    "User-Agent: ",
    "Mozilla/5.0 ",
    "(X11; Linux) ",
    "Accept: */*\r\n",
    "Cookie: ",
    "session=",
    "index",
    ".html",
    "the ",
    "and ",
    "of ",
    "<div class=\"",
    "\">",
    "</div>\n",
    "0",
    "1",
    "=",
    "&",
    "a1b2",
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

#[cfg(target_arch = "x86_64")]
const UNIT: &str = "cycles";
#[cfg(target_arch = "x86_64")]
fn clock() -> u64 {
    // SAFETY: every x86-64 processor has this instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
const UNIT: &str = "ns";
#[cfg(not(target_arch = "x86_64"))]
fn clock() -> u64 {
    use std::sync::OnceLock;
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn literals(drawn: &mut Drawn) -> Vec<Vec<u8>> {
    (0..LITERALS)
        .map(|_| {
            let length = 5 + drawn.below(20);
            let first = if drawn.below(4) == 0 { 0 } else { b' ' };
            let last = if first == 0 { 255 } else { b'~' };
            (0..length)
                .map(|_| first + drawn.below(usize::from(last - first) + 1) as u8)
                .collect()
        })
        .collect()
}

fn text(drawn: &mut Drawn, literals: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(DATA + 64);
    while text.len() < DATA {
        if drawn.below(2_000) == 0 {
            text.extend_from_slice(&literals[drawn.below(literals.len())]);
        }
        text.extend_from_slice(WORDS[drawn.below(WORDS.len())].as_bytes());
    }
    text.truncate(DATA);
    text
}

/// Minimum, median and maximum cost per byte of the runs.
fn measured(bytes: usize, mut run: impl FnMut() -> u64) -> String {
    let mut costs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = clock();
            black_box(run());
            (clock() - start) as f64 / bytes as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    format!("{:6.2} {:6.2} {:6.2}", costs[0], costs[RUNS / 2], costs[RUNS - 1])
}

fn peak_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or("VmHWM: unknown").to_owned()
}

fn main() {
    let mut drawn = Drawn(1);
    let literals = literals(&mut drawn);
    let patterns: Vec<Pattern> = literals
        .iter()
        .enumerate()
        .map(|(id, bytes)| Pattern {
            bytes,
            caseless: id % 2 == 0,
            id: id as u32,
        })
        .collect();
    let data = text(&mut drawn, &literals);
    println!("before: {}", peak_kib());
    let start = Instant::now();
    let block = Database::<Block>::compile(&patterns).expect("literals compile");
    println!("block: {:?}, {} bytes, {}", start.elapsed(), block.size(), peak_kib());
    let start = Instant::now();
    let stream = Arc::new(Database::<Streaming>::compile(&patterns).expect("literals compile"));
    println!(
        "streaming: {:?}, {} bytes, {}",
        start.elapsed(),
        stream.size(),
        peak_kib()
    );
    let mut scratch = Scratch::new();
    scratch.serve(&block).expect("memory");
    scratch.serve(&stream).expect("memory");
    let mut streams = ScanStreams::new(Arc::clone(&stream), STREAMS).expect("memory");
    println!(
        "a stream: {} bytes, {} between two; scratch: {} bytes",
        stream.stream_size(),
        streams.stride(),
        scratch.size()
    );
    let open: Vec<u32> = std::iter::from_fn(|| streams.open()).collect();

    println!("{UNIT} per byte, least, median and most of {RUNS} runs:");
    println!("{:>6} {:>20} {:>20}", "bytes", "block", "stream");
    for size in [64, 128, 256, 512, 1024, 1500] {
        let pieces: Vec<&[u8]> = data.chunks_exact(size).collect();
        let bytes = pieces.len() * size;
        let blocks = measured(bytes, || {
            let mut found = 0;
            for piece in &pieces {
                block.scan(piece, &mut scratch, |_, _| {
                    found += 1;
                    MatchAction::Continue
                });
            }
            found
        });
        let streamed = measured(bytes, || {
            let mut found = 0;
            for piece in &pieces {
                let stream = open[drawn.below(open.len())];
                streams.scan(stream, piece, &mut scratch, |_, _| {
                    found += 1;
                    MatchAction::Continue
                });
            }
            found
        });
        println!("{size:>6} {blocks:>20} {streamed:>20}");
    }
}
