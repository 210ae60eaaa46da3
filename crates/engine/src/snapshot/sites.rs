//! Classification of packets by subscriber's site, and the roles of interfaces for sites.

use std::sync::Arc;

use sluice_nat::sites::Sites;
use sluice_wire::ethernet::ethertype;
use sluice_wire::ipv4::protocol::UDP;
use sluice_wire::layers::{Class, Fragment, Layers};
use sluice_wire::{Context, ipv4};

/// UDP port of DHCP servers and relays.
pub const SERVER: u16 = 67;
/// UDP port of DHCP clients.
pub const CLIENT: u16 = 68;

/// Number of values by which tag ranges are indexed: one for each VLAN identifier of an outer 802.1ad tag, and one for
/// frames without an 802.1ad tag.
const OUTER: usize = (1 << 12) + 1;

/// Index value of frames that have a single 802.1Q tag instead of an outer 802.1ad tag.
pub const SINGLE: u16 = 1 << 12;

/// Sites with consecutive inner tags and consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagRange {
    /// The S-tag, or [`SINGLE`].
    pub outer: u16,
    /// The first C-tag.
    pub first: u16,
    /// Number of sites.
    pub count: u16,
    /// Context of the first site.
    pub context: Context,
}

/// How the sites behind an interface are distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteKey {
    /// Sites have different tags.
    Tags(Vec<TagRange>),
    /// There is only one site, with this context.
    One(Context),
    /// Sites have different terminal addresses: network, prefix length, context.
    Prefixes(Vec<(u32, u8, Context)>),
}

impl SiteKey {
    /// One context per kind of site behind the interface.
    pub fn contexts(&self) -> Vec<Context> {
        match self {
            Self::Tags(rows) => rows.iter().map(|row| row.context).collect(),
            Self::One(context) => vec![*context],
            Self::Prefixes(prefixes) => prefixes.iter().map(|prefix| prefix.2).collect(),
        }
    }
}

/// The first range of an outer tag.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    first: u16,
    /// Number of sites in the range; 0 if the tag has no range.
    count: u16,
    context: Context,
}

/// Tag ranges in order, and an index that contains the first range of each outer tag. Most outer tags have only one
/// range.
#[derive(Clone, Debug)]
pub struct TagRanges {
    rows: Box<[TagRange]>,
    firsts: Box<[First; OUTER]>,
}

/// An access interface, to which the terminals of sites are connected.
#[derive(Clone, Debug)]
pub enum AccessInterface {
    /// Sites have different tags.
    Tags(TagRanges),
    /// There is only one site.
    One(Context),
    /// Networks of terminals, longest prefix first.
    Prefixes(Box<[(u32, u8, Context)]>),
}

impl AccessInterface {
    /// The context of the site that sent a packet; `None` if no site sent it.
    #[inline(always)]
    pub fn context(&self, layers: &Layers, frame: &[u8]) -> Option<Context> {
        let source = || (layers.class == Class::Ipv4).then(|| ipv4::SOURCE.read(layers.datagram(frame)));
        self.context_of(layers.tags, frame, source)
    }

    /// The context of the site that sent a frame with this number of tags. `source` returns the source of an IPv4 packet.
    #[inline(always)]
    pub fn context_of(&self, tags: u8, frame: &[u8], source: impl FnOnce() -> Option<u32>) -> Option<Context> {
        match self {
            AccessInterface::Tags(rows) => rows.find(tags, frame),
            AccessInterface::One(context) => (tags == 0).then_some(*context),
            AccessInterface::Prefixes(prefixes) if tags == 0 => by_prefix(prefixes, source()?),
            AccessInterface::Prefixes(_) => None,
        }
    }
}

/// Role of an interface for sites.
#[derive(Clone, Debug, Default)]
struct Side {
    access: Option<AccessInterface>,
    /// Whether the interface receives frames and DHCP answers for virtual MACs.
    is_public: bool,
}

/// Settings of sites.
#[derive(Clone, Debug)]
pub struct SiteSettings {
    /// Access interfaces, to which terminals are connected.
    pub access_interfaces: Vec<(u16, SiteKey)>,
    /// Public interfaces, on which sites have public addresses.
    pub publics: Vec<u16>,
    /// Addresses of the DHCP relay to which servers send answers: virtual router and address.
    pub relays: Vec<(Context, u32)>,
}

