//! Simulates two hosts, the links on both sides of the gateway, and an attacker on the sender's side.

use sluice_inspect::evaluate::{IpFields, PacketFields, TcpFields};
use sluice_inspect::inspector::{FlowHandle, FlowPacket, Verdict};
use sluice_inspect::reason::Reason;
use sluice_wire::Direction::{self, Forward, Reverse};

use super::host::{ACK, Habits, Host, SYN};
use super::random::Random;
use crate::lab::{Lab, ends};

/// Pattern of the rule. No other content contains the letters of this pattern.
pub const PATTERN: &[u8] = b"MATCHME!";

/// Number of steps after which a conversation of this length is complete, unless a rule ends it.
fn most_steps(bytes: usize) -> usize {
    20_000 + 50 * bytes
}

/// Fixed properties of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Percentages of packets that are lost, reordered or duplicated, before and after the gateway.
    pub lost: [usize; 2],
    pub reordered: [usize; 2],
    pub doubled: [usize; 2],
    pub hosts: [Habits; 2],
    /// Length in bytes of each block. The hosts send blocks alternately.
    pub blocks: [usize; 4],
    /// Position of the pattern in the data: block, and offset in the block.
    pub planted: Option<(usize, usize)>,
    /// Number of injected packets before the gateway: segments with different data, and forged acknowledgements.
    pub hostile: usize,
}

impl Manner {
    pub fn random(random: &mut Random) -> Self {
        let share = |random: &mut Random, most: usize| [(); 2].map(|()| random.below(3) * random.below(most) / 2);
        let hosts = [(); 2].map(|()| Habits {
            buffer: [1, 40, 500, 3000, 100_000][random.below(5)] + random.below(100),
            scale: (!random.one_in(4)).then(|| random.below(4) as u8),
            sacks: random.one_in(2),
            fast_open: random.one_in(3),
            lenient: random.one_in(3),
            reads: !random.one_in(3),
            longest: [8, 60, 536, 1460][random.below(4)],
        });
        // Hosts with small windows get little data to send.
        let is_slow = hosts.iter().any(|host| host.buffer < 400);
        let is_fast = !is_slow && hosts.iter().all(|host| host.longest >= 536);
        let blocks = [(); 4].map(|()| match random.below(8) {
            0 => 0,
            1 if is_fast => 1 + random.below(12_000),
            1..6 => 1 + random.below(if is_slow { 60 } else { 300 }),
            _ => 1 + random.below(if is_slow { 150 } else { 3000 }),
        });
        let planted = random.one_in(2).then(|| (random.below(4), random.below(3000)));
        let planted = planted.filter(|(block, _)| blocks[*block] >= PATTERN.len());
        Self {
            lost: share(random, 30),
            reordered: share(random, 60),
            doubled: share(random, 20),
            hosts,
            blocks,
            planted: planted.map(|(block, place)| (block, place % (blocks[block] - PATTERN.len() + 1))),
            hostile: if random.one_in(3) { 1 + random.below(60) } else { 0 },
        }
    }
}

/// A segment in transit, with the direction of its sender.
struct Packet {
    direction: Direction,
    segment: Vec<u8>,
    /// Whether the segment arrives at the gateway on its sender's side.
    own_side: bool,
    /// Whether the segment is lost after the gateway and does not reach the other host.
    dies: bool,
}

/// Result of a conversation.
#[derive(Debug, Default)]
pub struct Outcome {
    pub matched: bool,
    pub steps: usize,
    pub hostile: usize,
}

pub struct World<'l> {
    lab: &'l mut Lab,
    flow: FlowHandle,
    manner: Manner,
    random: Random,
    hosts: [Host; 2],
    /// Other data for each stream, used by injected segments.
    others: [Vec<u8>; 2],
    before: Vec<Packet>,
    behind: Vec<Packet>,
    /// Number of blocks that were sent at least in part.
    begun: usize,
    outcome: Outcome,
    /// Whether the result of each segment is printed.
    tells: bool,
}

fn letters(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| b'a' + random.below(26) as u8).collect()
}

