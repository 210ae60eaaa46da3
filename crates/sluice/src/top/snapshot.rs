//! Activity between two polls of the counters.

mod rise;

use serde::{Serialize, Serializer};
use sluice_daemon::config::api::{Core, Drop, Interface};
use sluice_daemon::counters::CycleStage;

use self::rise::Rise;
use super::poll::Poll;
use super::prediction::{Load, predict};

/// Stages of packet processing in order: all for which workers count cycles, except timers and requests.
pub const STAGES: [CycleStage; CycleStage::ALL.len() - 1] = {
    let mut stages = [CycleStage::Receive; CycleStage::ALL.len() - 1];
    let (mut stage, mut counted) = (0, 0);
    while counted < CycleStage::ALL.len() {
        if !matches!(CycleStage::ALL[counted], CycleStage::Housekeeping) {
            stages[stage] = CycleStage::ALL[counted];
            stage += 1;
        }
        counted += 1;
    }
    stages
};

/// Cycles of each stage, in the order of [`STAGES`].
pub type Spent = [u64; STAGES.len()];

/// Activity between two polls.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Snapshot {
    /// `name` in `[system]` of the configuration.
    pub name: String,
    /// Seconds since the daemon started.
    pub uptime: u64,
    /// Duration between the polls in seconds.
    pub seconds: f64,
    /// Numbers of existing IPv4 and IPv6 sessions.
    pub sessions: [u64; 2],
    /// Warnings that need the operator's attention.
    pub warnings: Vec<String>,
    /// Activity of all workers together. `busy` and `cycles_per_packet` are sums over the workers. `packets` counts
    /// packets that interfaces received and that were not rejected by a full ring.
    pub gateway: Figures,
    /// Activity of each worker.
    pub workers: Vec<Worker>,
    /// Traffic of all interfaces together.
    pub traffic: Traffic,
    /// Traffic of each interface.
    pub interfaces: Vec<InterfaceTraffic>,
    /// Drop reasons with a nonzero count. The reason with the highest rate comes first.
    pub drops: Vec<Dropped>,
}

/// Activity of one worker, or of all workers together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figures {
    /// Fraction of the time that was spent on packets, 0 to 1 for each worker.
    pub busy: f64,
    /// Packets processed per second.
    pub packets: f64,
    /// Cycles per packet. `None` if no packets were processed.
    pub cycles_per_packet: Option<Cycles>,
    /// Predicted maximum packets per second.
    pub predicted: Option<f64>,
    /// Packets that were waiting in the rings to this worker in its last round.
    pub waiting: u64,
    /// Packets per second handed over to other workers.
    pub handed_over: f64,
    /// Packets per second that were received from other workers.
    pub taken_over: f64,
    /// Packets per second dropped because the ring to the next worker was full: `shed` and `handover-full`.
    pub shed: f64,
    /// Work done for other workers.
    pub assist: Assist,
}

/// Work that a worker does for other workers that are overloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Assist {
    /// Number of shards that are currently taken over from other workers.
    pub lent: u64,
    /// Packets that were waiting in the worker's assist queue in its last round.
    pub waiting: u64,
    /// Packets per second of the shards taken over.
    pub packets: f64,
    /// Number of times per second that the work on these shards was stopped because its time slice had ended.
    pub slices_ended: f64,
    /// Number of times that the worker began to assist since the start.
    pub begun: u64,
    /// Number of times that the worker ceased to assist since the start.
    pub ended: u64,
}

/// Activity of a worker.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Worker {
    /// Number of the worker, from 0.
    pub worker: u16,
    /// Core to which the worker is pinned.
    pub core: u16,
    /// `running`, `asleep` or `stuck`.
    pub state: String,
    /// Parts of packet processing that the worker performs.
    pub parts: String,
    /// Activity of the worker.
    #[serde(flatten)]
    pub figures: Figures,
    /// All counters of the worker by name.
    #[serde(serialize_with = "members")]
    pub counters: Vec<CounterActivity>,
}

/// Cycles per packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cycles {
    /// Total cycles per packet.
    pub total: f64,
    /// Cycles per packet in each stage, in the order of [`STAGES`].
    #[serde(flatten, serialize_with = "by_name")]
    pub stages: [f64; STAGES.len()],
}