/// Classifies packets by site.
#[derive(Clone, Debug)]
pub struct SiteClassifier {
    /// Sites and terminals.
    pub table: Arc<Sites>,
    sides: Box<[Side]>,
    settings: SiteSettings,
}

impl SiteClassifier {
    /// Creates a classifier with these settings. The control plane writes to `table`.
    pub fn new(table: Arc<Sites>, settings: SiteSettings) -> Self {
        let named = settings.access_interfaces.iter().map(|(interface, _)| interface);
        let max = named.chain(&settings.publics).max();
        let mut sides = vec![Side::default(); max.map_or(0, |&max| usize::from(max) + 1)];
        for (interface, behind) in &settings.access_interfaces {
            sides[usize::from(*interface)].access = Some(access(behind));
        }
        for &interface in &settings.publics {
            sides[usize::from(interface)].is_public = true;
        }
        Self {
            table,
            sides: sides.into(),
            settings,
        }
    }

    /// The settings of this classifier.
    pub fn settings(&self) -> &SiteSettings {
        &self.settings
    }

    #[inline(always)]
    fn side(&self, interface: u16) -> Option<&Side> {
        self.sides.get(usize::from(interface))
    }

    /// Whether an interface is an access interface.
    #[inline(always)]
    pub fn is_access(&self, interface: u16) -> bool {
        self.side(interface).is_some_and(|side| side.access.is_some())
    }

    /// Whether sites behind an interface are distinguished by tags.
    pub fn has_tags(&self, interface: u16) -> bool {
        let access = self.side(interface).and_then(|side| side.access.as_ref());
        matches!(access, Some(AccessInterface::Tags(..)))
    }

    /// Whether an interface receives frames for virtual MACs.
    #[inline(always)]
    pub fn is_public(&self, interface: u16) -> bool {
        self.side(interface).is_some_and(|side| side.is_public)
    }

    /// Whether a public address of a virtual router belongs, or can belong, to a site.
    #[inline(always)]
    pub fn is_own(&self, router: Context, address: u32) -> bool {
        self.table.recipient(router, address).is_some()
    }

    /// The context of the site that sent a packet on an access interface; `None` if no site sent it.
    #[inline(always)]
    pub fn context(&self, interface: u16, layers: &Layers, frame: &[u8]) -> Option<Context> {
        self.access_interface(interface)?.context(layers, frame)
    }

    /// The access interface with this number, if it is one.
    #[inline(always)]
    pub fn access_interface(&self, interface: u16) -> Option<&AccessInterface> {
        self.side(interface)?.access.as_ref()
    }

    /// The context of the site of a DHCP client. The address of a client without a lease can't determine the site, so
    /// this client is assigned to the first site of the interface.
    pub fn dhcp_client(&self, interface: u16, layers: &Layers, frame: &[u8]) -> Option<Context> {
        match self.side(interface)?.access.as_ref()? {
            AccessInterface::Prefixes(prefixes) if layers.tags == 0 => self
                .context(interface, layers, frame)
                .or_else(|| prefixes.first().map(|prefix| prefix.2)),
            _ => self.context(interface, layers, frame),
        }
    }

    /// The context of the site that sent an ARP message, determined by the sender address of the message.
    pub fn context_of_sender(&self, interface: u16, layers: &Layers, frame: &[u8], sender: u32) -> Option<Context> {
        match self.side(interface)?.access.as_ref()? {
            AccessInterface::Prefixes(prefixes) if layers.tags == 0 => by_prefix(prefixes, sender),
            _ => self.context(interface, layers, frame),
        }
    }

    /// Whether a packet is a DHCP message for the control plane: a message from a terminal, to an address of the relay,
    /// or to a DHCP client of a site.
    #[inline(always)]
    pub fn takes(&self, interface: u16, router: Context, layers: &Layers, frame: &[u8]) -> bool {
        let is_dhcp = layers.protocol == UDP
            && matches!(layers.destination_port, SERVER | CLIENT)
            && layers.class == Class::Ipv4
            && layers.fragment == Fragment::Whole;
        is_dhcp && self.takes_dhcp(interface, router, layers, frame)
    }

