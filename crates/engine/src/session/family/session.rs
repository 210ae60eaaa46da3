//! The methods of a session record that both address families have.

use sluice_nat::{Decision, PoolIndex};
use sluice_table::flow::Record;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol;

use crate::packet::adjacency::AdjacencyIndex;
use crate::session::application::Application;
use crate::session::arrival::Arrival;
use crate::session::inspect_state::InspectState;
use crate::session::record::{Track, Verdict};

use super::Family;

/// The methods of a session record that nodes use.
pub trait Session<F: Family>: Record<Key = F::Key> + Default {
    /// The decisions that the slow path has made.
    fn verdict(&self) -> &Verdict;
    /// The decisions that the slow path has made, mutable. The express lane checks the session again before it takes a packet.
    #[inline(always)]
    fn verdict_mut(&mut self) -> &mut Verdict {
        self.stop_lane();
        self.verdict_in_lane()
    }
    /// The decisions that the slow path has made, mutable, for changes after which the express lane may still take the same
    /// packets.
    fn verdict_in_lane(&mut self) -> &mut Verdict;
    /// The state that is updated by packets.
    fn track(&self) -> &Track;
    /// The state that is updated by packets, mutable. The express lane checks the session again before it takes a packet.
    #[inline(always)]
    fn track_mut(&mut self) -> &mut Track {
        self.stop_lane();
        self.track_in_lane()
    }
    /// The state that is updated by packets, mutable, for changes after which the express lane may still take the same packets.
    fn track_in_lane(&mut self) -> &mut Track;
    /// Makes the express lane check the session again before it takes a packet.
    #[inline(always)]
    fn stop_lane(&mut self) {
        let [forward, reverse] = &mut self.verdict_in_lane().arrivals;
        (*forward, *reverse) = (forward.with_pass(false), reverse.with_pass(false));
    }
    /// Checks whether the express lane may take the usual packets of a direction, and stores the result: they must neither be
    /// diverted nor change the state of the connection or its timer.
    #[cold]
    fn admit_to_lane(&mut self, direction: Direction) -> bool {
        let is_tcp = self.protocol() == protocol::TCP;
        let admits = !self.diverts() && self.track().tracking.is_settled(direction, is_tcp);
        let arrival = &mut self.verdict_in_lane().arrivals[direction as usize];
        *arrival = arrival.with_pass(admits);
        admits
    }
    /// Sets the keys of both directions. The caller must set the keys before it inserts the record into a table.
    fn set_keys(&mut self, forward: F::Key, reverse: F::Key);

