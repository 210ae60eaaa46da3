//! Tests with terminals and sites that flood.

use super::*;

#[test]
fn terminal_that_floods_takes_nothing_from_the_others() {
    let (mut relay, mut out) = (relay(), Vec::new());
    let of = |last: u8| changed(33, &[last]);
    let mut results = Vec::new();
    for _ in 0..1000 {
        results.push(
            relay
                .request(&of(1), &ORIGIN, 0, &mut out)
                .map(|relayed| relayed.hardware[5]),
        );
    }
    assert_eq!(4, results.iter().filter(|result| result.is_ok()).count());
    assert_eq!(996, relay.tally().refused[Refused::TerminalRate as usize]);
    assert_eq!(Some((SITE, [2, 0, 0, 0, 0, 1])), relay.tally().flood);
    assert!(relay.request(&of(2), &ORIGIN, 0, &mut out).is_ok());
    assert!(
        relay.request(&of(1), &ORIGIN, SECOND / 2, &mut out).is_ok(),
        "two a second"
    );
    assert_eq!(
        Err(Refused::TerminalRate),
        relay.request(&of(1), &ORIGIN, SECOND / 2, &mut out)
    );
}

#[test]
fn site_that_floods_takes_nothing_from_the_others() {
    let (mut relay, mut out) = (relay(), Vec::new());
    // The messages pretend that the site has many terminals.
    let of = |number: u16| changed(32, &number.to_be_bytes());
    let mut admitted = 0;
    for number in 0..1000 {
        admitted += u32::from(relay.request(&of(number), &ORIGIN, 0, &mut out).is_ok());
    }
    assert_eq!(20, admitted);
    assert_eq!(980, relay.tally().refused[Refused::SiteRate as usize]);
    assert_eq!([0, 0, 12], relay.tally().noted, "eight are told apart");
    let other = Origin {
        site: Site(8),
        ..ORIGIN
    };
    assert!(relay.request(&of(1), &other, 0, &mut out).is_ok());
    // Entries of idle terminals are reused.
    let later = 10 * SECOND;
    assert!(
        relay
            .request(&of(5000), &other, later, &mut out)
            .is_ok_and(|relayed| !relayed.unmetered)
    );
    let nowhere = Origin {
        site: Site(16),
        ..ORIGIN
    };
    assert_eq!(Err(Refused::Site), relay.request(&of(1), &nowhere, later, &mut out));
}
