//! Measures the offers per second that a RIB accepts and publishes, and the bytes per route, for a million IPv4 and
//! 200,000 IPv6 routes.

use sluice_route::rib::{Offer, OfferedNextHop, Origin, ResolvedSet, Rib, Settings, Sink, Target, WeightedNextHop};
use sluice_route::{Address, Prefix};

const FOUR: u32 = 1_000_000;
const SIX: u32 = 200_000;
/// Number of offers between two publications, similar to the number of routes in one read from a routing daemon.
const BATCH: u32 = 1_000;
const GATEWAYS: u32 = 200;

struct Count(u64);

impl Sink for Count {
    fn set(&mut self, _: Prefix, set: &ResolvedSet) {
        self.0 += set.members().len() as u64;
    }

    fn remove(&mut self, _: Prefix) {
        self.0 += 1;
    }
}

/// Distinct prefixes in pseudo-random order. The multiplication by an odd factor is a permutation of 24-bit numbers.
fn prefix(number: u32) -> Prefix {
    if number < FOUR {
        return Prefix::new(Address::V4(number.wrapping_mul(0x9e_3779) << 8), 24);
    }
    let bits = u128::from(number.wrapping_mul(0x9e37_79b1)) << 80 | 0x2001 << 112;
    Prefix::new(Address::V6(bits), 48)
}

fn load(rib: &mut Rib, numbers: std::ops::Range<u32>, shift: u32, hop: impl Fn(u32) -> OfferedNextHop) -> f64 {
    let (begin, mut sink, count) = (processor(), Count(0), numbers.len());
    for number in numbers {
        let hops = [WeightedNextHop::new(hop(number.wrapping_add(shift) % GATEWAYS))];
        let offer = Offer {
            origin: Origin::Fpm,
            protocol: 186,
            distance: 20,
            metric: 0,
            target: Target::Hops(&hops),
        };
        rib.offer(prefix(number), &offer, 0).expect("there is room");
        if number % BATCH == BATCH - 1 {
            rib.publish(&mut sink);
        }
    }
    rib.publish(&mut sink);
    std::hint::black_box(sink.0);
    count as f64 / (processor() - begin)
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
    let on = |number: u32| OfferedNextHop::Gateway {
        interface: 0,
        address: Address::V4(0x0a00_0001 + number),
    };
    let via = |number: u32| OfferedNextHop::Via(Address::V4(0x0a00_0001 + number));
    for (name, floating) in [("on an interface", false), ("by address alone", true)] {
        let hop = |number| if floating { via(number) } else { on(number) };
        let mut rib = Rib::new(Settings::default(), [1, 2]);
        let attached = [WeightedNextHop::new(OfferedNextHop::Attached(0))];
        let connected = Offer {
            origin: Origin::Connected,
            protocol: 0,
            distance: 0,
            metric: 0,
            target: Target::Hops(&attached),
        };
        let network = Prefix::new(Address::V4(0x0a00_0000), 16);
        rib.offer(network, &connected, 0).expect("there is room");
        println!("gateways {name}:");
        println!("  IPv4 new: {:.2} M/s", load(&mut rib, 0..FOUR, 0, hop) / 1e6);
        println!("  {:.1} bytes a route", rib.bytes() as f64 / f64::from(FOUR));
        println!("  again: {:.2} M/s", load(&mut rib, 0..FOUR, 0, hop) / 1e6);
        println!("  other gateways: {:.2} M/s", load(&mut rib, 0..FOUR, 1, hop) / 1e6);
        println!("  IPv6 new: {:.2} M/s", load(&mut rib, FOUR..FOUR + SIX, 0, hop) / 1e6);
        println!("  {:.1} MB in all", rib.bytes() as f64 / 1e6);
        let begin = processor();
        rib.start_replay(Origin::Fpm);
        println!("  mark all stale: {:.1} ms", (processor() - begin) * 1e3);
        let begin = processor();
        let swept = rib.end_replay(Origin::Fpm, usize::MAX);
        rib.publish(&mut Count(0));
        println!("  swept: {:.2} M/s", swept as f64 / (processor() - begin) / 1e6);
    }
}
