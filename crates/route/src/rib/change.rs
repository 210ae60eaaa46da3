//! Addition and withdrawal of offers. Both operations modify the tables of the RIB; the sink receives the result at the
//! next publication.

use super::offer::{Offer, Origin, RibError};
use super::slab::NONE;
use super::table::{Family, RouteRecord, Table};
use super::{Common, Settings};
use crate::{SECOND, Time};

/// Adds an offer for a prefix.
pub(super) fn offer<A: Family>(
    table: &mut Table<A>,
    common: &mut Common,
    settings: &Settings,
    (address, length): (A, u8),
    offer: &Offer<'_>,
    now: Time,
) -> Result<(), RibError> {
    let set = common.acquire(offer.target)?;
    let since = (now / SECOND) as u32;
    let rank = (offer.distance, offer.metric);
    let fact = RouteRecord::new(offer.origin, set, offer.protocol, rank, since);
    let is_same = |other: &RouteRecord| other.which() == (offer.origin, offer.which());
    let found = table.find(address, length);
    let used = found.and_then(|place| table.entries[place].record());
    if let (Some(place), Some(old)) = (found, used.filter(is_same)) {
        if old.is_stale() {
            common.stale[offer.origin as usize] -= 1;
        }
        if old.equals(&fact) {
            table.entries[place].set_stale(false);
            common.release(set);
            return Ok(());
        }
        table.use_offer(place, Some(fact), &mut common.sets);
        common.release(old.set);
        touch(table, common, place);
        return Ok(());
    }
    if let Some((place, first_unselected)) =
        found.and_then(|place| Some((place, table.find_unselected(place, is_same)?)))
    {
        let Some(old) = table.unselected[first_unselected].fact.replace(fact) else {
            return Ok(());
        };
        if old.is_stale() {
            common.stale[offer.origin as usize] -= 1;
        }
        common.sets.count_unselected(set, true);
        common.sets.count_unselected(old.set, false);
        common.release(old.set);
        if !old.equals(&fact) {
            touch(table, common, place);
        }
        return Ok(());
    }
    if offer.origin.is_learned() && common.learned() >= settings.quota {
        common.refused_quota += 1;
        common.release(set);
        return Err(RibError::Quota(settings.quota));
    }
    let place = found.unwrap_or_else(|| table.add(address, length));
    common.offers[offer.origin as usize] += 1;
    if used.is_some() {
        table.add_unselected(place, fact);
        common.sets.count_unselected(set, true);
    } else {
        table.use_offer(place, Some(fact), &mut common.sets);
    }
    touch(table, common, place);
    Ok(())
}

/// Withdraws an offer. Returns false if the offer does not exist.
pub(super) fn withdraw<A: Family>(
    table: &mut Table<A>,
    common: &mut Common,
    (address, length): (A, u8),
    is_match: impl Fn(&RouteRecord) -> bool,
) -> bool {
    let Some(place) = table.find(address, length) else {
        return false;
    };
    let removed = if let Some(used) = table.entries[place].record().filter(&is_match) {
        // Another offer replaces the withdrawn offer until the next route selection.
        let next = match table.entries[place].first_unselected {
            NONE => None,
            first_unselected => table.remove_unselected(first_unselected),
        };
        if let Some(next) = next {
            common.sets.count_unselected(next.set, false);
        }
        table.use_offer(place, next, &mut common.sets);
        used
    } else if let Some(first_unselected) = table.find_unselected(place, is_match) {
        let Some(removed) = table.remove_unselected(first_unselected) else {
            return false;
        };
        common.sets.count_unselected(removed.set, false);
        removed
    } else {
        return false;
    };
    common.offers[removed.origin() as usize] -= 1;
    if removed.is_stale() {
        common.stale[removed.origin() as usize] -= 1;
    }
    common.release(removed.set);
    touch(table, common, place);
    true
}

/// Marks a prefix whose routes may have changed. The next publication examines the prefix and all gateways that are
/// resolved through the prefix.
pub(super) fn touch<A: Family>(table: &mut Table<A>, common: &mut Common, place: u32) {
    let entry = &mut table.entries[place];
    let (first, last) = (entry.address, entry.address.last(entry.length));
    if entry.mark() {
        common.dirty[A::INDEX].push(place);
    }
    if !common.needs_resolution && !common.floating.is_empty() {
        let within = first.wrap()..=last.wrap();
        common.needs_resolution = common.floating.range(within).next().is_some();
    }
}

/// Marks all offers of an origin as stale.
pub(super) fn mark_stale<A: Family>(table: &mut Table<A>, common: &mut Common, origin: Origin) {
    for place in 0..table.entries.places() {
        let entry = &mut table.entries[place];
        if entry
            .record()
            .is_some_and(|fact| fact.origin() == origin && !fact.is_stale())
        {
            entry.set_stale(true);
            common.stale[origin as usize] += 1;
        }
    }
    for place in 0..table.unselected.places() {
        let first_unselected = &mut table.unselected[place];
        let fact = first_unselected.fact.as_mut();
        if let Some(fact) = fact.filter(|fact| fact.origin() == origin && !fact.is_stale()) {
            fact.set_stale(true);
            common.stale[origin as usize] += 1;
        }
    }
}

/// Withdraws at most `max` stale offers of an origin, starting at `cursor`. Returns the number of withdrawn offers.
pub(super) fn sweep<A: Family>(
    table: &mut Table<A>,
    common: &mut Common,
    origin: Origin,
    (cursor, max): (&mut u32, usize),
) -> usize {
    let mut removed_count = 0;
    while *cursor < table.entries.places() && removed_count < max && common.stale[origin as usize] > 0 {
        let is_stale = |fact: &RouteRecord| fact.origin() == origin && fact.is_stale();
        let entry = table.entries[*cursor];
        let has = table.offers(*cursor).any(|fact| is_stale(&fact));
        if has && withdraw(table, common, (entry.address, entry.length), is_stale) {
            removed_count += 1;
        } else {
            *cursor += 1;
        }
    }
    removed_count
}
