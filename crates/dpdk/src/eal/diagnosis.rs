//! Interprets DPDK's log after failures that the error number does not explain.

use super::recent_lines;

/// Number of recent log lines to examine. For one failure, drivers write at most this number of lines.
const MEANT: usize = 12;

/// Messages in DPDK's log, each with its meaning and a remedy.
const MEANINGS: [(&str, &str); 9] = [
    (
        "Expecting 'PA' IOVA mode",
        "UIO, and VFIO without an IOMMU, need hugepages, because a card can't use the physical addresses of ordinary \
         pages; `sluice check` prints how many are needed",
    ),
    (
        "Cannot use IOVA as 'PA'",
        "UIO, and VFIO without an IOMMU, need the capability SYS_ADMIN and hugepages; `sluice check` prints how many \
         are needed",
    ),
    (
        "Expecting 'VA' IOVA mode",
        "the driver of this card supports only virtual addresses: bind all cards to vfio-pci behind an IOMMU, and no \
         card to UIO",
    ),
    (
        "VFIO group is not viable",
        "another device of the card's IOMMU group is bound to a kernel driver; `sluice check` names the device",
    ),
    (
        "failed to select IOMMU type",
        "VFIO has no driver for the IOMMU: modprobe vfio_iommu_type1",
    ),
    (
        "No supported IOMMU extensions found",
        "VFIO has no driver for the IOMMU: modprobe vfio_iommu_type1",
    ),
    (
        "annot set up DMA remapping, error 12",
        "the limit on locked memory is too low: set ulimit -l unlimited or LimitMEMLOCK=infinity in the systemd unit, \
         or run the program as root",
    ),
    (
        "IOVA exceeding limits of current DMA mask",
        "the IOMMU has fewer address bits than DPDK's memory needs: reserve hugepages, or disable the IOMMU and use \
         UIO",
    ),
    (
        "Device or resource busy",
        "another process uses the card; `sluice check` names the process",
    ),
];

/// Meaning of the last known message in the lines.
fn meaning(lines: &[String]) -> Option<&'static str> {
    lines.iter().rev().find_map(|line| {
        let known = MEANINGS.iter().find(|(words, _)| line.contains(words));
        known.map(|(_, meaning)| *meaning)
    })
}

/// The last lines of DPDK's log. If their meaning is known, the meaning precedes the lines.
pub(crate) fn last_log_lines(count: usize) -> String {
    let lines = recent_lines(MEANT);
    let words = lines[lines.len().saturating_sub(count)..].join("; ");
    match meaning(&lines) {
        Some(meaning) => format!("{meaning}; last messages of DPDK: {words}"),
        None => format!("last messages of DPDK: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_that_is_known_is_what_counts() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let found = meaning(&lines(&[
            "EAL: 0000:00:03.0 VFIO group is not viable! Not all devices in IOMMU group bound to VFIO or unbound",
            "EAL:   Expecting 'PA' IOVA mode but current mode is 'VA', not initializing",
            "EAL: Requested device 0000:00:02.0 cannot be used",
        ]));
        assert!(found.is_some_and(|text| text.contains("need hugepages")), "{found:?}");
        assert_eq!(None, meaning(&lines(&["EAL: Driver cannot attach the device"])));
    }
}
