use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_wire::vlan::Tag;

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const VIRTUAL: [u8; 6] = [6, 0, 0, 0, 0, 9];
const ADDRESS: u32 = 0x0a00_0005;
const PUBLIC: u32 = 0xc633_6407;
const NETWORKS: [Network; 2] = [(3, PUBLIC - 7, PUBLIC + 248), (4, PUBLIC, PUBLIC)];

fn terminal(site: u32, address: u32, mac: [u8; 6]) -> Terminal {
    Terminal {
        context: context(site, 3, false),
        address,
        mac,
        interface: 7,
        tags: [Some(Tag::service(100)), Some(Tag::vlan(site as u16))],
    }
}

fn view(sites: &Arc<Sites>, site: u32, address: u32) -> Option<View> {
    let context = context(site, 3, false);
    sites.view(sites.find(context, address)?, context, address)
}

#[test]
fn context_of_a_site_tells_site_router_and_pool_and_is_no_bridges() {
    let own = context(131_071, 4_095, true);
    assert!(is_site(own) && is_pooled(own) && own >> 31 == 0);
    assert_eq!((131_071, 4_095), (site(own), outer(own)));
    assert!(!is_pooled(context(0, 0, false)) && is_site(context(0, 0, false)));
    // Contexts of routers and bridges are not contexts of sites.
    assert_eq!((false, 9), (is_site(9), outer(9)));
    assert_eq!((false, u32::MAX), (is_site(u32::MAX), outer(u32::MAX)));
}

#[test]
fn terminal_is_found_with_all_that_a_packet_needs_and_its_sites_address_as_it_changes() {
    let (mut writer, sites) = SiteWriter::new(10, 10, &NETWORKS, [1, 2]);
    writer.set_site(5, Some(VIRTUAL), None).expect("nobody has it");
    writer.add_terminal(&terminal(5, ADDRESS, MAC)).expect("room");
    let mut expected = View {
        mac: word_of(MAC),
        virtual_mac: word_of(VIRTUAL),
        tags: u64::from_le_bytes([0x88, 0xa8, 0, 100, 0x81, 0, 0, 5]),
        tag_count: 2,
        interface: 7,
        public: 0,
    };
    assert_eq!(Some(expected), view(&sites, 5, ADDRESS));
    writer.set_public(5, 3, Some(PUBLIC)).expect("nobody has it");
    expected.public = PUBLIC;
    assert_eq!(Some(expected), view(&sites, 5, ADDRESS));
    assert_eq!(
        (Some(PUBLIC), Some(5), None),
        (sites.public(5), sites.owner(3, PUBLIC), sites.owner(4, PUBLIC))
    );
    writer.add_terminal(&terminal(5, ADDRESS + 1, OTHER)).expect("room");
    assert_eq!(Some(PUBLIC), view(&sites, 5, ADDRESS + 1).map(|view| view.public));
    writer.set_public(5, 3, None).expect("nothing to refuse");
    expected.public = 0;
    assert_eq!(Some(expected), view(&sites, 5, ADDRESS));
    assert_eq!((None, None), (sites.public(5), sites.owner(3, PUBLIC)));
}

#[test]
fn terminals_of_two_sites_with_one_address_are_two() {
    let (mut writer, sites) = SiteWriter::new(10, 10, &NETWORKS, [1, 2]);
    writer.add_terminal(&terminal(1, ADDRESS, MAC)).expect("room");
    writer.add_terminal(&terminal(2, ADDRESS, OTHER)).expect("room");
    let macs = [1, 2, 3].map(|site| view(&sites, site, ADDRESS).map(|view| view.mac));
    assert_eq!([Some(word_of(MAC)), Some(word_of(OTHER)), None], macs);
}

#[test]
fn terminal_with_another_mac_is_another_and_the_lines_of_the_one_before_say_nothing() {
    let (mut writer, sites) = SiteWriter::new(10, 10, &NETWORKS, [1, 2]);
    writer.add_terminal(&terminal(1, ADDRESS, MAC)).expect("room");
    let context = context(1, 3, false);
    let before = sites.find(context, ADDRESS).expect("there");
    writer.add_terminal(&terminal(1, ADDRESS, MAC)).expect("room");
    assert_eq!(Some(before), sites.find(context, ADDRESS), "the same again");
    writer.add_terminal(&terminal(1, ADDRESS, OTHER)).expect("room");
    assert_eq!(None, sites.view(before, context, ADDRESS));
    assert_eq!(Some(word_of(OTHER)), view(&sites, 1, ADDRESS).map(|view| view.mac));
    assert_eq!((1, 10), sites.terminals());
}

#[test]
fn public_address_of_another_site_is_refused_and_the_one_before_gone() {
    let (mut writer, sites) = SiteWriter::new(10, 10, &NETWORKS, [1, 2]);
    writer.set_public(1, 3, Some(PUBLIC)).expect("nobody has it");
    writer.set_public(2, 3, Some(PUBLIC + 1)).expect("nobody has it");
    assert_eq!(Err(OtherSite(1)), writer.set_public(2, 3, Some(PUBLIC)));
    assert_eq!((Some(PUBLIC), None), (sites.public(1), sites.public(2)));
    // The networks of two routers are independent.
    assert_eq!(Ok(()), writer.set_public(2, 4, Some(PUBLIC)));
    assert_eq!((Some(1), Some(2)), (sites.owner(3, PUBLIC), sites.owner(4, PUBLIC)));
}