    #[cold]
    fn takes_dhcp(&self, interface: u16, router: Context, layers: &Layers, frame: &[u8]) -> bool {
        if layers.destination_port == CLIENT {
            return self.is_public(interface) && layers.source_port == SERVER;
        }
        if self.is_access(interface) {
            return true;
        }
        let destination = ipv4::DESTINATION.read(layers.datagram(frame));
        self.settings.relays.contains(&(router, destination))
    }

    /// Whether the destination of a frame is the virtual MAC of a site.
    pub fn has_mac(&self, interface: u16, frame: &[u8]) -> bool {
        let mac = frame.first_chunk::<6>().filter(|mac| is_local(mac));
        self.is_public(interface) && mac.is_some_and(|mac| self.table.site_of_mac(*mac).is_some())
    }
}

/// Whether a MAC is unicast and locally administered, like a virtual MAC.
#[inline(always)]
pub fn is_local(mac: &[u8; 6]) -> bool {
    mac[0] & 3 == 2
}

fn access(behind: &SiteKey) -> AccessInterface {
    match behind {
        SiteKey::One(context) => AccessInterface::One(*context),
        SiteKey::Prefixes(prefixes) => {
            let mut prefixes = prefixes.clone();
            prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.1));
            AccessInterface::Prefixes(prefixes.into())
        }
        SiteKey::Tags(rows) => {
            let mut rows = rows.clone();
            rows.sort_by_key(|row| (row.outer, row.first));
            let mut firsts = Box::new([First::default(); OUTER]);
            for row in rows.iter().rev() {
                if let Some(first) = firsts.get_mut(usize::from(row.outer)) {
                    *first = First {
                        first: row.first,
                        count: row.count,
                        context: row.context,
                    };
                }
            }
            AccessInterface::Tags(TagRanges {
                rows: rows.into(),
                firsts,
            })
        }
    }
}

impl TagRanges {
    #[inline(always)]
    fn find(&self, tags: u8, frame: &[u8]) -> Option<Context> {
        const SERVICE: u64 = ethertype::SERVICE_VLAN as u64;
        const PLAIN: u64 = ethertype::VLAN as u64;
        let head: &[u8; 20] = frame.first_chunk()?;
        let word = u64::from_be_bytes(*head.last_chunk()?);
        // Check the TPIDs of the tags and extract their VLANs.
        let (outer, inner) = match tags {
            2 if word & 0xffff_0000_ffff_0000 == SERVICE << 48 | PLAIN << 16 => {
                ((word >> 32) as u16 & 0xfff, word as u16 & 0xfff)
            }
            1 if word >> 48 == PLAIN => (SINGLE, (word >> 32) as u16 & 0xfff),
            _ => return None,
        };
        let First { first, count, context } = *self.firsts.get(usize::from(outer))?;
        let place = inner.wrapping_sub(first);
        if place < count {
            return Some(context + Context::from(place));
        }
        self.find_further(outer, inner)
    }

    #[cold]
    fn find_further(&self, outer: u16, inner: u16) -> Option<Context> {
        let from = self.rows.partition_point(|row| row.outer < outer);
        let mut rows = self.rows.iter().skip(from).take_while(|row| row.outer == outer);
        let row = rows.find(|row| inner.wrapping_sub(row.first) < row.count)?;
        Some(row.context + Context::from(inner - row.first))
    }
}

