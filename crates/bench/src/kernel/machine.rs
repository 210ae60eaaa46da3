//! Statistics of the kernel: CPU time of cores, and packets of interfaces.

use std::fs;
use std::time::{Duration, Instant};

/// Unit of the kernel's CPU times: hundredths of a second (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// Cores of a trial: one core for traffic and one for the gateway, or several cores that each run both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    pub traffic: usize,
    pub gateway: usize,
    /// Further cores, each with a generator, the gateway and a receiver; if there are any, the first core also runs all
    /// three.
    pub more: Vec<usize>,
}

impl Cores {
    /// Assigns the first two cores to traffic and gateway; `None` if there is only one core.
    pub fn apart(of: &[usize]) -> Option<Self> {
        Some(Self {
            traffic: *of.first()?,
            gateway: *of.get(1)?,
            more: Vec::new(),
        })
    }

    /// Assigns traffic and gateway to each of the first `count` cores; `None` if there are fewer cores.
    pub fn together(of: &[usize], count: usize) -> Option<Self> {
        let (&first, more) = of.get(..count)?.split_first()?;
        Some(Self {
            traffic: first,
            gateway: first,
            more: more.to_vec(),
        })
    }

    /// Whether the gateway has a separate core.
    pub fn are_apart(&self) -> bool {
        self.traffic != self.gateway
    }

    pub fn gateways(&self) -> Vec<usize> {
        [&[self.gateway], &self.more[..]].concat()
    }

    pub fn generators(&self) -> Vec<usize> {
        [&[self.traffic], &self.more[..]].concat()
    }

    pub fn all(&self) -> Vec<usize> {
        let mut all = [&[self.traffic, self.gateway], &self.more[..]].concat();
        all.dedup();
        all
    }

    /// CPU mask of one core in the format of RPS: 32-bit words, highest word first.
    pub fn mask(core: usize) -> String {
        let words = (0..=core / 32).rev().map(|word| match word == core / 32 {
            true => format!("{:x}", 1u32 << (core % 32)),
            false => "00000000".into(),
        });
        words.collect::<Vec<_>>().join(",")
    }
}

/// Time since boot in which a core did no work: idle, waiting for I/O, or stolen by the hypervisor.
pub fn unused_time(core: usize) -> Duration {
    unused_of(&fs::read_to_string("/proc/stat").unwrap_or_default(), core)
}

fn unused_of(stat: &str, core: usize) -> Duration {
    let name = format!("cpu{core}");
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
    let fields = numbers(line.unwrap_or_default());
    // Fields: user nice system idle iowait irq softirq steal
    TICK * [3, 4, 7].iter().filter_map(|&index| fields.get(index)).sum::<u64>() as u32
}

/// Numbers in a line of text.
fn numbers(line: &str) -> Vec<u64> {
    let words = line.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// For each core, the core number and the number of packets that the core has processed from its receive backlog since
/// boot.
pub fn taken() -> Vec<(usize, u64)> {
    taken_of(&fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default())
}

fn taken_of(stat: &str) -> Vec<(usize, u64)> {
    let hexadecimal = |field: &str| u64::from_str_radix(field, 16).ok();
    let of_line = |(line, text): (usize, &str)| {
        let fields: Vec<u64> = text.split_whitespace().filter_map(hexadecimal).collect();
        // The file has one line per online core; the thirteenth field is the core number.
        Some((fields.get(12).map_or(line, |&core| core as usize), *fields.first()?))
    };
    stat.lines().enumerate().filter_map(of_line).collect()
}

/// Packet counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    pub received: u64,
    pub sent: u64,
    /// Packets dropped on transmit.
    pub send_drops: u64,
}

/// Packet counters of an interface in the network namespace of a process.
pub fn packets(process: u32, interface: &str) -> Packets {
    let text = fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap_or_default();
    packets_of(&text, interface)
}

fn packets_of(dev: &str, interface: &str) -> Packets {
    let rest = dev
        .lines()
        .find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
    let fields = numbers(rest.unwrap_or_default());
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    Packets {
        received: field(1),
        sent: field(9),
        send_drops: field(11),
    }
}

/// Waits at most `limit` until a core is almost idle, which means that the kernel has finished the work of the previous
/// trial.
pub fn settle(core: usize, limit: Duration) {
    let began = Instant::now();
    while began.elapsed() < limit {
        let (from, unused) = (Instant::now(), unused_time(core));
        std::thread::sleep(Duration::from_millis(200));
        if unused_time(core).saturating_sub(unused) > from.elapsed() * 8 / 10 {
            return;
        }
    }
}

/// Load averages over 1, 5 and 15 minutes, as formatted by the kernel.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_of_a_core_is_hexadecimal_in_words() {
        assert_eq!("1", Cores::mask(0));
        assert_eq!("2", Cores::mask(1));
        assert_eq!("80000000", Cores::mask(31));
        assert_eq!("4,00000000", Cores::mask(34));
        assert_eq!("1,00000000,00000000", Cores::mask(64));
    }

    #[test]
    fn unused_time_is_idle_waiting_and_stolen() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu10 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(Duration::from_millis(4580), unused_of(stat, 0));
        assert_eq!(Duration::from_millis(30), unused_of(stat, 10));
        assert_eq!(Duration::ZERO, unused_of(stat, 1));
    }

    #[test]
    fn cores_are_two_for_two_tasks_or_some_for_both() {
        let apart = Cores::apart(&[4, 5, 6]).expect("two cores");
        assert_eq!((4, vec![5], vec![4, 5]), (apart.traffic, apart.gateways(), apart.all()));
        let together = Cores::together(&[4, 5, 6], 2).expect("two cores");
        assert_eq!((vec![4, 5], vec![4, 5]), (together.gateways(), together.all()));
        assert!(apart.are_apart() && !together.are_apart());
        assert_eq!(vec![6], Cores::together(&[6], 1).expect("a core").all());
        assert_eq!((None, None), (Cores::apart(&[4]), Cores::together(&[4], 2)));
    }

    #[test]
    fn taken_packets_are_of_the_core_that_the_line_names() {
        let stat = "0000000a 0 0 0 0 0 0 0 0 0 0 0 00000000 0 0\n00000010 0 0 0 0 0 0 0 0 0 0 0 00000003 0 0\n";
        assert_eq!(vec![(0, 10), (3, 16)], taken_of(stat));
        assert_eq!(
            vec![(0, 1), (1, 2)],
            taken_of("00000001 0\n00000002 0\n"),
            "older kernels"
        );
    }

    #[test]
    fn packets_are_those_of_the_named_interface() {
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                   slb: 100 7 0 0 0 0 0 0 200 8 0 5 0 0 0 0\n";
        let expected = Packets {
            received: 7,
            sent: 8,
            send_drops: 5,
        };
        assert_eq!(expected, packets_of(dev, "slb"));
        assert_eq!(Packets::default(), packets_of(dev, "sl"));
    }

    #[test]
    fn this_machine_has_time_and_a_load() {
        assert_eq!(3, load_average().split(' ').count());
        assert!(unused_time(sluice_dpdk::eal::allowed_cores()[0]) > Duration::ZERO);
    }
}
