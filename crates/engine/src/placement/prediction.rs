//! Prediction of the rate of a placement from the cycles that each of its workers needs per offered packet.

use super::{Core, Costs, Load, Part, Placement, Topology};

mod path;
mod worker_load;

use path::{At, PathCost, evenly, to_queues};

pub use worker_load::{Item, WorkerLoad};

/// Factor by which the cycles per packet increase if both hyperthreads of a core are busy. Two hyperthreads together do
/// 1.25 times the work of one. Workers poll, so even an idle sibling uses half of the core.
pub const SIBLINGS: f64 = 1.6;

/// Predicted performance of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Maximum packets per second without loss.
    pub packets_per_second: f64,
    /// Loads of the workers, in the order of their numbers.
    pub workers: Vec<WorkerLoad>,
    /// Index in [`Self::workers`] of the busiest worker.
    pub busiest: usize,
}

impl Prediction {
    /// The worker that limits the rate.
    pub fn bottleneck(&self) -> Option<&WorkerLoad> {
        self.workers.get(self.busiest)
    }

    /// Fraction of a worker's time that is used at a rate in packets per second; 1 for the busiest worker at its maximum rate.
    pub fn busy(&self, worker: &WorkerLoad, hz: f64, rate: f64) -> f64 {
        worker.cycles() * rate / hz.max(1.0)
    }
}

/// Predicts the performance of a placement on a machine whose clock runs at `hz` cycles per second.
///
/// A worker needs, per offered packet, the cycles of its parts, weighted by its fraction of the packets, and the cycles
/// of its hand-overs. The maximum rate is reached when the cycles of the busiest worker add up to `hz`.
///
/// With assistance, receiving workers take over the fraction of sessions that balances their load with the load of the session workers.
pub fn predict(placement: &Placement, costs: &Costs, topology: &Topology, load: &Load, hz: f64) -> Prediction {
    let with = |assisted| spent(placement, assisted, costs, topology, load, hz);
    if !placement.assists() {
        return with(0.0);
    }
    // The shard of an elephant flow can't be divided.
    let most = 1.0
        - load
            .shares(usize::from(load.shards.max(1)))
            .first()
            .copied()
            .unwrap_or(1.0);
    let (mut min, mut most) = (0.0, most);
    for _ in 0..BISECTION_STEPS {
        let middle = (min + most) / 2.0;
        let prediction = with(middle);
        let is_busy = prediction
            .bottleneck()
            .is_some_and(|busiest| placement.of(Part::Session).contains(&busiest.core));
        match is_busy {
            true => min = middle,
            false => most = middle,
        }
    }
    with(min)
}

/// Number of bisection steps in the search for the fraction that balances the workers.
const BISECTION_STEPS: usize = 20;

/// The cycles of all workers, if the receiving workers process the fraction `assisted` of the sessions.
fn spent(placement: &Placement, assisted: f64, costs: &Costs, topology: &Topology, load: &Load, hz: f64) -> Prediction {
    let workers = placement.workers();
    let mut path_cost = PathCost {
        costs,
        topology,
        loads: workers.iter().map(|&core| WorkerLoad::none(core)).collect(),
    };
    let by_shard = |part| -> Vec<At> {
        let cores = placement.of(part);
        cores.iter().copied().zip(load.shares(cores.len())).collect()
    };
    let queues = usize::from(load.queues.max(1));
    let is_joined = |one, other| placement.of(one) == placement.of(other);
    // Devices select receive queues by shard.
    let steered = by_shard(Part::Receive);
    let received = to_queues(&steered, queues);
    path_cost.work(Part::Receive, &received);
    let parsed = match is_joined(Part::Receive, Part::Parse) {
        true => received.clone(),
        false => {
            let parsed = evenly(placement.of(Part::Parse));
            path_cost.spread(&received, &parsed, Part::Parse);
            parsed
        }
    };
    path_cost.work(Part::Parse, &parsed);
    let mut sessions = by_shard(Part::Session);
    let owners = sessions.len();
    if assisted > 0.0 {
        sessions.iter_mut().for_each(|(_, share)| *share *= 1.0 - assisted);
        let assisting = evenly(placement.of(Part::Receive)).into_iter();
        sessions.extend(assisting.map(|(core, share)| (core, share * assisted)));
    }
    if is_joined(Part::Parse, Part::Session) && is_joined(Part::Session, Part::Transmit) {
        // The packets that the worker which parses them also translates and transmits.
        match is_joined(Part::Receive, Part::Parse) {
            true => path_cost.keep(&Part::ALL, sessions.iter().take(queues).copied()),
            false => {
                let both = parsed.iter().zip(&sessions);
                path_cost.keep(
                    &Part::ALL[1..],
                    both.map(|(&(core, parsed), (_, owned))| (core, parsed * owned)),
                );
            }
        }
    }
    if is_joined(Part::Receive, Part::Parse) && is_joined(Part::Parse, Part::Session) {
        // A shard owner that has no receive queue gets its packets from a different worker.
        for (place, &(owner, share)) in sessions.iter().enumerate() {
            path_cost.give(sessions[place % queues].0, owner, Part::Session, share);
        }
    } else {
        // The shard of a packet is known only after parsing.
        path_cost.spread(&parsed, &sessions, Part::Session);
    }
    path_cost.work(Part::Session, &sessions);
    let sent = match is_joined(Part::Session, Part::Transmit) {
        true => {
            for (place, &(owner, share)) in sessions.iter().enumerate() {
                path_cost.give(owner, sessions[place % queues].0, Part::Transmit, share);
            }
            to_queues(&sessions, queues)
        }
        false => {
            let cores = placement.of(Part::Transmit);
            let mut sent = evenly(&cores[..cores.len().min(queues)]);
            path_cost.spread(&sessions[..owners], &sent, Part::Transmit);
            // An assisting worker itself transmits the packets of the sessions that it has taken over.
            sent.iter_mut().for_each(|(_, share)| *share *= 1.0 - assisted);
            sent.extend(&sessions[owners..]);
            sent
        }
    };
    path_cost.work(Part::Transmit, &sent);
    // With run-to-completion, workers mostly transmit packets that they received themselves.
    if placement.is_pipeline() {
        path_cost.back(&received, &sent);
    }
    finish(path_cost.loads, topology, hz)
}