fn by_prefix(prefixes: &[(u32, u8, Context)], address: u32) -> Option<Context> {
    let mask = |length: u8| u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    let mut selected = prefixes
        .iter()
        .filter(|&&(network, length, _)| (address ^ network) & mask(length) == 0);
    selected.next().map(|prefix| prefix.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_nat::sites::{SiteWriter, context};
    use sluice_wire::layers;

    fn access(behind: SiteKey) -> SiteClassifier {
        let (_, table) = SiteWriter::new(9, 1, &[(0, 0xc633_6400, 0xc633_64ff)], [1, 2]);
        let settings = SiteSettings {
            access_interfaces: vec![(1, behind)],
            publics: vec![2],
            relays: vec![(0, 0x0a00_0001)],
        };
        SiteClassifier::new(table, settings)
    }

    fn frame(tags: &[u8], source: [u8; 4]) -> Vec<u8> {
        let mut frame = [&[2u8; 12][..], tags, &[8, 0]].concat();
        let mut header = [0u8; 28];
        (header[0], header[3], header[8], header[9]) = (0x45, 28, 9, 17);
        header[12..16].copy_from_slice(&source);
        header[16..20].copy_from_slice(&[192, 0, 2, 1]);
        header[25] = 8;
        frame.extend_from_slice(&header);
        frame
    }

    fn site_of(access: &SiteClassifier, frame: &[u8]) -> Option<Context> {
        access.context(1, &layers::parse(frame).expect("a packet"), frame)
    }

    #[test]
    fn site_by_tags_is_that_of_its_row_and_other_tags_have_none() {
        let row = |outer, first, count, site| TagRange {
            outer,
            first,
            count,
            context: context(site, 3, false),
        };
        let access = access(SiteKey::Tags(vec![
            row(SINGLE, 7, 2, 50),
            row(100, 200, 9, 20),
            row(100, 1, 10, 10),
        ]));
        let double = |s: u8, c: u8| frame(&[0x88, 0xa8, 0x20, s, 0x81, 0, 0x10, c], [10, 0, 0, 5]);
        let single = |kind: [u8; 2], v: u8| frame(&[kind[0], kind[1], 0x60, v], [10, 0, 0, 5]);
        let found = |frame: Vec<u8>| site_of(&access, &frame);
        let expected = |site| Some(context(site, 3, false));
        assert_eq!(
            [expected(10), expected(19), None],
            [1, 10, 11].map(|c| found(double(100, c)))
        );
        assert_eq!(
            [None, expected(20), expected(28), None],
            [199, 200, 208, 209].map(|c| found(double(100, c)))
        );
        assert_eq!([None, None], [99, 101].map(|s| found(double(s, 1))));
        assert_eq!(
            [expected(50), expected(51), None],
            [7, 8, 9].map(|v| found(single([0x81, 0], v)))
        );
        // A single service tag, tags in reverse order, and no tags.
        assert_eq!(None, found(single([0x88, 0xa8], 7)));
        assert_eq!(None, found(frame(&[0x81, 0, 0, 100, 0x88, 0xa8, 0, 1], [10, 0, 0, 5])));
        assert_eq!(None, found(frame(&[], [10, 0, 0, 5])));
    }

    #[test]
    fn site_by_interface_and_by_prefix_is_that_of_untagged_packets() {
        let tagged = frame(&[0x81, 0, 0, 7], [10, 0, 0, 5]);
        let own = access(SiteKey::One(77));
        assert_eq!(Some(77), site_of(&own, &frame(&[], [10, 0, 0, 5])));
        assert_eq!(None, site_of(&own, &tagged));
        let by = access(SiteKey::Prefixes(vec![(0x0a00_0000, 8, 1), (0x0a00_0000, 24, 2)]));
        let found = |source| site_of(&by, &frame(&[], source));
        assert_eq!(
            [Some(2), Some(1), None],
            [[10, 0, 0, 5], [10, 0, 1, 5], [11, 0, 0, 5]].map(found)
        );
        assert_eq!(None, site_of(&by, &tagged));
    }

    #[test]
    fn dhcp_is_taken_of_terminals_for_relays_and_for_clients_and_no_other() {
        let access = access(SiteKey::One(77));
        let taken = |interface, ports: [u16; 2], destination: [u8; 4]| {
            let mut frame = frame(&[], [192, 0, 2, 10]);
            frame[30..34].copy_from_slice(&destination);
            frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
            frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
            access.takes(interface, 0, &layers::parse(&frame).expect("a packet"), &frame)
        };
        let (relay, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert!(taken(1, [68, 67], other) && taken(3, [67, 67], relay) && taken(2, [67, 68], other));
        assert!(!taken(1, [67, 68], other) && !taken(3, [67, 67], other) && !taken(2, [68, 68], other));
        assert!(!taken(1, [68, 53], other));
    }
}
