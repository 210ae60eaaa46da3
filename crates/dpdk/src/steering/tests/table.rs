//! Tests of redirection tables: setting, reading, truncation by the card, and changes.

use super::*;

#[test]
fn table_is_begun_again_until_the_card_is_full() {
    let card = Fake::with(Capabilities {
        table_entries: 512,
        ..Fake::new().capabilities
    });
    let steered = card.open(&SteeringRequest {
        table: vec![7, 0, 0, 3],
        ..steering_request(Steering::Source)
    });
    assert_eq!(Some([7, 0, 0, 3].repeat(128)), steered.table);
    assert_eq!(Some(3), steered.queue_of(0xffff_ffff));
}

#[test]
fn table_that_does_not_fit_gives_each_queue_its_turn_and_is_named() {
    let card = Fake::new();
    let steered = card.open(&SteeringRequest {
        table: even(8, 200),
        ..steering_request(Steering::Source)
    });
    assert_eq!(
        vec![Shortfall::TableLength {
            given: 200,
            entries: 128
        }],
        steered.shortfalls
    );
    assert_eq!(Some(even(8, 128)), steered.table);
}

/// Each entry of the card's table applies to all shards with equal low bits in their numbers.
#[test]
fn table_longer_than_the_cards_is_cut_and_what_then_comes_elsewhere_is_named() {
    let card = Fake::new();
    let steered = card.open(&SteeringRequest {
        table: even(8, 512),
        ..steering_request(Steering::Source)
    });
    assert_eq!(Some(even(8, 128)), steered.table);
    assert_eq!(Vec::<Shortfall>::new(), steered.shortfalls, "all come where they shall");
    let steered = card.open(&SteeringRequest {
        table: even(6, 256),
        ..steering_request(Steering::Source)
    });
    assert_eq!(Some(even(6, 128)), steered.table);
    let folded = Shortfall::TableFolded {
        given: 256,
        entries: 128,
        elsewhere: 128,
    };
    assert_eq!(vec![folded], steered.shortfalls);
}

#[test]
fn table_that_names_no_queue_is_refused() {
    let steering_request = SteeringRequest {
        table: vec![0, 1, 8],
        ..steering_request(Steering::Source)
    };
    let error = SteeringError::NoSuchQueue {
        entry: 2,
        queue: 8,
        queues: 8,
    };
    assert_eq!(Err(error), steering_request.check());
}

#[test]
fn table_that_is_rounded_or_refused_is_read_back_and_named() {
    let card = Fake::deviating(Deviations {
        rounds_table: true,
        ..Deviations::default()
    });
    let mut steered = card.open(&steering_request(Steering::Source));
    assert_eq!(Some([0, 0, 2, 2, 4, 4, 6, 6].repeat(16)), steered.table);
    assert_eq!(
        "hashes only the source address: the RSS indirection table of the device differs from the requested table in 64 entries: entry 1 is queue 0, not 1",
        steered.to_string()
    );
    assert_eq!(Ok(()), set_table(&card, &mut steered, &[2, 4]));
    assert_eq!(Vec::<Shortfall>::new(), steered.shortfalls, "all is as wished by now");
    let error = set_table(&card, &mut steered, &[3]).expect_err("3 is rounded");
    assert!(error.to_string().contains("entry 0 is queue 2, not 3"), "{error}");
    assert_eq!(Some(vec![2; 128]), steered.table);

    let card = Fake::deviating(Deviations {
        refuses_table: true,
        ..Deviations::default()
    });
    let steered = card.open(&steering_request(Steering::Source));
    assert_eq!(
        "hashes only the source address: the device refuses the RSS indirection table (Invalid argument)",
        steered.to_string()
    );
    assert_eq!(Some(vec![0; 128]), steered.table, "what it has all the same");
}

#[test]
fn table_changes_move_packets_and_wrong_ones_change_nothing() {
    let card = Fake::new();
    let mut steered = card.open(&steering_request(Steering::Source));
    let packet = Packet {
        protocol: 6,
        source: Ipv4Addr::new(10, 0, 0, 9).into(),
        destination: Ipv4Addr::new(192, 0, 2, 1).into(),
        ports: (1024, 80),
    };
    assert_eq!(Ok(()), set_table(&card, &mut steered, &[5]));
    assert_eq!(5, card.queue_of(&packet));
    for (table, expected) in [
        (
            &[1, 8][..],
            SteeringError::NoSuchQueue {
                entry: 1,
                queue: 8,
                queues: 8,
            },
        ),
        (&[], SteeringError::TableLength { given: 0, entries: 128 }),
        (&[1; 3], SteeringError::TableLength { given: 3, entries: 128 }),
    ] {
        assert_eq!(Err(expected), set_table(&card, &mut steered, table));
        assert_eq!((5, Some(vec![5; 128])), (card.queue_of(&packet), steered.table.clone()));
    }
}

#[test]
fn table_of_a_card_without_one_can_not_be_set() {
    let card = Fake::with(Capabilities {
        table_entries: 0,
        ..Fake::new().capabilities
    });
    let mut steered = card.open(&steering_request(Steering::Source));
    assert_eq!(vec![Shortfall::NoTable], steered.shortfalls);
    assert_eq!(Err(SteeringError::NoTable), set_table(&card, &mut steered, &[0]));
}