    /// Tuple of packets in the forward direction, in which the session's first packet was sent.
    #[inline(always)]
    fn forward(&self) -> F::Tuple {
        F::tuple(&self.key(Direction::Forward))
    }
    /// Tuple of packets in the reverse direction.
    #[inline(always)]
    fn reverse(&self) -> F::Tuple {
        F::tuple(&self.key(Direction::Reverse))
    }
    /// Translation of the session's packets.
    #[inline(always)]
    fn nat(&self) -> Decision {
        self.verdict().nat
    }
    /// Generation of the snapshot from which the decision for this session was made.
    #[inline(always)]
    fn generation(&self) -> u32 {
        self.verdict().generation
    }
    /// Sets the generation of the snapshot from which the decision for this session was made.
    fn set_generation(&mut self, generation: u32) {
        self.verdict_in_lane().generation = generation;
    }
    /// State of application identification. The state is [`Application::Nothing`] for ICMP sessions, which are never identified.
    #[inline(always)]
    fn application(&self) -> Application {
        match protocol::is_icmp(self.protocol()) {
            true => Application::Nothing,
            false => Application::from_bits(self.verdict().application),
        }
    }
    /// Sets the state of application identification.
    fn set_application(&mut self, application: Application) {
        if !protocol::is_icmp(self.protocol()) {
            self.verdict_mut().application = application.bits();
        }
    }
    /// IP protocol of the session.
    #[inline(always)]
    fn protocol(&self) -> u8 {
        F::protocol(&self.key(Direction::Forward))
    }
    /// What the arrival of packets of a direction is compared with.
    #[inline(always)]
    fn arrival(&self, direction: Direction) -> Arrival {
        self.verdict().arrivals[direction as usize]
    }
    /// Whether packets of a direction refresh the session.
    #[inline(always)]
    fn refreshes(&self, direction: Direction) -> bool {
        self.arrival(direction).refreshes()
    }
    /// Interface on which packets of a direction arrive; [`Arrival::NONE`] if every packet must pass source validation.
    #[inline(always)]
    fn bound_interface(&self, direction: Direction) -> u16 {
        self.arrival(direction).interface()
    }
    /// Binds a direction to a different interface.
    fn set_bound_interface(&mut self, direction: Direction, interface: u16) {
        let arrival = &mut self.verdict_mut().arrivals[direction as usize];
        *arrival = arrival.with_interface(interface);
    }
    /// Interface on which the first packet arrived.
    #[inline(always)]
    fn interface(&self) -> u16 {
        self.bound_interface(Direction::Forward)
    }
    /// Adjacency of a direction.
    #[inline(always)]
    fn adjacency(&self, direction: Direction) -> AdjacencyIndex {
        self.verdict().adjacency(direction)
    }
    /// Sets the adjacency of a direction.
    fn set_adjacency(&mut self, direction: Direction, adjacency: AdjacencyIndex) {
        self.verdict_mut().adjacencies[direction as usize] = adjacency.0;
    }
    /// State of the session's inspection.
    #[inline(always)]
    fn inspect(&self) -> InspectState {
        InspectState::from_bits(self.track().inspect)
    }
    /// Whether the session's packets are inspected, remarked or dropped before translation.
    #[inline(always)]
    fn diverts(&self) -> bool {
        self.track().inspect != 0
    }
    /// Sets the state of the session's inspection.
    fn set_inspect(&mut self, inspect: InspectState) {
        self.track_mut().inspect = inspect.bits();
    }
    /// Requests that packets are diverted in order to remark them, if they are not already diverted for another reason.
    fn remark(&mut self) {
        if matches!(self.inspect(), InspectState::Nothing | InspectState::Pending) {
            self.set_inspect(InspectState::Remarked);
        }
    }
    /// Sets the pool that owns the allocated port.
    fn set_pool(&mut self, pool: PoolIndex) {
        let verdict = self.verdict_mut();
        verdict.nat = verdict.nat.with_pool(pool);
    }
    /// Sets the reverse key and the translation. The caller must set them before it inserts the record into a table.
    fn translate_as(&mut self, reverse: F::Tuple, nat: Decision) {
        let forward = self.key(Direction::Forward);
        self.set_keys(forward, F::make_key(reverse, F::protocol(&forward)));
        self.verdict_mut().nat = nat;
    }
    /// Creates a record with all decisions of the slow path.
    fn made(parts: SessionParts<F>) -> Self {
        let mut session = Self::default();
        let keys = [parts.forward, parts.reverse].map(|tuple| F::make_key(tuple, parts.protocol));
        let arrival = |direction, interface| {
            let refreshes = parts.inbound_refresh | parts.nat.outbound(direction);
            Arrival::new(interface, refreshes)
        };
        *session.verdict_mut() = Verdict {
            nat: parts.nat,
            adjacencies: parts.hops.map(|hop| hop.0),
            generation: parts.generation,
            application: 0,
            arrivals: [
                arrival(Direction::Forward, parts.interface),
                // Reverse packets arrive on the egress interface of forward packets. The reverse direction of a
                // hairpinned flow is not bound to an interface.
                arrival(Direction::Reverse, parts.hops[0].interface() as u16),
            ],
        };
        session.set_keys(keys[0], keys[1]);
        session
    }
}

/// The fields of a new session.
#[derive(Clone, Copy, Debug)]
pub struct SessionParts<F: Family> {
    /// Key of the first packet.
    pub forward: F::Tuple,
    /// Key of the reverse direction.
    pub reverse: F::Tuple,
    /// Translation of the session.
    pub nat: Decision,
    /// Adjacencies by direction.
    pub hops: [AdjacencyIndex; 2],
    /// Generation of the snapshot.
    pub generation: u32,
    /// IP protocol of the session.
    pub protocol: u8,
    /// Whether inbound packets refresh the session.
    pub inbound_refresh: bool,
    /// Interface of the first packet.
    pub interface: u16,
}