fn by_name<S: Serializer>(stages: &[f64; STAGES.len()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(STAGES.iter().map(|stage| stage.name()).zip(stages))
}

/// Activity of a counter: for a total, its increase per second; for a gauge, its value.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterActivity {
    /// Name of the counter.
    pub name: String,
    /// Rate or value.
    pub value: f64,
}

fn members<S: Serializer>(counters: &[CounterActivity], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter().map(|counter| (&counter.name, counter.value)))
}

/// Received and sent frames per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Traffic {
    /// Packets received per second.
    pub received: f64,
    /// Received bits per second, without preamble, frame check sequence and gap.
    pub received_bits: f64,
    /// Packets sent per second.
    pub sent: f64,
    /// Sent bits per second, without preamble, frame check sequence and gap.
    pub sent_bits: f64,
    /// Dropped packets per second, counted at the input interface.
    pub dropped: f64,
}

/// Traffic of an interface.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InterfaceTraffic {
    /// Name of the interface.
    pub name: String,
    /// State of the link: `up` or `down`.
    pub link: String,
    /// Traffic of the interface.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Packets that were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Dropped {
    /// Name of the drop reason.
    pub name: String,
    /// Dropped packets per second.
    pub rate: f64,
    /// Number of packets since the daemon started.
    pub packets: u64,
}

impl Snapshot {
    /// Compute the activity between two polls. If the daemon was restarted between the polls, the activity is zero.
    pub fn between(before: &Poll, now: &Poll) -> Self {
        let same_process = before.status.process == now.status.process && before.status.uptime <= now.status.uptime;
        let before_or_now = if same_process { before } else { now };
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let span = Span {
            seconds,
            hz: now.status.tsc_hz,
        };
        let interfaces = span.interfaces(&before_or_now.interfaces, &now.interfaces);
        let traffic = interfaces.iter().map(|one| one.traffic).fold(Traffic::default(), plus);
        let received = received(&before_or_now.interfaces, &now.interfaces);
        let (workers, gateway) = span.workers(&before_or_now.cores, &now.cores, received);
        let status = &now.status;
        Self {
            name: status.name.clone(),
            uptime: status.uptime,
            seconds,
            sessions: status.sessions,
            warnings: status.warnings.clone(),
            gateway,
            workers,
            traffic,
            interfaces,
            drops: span.drops(&before_or_now.drops, &now.drops),
        }
    }
}

/// Increase of a counter. If the counter was reset, it is smaller than before, and the result is 0.
pub fn difference(before: u64, now: u64) -> u64 {
    now.saturating_sub(before)
}

/// Cycles per packet in each stage and in total. `None` if no packets were processed.
pub fn cycles_per_packet(spent: &Spent, packets: u64) -> Option<Cycles> {
    let stages = spent.map(|cycles| cycles as f64 / packets as f64);
    let total = spent.iter().sum::<u64>() as f64 / packets as f64;
    (packets > 0 && total > 0.0).then_some(Cycles { total, stages })
}

/// Duration of the measurement, and the clock rate of the cycle counter.
struct Span {
    seconds: f64,
    hz: u64,
}

impl Span {
    fn rate(&self, before: u64, now: u64) -> f64 {
        self.per_second(difference(before, now))
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 {
            count as f64 / self.seconds
        } else {
            0.0
        }
    }

    fn workers(&self, before: &[Core], now: &[Core], received: u64) -> (Vec<Worker>, Figures) {
        let rises: Vec<_> = now.iter().map(|core| Rise::of(same(before, core), core)).collect();
        let sum = rises.iter().fold(Rise::default(), |sum, rise| sum.plus(rise));
        let carried = difference(sum.shed, received);
        let mut gateway = self.figures(&Rise {
            packets: carried,
            ..sum
        });
        let mut figures: Vec<_> = rises.iter().map(|rise| self.figures(rise)).collect();
        let loads: Vec<_> = figures.iter().map(load).collect();
        let prediction = predict(self.hz, &loads, gateway.packets);
        gateway.predicted = prediction.gateway;
        for (figures, predicted) in figures.iter_mut().zip(prediction.workers) {
            figures.predicted = predicted;
            figures.busy = figures.busy.min(1.0);
        }
        let workers = now.iter().zip(figures).map(|(core, figures)| Worker {
            worker: core.worker,
            core: core.core,
            state: core.state.clone(),
            parts: core.parts.clone(),
            figures,
            counters: self.counters(same(before, core), core),
        });
        (workers.collect(), gateway)
    }

