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
        if old.says(&fact) {
            table.entries[place].set_stale(false);
            common.release(set);
            return Ok(());
        }
        table.use_offer(place, Some(fact), &mut common.sets);
        common.release(old.set);
        touch(table, common, place);
        return Ok(());
    }
    if let Some((place, spare)) = found.and_then(|place| Some((place, table.find_spare(place, is_same)?))) {
        let Some(old) = table.spares[spare].fact.replace(fact) else {
            return Ok(());
        };
        if old.is_stale() {
            common.stale[offer.origin as usize] -= 1;
        }
        common.sets.count_spare(set, true);
        common.sets.count_spare(old.set, false);
        common.release(old.set);
        if !old.says(&fact) {
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
        table.add_spare(place, fact);
        common.sets.count_spare(set, true);
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
    is_it: impl Fn(&RouteRecord) -> bool,
) -> bool {
    let Some(place) = table.find(address, length) else {
        return false;
    };
    let gone = if let Some(used) = table.entries[place].record().filter(&is_it) {
        // Another offer replaces the withdrawn offer until the next route selection.
        let next = match table.entries[place].spare {
            NONE => None,
            spare => table.remove_spare(spare),
        };
        if let Some(next) = next {
            common.sets.count_spare(next.set, false);
        }
        table.use_offer(place, next, &mut common.sets);
        used
    } else if let Some(spare) = table.find_spare(place, is_it) {
        let Some(gone) = table.remove_spare(spare) else {
            return false;
        };
        common.sets.count_spare(gone.set, false);
        gone
    } else {
        return false;
    };
    common.offers[gone.origin() as usize] -= 1;
    if gone.is_stale() {
        common.stale[gone.origin() as usize] -= 1;
    }
    common.release(gone.set);
    touch(table, common, place);
    true
}

/// Marks a prefix with possibly changed routes. The next publication examines the prefix and all gateways that are
/// resolved through the prefix.
pub(super) fn touch<A: Family>(table: &mut Table<A>, common: &mut Common, place: u32) {
    let entry = &mut table.entries[place];
    let (first, last) = (entry.address, entry.address.last(entry.length));
    if entry.mark() {
        common.dirty[A::INDEX].push(place);
    }
    if !common.unsettled && !common.floating.is_empty() {
        let within = first.wrap()..=last.wrap();
        common.unsettled = common.floating.range(within).next().is_some();
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
    for place in 0..table.spares.places() {
        let spare = &mut table.spares[place];
        let fact = spare.fact.as_mut();
        if let Some(fact) = fact.filter(|fact| fact.origin() == origin && !fact.is_stale()) {
            fact.set_stale(true);
            common.stale[origin as usize] += 1;
        }
    }
}

/// Withdraws at most `most` stale offers of an origin, starting at `cursor`. Returns the number of withdrawn offers.
pub(super) fn sweep<A: Family>(
    table: &mut Table<A>,
    common: &mut Common,
    origin: Origin,
    (cursor, most): (&mut u32, usize),
) -> usize {
    let mut swept = 0;
    while *cursor < table.entries.places() && swept < most && common.stale[origin as usize] > 0 {
        let is_stale = |fact: &RouteRecord| fact.origin() == origin && fact.is_stale();
        let entry = table.entries[*cursor];
        let has = table.offers(*cursor).any(|fact| is_stale(&fact));
        if has && withdraw(table, common, (entry.address, entry.length), is_stale) {
            swept += 1;
        } else {
            *cursor += 1;
        }
    }
    swept
}
