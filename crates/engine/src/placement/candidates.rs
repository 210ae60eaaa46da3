//! Lists the placements to compare.

use super::{Core, Load, Part, Placement, Topology};

/// Up to this number of cores, every distribution of the cores over the stages is listed. With more cores, only
/// distributions are listed in which each stage, except the session stage, has a power of two of cores.
const FEW: usize = 8;

/// The cores in the order in which they are used. Cores with a common cache are adjacent, cores near the devices come first, and
/// second hyperthreads follow after all cores.
pub fn order(cores: &[Core], topology: &Topology) -> Vec<Core> {
    sorted(cores, topology, true)
}

fn sorted(cores: &[Core], topology: &Topology, siblings_last: bool) -> Vec<Core> {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let is_second = |core: Core| {
        cores
            .iter()
            .any(|&other| other < core && topology.are_siblings(core, other))
    };
    sorted.sort_by_cached_key(|&core| {
        let remote = (topology.remote(core) * 1000.0) as u32;
        let site = topology.site(core).map(|site| (site.socket, site.cache, site.physical));
        (siblings_last && is_second(core), remote, site, core)
    });
    sorted
}

/// All ways to divide the four parts into stages of adjacent parts. Each division is a list with the number of parts in
/// each stage.
fn groupings() -> impl Iterator<Item = Vec<usize>> {
    (0..8u32).map(|cuts| {
        let mut sizes = vec![1];
        for between in 0..3 {
            match (cuts >> between & 1, sizes.last_mut()) {
                (0, Some(last)) => *last += 1,
                _ => sizes.push(1),
            }
        }
        sizes
    })
}

/// All ways to distribute `cores` cores over `stages` stages, with at least one core per stage. The stage `rest` gets
/// the remaining cores.
fn divisions(cores: usize, stages: usize, rest: usize) -> Vec<Vec<usize>> {
    let sizes = (1..cores).filter(|size| cores <= FEW || size.is_power_of_two());
    let sizes: Vec<usize> = sizes.collect();
    let mut combinations = vec![Vec::new()];
    for stage in 0..stages {
        let mut longer = Vec::new();
        for combination in combinations {
            if stage == rest {
                longer.push([combination.as_slice(), &[0]].concat());
                continue;
            }
            let used: usize = combination.iter().sum();
            let fitting = sizes.iter().filter(|&&size| used + size < cores);
            longer.extend(fitting.map(|&size| [combination.as_slice(), &[size]].concat()));
        }
        combinations = longer;
    }
    for combination in &mut combinations {
        combination[rest] = cores - combination.iter().sum::<usize>();
    }
    combinations
}

/// A pipeline whose stages have these numbers of parts and of cores. If `sizes` has no entry for the last stage, this
/// stage runs on the cores of the first stage.
fn pipeline(order: &[Core], parts: &[usize], sizes: &[usize]) -> Option<Placement> {
    let mut workers: [Vec<Core>; 4] = Default::default();
    let (mut part, mut core) = (0, 0);
    for (stage, &parts) in parts.iter().enumerate() {
        let of_stage = match sizes.get(stage) {
            Some(&size) => order.get(core..core + size)?,
            None => order.get(..*sizes.first()?)?,
        };
        for place in part..part + parts {
            *workers.get_mut(place)? = of_stage.to_vec();
        }
        (part, core) = (part + parts, core + of_stage.len());
    }
    Placement::new(workers)
}

/// All useful placements on these cores: run-to-completion on any number of cores, and every division of the parts into
/// stages, each with every distribution of the cores over the stages. A machine usually has some hundred placements,
/// the largest machines have two thousand.
pub fn candidates(cores: &[Core], topology: &Topology, load: &Load) -> Vec<Placement> {
    let near = order(cores, topology);
    // Workers beyond the number of shards would be idle.
    let most = near.len().min(usize::from(load.shards));
    let complete = (1..=most)
        .rev()
        .filter_map(|count| Placement::run_to_completion(&near[..count]));
    let mut found: Vec<Placement> = complete.collect();
    let is_second = |core: &Core| {
        near.iter()
            .any(|other| other < core && topology.are_siblings(*core, *other))
    };
    let single: Vec<Core> = near.iter().copied().filter(|core| !is_second(core)).collect();
    // Placements on fewer cores are included, because they may reach the same rate, and because stages may run on
    // hyperthreads of one core.
    let counts = (2..=near.len()).filter(|&count| is_listed(count) || count == single.len() || count == near.len());
    for count in counts {
        pipelines(&near[..count], load, &mut found);
    }
    pipelines(&sorted(cores, topology, false), load, &mut found);
    let mut seen = std::collections::HashSet::new();
    found.retain(|placement| seen.insert(placement.clone()));
    found
}

/// The same placements with assistance, as far as they separate receiving from session processing.
pub fn assisted(all: &[Placement]) -> Vec<Placement> {
    all.iter().filter_map(Placement::with_assist).collect()
}

/// Appends the pipelines to `found`: every division of the parts into stages, with every distribution of the cores.
fn pipelines(order: &[Core], load: &Load, found: &mut Vec<Placement>) {
    let queues = usize::from(load.queues.max(1));
    for parts in groupings().filter(|parts| parts.len() > 1) {
        let rest = stage_of(Part::Session, &parts);
        let combinations = match parts.len() <= order.len() {
            true => divisions(order.len(), parts.len(), rest),
            false => Vec::new(),
        };
        for sizes in combinations {
            // A worker that receives or transmits but has no sessions needs its own device queue.
            let ends = [0, sizes.len() - 1];
            if ends.iter().all(|&end| end == rest || sizes[end] <= queues) {
                found.extend(pipeline(order, &parts, &sizes));
            }
        }
        // Pipelines in which the receiving workers also transmit, so that buffers return to the workers that need them.
        // The parts between receiving and transmitting run on other workers.
        let last = parts.len() - 1;
        if parts.len() > 2 && (1..last).contains(&rest) {
            let combinations = divisions(order.len(), last, rest).into_iter();
            found.extend(
                combinations
                    .filter(|sizes| sizes[0] <= queues)
                    .filter_map(|sizes| pipeline(order, &parts, &sizes)),
            );
        }
    }
}

