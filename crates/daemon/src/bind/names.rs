//! Vendor and device names, from the PCI ID list that distributions install.

use std::fs;

/// Paths of the list: from package `pci.ids` on Debian, from `hwdata` on Red Hat.
const LISTS: [&str; 2] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"];

/// Vendor and device name of a card.
pub(super) fn name(vendor: u16, device: u16) -> Option<String> {
    let list = LISTS.iter().find_map(|path| fs::read(path).ok())?;
    find(&String::from_utf8_lossy(&list), vendor, device)
}

/// Find a device in a list with lines such as `8086  Intel Corporation`, followed by `<tab>10d3  82574L Gigabit Network
/// Connection`.
fn find(list: &str, vendor: u16, device: u16) -> Option<String> {
    let (vendor, device) = (format!("{vendor:04x}  "), format!("\t{device:04x}  "));
    let mut lines = list.lines();
    let maker = lines.find_map(|line| line.strip_prefix(&vendor))?.trim();
    let mut models = lines.take_while(|line| line.starts_with(['\t', '#']));
    let model = models.find_map(|line| line.strip_prefix(&device));
    Some(match model {
        Some(model) => format!("{maker} {}", model.trim()),
        None => maker.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::find;

    const LIST: &str = "# a list\n8086  Intel Corporation\n\t10d2  other\n\t10d3  82574L\n\t\t103c 10d3  of a maker\n\
                        9999  Another\n\t1af4  x\nC 02  Network controller\n";

    #[test]
    fn name_is_that_of_maker_and_model() {
        assert_eq!(Some("Intel Corporation 82574L".into()), find(LIST, 0x8086, 0x10d3));
        assert_eq!(Some("Intel Corporation".into()), find(LIST, 0x8086, 0x1af4));
        assert_eq!(None, find(LIST, 0x15ad, 0x07b0));
    }
}
