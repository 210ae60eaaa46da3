//! Time from writing a line to a lease file until the packets of the terminal leave translated, while packets of other
//! terminals flow; measured with the daemon over veth.

use std::time::{Duration, Instant};

use super::gateway::wires;
use super::world::World;
use super::{Failure, Figures, Size};

/// Number of leases of each kind that are measured per run.
const LEASES: u32 = 250;
/// Maximum time until all sites have public addresses.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the value below which the given share of all values lies.
fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
    values.get(place).copied().unwrap_or(f64::NAN)
}

/// Measures once, in a separate network namespace.
pub fn measure(size: &Size) -> Result<Figures, Failure> {
    let folder = tempfile::tempdir()?;
    // At most half of the sites are used for the measurement with new sites.
    let known = size.sites.saturating_sub(LEASES.min(size.sites / 2));
    wires()?;
    let mut world = World::new(size, folder.path())?;
    world.lease((0..known).map(|site| site * size.terminals))?;
    let daemon = world.gateway(size, size.sites, folder.path())?;
    world.settle(&daemon, PATIENCE)?;
    let (began, arrived) = (Instant::now(), world.arrived());
    let others = (0..known).flat_map(|site| (1..size.terminals).map(move |place| (site, place)));
    let others = others.map(|(site, place)| site * size.terminals + place);
    let step = (known * (size.terminals - 1) / LEASES).max(1) as usize;
    let second: Vec<u32> = others.step_by(step).take(LEASES as usize).collect();
    let first: Vec<u32> = (known..size.sites).map(|site| site * size.terminals).collect();
    let mut times = |terminals: Vec<u32>| {
        let times = terminals.into_iter().map(|terminal| world.measure(terminal));
        times.collect::<Result<Vec<f64>, _>>()
    };
    let (second, first) = (times(second)?, times(first)?);
    let rate = (world.arrived() - arrived) as f64 / began.elapsed().as_secs_f64();
    if rate <= 0.0 {
        return Err("no packets of others came out".into());
    }
    let most = second.iter().copied().fold(0.0, f64::max);
    // Figures: the times of terminals in sites that have a public address; the times of the first terminals of sites,
    // which also wait for the address of their site; and the number of packets of other terminals in this period.
    Ok(vec![
        ("p50_ms", percentile(&second, 0.5)),
        ("p99_ms", percentile(&second, 0.99)),
        ("most_ms", most),
        ("new_site_p50_ms", percentile(&first, 0.5)),
        ("new_site_p99_ms", percentile(&first, 0.99)),
        ("packets_per_s", rate),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_of_the_values_in_order() {
        let values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!((50.0, 99.0), (percentile(&values, 0.5), percentile(&values, 0.99)));
        assert_eq!(7.0, percentile(&[7.0], 0.99));
        assert!(percentile(&[], 0.5).is_nan());
    }
}