#[test]
fn virtual_mac_of_another_site_is_refused() {
    let (mut writer, sites) = SiteWriter::new(10, 10, &NETWORKS, [1, 2]);
    writer.set_site(1, Some(VIRTUAL), None).expect("nobody has it");
    assert_eq!(Err(OtherSite(1)), writer.set_site(2, Some(VIRTUAL), None));
    assert_eq!(Some(1), sites.site_of_mac(VIRTUAL));
    writer.clear_site(1);
    assert_eq!(None, sites.site_of_mac(VIRTUAL));
    assert_eq!(Ok(()), writer.set_site(2, Some(VIRTUAL), Some(4)));
    assert_eq!((Some(2), Some(4)), (sites.site_of_mac(VIRTUAL), sites.pool(2)));
}

#[test]
fn table_without_room_refuses_the_new_and_keeps_the_old() {
    let (mut writer, sites) = SiteWriter::new(2, 2, &[], [1, 2]);
    writer.add_terminal(&terminal(0, 1, MAC)).expect("room");
    writer.add_terminal(&terminal(1, 2, MAC)).expect("room");
    assert_eq!(Err(TerminalsFull), writer.add_terminal(&terminal(1, 3, MAC)));
    assert_eq!(
        Err(TerminalsFull),
        writer.add_terminal(&terminal(2, 3, MAC)),
        "no such site"
    );
    assert!(view(&sites, 0, 1).is_some() && view(&sites, 1, 2).is_some());
    assert!(writer.remove_terminal(context(0, 3, false), 1));
    assert!(!writer.remove_terminal(context(0, 3, false), 1));
    assert_eq!(Ok(()), writer.add_terminal(&terminal(1, 3, MAC)));
}

#[test]
fn calls_of_a_site_are_limited_and_no_other_sites() {
    let (_, sites) = SiteWriter::new(2, 1, &[], [1, 2]);
    let now = 1_000_000_000;
    let admitted = (0..1_000).filter(|_| sites.admits(0, RequestKind::Dhcp, now)).count();
    assert_eq!(200, admitted);
    assert!(sites.admits(1, RequestKind::Dhcp, now) && sites.admits(0, RequestKind::Arp, now));
    assert!(!sites.admits(0, RequestKind::Dhcp, now + 9_000_000));
    assert!(sites.admits(0, RequestKind::Dhcp, now + 10_000_000));
    assert!(!sites.admits(2, RequestKind::Arp, now), "no such site");
}

#[test]
fn hundred_thousand_sites_of_four_terminals_are_all_found() {
    let (mut writer, sites) = SiteWriter::new(100_000, 400_000, &[(3, 0, 99_999)], [1, 2]);
    for number in 0..400_000u32 {
        let (site, host) = (number / 4, number % 4);
        writer.add_terminal(&terminal(site, ADDRESS + host, MAC)).expect("room");
    }
    assert!((0..400_000).all(|number| view(&sites, number / 4, ADDRESS + number % 4).is_some()));
    let each = (sites.bytes() + writer.bytes()) / 100_000;
    assert!(each < 420, "{each} bytes a site");
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32, u32, u8),
    Remove(u32, u32),
    Public(u32, Option<u32>),
    Clear(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (site, address) = (0u32..6, 0u32..6);
    prop_oneof![
        4 => (site.clone(), address.clone(), 0u8..3).prop_map(|(s, a, m)| Step::Add(s, a, m)),
        2 => (site.clone(), address).prop_map(|(s, a)| Step::Remove(s, a)),
        2 => (site.clone(), proptest::option::of(0u32..5)).prop_map(|(s, a)| Step::Public(s, a)),
        1 => site.prop_map(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn table_any_steps_it_says_what_a_map_says(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut writer, sites) = SiteWriter::new(6, 12, &[(3, 0, 5)], [1, 2]);
        let (mut terminals, mut publics) = (HashMap::new(), HashMap::new());
        for step in steps {
            match step {
                Step::Add(site, address, last) => {
                    let mac = [2, 0, 0, 0, 0, last];
                    let known = terminals.contains_key(&(site, address));
                    let added = writer.add_terminal(&terminal(site, address, mac));
                    prop_assert_eq!(known || terminals.len() < 12, added.is_ok());
                    if added.is_ok() {
                        terminals.insert((site, address), mac);
                    }
                }
                Step::Remove(site, address) => {
                    let removed = writer.remove_terminal(context(site, 3, false), address);
                    prop_assert_eq!(terminals.remove(&(site, address)).is_some(), removed);
                }
                Step::Public(site, address) => {
                    let taken = publics.iter().any(|(&other, &has)| other != site && Some(has) == address);
                    prop_assert_eq!(taken, writer.set_public(site, 3, address).is_err());
                    match address.filter(|_| !taken) {
                        Some(address) => publics.insert(site, address),
                        None => publics.remove(&site),
                    };
                }
                Step::Clear(site) => {
                    writer.clear_site(site);
                    terminals.retain(|(other, _), _| *other != site);
                    publics.remove(&site);
                }
            }
            prop_assert_eq!(terminals.len() as u32, sites.terminals().0);
            for site in 0..6 {
                let public = publics.get(&site).copied();
                prop_assert_eq!(public, sites.public(site));
                for address in 0..6 {
                    let expected = terminals.get(&(site, address));
                    let expected = expected.map(|mac| (word_of(*mac), public.unwrap_or(0)));
                    prop_assert_eq!(expected, view(&sites, site, address).map(|view| (view.mac, view.public)));
                }
            }
            for address in 0..5 {
                let owner = publics.iter().find(|(_, has)| **has == address).map(|(site, _)| *site);
                prop_assert_eq!(owner, sites.owner(3, address));
            }
        }
    }
}
