//! Measures the CPU time in which an FPM stream of a million routes is processed and its routes are stored in the FIB,
//! and the CPU time in which the repeated stream is processed.

use sluice_route::feed::fpm::FrameBuffer;
use sluice_route::feed::netlink::{INET, kind};
use sluice_route::feed::writer::{SET, Writer, frame};
use sluice_route::feed::{Feed, Links, MAIN_TABLE, RoutePeer};
use sluice_route::neighbour::Neighbours;
use sluice_route::rib::{Origin, ResolvedSet, Rib, Settings, Sink};
use sluice_route::{Address, Fib, NextHopWriter, Prefix, Ribs, RouteSet};
use sluice_table::prefix::Quiescence;
use std::sync::Arc;

const ROUTES: u32 = 1_000_000;
const NEXT_HOPS: u32 = 100;
/// Number of bytes per read, equal to the daemon's read size.
const READ: usize = 64 * 1024;

struct Nothing;

impl Sink for Nothing {
    fn set(&mut self, _: Prefix, _: &ResolvedSet) {}
    fn remove(&mut self, _: Prefix) {}
}

/// A stream in the order of FRR: first the next hops, then the routes. Each frame contains one message.
fn stream() -> Vec<u8> {
    let next_hops = (1..=NEXT_HOPS).flat_map(|id| {
        let writer = Writer::next_hop((kind::NEW_NEXT_HOP, SET), INET, id);
        frame(&[writer.address(6, Address::V4(0x0a00_0000 + id)).number(5, 3).finish()])
    });
    let routes = (0..ROUTES).flat_map(|number| {
        let prefix = Prefix::new(Address::V4(number.wrapping_mul(0x9e_3779) << 8), 24);
        let writer = Writer::route((kind::NEW_ROUTE, SET), prefix, 186, 1).number(6, 20);
        frame(&[writer.number(30, 1 + number % NEXT_HOPS).finish()])
    });
    next_hops.chain(routes).collect()
}

fn feed() -> Feed {
    Feed::new(RoutePeer {
        origin: Origin::Fpm,
        table: MAIN_TABLE,
        links: Links::Numbered([(3, 0)].into()),
    })
}

fn play(stream: &[u8], mut follow: impl FnMut(&[u8])) -> f64 {
    let (begin, mut frames) = (processor(), FrameBuffer::default());
    for read in stream.chunks(READ) {
        frames.push(read);
        let mut all = Vec::with_capacity(READ);
        while let Ok(Some(frame)) = frames.take() {
            all.extend_from_slice(frame);
        }
        follow(&all);
    }
    processor() - begin
}

/// CPU time of this thread in seconds. Other load on the machine does not count.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanoseconds: u64 = text
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a number");
    nanoseconds as f64 / 1e9
}

fn main() {
    let stream = stream();
    println!("{} routes, {} MB", ROUTES, stream.len() / 1_000_000);
    let (mut rib, mut teller) = (Rib::new(Settings::default(), [1, 2]), feed());
    let alone = play(&stream, |bytes| {
        teller.follow(&mut rib, bytes, 0);
        rib.publish(&mut Nothing);
    });
    println!("messages and RIB: {alone:.2} s");

    let quiescence = Arc::new(Quiescence::new(1));
    let neighbours = Arc::new(Neighbours::new(16, [3, 4]));
    let mut writer = NextHopWriter::new(1024, neighbours, quiescence.clone());
    let mut fib = Fib::new(quiescence);
    let (mut ribs, mut teller) = (Ribs::new(Settings::default(), [1, 2]), feed());
    let nothing = [RouteSet::default()];
    ribs.apply_all(&nothing, |_| false, &mut fib, &mut writer, 0)
        .expect("there is room");
    for what in ["with the forwarding table", "the same again"] {
        let seconds = play(&stream, |bytes| {
            ribs.change(0, &mut fib, &mut writer, |rib| teller.follow(rib, bytes, 0));
        });
        println!("{what}: {seconds:.2} s");
    }
    println!(
        "{} routes in the table, {:.1} MB of RIB",
        fib.len(0),
        ribs.bytes() as f64 / 1e6
    );
}