    fn counters(&self, before: &Core, now: &Core) -> Vec<CounterActivity> {
        let activity = now.counters.iter().map(|counted| CounterActivity {
            name: counted.name.clone(),
            value: match counted.is_gauge() {
                true => counted.count as f64,
                false => self.rate(counter(before, &counted.name), counted.count),
            },
        });
        activity.collect()
    }

    fn figures(&self, rise: &Rise) -> Figures {
        let cycles = rise.spent.iter().sum();
        Figures {
            busy: self.per_second(cycles) / self.hz.max(1) as f64,
            packets: self.per_second(rise.packets),
            cycles_per_packet: cycles_per_packet(&rise.spent, rise.packets),
            predicted: None,
            waiting: rise.waiting,
            handed_over: self.per_second(rise.handed_over),
            taken_over: self.per_second(rise.taken_over),
            shed: self.per_second(rise.shed),
            assist: Assist {
                lent: rise.assist.lent,
                waiting: rise.assist.waiting,
                packets: self.per_second(rise.assist.packets),
                slices_ended: self.per_second(rise.assist.slices_ended),
                begun: rise.assist.begun,
                ended: rise.assist.ended,
            },
        }
    }

    fn interfaces(&self, before: &[Interface], now: &[Interface]) -> Vec<InterfaceTraffic> {
        let with_before = now.iter().map(|interface| (earlier(before, interface), interface));
        let listed = with_before.map(|(before, now)| InterfaceTraffic {
            name: now.name.clone(),
            link: now.link.clone(),
            traffic: Traffic {
                received: self.rate(before.received, now.received),
                received_bits: 8.0 * self.rate(before.received_bytes, now.received_bytes),
                sent: self.rate(before.sent, now.sent),
                sent_bits: 8.0 * self.rate(before.sent_bytes, now.sent_bytes),
                dropped: self.rate(before.dropped, now.dropped),
            },
        });
        listed.collect()
    }

    fn drops(&self, before: &[Drop], now: &[Drop]) -> Vec<Dropped> {
        let ever = now.iter().filter(|drop| drop.packets > 0);
        let mut listed: Vec<_> = ever
            .map(|drop| {
                let earlier = before.iter().find(|earlier| earlier.name == drop.name);
                Dropped {
                    name: drop.name.clone(),
                    rate: self.rate(earlier.map_or(0, |earlier| earlier.packets), drop.packets),
                    packets: drop.packets,
                }
            })
            .collect();
        listed.sort_by(|one, other| {
            let by_rate = other.rate.total_cmp(&one.rate);
            by_rate.then(other.packets.cmp(&one.packets))
        });
        listed
    }
}

/// Find the counters of a worker in the earlier poll. A new worker is measured from the next poll on.
fn same<'a>(before: &'a [Core], now: &'a Core) -> &'a Core {
    before.iter().find(|core| core.worker == now.worker).unwrap_or(now)
}

fn earlier<'a>(before: &'a [Interface], now: &'a Interface) -> &'a Interface {
    before
        .iter()
        .find(|interface| interface.name == now.name)
        .unwrap_or(now)
}

fn received(before: &[Interface], now: &[Interface]) -> u64 {
    let rises = now
        .iter()
        .map(|interface| difference(earlier(before, interface).received, interface.received));
    rises.sum()
}

fn counter(core: &Core, name: &str) -> u64 {
    let named = core.counters.iter().find(|counter| counter.name == name);
    named.map_or(0, |counter| counter.count)
}

fn load(figures: &Figures) -> Load {
    Load {
        packets: figures.packets,
        cycles: figures.cycles_per_packet.map(|cycles| cycles.total),
    }
}

