//! Predicts the maximum packet rate of workers and gateway.

/// Current load of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Packets per second through its nodes.
    pub packets: f64,
    /// Cycles per packet; `None` without packets.
    pub cycles: Option<f64>,
}

/// Predicted maximum packet rates per second; `None` without data.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Maximum of each worker, if it were fully busy.
    pub workers: Vec<Option<f64>>,
    /// Maximum of the gateway with the current distribution, until the busiest worker is full.
    pub gateway: Option<f64>,
}

/// Predict from current costs and distribution: `hz` cycles per second, the load of each worker, and the gateway's
/// current packet rate.
pub fn predict(hz: u64, loads: &[Load], carried: f64) -> Prediction {
    let at_full = |load: &Load| load.cycles.map(|cycles| hz as f64 / cycles);
    let workers: Vec<_> = loads.iter().map(at_full).collect();
    let growths = loads
        .iter()
        .zip(&workers)
        .filter_map(|(load, full)| full.map(|full| full / load.packets));
    // The worker with the least headroom is full first, and other workers also depend on its packets.
    let growth = growths.min_by(f64::total_cmp);
    Prediction {
        gateway: growth.filter(|_| carried > 0.0).map(|growth| growth * carried),
        workers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(packets: f64, cycles: f64) -> Load {
        Load {
            packets,
            cycles: Some(cycles),
        }
    }

    const IDLE: Load = Load {
        packets: 0.0,
        cycles: None,
    };

    #[test]
    fn worker_fully_busy_carries_cycles_of_a_second_by_cycles_of_a_packet() {
        let predicted = predict(2_000_000_000, &[load(1e6, 200.0), IDLE], 1e6);
        assert_eq!(vec![Some(1e7), None], predicted.workers);
        assert_eq!(Some(1e7), predicted.gateway);
    }

    #[test]
    fn gateway_with_uneven_workers_is_full_with_the_busiest() {
        // Two workers are 50 % and 10 % busy: twice the traffic fills the first one.
        let loads = [load(5e6, 200.0), load(1e6, 200.0)];
        assert_eq!(Some(12e6), predict(2_000_000_000, &loads, 6e6).gateway);
    }

    #[test]
    fn gateway_with_a_pipeline_is_as_fast_as_its_slowest_stage() {
        let loads = [load(1e6, 100.0), load(1e6, 400.0), load(1e6, 50.0)];
        assert_eq!(Some(5e6), predict(2_000_000_000, &loads, 1e6).gateway);
    }

    #[test]
    fn gateway_without_packets_predicts_nothing() {
        let nothing = Prediction {
            workers: vec![None, None],
            gateway: None,
        };
        assert_eq!(nothing, predict(2_000_000_000, &[IDLE, IDLE], 0.0));
        assert_eq!(None, predict(2_000_000_000, &[load(10.0, 1e3)], 0.0).gateway);
    }
}
