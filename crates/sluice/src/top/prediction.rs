//! Predicts the maximum packet rates of the workers and of the gateway.

/// Current load of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Packets per second that the worker processes.
    pub packets: f64,
    /// Cycles per packet. `None` if no packets are processed.
    pub cycles: Option<f64>,
}

/// Predicted maximum rates in packets per second. `None` without data.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Maximum rate of each worker: the rate at which the worker would be fully busy.
    pub workers: Vec<Option<f64>>,
    /// Rate of the gateway at which its busiest worker would be fully busy, with the current distribution of packets.
    pub gateway: Option<f64>,
}

/// Predict the rates from the current costs and distribution. `hz` is the number of cycles per second, `loads` the load
/// of each worker, and `carried` the current packet rate of the gateway.
pub fn predict(hz: u64, loads: &[Load], carried: f64) -> Prediction {
    let at_full = |load: &Load| load.cycles.map(|cycles| hz as f64 / cycles);
    let workers: Vec<_> = loads.iter().map(at_full).collect();
    let growths = loads
        .iter()
        .zip(&workers)
        .filter_map(|(load, full)| full.map(|full| full / load.packets));
    // The worker with the least headroom is the first to be fully busy. The worker's headroom limits the gateway,
    // because packets of other workers also pass this worker.
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
        // Two workers are 50 % and 10 % busy. With twice the traffic, the first worker is fully busy.
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
