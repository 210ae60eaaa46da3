//! Tests of connection tracking against simulated endpoints, and tests of single RFC requirements.

use proptest::prelude::*;
use sluice_nat::timeout::{Schedule, TimeoutClass, Timeouts};
use sluice_nat::tracking::{MAX_IN_FLIGHT, Segment, TcpState, Tracking};
use sluice_wire::Direction::{self, Forward, Reverse};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

/// The two simulated endpoints of a connection.
struct Ends {
    next: [u32; 2],
    tracking: Tracking,
}

impl Ends {
    fn new(client: u32, server: u32) -> Self {
        Self {
            next: [client, server],
            tracking: Tracking::default(),
        }
    }

    /// One endpoint sends its next segment in order. The segment acknowledges everything that the peer has sent.
    fn send(&mut self, direction: Direction, flags: u8, length: u32) -> TimeoutClass {
        let (this, other) = (direction as usize, direction.opposite() as usize);
        let segment = Segment {
            flags,
            sequence: self.next[this],
            acknowledgment: self.next[other],
            length,
        };
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.next[this] = self.next[this].wrapping_add(length + controls);
        self.tracking.track(direction, &segment)
    }

    fn open(client: u32, server: u32) -> Self {
        let mut ends = Self::new(client, server);
        assert_eq!(TimeoutClass::TCP_TRANSITORY_OPEN, ends.send(Forward, SYN, 0));
        assert_eq!(TcpState::Init, ends.tracking.state());
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Reverse, SYN | ACK, 0));
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Forward, ACK, 0));
        assert_eq!(TcpState::Established, ends.tracking.state());
        ends
    }
}

#[test]
fn tracking_fits_beside_counters_and_timers() {
    assert_eq!(20, size_of::<Tracking>());
    assert_eq!(8, size_of::<sluice_nat::Decision>());
}

#[test]
fn rfc7857_section2_open_and_close_pass_through_the_states() {
    for first in [Forward, Reverse] {
        let mut ends = Ends::open(u32::MAX - 3, 5);
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(first, FIN | ACK, 10));
        let half = if first == Forward {
            TcpState::ClientFin
        } else {
            TcpState::ServerFin
        };
        assert_eq!(half, ends.tracking.state());
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(first.opposite(), ACK, 1000));
        assert_eq!(half, ends.tracking.state());
        assert_eq!(
            TimeoutClass::TCP_TRANSITORY_CLOSE,
            ends.send(first.opposite(), FIN | ACK, 0)
        );
        assert_eq!(TcpState::BothFin, ends.tracking.state());
        assert_eq!(TimeoutClass::UNCHANGED, ends.send(first, ACK, 0));
        assert_eq!(TcpState::BothFin, ends.tracking.state());
    }
}

#[test]
fn rfc5382_req2a_simultaneous_open_is_established() {
    let mut ends = Ends::new(100, 200);
    ends.send(Forward, SYN, 0);
    assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Reverse, SYN, 0));
    assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Forward, SYN | ACK, 0));
    assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Reverse, SYN | ACK, 0));
    assert_eq!(TcpState::Established, ends.tracking.state());
}

#[test]
fn rfc7857_section2_2_reset_starts_the_closing_timer_and_data_end_it() {
    for direction in [Forward, Reverse] {
        let mut ends = Ends::open(100, 200);
        assert_eq!(TimeoutClass::TCP_TRANSITORY_CLOSE, ends.send(direction, RST | ACK, 0));
        assert_eq!(TcpState::Transitory, ends.tracking.state());
        assert_eq!(TimeoutClass::UNCHANGED, ends.send(direction, RST | ACK, 0));
        assert_eq!(TimeoutClass::UNCHANGED, ends.send(direction.opposite(), ACK, 0));
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(direction.opposite(), ACK, 1));
        assert_eq!(TcpState::Established, ends.tracking.state());
    }
}