fn plus(one: Traffic, other: Traffic) -> Traffic {
    Traffic {
        received: one.received + other.received,
        received_bits: one.received_bits + other.received_bits,
        sent: one.sent + other.sent,
        sent_bits: one.sent_bits + other.sent_bits,
        dropped: one.dropped + other.dropped,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::tests::{core, poll};
    use super::*;

    #[test]
    fn counter_smaller_than_before_has_not_risen() {
        assert_eq!(
            [0, 5, 0],
            [(7, 7), (7, 12), (12, 7)].map(|(before, now)| difference(before, now))
        );
    }

    #[test]
    fn cycles_per_packet_without_packets_are_none() {
        assert_eq!(None, cycles_per_packet(&[1, 2, 3, 4, 5, 6, 7, 8], 0));
        assert_eq!(None, cycles_per_packet(&[0; 8], 3));
    }

    #[test]
    fn cycles_per_packet_are_those_of_each_stage_and_their_sum() {
        let stages = [10.0, 20.0, 30.0, 0.0, 0.0, 40.0, 2.5, 0.0];
        let expected = Cycles { total: 102.5, stages };
        assert_eq!(Some(expected), cycles_per_packet(&[40, 80, 120, 0, 0, 160, 10, 0], 4));
    }

    #[test]
    fn snapshot_of_one_second_has_rates_costs_and_predictions() {
        let started_at = Instant::now();
        let (before, now) = (poll(started_at, 1), poll(started_at + Duration::from_secs(1), 2));
        let snapshot = Snapshot::between(&before, &now);
        let [first, second] = &snapshot.workers[..] else {
            panic!("{snapshot:?}")
        };
        assert_eq!((1e6, 1e5), (first.figures.packets, second.figures.packets));
        assert_eq!(Some(200.0), first.figures.cycles_per_packet.map(|cycles| cycles.total));
        assert_eq!((0.1, 0.01), (first.figures.busy, second.figures.busy));
        assert_eq!(Some(1e7), first.figures.predicted);
        assert_eq!((1e5, 50.0), (first.figures.handed_over, first.figures.shed));
        assert_eq!((1e5, 7), (second.figures.taken_over, second.figures.waiting));
        // The first worker is busy for a tenth of the time and processes all packets, so it would be fully busy with ten times the load.
        assert_eq!(1e6 - 50.0, snapshot.gateway.packets);
        let predicted = snapshot.gateway.predicted.unwrap_or_default();
        assert!((predicted - 10.0 * (1e6 - 50.0)).abs() < 1.0, "{predicted}");
        assert_eq!((1e6, 8e8), (snapshot.traffic.received, snapshot.traffic.received_bits));
        let names: Vec<_> = snapshot.drops.iter().map(|drop| drop.name.as_str()).collect();
        assert_eq!(["unsolicited", "shed", "ttl-expired"], names[..]);
        assert_eq!(0.0, snapshot.drops[2].rate);
    }

    #[test]
    fn snapshot_over_a_restart_of_the_daemon_has_no_rates_yet() {
        let started_at = Instant::now();
        let (before, mut now) = (poll(started_at, 5), poll(started_at + Duration::from_secs(1), 9));
        now.status.process += 1;
        let snapshot = Snapshot::between(&before, &now);
        assert_eq!(Traffic::default(), snapshot.traffic);
        assert_eq!(None, snapshot.gateway.predicted);
        assert!(snapshot.drops.iter().all(|drop| drop.rate == 0.0));
        assert!(snapshot.workers.iter().all(|worker| worker.figures.busy == 0.0));
    }

    #[test]
    fn snapshot_of_counters_that_were_started_anew_has_no_negative_rates() {
        let started_at = Instant::now();
        let (before, now) = (poll(started_at, 9), poll(started_at + Duration::from_secs(1), 5));
        let snapshot = Snapshot::between(&before, &now);
        assert_eq!((0.0, 0.0), (snapshot.traffic.received, snapshot.gateway.packets));
    }

    #[test]
    fn snapshot_of_two_looks_at_the_same_time_has_no_rates() {
        let now = Instant::now();
        let snapshot = Snapshot::between(&poll(now, 1), &poll(now, 2));
        assert_eq!(0.0, snapshot.traffic.received);
        assert_eq!(None, snapshot.gateway.predicted);
    }

    #[test]
    fn worker_that_was_not_there_before_is_measured_from_the_next_look_on() {
        let started_at = Instant::now();
        let (mut before, now) = (poll(started_at, 1), poll(started_at + Duration::from_secs(1), 2));
        before.cores = vec![core(0, 1)];
        let snapshot = Snapshot::between(&before, &now);
        assert_eq!(0.0, snapshot.workers[1].figures.packets);
    }

    #[test]
    fn cycles_as_json_are_named_by_stage() {
        let cycles = cycles_per_packet(&[10, 20, 30, 0, 0, 40, 0, 0], 10);
        let json = serde_json::to_value(cycles).unwrap();
        assert_eq!(
            (10.0, 3.0),
            (json["total"].as_f64().unwrap(), json["session"].as_f64().unwrap())
        );
        assert_eq!(9, json.as_object().unwrap().len());
    }
}
