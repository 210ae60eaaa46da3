//! Selection of one of the candidate placements.

use super::{Costs, Load, Placement, Prediction, Topology, predict};

/// Rates that differ from the best rate by at most this fraction count as equal. Among placements with equal rates, the simplest
/// is chosen.
const EQUAL: f64 = 0.03;

/// A placement with its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedPlacement {
    /// The placement.
    pub placement: Placement,
    /// Prediction for the placement.
    pub prediction: Prediction,
}

impl RatedPlacement {
    /// Predicted packets per second.
    pub fn rate(&self) -> f64 {
        self.prediction.packets_per_second
    }

    /// Sort key that orders the simplest placement first: no pipeline, fewer stages, fewer workers, no assistance.
    fn complexity(&self) -> (usize, usize, bool) {
        let placement = &self.placement;
        (placement.stages().len(), placement.workers().len(), placement.assists())
    }
}

/// Predictions for all placements, in descending order of the rate.
pub fn rank(all: Vec<Placement>, costs: &Costs, topology: &Topology, load: &Load, hz: f64) -> Vec<RatedPlacement> {
    let rated = all.into_iter().map(|placement| RatedPlacement {
        prediction: predict(&placement, costs, topology, load, hz),
        placement,
    });
    let mut ranked: Vec<RatedPlacement> = rated.collect();
    ranked.sort_by(|one, other| other.rate().total_cmp(&one.rate()));
    ranked
}

/// The placement to use. If a required rate is given and some placements reach it, this is the one among them that has
/// the fewest workers. Otherwise it is the simplest placement with a rate close to the best rate.
pub fn choose<'p>(ranked: &'p [RatedPlacement], load: &Load) -> Option<&'p RatedPlacement> {
    let carrying = load.offered.map(|offered| {
        let enough = ranked.iter().filter(move |rated| rated.rate() >= offered);
        enough.min_by_key(|rated| (rated.placement.workers().len(), rated.complexity()))
    });
    if let Some(Some(min)) = carrying {
        return Some(min);
    }
    let best = ranked.first()?.rate();
    let equal = ranked.iter().filter(|rated| rated.rate() >= best * (1.0 - EQUAL));
    equal.min_by_key(|rated| rated.complexity())
}

#[cfg(test)]
mod tests {
    use super::super::{HandOver, candidates};
    use super::*;

    fn chosen(parts: [f64; 4], hand_over: f64, cores: u16, load: &Load) -> String {
        let costs = Costs {
            parts,
            hand_overs: [HandOver {
                out: hand_over,
                take: hand_over,
            }; 4],
            ..Costs::default()
        };
        let topology = Topology::flat(cores);
        let cores: Vec<_> = (0..cores).collect();
        let ranked = rank(candidates(&cores, &topology, load), &costs, &topology, load, 1e9);
        choose(&ranked, load).unwrap().placement.to_string()
    }

    #[test]
    fn even_traffic_with_a_queue_each_runs_to_completion() {
        let load = Load::even(16);
        assert_eq!(
            "run-to-completion on 0-3",
            chosen([20.0, 20.0, 100.0, 60.0], 20.0, 4, &load)
        );
    }

    #[test]
    fn one_queue_on_two_cores_takes_the_sessions_off_the_receiver() {
        let load = Load {
            queues: 1,
            ..Load::even(16)
        };
        assert_eq!(
            "receive+parse on 0 | session+transmit on 1",
            chosen([60.0, 40.0, 60.0, 40.0], 10.0, 2, &load)
        );
    }

    #[test]
    fn elephant_has_a_worker_for_its_session_alone() {
        let load = Load {
            busiest: 1.0,
            ..Load::even(16)
        };
        assert_eq!(
            "receive+parse on 0 | session on 1 | transmit on 2",
            chosen([30.0, 30.0, 70.0, 60.0], 10.0, 3, &load)
        );
    }

    #[test]
    fn slow_transmit_with_one_queue_has_a_worker_of_its_own() {
        let load = Load {
            queues: 1,
            ..Load::even(16)
        };
        assert_eq!(
            "receive+parse+session on 0 | transmit on 1",
            chosen([10.0, 10.0, 20.0, 100.0], 5.0, 2, &load)
        );
    }

    #[test]
    fn hand_overs_dearer_than_the_work_leave_everything_on_one_worker() {
        let load = Load {
            queues: 1,
            ..Load::even(16)
        };
        let cost = chosen([10.0, 5.0, 10.0, 10.0], 500.0, 2, &load);
        assert_eq!("run-to-completion on 0", cost);
    }

    #[test]
    fn offered_load_is_carried_by_as_few_workers_as_possible() {
        let load = Load {
            busiest: 1.0 / 2.0,
            shards: 2,
            offered: Some(9e6),
            ..Load::even(2)
        };
        assert_eq!(
            "run-to-completion on 0,1",
            chosen([20.0, 20.0, 80.0, 60.0], 20.0, 4, &load)
        );
    }
}