#[test]
fn connection_refused_has_ended_and_no_data_open_it() {
    let mut ends = Ends::new(100, 0);
    ends.send(Forward, SYN, 0);
    // The refusal does not restart the timer, and the client keeps its port until the timeout.
    assert_eq!(TimeoutClass::UNCHANGED, ends.send(Reverse, RST | ACK, 0));
    assert!(ends.tracking.has_ended());
    for (direction, length) in [(Reverse, 10), (Forward, 10), (Reverse, 20), (Forward, 20)] {
        assert_eq!(TimeoutClass::UNCHANGED, ends.send(direction, ACK, length));
        assert!(ends.tracking.has_ended());
    }
}

#[test]
fn syn_answer_for_another_syn_does_not_establish() {
    let mut ends = Ends::new(100, 200);
    ends.send(Forward, SYN, 0);
    let forged = Segment {
        flags: SYN | ACK,
        sequence: 1,
        acknowledgment: 5000,
        length: 0,
    };
    assert_eq!(TimeoutClass::UNCHANGED, ends.tracking.track(Reverse, &forged));
    assert_eq!(TcpState::Init, ends.tracking.state());
}

#[test]
fn syn_with_data_may_be_acknowledged_without_them() {
    let mut tracking = Tracking::default();
    tracking.track(
        Forward,
        &Segment {
            flags: SYN,
            sequence: 100,
            acknowledgment: 0,
            length: 500,
        },
    );
    let answer = Segment {
        flags: SYN | ACK,
        sequence: 9,
        acknowledgment: 101,
        length: 0,
    };
    assert_eq!(TimeoutClass::TCP_ESTABLISHED, tracking.track(Reverse, &answer));
}

#[test]
fn server_opens_the_next_connection_on_the_ports_of_one_that_has_ended() {
    for close in [FIN, RST] {
        let mut ends = Ends::open(100, 200);
        ends.send(Forward, close | ACK, 0);
        if close == FIN {
            ends.send(Reverse, FIN | ACK, 0);
        }
        ends.next = [0x8000_0000, 0x4000_0000];
        assert_eq!(TimeoutClass::TCP_TRANSITORY_OPEN, ends.send(Reverse, SYN, 0));
        assert_eq!(TimeoutClass::TCP_TRANSITORY_OPEN, ends.send(Reverse, ACK, 10));
        assert_eq!(TcpState::Init, ends.tracking.state());
        ends.next[1] = 0x4000_0001;
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Forward, SYN | ACK, 0));
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Reverse, ACK, 10));
        assert_eq!(TcpState::Established, ends.tracking.state());
    }
}

#[test]
fn syn_of_the_client_changes_nothing_of_a_connection_that_has_ended() {
    let mut ends = Ends::open(100, 200);
    ends.send(Forward, FIN | ACK, 0);
    ends.send(Reverse, FIN | ACK, 0);
    ends.next = [0x8000_0000, 0x4000_0000];
    assert_eq!(TimeoutClass::UNCHANGED, ends.send(Forward, SYN, 0));
    assert_eq!(TimeoutClass::UNCHANGED, ends.send(Reverse, SYN | ACK, 0));
    assert_eq!(TcpState::BothFin, ends.tracking.state());
}

#[test]
fn data_behind_both_fins_revive_the_connection_and_what_is_sent_again_does_not() {
    for direction in [Forward, Reverse] {
        let mut ends = Ends::open(u32::MAX - 50, 200);
        ends.send(direction, ACK, 100);
        let last = Segment {
            flags: ACK,
            sequence: ends.next[direction as usize].wrapping_sub(100),
            acknowledgment: ends.next[direction.opposite() as usize],
            length: 100,
        };
        ends.send(direction, FIN | ACK, 0);
        ends.send(direction.opposite(), FIN | ACK, 0);
        assert_eq!(TcpState::BothFin, ends.tracking.state());
        assert_eq!(TimeoutClass::UNCHANGED, ends.tracking.track(direction, &last));
        assert_eq!(TimeoutClass::UNCHANGED, ends.send(direction.opposite(), ACK, 0));
        assert_eq!(TcpState::BothFin, ends.tracking.state());
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(direction, ACK, 3));
        assert_eq!(TcpState::Established, ends.tracking.state());
        // The connection closes like a new connection.
        ends.send(direction, FIN | ACK, 0);
        assert_eq!(
            TimeoutClass::TCP_TRANSITORY_CLOSE,
            ends.send(direction.opposite(), FIN | ACK, 0)
        );
    }
}