fn finish(mut loads: Vec<WorkerLoad>, topology: &Topology, hz: f64) -> Prediction {
    let cores: Vec<Core> = loads.iter().map(|load| load.core).collect();
    for load in &mut loads {
        if cores.iter().any(|&other| topology.are_siblings(load.core, other)) {
            load.slowdown = SIBLINGS;
        }
    }
    let cycles = |place: &usize| loads.get(*place).map_or(0.0, WorkerLoad::cycles);
    let busiest = (0..loads.len())
        .max_by(|one, other| cycles(one).total_cmp(&cycles(other)))
        .unwrap_or(0);
    Prediction {
        packets_per_second: hz / cycles(&busiest).max(1e-9),
        workers: loads,
        busiest,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HandOver, Site};
    use super::*;

    const HZ: f64 = 1e9;

    fn costs(parts: [f64; 4]) -> Costs {
        Costs {
            parts,
            hand_overs: [10.0, 20.0, 40.0, 80.0].map(|cycles| HandOver {
                out: cycles,
                take: cycles,
            }),
            ..Costs::default()
        }
    }

    fn rate(placement: &Placement, costs: &Costs, load: &Load) -> f64 {
        let prediction = predict(placement, costs, &Topology::flat(8), load, HZ);
        prediction.packets_per_second.round()
    }

    fn all(cores: u16) -> Placement {
        Placement::run_to_completion(&(0..cores).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn run_to_completion_with_a_queue_each_grows_with_the_workers() {
        let costs = costs([10.0, 10.0, 60.0, 20.0]);
        assert_eq!(1e7, rate(&all(1), &costs, &Load::even(16)));
        assert_eq!(4e7, rate(&all(4), &costs, &Load::even(16)));
    }

    #[test]
    fn run_to_completion_with_one_queue_pays_hand_overs_at_the_first_worker() {
        let costs = costs([10.0, 10.0, 60.0, 20.0]);
        let load = Load {
            queues: 1,
            ..Load::even(16)
        };
        let prediction = predict(&all(2), &costs, &Topology::flat(2), &load, HZ);
        let first = prediction.workers[0];
        // The first worker receives, parses and sends all packets. Each of the two workers has half of the sessions.
        assert_eq!([10.0, 10.0, 30.0, 20.0], first.parts);
        assert_eq!((10.0, 10.0), (first.given, first.taken));
        let second = prediction.workers[1];
        assert_eq!([0.0, 0.0, 30.0, 0.0], second.parts);
        assert_eq!((0, 90.0), (prediction.busiest, first.cycles()));
    }

    #[test]
    fn packets_that_stay_with_their_receiver_cost_less() {
        let costs = Costs {
            undivided: Some([10.0, 1.0, 19.0, 20.0]),
            ..costs([10.0, 10.0, 60.0, 20.0])
        };
        assert_eq!(2e7, rate(&all(1), &costs, &Load::even(16)));
        assert_eq!(8e7, rate(&all(4), &costs, &Load::even(16)));
        let one_queue = Load {
            queues: 1,
            ..Load::even(16)
        };
        let prediction = predict(&all(2), &costs, &Topology::flat(2), &one_queue, HZ);
        // Half of the packets stay with the first worker, and the second worker gets the other half by the graph.
        assert_eq!([10.0, 5.5, 9.5, 20.0], prediction.workers[0].parts);
        assert_eq!([0.0, 0.0, 30.0, 0.0], prediction.workers[1].parts);
        let pipeline = Placement::new([vec![0], vec![0], vec![1], vec![1]]).unwrap();
        let prediction = predict(&pipeline, &costs, &Topology::flat(2), &Load::even(16), HZ);
        assert_eq!([10.0, 10.0, 0.0, 0.0], prediction.workers[0].parts);
        let receiver = Placement::new([vec![0], vec![1, 2], vec![1, 2], vec![1, 2]]).unwrap();
        let prediction = predict(&receiver, &costs, &Topology::flat(4), &Load::even(16), HZ);
        // Half of the packets that a worker parses are of its own shards.
        assert_eq!([0.0, 2.75, 19.75, 10.0], prediction.workers[1].parts);
        assert_eq!(50.0, costs.total());
    }

    #[test]
    fn two_queues_for_four_workers_bring_half_of_the_packets_to_their_owners() {
        let costs = costs([10.0, 10.0, 60.0, 20.0]);
        let load = Load {
            queues: 2,
            ..Load::even(16)
        };
        let prediction = predict(&all(4), &costs, &Topology::flat(4), &load, HZ);
        let given: Vec<_> = prediction.workers.iter().map(|worker| worker.given).collect();
        assert_eq!(vec![5.0; 4], given);
        assert_eq!(5.0, prediction.workers[0].parts[0]);
        assert_eq!(0.0, prediction.workers[3].parts[0]);
    }

    #[test]
    fn pipeline_is_as_fast_as_its_slowest_stage() {
        let costs = costs([10.0, 10.0, 60.0, 20.0]);
        let pipeline = Placement::new([vec![0], vec![0], vec![1, 2], vec![3]]).unwrap();
        let prediction = predict(&pipeline, &costs, &Topology::flat(4), &Load::even(16), HZ);
        let cycles: Vec<_> = prediction.workers.iter().map(WorkerLoad::cycles).collect();
        assert_eq!(vec![40.0, 50.0, 50.0, 40.0], cycles);
        assert_eq!(Item::Part(Part::Session), prediction.bottleneck().unwrap().most());
        assert_eq!(2e7, prediction.packets_per_second);
    }

    #[test]
    fn hand_over_costs_what_the_next_part_wants_beside_the_ring() {
        let next = |out, take| HandOver { out, take };
        let costs = Costs {
            next: [next(0.0, 0.0), next(3.0, 1.0), next(7.0, 2.0), next(5.0, 4.0)],
            ..costs([10.0; 4])
        };
        let given = |parts: [Core; 4]| {
            let placement = Placement::new(parts.map(|core| vec![core])).unwrap();
            let prediction = predict(&placement, &costs, &Topology::flat(2), &Load::even(16), HZ);
            prediction
                .workers
                .iter()
                .map(|worker| (worker.given, worker.taken))
                .collect::<Vec<_>>()
        };
        assert_eq!(vec![(23.0, 0.0), (0.0, 21.0)], given([0, 1, 1, 1]));
        assert_eq!(vec![(27.0, 0.0), (0.0, 22.0)], given([0, 0, 1, 1]));
        assert_eq!(vec![(27.0, 24.0), (25.0, 22.0)], given([0, 0, 1, 0]));
    }

    #[test]
    fn buffers_that_another_worker_sent_cost_who_receives_into_them() {
        let costs = Costs {
            back: [25.0; 4],
            ..costs([10.0; 4])
        };
        let returned = |parts: [&[Core]; 4]| {
            let placement = Placement::new(parts.map(<[Core]>::to_vec)).unwrap();
            let prediction = predict(&placement, &costs, &Topology::flat(2), &Load::even(16), HZ);
            prediction
                .workers
                .iter()
                .map(|worker| worker.returned)
                .collect::<Vec<_>>()
        };
        assert_eq!(vec![25.0, 0.0], returned([&[0], &[0], &[1], &[1]]));
        assert_eq!(vec![0.0, 0.0], returned([&[0], &[1], &[1], &[0]]));
        assert_eq!(vec![0.0, 0.0], returned([&[0, 1]; 4]));
        assert_eq!(vec![12.5, 0.0], returned([&[0], &[0], &[0, 1], &[0, 1]]));
    }

    #[test]
    fn elephant_limits_whoever_has_its_shard() {
        let costs = costs([30.0, 30.0, 60.0, 80.0]);
        let load = Load {
            busiest: 1.0,
            ..Load::even(16)
        };
        // Because the busiest shard limits the rate, four workers are only as fast as one. In a pipeline, the worker of
        // this shard has fewer parts.
        assert_eq!(rate(&all(1), &costs, &load), rate(&all(4), &costs, &load));
        let pipeline = Placement::new([vec![0], vec![0], vec![1], vec![2]]).unwrap();
        assert!(rate(&pipeline, &costs, &load) > 1.5 * rate(&all(4), &costs, &load));
    }

    #[test]
    fn parse_and_session_apart_from_receive_find_the_owner_among_themselves() {
        let pipeline = Placement::new([vec![0], vec![1, 2], vec![1, 2], vec![1, 2]]).unwrap();
        let prediction = predict(&pipeline, &costs([10.0; 4]), &Topology::flat(4), &Load::even(16), HZ);
        // For half of all packets, the worker that parses the packet does not own the packet's shard.
        assert_eq!([20.0, 5.0, 5.0], [0, 1, 2].map(|place| prediction.workers[place].given));
    }

    #[test]
    fn workers_that_assist_take_over_what_levels_them() {
        let costs = costs([10.0, 10.0, 100.0, 20.0]);
        let [sends, inspects] = [
            [vec![0], vec![0], vec![1], vec![0]],
            [vec![0], vec![0], vec![1], vec![1]],
        ]
        .map(|parts| Placement::new(parts).unwrap());
        let cycles = |placement: &Placement| {
            let prediction = predict(placement, &costs, &Topology::flat(2), &Load::even(1024), HZ);
            [0, 1].map(|place| (prediction.workers[place].cycles() * 10.0).round() / 10.0)
        };
        // A hand-over costs 20 cycles per worker: 10 + 10 + 20 + 20 + 20 on the receiving worker, 20 + 100 + 20 on the session worker.
        assert_eq!([80.0, 140.0], cycles(&sends));
        // If the fraction x of the sessions is taken over, the cycles are 80 - 40 x + 100 x and 140 - 140 x, so x = 0.3.
        assert_eq!([98.0, 98.0], cycles(&sends.with_assist().unwrap()));
        // Without assistance: 10 + 10 + 20 and 20 + 100 + 20 cycles. With it: 40 - 20 x + 120 x and 140 - 140 x, so x = 100 / 240.
        assert_eq!([40.0, 140.0], cycles(&inspects));
        assert_eq!([81.7, 81.7], cycles(&inspects.with_assist().unwrap()));
    }

    #[test]
    fn workers_that_assist_leave_the_elephant_and_take_nothing_over_when_they_have_more_to_do_themselves() {
        let load = Load {
            busiest: 0.9,
            ..Load::even(16)
        };
        let placement = Placement::new([vec![0], vec![0], vec![1], vec![0]]).unwrap();
        let assisted = placement.with_assist().unwrap();
        let worker = |costs: &Costs, place: usize| {
            let prediction = predict(&assisted, costs, &Topology::flat(2), &load, HZ);
            prediction.workers[place].parts[Part::Session as usize].round()
        };
        assert_eq!(90.0, worker(&costs([10.0, 10.0, 100.0, 20.0]), 1));
        assert_eq!(0.0, worker(&costs([50.0, 50.0, 10.0, 20.0]), 0));
    }

    #[test]
    fn hyperthreads_that_both_work_are_slower() {
        let site = |core| Site {
            core,
            physical: 0,
            ..Topology::flat(1).cores[0]
        };
        let topology = Topology {
            cores: vec![site(0), site(1)],
            devices: Vec::new(),
        };
        let costs = costs([25.0; 4]);
        let [one, both] = [1, 2].map(|n| predict(&all(n), &costs, &topology, &Load::even(16), HZ).packets_per_second);
        assert!((both / one - 2.0 / SIBLINGS).abs() < 1e-9, "{one} {both}");
    }

    #[test]
    fn device_of_another_socket_makes_receive_and_transmit_dearer() {
        let mut topology = Topology::flat(1);
        topology.devices.push(super::super::DeviceSite {
            name: "x".into(),
            node: Some(1),
        });
        let prediction = predict(&all(1), &costs([10.0; 4]), &topology, &Load::even(16), HZ);
        assert_eq!([13.0, 10.0, 10.0, 13.0], prediction.workers[0].parts);
    }
}