/// Whether placements with this number of cores are listed: every number up to [`FEW`], and powers of two.
fn is_listed(count: usize) -> bool {
    count <= FEW || count.is_power_of_two()
}

/// The stage that contains a part.
fn stage_of(part: Part, parts: &[usize]) -> usize {
    let mut end = 0;
    let ends = parts.iter().map(|parts| {
        end += parts;
        end
    });
    ends.take_while(|&end| end <= part as usize).count()
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceSite, Site};
    use super::*;

    /// A machine with two caches per socket. Each cache has two cores with two hyperthreads. Numbers are as in Linux,
    /// with the second hyperthreads last.
    fn machine(sockets: u16) -> Topology {
        let physical = 4 * sockets;
        let site = |core: Core| Site {
            core,
            socket: core % physical / 4,
            physical: core % physical,
            cache: core % physical / 2 * 2,
            node: core % physical / 4,
        };
        Topology {
            cores: (0..2 * physical).map(site).collect(),
            devices: Vec::new(),
        }
    }

    fn cores(topology: &Topology) -> Vec<Core> {
        topology.cores.iter().map(|site| site.core).collect()
    }

    #[test]
    fn one_core_has_one_placement() {
        let found = candidates(&[5], &Topology::flat(8), &Load::even(16));
        assert_eq!(vec![Placement::run_to_completion(&[5]).unwrap()], found);
    }

    #[test]
    fn two_cores_have_run_to_completion_three_cuts_and_two_ways_there_and_back() {
        let found = candidates(&[0, 1], &Topology::flat(2), &Load::even(16));
        let text: Vec<_> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "run-to-completion on 0",
            "run-to-completion on 0,1",
            "receive on 0 | parse+session+transmit on 1",
            "receive+parse on 0 | session+transmit on 1",
            "receive+parse+session on 0 | transmit on 1",
            "receive on 0 | parse+session on 1 | transmit on 0",
            "receive+parse on 0 | session on 1 | transmit on 0",
        ];
        let mut sorted = text.clone();
        sorted.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(expected, sorted);
    }

    #[test]
    fn assist_is_for_placements_that_split_receive_and_parse_from_the_sessions() {
        let found = candidates(&[0, 1], &Topology::flat(2), &Load::even(16));
        let text: Vec<_> = assisted(&found).iter().map(ToString::to_string).collect();
        let expected = [
            "receive+parse on 0 | session+transmit on 1, with assist",
            "receive+parse on 0 | session on 1 | transmit on 0, with assist",
        ];
        assert_eq!(expected.to_vec(), text);
    }

    #[test]
    fn four_cores_have_every_division() {
        // With 4 cores, there are C(3,1) distributions for each of 3 divisions into two stages, C(3,2) for each of 3
        // divisions into three stages, and one for four stages. The same formula gives the numbers for 2 and 3 cores.
        let found = candidates(&[0, 1, 2, 3], &Topology::flat(4), &Load::even(16));
        let onwards = 3 + (3 * 2 + 3) + (3 * 3 + 3 * 3 + 1);
        // Placements with transmission on the receiving cores: 2 divisions into 3 stages, and one division into 4 stages.
        let there_and_back = 2 + (2 * 2 + 1) + (2 * 3 + 3);
        assert_eq!(4 + onwards + there_and_back, found.len());
    }

    #[test]
    fn large_machines_have_some_thousand_candidates_at_most() {
        let topology = machine(16);
        let found = candidates(&cores(&topology), &topology, &Load::even(256));
        assert!((100..2500).contains(&found.len()), "{}", found.len());
    }

    #[test]
    fn order_prefers_the_devices_socket_and_leaves_second_hyperthreads_for_last() {
        let mut topology = machine(2);
        topology.devices.push(DeviceSite {
            name: "x".into(),
            node: Some(1),
        });
        let found = order(&cores(&topology), &topology);
        assert_eq!(vec![4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11], found);
    }

    #[test]
    fn neighbours_in_a_pipeline_share_a_cache() {
        let topology = machine(1);
        let found = candidates(&[0, 3, 1, 2], &topology, &Load::even(16));
        let two = |placement: &&Placement| placement.to_string() == "receive+parse on 0,1 | session+transmit on 2,3";
        assert!(found.iter().any(|placement| two(&placement)));
    }

    #[test]
    fn stages_that_only_receive_or_send_have_no_more_workers_than_queues() {
        let load = Load {
            queues: 1,
            ..Load::even(16)
        };
        let found = candidates(&[0, 1, 2, 3], &Topology::flat(4), &load);
        let pipelines = found.iter().filter(|placement| placement.is_pipeline());
        for placement in pipelines {
            assert_eq!(
                1,
                placement
                    .of(Part::Receive)
                    .len()
                    .min(placement.of(Part::Transmit).len()),
                "{placement}"
            );
        }
    }

    #[test]
    fn run_to_completion_has_no_more_workers_than_there_are_shards() {
        let found = candidates(&[0, 1, 2], &Topology::flat(3), &Load::even(2));
        let complete = found.iter().filter(|placement| !placement.is_pipeline());
        assert_eq!(Some(2), complete.map(|placement| placement.workers().len()).max());
    }
}