impl<'l> World<'l> {
    pub fn new(lab: &'l mut Lab, seed: u64, manner: Manner) -> Self {
        let mut random = Random(seed);
        let mut streams: [Vec<u8>; 2] = Default::default();
        let mut others: [Vec<u8>; 2] = Default::default();
        for (block, &length) in manner.blocks.iter().enumerate() {
            let from = streams[block % 2].len();
            let bytes = letters(&mut random, length);
            streams[block % 2].extend_from_slice(&bytes);
            others[block % 2].extend(letters(&mut random, length));
            if let Some((planted, place)) = manner.planted
                && planted == block
            {
                let at = from + place..from + place + PATTERN.len();
                // Hostile senders put the pattern only into the other data, and sometimes into both.
                if manner.hostile == 0 || random.one_in(4) {
                    streams[block % 2][at.clone()].copy_from_slice(PATTERN);
                }
                others[block % 2][at].copy_from_slice(PATTERN);
            }
        }
        let flow = lab.inspector.create_flow(true).expect("a place");
        let client = ends(6, [40_000, 80], Forward, false);
        lab.inspector.start_flow(flow, client, 0, 0);
        let most = [streams[1].len(), streams[0].len()];
        let [client, server] = streams;
        let initial = |random: &mut Random| match random.one_in(2) {
            true => 0u32.wrapping_sub(random.below(6000) as u32),
            false => random.draw() as u32,
        };
        let hosts = [
            Host::new(true, initial(&mut random), client, most[0], manner.hosts[0]),
            Host::new(false, initial(&mut random), server, most[1], manner.hosts[1]),
        ];
        let mut world = Self {
            lab,
            flow,
            manner,
            random,
            hosts,
            others,
            before: vec![],
            behind: vec![],
            begun: 0,
            outcome: Outcome::default(),
            tells: std::env::var("SLUICE_CONVERSATION").is_ok(),
        };
        world.begin_blocks();
        world
    }

    /// Starts the next block when the other host has received the preceding block completely.
    fn begin_blocks(&mut self) {
        while self.begun < 4 {
            let sent: [usize; 2] = [0, 1].map(|side| {
                let blocks = self.manner.blocks[..self.begun].iter().skip(side).step_by(2);
                blocks.sum()
            });
            let is_there = |side: usize| self.hosts[1 - side].ordered == sent[side];
            if !is_there(0) || !is_there(1) {
                return;
            }
            let side = self.begun % 2;
            self.hosts[side].may = sent[side] + self.manner.blocks[self.begun];
            self.begun += 1;
            if self.begun == 4 {
                self.hosts.iter_mut().for_each(|host| host.may_end = true);
            }
        }
    }

    fn put(&mut self, side: usize, segment: Option<Vec<u8>>) {
        let direction = [Forward, Reverse][side];
        self.before.extend(segment.map(|segment| Packet {
            direction,
            segment,
            own_side: true,
            dies: false,
        }));
    }

    /// Removes a segment in transit, which may be duplicated. `None` if the segment is lost.
    fn arrive(&mut self, behind: bool) -> Option<Packet> {
        let place = usize::from(behind);
        let Manner {
            lost,
            reordered,
            doubled,
            ..
        } = self.manner;
        let queue = if behind { &mut self.behind } else { &mut self.before };
        if queue.is_empty() {
            return None;
        }
        let which = match self.random.percent(reordered[place]) {
            true => self.random.below(queue.len()),
            false => 0,
        };
        let packet = queue.remove(which);
        if self.random.percent(doubled[place]) {
            queue.push(Packet {
                segment: packet.segment.clone(),
                ..packet
            });
        }
        (!self.random.percent(lost[place])).then_some(packet)
    }