#[test]
fn fin_that_has_overtaken_data_counts_by_what_it_acknowledges() {
    for direction in [Forward, Reverse] {
        let mut ends = Ends::open(100, 200);
        ends.send(direction.opposite(), FIN | ACK, 0);
        ends.next[direction as usize] += 3000;
        let acknowledged = ends.next[direction.opposite() as usize];
        ends.next[direction.opposite() as usize] = acknowledged - 5;
        assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(direction, FIN | ACK, 10));
        ends.next[direction.opposite() as usize] = acknowledged;
        assert_eq!(TimeoutClass::TCP_TRANSITORY_CLOSE, ends.send(direction, FIN | ACK, 10));
    }
}

#[test]
fn picked_up_connection_is_established_and_accepts_its_reset() {
    let mut ends = Ends {
        next: [100, 200],
        tracking: Tracking::midstream(),
    };
    assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Reverse, ACK, 1000));
    assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.send(Forward, ACK, 0));
    assert_eq!(TimeoutClass::TCP_TRANSITORY_CLOSE, ends.send(Reverse, RST, 0));
}

#[test]
fn spoofed_data_far_ahead_do_not_move_the_window_of_resets() {
    let mut ends = Ends::open(100, 200);
    let far = ends.next[1].wrapping_add(MAX_IN_FLIGHT + 1);
    let data = Segment {
        flags: ACK,
        sequence: far,
        acknowledgment: 0,
        length: 1000,
    };
    ends.tracking.track(Reverse, &data);
    let reset = Segment {
        flags: RST,
        sequence: far + 1000,
        acknowledgment: 0,
        length: 0,
    };
    assert_eq!(TimeoutClass::UNCHANGED, ends.tracking.track(Reverse, &reset));
    assert_eq!(TimeoutClass::TCP_TRANSITORY_CLOSE, ends.send(Reverse, RST, 0));
}

#[test]
fn segment_opens_only_as_a_syn_alone() {
    let opens = |flags| {
        Segment {
            flags,
            ..Segment::default()
        }
        .opens()
    };
    assert!(opens(SYN));
    assert!(opens(SYN | 0xc0));
    assert!(
        [ACK, SYN | ACK, SYN | RST, SYN | FIN, RST, 0]
            .into_iter()
            .all(|flags| !opens(flags))
    );
}

#[test]
fn segment_reads_the_header_and_counts_data() {
    let mut bytes = vec![0; 37];
    bytes[4..12].copy_from_slice(&[0, 0, 1, 2, 0, 0, 3, 4]);
    (bytes[12], bytes[13]) = (6 << 4, ACK);
    let expected = Segment {
        flags: ACK,
        sequence: 0x102,
        acknowledgment: 0x304,
        length: 13,
    };
    assert_eq!(Some(expected), Segment::read(&bytes));
    assert_eq!(None, Segment::read(&bytes[..19]));
}

#[test]
fn rfc4787_req5a_datagrams_keep_the_timer_of_their_port() {
    let schedule = Schedule::new(&Timeouts {
        udp_by_port: vec![(53, 15)],
        ..Timeouts::default()
    })
    .unwrap();
    let timer = |protocol, port| {
        let mut tracking = Tracking::of_datagrams(protocol, port, &schedule);
        assert!(!tracking.answered());
        let class = tracking.track_datagram(Forward);
        assert_eq!(class, tracking.track_datagram(Reverse));
        assert!(tracking.answered());
        schedule.seconds(class)
    };
    assert_eq!(
        [15, 300, 60, 60, 300],
        [timer(17, 53), timer(17, 443), timer(1, 9), timer(58, 9), timer(47, 0)]
    );
}

