//! Listings of iptables and nftables, imported.

use indexmap::IndexMap;
use sluice_config::import::{Imported, Source, import};
use sluice_config::memory::EntryBytes;
use sluice_config::{Checked, Machine, check};

fn imported(texts: &[&str], addresses: &[(&str, &str)]) -> Imported {
    let sources: Vec<_> = texts.iter().map(|text| Source { name: "listing", text }).collect();
    let addresses: IndexMap<_, _> = addresses
        .iter()
        .map(|(name, address)| ((*name).to_owned(), address.parse().unwrap()))
        .collect();
    import(&sources, None, &addresses).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn read_again(imported: &Imported) -> Checked {
    let machine = Machine {
        cores: vec![0, 1],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    let text = imported.print().unwrap();
    // A configuration has interfaces, and a listing may name none.
    let stub = if text.contains("\n[interfaces.") || text.starts_with("[interfaces.") {
        ""
    } else {
        "\n[interfaces.any]\ndevice = \"null:\"\n"
    };
    check("imported", &format!("{text}{stub}"), &machine).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

#[test]
fn look() {
    for (texts, addresses) in [
        (
            vec![include_str!("import/gateway.iptables")],
            vec![("eth0", "203.0.113.1/24")],
        ),
        (
            vec![
                include_str!("import/gateway.iptables"),
                include_str!("import/gateway.ip6tables"),
            ],
            vec![],
        ),
        (
            vec![include_str!("import/router.nft.json")],
            vec![("wan0", "203.0.113.8/24")],
        ),
    ] {
        let imported = imported(&texts, &addresses);
        println!("{}\n==========", imported.print().unwrap());
        read_again(&imported);
    }
}