    fn inspect(&mut self, mut packet: Packet) {
        let number = |at: usize| u32::from_be_bytes(packet.segment[at..at + 4].try_into().unwrap());
        let payload = usize::from(packet.segment[12] >> 4) * 4;
        let flags = packet.segment[13];
        let facts = PacketFields {
            ip: IpFields {
                ttl: 64,
                protocol: 6,
                ..IpFields::default()
            },
            tcp: Some(TcpFields {
                flags,
                sequence: number(4),
                acknowledgement: number(8),
                window: u16::from_be_bytes([packet.segment[14], packet.segment[15]]),
            }),
            payload: (packet.segment.len() - payload) as u32,
            ..PacketFields::default()
        };
        let seen = FlowPacket {
            ends: ends(6, [40_000, 80], packet.direction, flags & SYN == 0),
            fields: facts,
            direction: packet.direction,
            segment: &mut packet.segment,
            payload,
            own_side: packet.own_side,
        };
        let verdict = self.lab.packet(self.flow, seen);
        if self.tells {
            let [own, other] = match packet.direction {
                Forward => [0, 1],
                Reverse => [1, 0],
            };
            let from = |at: usize, host: usize| {
                let number = u32::from_be_bytes(packet.segment[at..at + 4].try_into().unwrap());
                number.wrapping_sub(self.hosts[host].initial.wrapping_add(1)) as i32
            };
            println!(
                "{:?} {:02x} {}+{} ack {} window {} own {} dies {}: {verdict:?}",
                packet.direction,
                flags,
                from(4, own),
                packet.segment.len() - payload,
                from(8, other),
                u16::from_be_bytes([packet.segment[14], packet.segment[15]]),
                packet.own_side,
                packet.dies,
            );
        }
        match verdict {
            Verdict::Pass => self.behind.push(packet),
            Verdict::Drop(Reason::Signature) => self.outcome.matched = true,
            Verdict::Drop(reason) => {
                let is_usual = matches!(
                    reason,
                    Reason::FlowDropped
                        | Reason::GapFull
                        | Reason::NoMemory
                        | Reason::OutOfWindow
                        | Reason::BeyondEnd
                        | Reason::Handshake
                        | Reason::Midstream
                );
                assert!(is_usual, "{reason:?} of {packet:?}", packet = packet.segment);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a segment with different bytes for sequence numbers of the current block, or an acknowledgement of bytes
    /// that were never sent.
    fn attack(&mut self) {
        if self.outcome.hostile == self.manner.hostile || self.begun == 0 {
            return;
        }
        let side = (self.begun - 1) % 2;
        let end = self.hosts[side].may;
        let block = self.manner.blocks[self.begun - 1];
        if block == 0 || !self.hosts[side].is_established {
            return;
        }
        self.outcome.hostile += 1;
        if self.random.one_in(4) {
            // A forged segment with the other host's address is sent from this host's side.
            let segment = self.hosts[1 - side].acknowledgment(self.random.below(3000) as u32);
            self.before.push(Packet {
                direction: [Reverse, Forward][side],
                segment,
                own_side: false,
                dies: true,
            });
            return;
        }
        let from = end - block + self.random.below(block);
        let to = end.min(from + 1 + self.random.below(60));
        let segment = self.hosts[side].segment(&self.others[side], from, to, ACK);
        let dies = self.random.one_in(2);
        if !dies {
            // The sending host advances, as after any other sent segment.
            self.hosts[side].next = self.hosts[side].next.max(to);
        }
        self.before.push(Packet {
            direction: [Forward, Reverse][side],
            segment,
            own_side: true,
            dies,
        });
    }

    fn step(&mut self) {
        match self.random.below(10) {
            side @ 0..2 => {
                let sent = self.hosts[side].send(&mut self.random);
                self.put(side, sent);
            }
            2..5 => {
                if let Some(packet) = self.arrive(false) {
                    self.inspect(packet);
                }
            }
            5..8 => {
                if let Some(packet) = self.arrive(true).filter(|packet| !packet.dies) {
                    let side = 1 - packet.direction as usize;
                    let answer = self.hosts[side].receive(&packet.segment, &mut self.random);
                    self.put(side, answer);
                    self.begin_blocks();
                }
            }
            8 => {
                let side = self.random.below(2);
                let said = self.hosts[side].read(&mut self.random);
                self.put(side, said);
                self.attack();
            }
            _ => {
                if self.before.is_empty() && self.behind.is_empty() || self.random.one_in(20) {
                    for side in 0..2 {
                        let sent = self.hosts[side].time_out(&mut self.random);
                        self.put(side, sent);
                    }
                }
            }
        }
    }

    /// Checks that the data delivered to applications never contains the whole pattern, for every preference of a
    /// receiver.
    fn check(&self) {
        for (side, host) in self.hosts.iter().enumerate() {
            for assembly in &host.received {
                let delivered = assembly.delivered(host.ordered);
                let found = delivered.windows(PATTERN.len()).position(|bytes| bytes == PATTERN);
                assert_eq!(
                    None,
                    found,
                    "side {side}, {:?}: {}",
                    assembly.prefers,
                    delivered.escape_ascii()
                );
                if self.manner.hostile == 0 {
                    assert!(self.hosts[1 - side].content.starts_with(&delivered));
                }
            }
        }
    }

    pub fn run(mut self) -> Outcome {
        let mut after = 0;
        let most = most_steps(self.manner.blocks.iter().sum());
        while !self.hosts.iter().all(Host::is_done) && after < 400 {
            self.step();
            self.outcome.steps += 1;
            after += usize::from(self.outcome.matched);
            assert!(self.outcome.steps < most, "it is not over: {}", self.story());
        }
        self.check();
        let plants = self.manner.planted.is_some();
        match self.manner.hostile {
            0 => assert_eq!(plants, self.outcome.matched, "{}", self.story()),
            _ => assert!(plants || !self.outcome.matched),
        }
        assert_eq!(
            !self.outcome.matched,
            self.hosts.iter().all(Host::is_done),
            "{}",
            self.story()
        );
        self.lab.inspector.remove_flow(self.flow);
        assert_eq!((0, 0, 0), self.lab.inspector.streams().used());
        self.outcome
    }

    fn story(&self) -> String {
        let of = |host: &Host| {
            let Host {
                may,
                next,
                acknowledged,
                reach,
                ordered,
                end,
                is_established,
                ..
            } = host;
            format!(
                "may {may} next {next} acknowledged {acknowledged} reach {reach} ordered {ordered} end {end:?} {is_established}"
            )
        };
        format!("{:?}; {}; {}", self.manner, of(&self.hosts[0]), of(&self.hosts[1]))
    }
}