proptest! {
    #[test]
    fn rfc7857_section2_2_reset_outside_the_window_changes_nothing(
        client: u32, server: u32, talk in proptest::collection::vec((any::<bool>(), 0u32..3000), 0..20),
        backward: bool, guess: u32,
    ) {
        let mut ends = Ends::open(client, server);
        for (backward, length) in talk {
            ends.send(if backward { Reverse } else { Forward }, ACK, length);
        }
        let direction = if backward { Reverse } else { Forward };
        // Everything is acknowledged except the last segment of this endpoint.
        let next = ends.next[direction as usize];
        prop_assume!(next.wrapping_sub(guess) > 60_000);
        let before = ends.tracking;
        let reset = Segment { flags: RST, sequence: guess, acknowledgment: 0, length: 0 };
        prop_assert_eq!(TimeoutClass::UNCHANGED, ends.tracking.track(direction, &reset));
        prop_assert_eq!(before.state(), ends.tracking.state());
        prop_assert_eq!(TimeoutClass::TCP_TRANSITORY_CLOSE, ends.send(direction, RST, 0));
    }

    #[test]
    fn fin_outside_the_window_changes_no_state(
        client: u32, server: u32, talk in proptest::collection::vec((any::<bool>(), 0u32..3000), 0..20),
        backward: bool, guess: u32, acknowledgment: u32, length in 0u32..1460,
    ) {
        let mut ends = Ends::open(client, server);
        for (backward, length) in talk {
            ends.send(if backward { Reverse } else { Forward }, ACK, length);
        }
        let direction = if backward { Reverse } else { Forward };
        let [next, other] = [direction, direction.opposite()].map(|side| ends.next[side as usize]);
        prop_assume!(next.wrapping_sub(guess) > 62_000 && other.wrapping_sub(acknowledgment) > 60_000);
        let fin = Segment { flags: FIN | ACK, sequence: guess, acknowledgment, length };
        prop_assert_eq!(TimeoutClass::TCP_ESTABLISHED, ends.tracking.track(direction, &fin));
        prop_assert_eq!(TcpState::Established, ends.tracking.state());
    }

    #[test]
    fn forged_acknowledgments_do_not_move_the_window_of_fins(
        client: u32, server: u32, forward: bool, guesses: (u32, u32), forged: [(u32, u32); 3],
    ) {
        let mut ends = Ends::open(client, server);
        ends.send(Forward, ACK, 100);
        ends.send(Reverse, ACK, 100);
        let direction = if forward { Forward } else { Reverse };
        let next = |side: Direction| ends.next[side as usize];
        let far = |guess: u32, next: u32| guess.wrapping_sub(next).wrapping_add(MAX_IN_FLIGHT) > 2 * MAX_IN_FLIGHT;
        prop_assume!(far(guesses.0, next(direction)) && far(guesses.1, next(direction.opposite())));
        let mut tracking = ends.tracking;
        for (sequence, acknowledgment) in forged {
            prop_assume!(far(sequence, next(direction)));
            let segment = Segment { flags: ACK, sequence, acknowledgment, length: 0 };
            tracking.track(direction, &segment);
        }
        // A FIN is rejected if only a forged segment acknowledged its sequence number.
        for sequence in [guesses.1, forged[0].1, forged[1].1, forged[2].1] {
            prop_assume!(far(sequence, next(direction.opposite())));
            let fin = Segment { flags: FIN | ACK, sequence, acknowledgment: guesses.0, length: 0 };
            tracking.track(direction.opposite(), &fin);
            prop_assert_eq!(TcpState::Established, tracking.state());
        }
    }

    #[test]
    fn tracking_any_segments_the_short_way_is_the_long_way(
        segments in proptest::collection::vec((any::<bool>(), 0u8..64, 0u32..70_000, any::<bool>()), 1..60), client: u32,
        server: u32, timers in proptest::collection::vec(0u8..4, 60),
    ) {
        let mut ends = Ends::open(client, server);
        for ((backward, flags, length, data), timer) in segments.into_iter().zip(timers) {
            let direction = if backward { Reverse } else { Forward };
            ends.tracking.set_timer(TimeoutClass(timer));
            let segment = Segment {
                flags: if data { ACK } else { flags },
                sequence: ends.next[direction as usize].wrapping_add(length / 7).wrapping_sub(1000),
                acknowledgment: ends.next[1 - direction as usize],
                length,
            };
            let (mut short, mut long) = (ends.tracking, ends.tracking);
            let known = short.track_fast(direction, true, &segment, true);
            let class = long.track(direction, &segment);
            prop_assert_eq!(if known { long } else { ends.tracking }, short);
            prop_assert!(!known || class == long.timer());
            prop_assert!(known || !(data && class == long.timer() && ends.tracking.state() == TcpState::Established));
            // Data of a settled session only advances the numbers, and the session stays settled.
            if data && ends.tracking.is_settled(direction, true) {
                let mut shortest = ends.tracking;
                shortest.advance(direction, &segment);
                prop_assert_eq!(long, shortest);
                prop_assert!(known && shortest.is_settled(direction, true));
            }
            ends.tracking = long;
        }
    }

    #[test]
    fn tracking_any_datagrams_the_short_way_is_the_long_way(
        directions in proptest::collection::vec(any::<bool>(), 1..20), timer in 0u8..8, garbage: (u8, u32, u32, u32),
    ) {
        let mut tracking = Tracking::of_datagrams(17, 4000, &Schedule::default());
        tracking.set_timer(TimeoutClass(timer));
        let segment = Segment { flags: garbage.0, sequence: garbage.1, acknowledgment: garbage.2, length: garbage.3 };
        for backward in directions {
            let direction = if backward { Reverse } else { Forward };
            let (mut short, mut long) = (tracking, tracking);
            let known = short.track_fast(direction, false, &segment, true);
            let class = long.track_datagram(direction);
            prop_assert_eq!(class == tracking.timer(), known);
            prop_assert_eq!(if known { long } else { tracking }, short);
            // Datagrams of a settled session change nothing.
            prop_assert_eq!(known && tracking == long, tracking.is_settled(direction, false));
            tracking = long;
        }
    }

    #[test]
    fn tracking_any_segments_never_panics_and_agrees_with_the_table(
        segments in proptest::collection::vec((any::<bool>(), 0u8..32, 0u32..2000), 1..60), client: u32, server: u32,
    ) {
        let mut ends = Ends::open(client, server);
        let mut expected = TcpState::Established;
        for (backward, flags, length) in segments {
            // Segments in order and without SYN: the states of RFC 6146 after the connection is established.
            let flags = flags & !SYN | ACK;
            let flags = if flags & RST != 0 { flags & !FIN } else { flags };
            let direction = if backward { Reverse } else { Forward };
            let (reset, fin) = (flags & RST != 0, flags & FIN != 0);
            // The payload of a reset is not part of the data stream.
            let length = if reset { 0 } else { length };
            ends.send(direction, flags, length);
            let is_revived = length > 0
                && match expected {
                    TcpState::ClientFin => !backward,
                    TcpState::ServerFin => backward,
                    state => matches!(state, TcpState::BothFin | TcpState::Transitory),
                };
            expected = match (if is_revived { TcpState::Established } else { expected }, backward) {
                (TcpState::Established | TcpState::ClientFin | TcpState::ServerFin, _) if reset => TcpState::Transitory,
                (state, _) if reset => state,
                (TcpState::Established, false) if fin => TcpState::ClientFin,
                (TcpState::Established, true) if fin => TcpState::ServerFin,
                (TcpState::ClientFin, true) | (TcpState::ServerFin, false) if fin => TcpState::BothFin,
                (state, _) => state,
            };
            prop_assert_eq!(expected, ends.tracking.state());
        }
    }
}
