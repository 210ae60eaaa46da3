"""Accepted differences between Linux and Sluice, each with its reason. All other differences are failures."""

from lab.oracle import packet
from lab.oracle.scenario import ACK, FIN, INVALID, RST, SYN, Report, Send, is_malformed, is_prohibition, is_refusal
from lab.oracle.world import OWN, side_of

DIFFERENCES = {
    "stateless": "What no rule names, Sluice forwards as a router does, without a session. Linux tracks it, and refuses "
                 "what does not fit the connection.",
    "tcp-state": "Sluice translates every segment of a session (RFC 5382, REQ-2; RFC 7857, 2). Linux refuses those that "
                 "its state machine finds out of place, and flags that it finds odd.",
    "reset": "Linux forgets a connection at once whose SYN is answered by a reset. Sluice keeps the session for four "
             "minutes, so that nobody else's reset can end it (RFC 7857, 2.2).",
    "reopened": "A SYN that opens a closed connection again is a new connection, with a port of its own. When the old one is over "
                "is not the same: Linux waits for the last acknowledgment, lets none but the client open after a reset, and "
                "forgets what was refused.",
    "expired": "What is left of a packet's time is looked at before its session: its sender is told when it ran out. "
               "Linux has put what is invalid aside before.",
    "own-header": "Fields of the header of an error that the gateway makes itself: TTL, precedence, identification, DF.",
    "own-source": "An error about a packet to a translated address comes from the interface's own address, which can "
                  "answer for it (RFC 1812, 4.3.2.4). Linux puts the translated address in its place.",
    "own-quote": "Linux puts fragments together before it routes: its error quotes the whole datagram, Sluice's the first "
                 "fragment, as RFC 1812, 4.3.2.3, has it.",
    "quoted-checksum": "RFC 5508, REQ-3, wants the quoted header validated. Linux does not look at its checksum.",
    "redirect": "A redirect about a translated connection is of no use to the host that gets it: Linux drops it. Sluice "
                "translates it as every error (RFC 5508, REQ-4).",
    "deprecated": "Source quench and information requests are no longer passed on where addresses are translated "
                  "(RFC 5508, REQ-10c; RFC 6633; RFC 6918). Linux translates them.",
    "identification": "RFC 6864, 4.1 and 5.3: several hosts behind one address must not use the same identification, so "
                      "that Sluice gives those that are not atomic one of its own. Linux keeps the host's.",
}

# Accepted differences in worlds with a packet filter.
FILTER_DIFFERENCES = {
    "malformed": "Sluice forwards nothing that is malformed, whatever rules say: wrong checksums and lengths, flags without "
                 "sense. Linux looks at them where it tracks connections.",
    "order": "Sluice asks rules before it looks at a packet's time and length: who is refused learns nothing else. Linux "
             "counts down, and tells who sent what can't be forwarded, before its filter is asked.",
    "fragment": "The sender of a first fragment that is rejected is told (RFC 1812, 4.3.2.7, forbids it of later ones). "
                "Linux takes the checksum of the part for a wrong one of the whole, and is silent.",
    "rejected": "What would open no session is asked about by rules that reject as all else, and its sender told. Linux "
                "puts what is invalid aside before.",
    "unanswered": "All that follows the first packet of a flow passes. To Linux a connection is new until it is answered: "
                  "rules are asked about each packet so far, and may look at what differs between them.",
    "later": "The sender of an IPv6 fragment that rules reject is told, whichever it is (RFC 4443, 2.4 e). Linux tells it of the "
             "first one at most, whose checksum it may be able to look at.",
    "unasked": "Information requests are no queries to Sluice (RFC 6918): what answers them is asked about as any packet. To "
               "Linux an answer that nobody has asked for is invalid.",
    "unknown": "Errors about flows that are not known are asked about by rules as packets of their own, where addresses are "
               "not translated. To Linux they are invalid.",
}

# Accepted differences when a commit changes the rules.
COMMIT_DIFFERENCES = {
    "turned": "A session that a commit denies ends. What answers its packets may begin another if rules let it, and they are "
              "answers to that: they pass. To Linux it is the same connection still.",
}


class Forgiven:
    """Decides which differences of one scenario are accepted. `count` counts the accepted differences by name."""

    def __init__(self, world, scenario, count):
        self.world, self.scenario, self.count = world, scenario, count
        # Addresses and ports of the packets that Sluice has forwarded, by flow and direction.
        self.ends = {}
        # Flows with a reset or a FIN.
        self.closed = set()
        # Closed flows on which another connection has started.
        self.again = set()
        # Flows that Linux and Sluice treat as different connections.
        self.parted = set()
        # Flows of which Sluice has forwarded a packet, with the direction or the kind of foreign sender.
        self.passed = set()
        # Number of processed steps, and flows with forwarded answers since the rules changed.
        self.steps, self.answered = 0, set()
        # IP IDs of steps with packets that only Sluice forwarded.
        self.alone = set()

    def _forgive(self, name):
        assert name in DIFFERENCES | FILTER_DIFFERENCES | COMMIT_DIFFERENCES, name
        self.count[name] += 1
        return True

    # Rules that apply to a flow.

    def rule(self, flow):
        """The rule that matches a flow's first packet, or `None`."""
        protocol = {packet.TCP: "tcp", packet.UDP: "udp"}.get(flow.protocol)
        rule = self.world.destination(protocol, *flow.target, flow.near)
        return rule or self.world.source(flow.source[0], side_of(flow.target[0]))

    def plain(self, flow):
        """Whether the flow is forwarded without a session."""
        return self.world.filter is None and self.rule(flow) is None and self.world.pool_of(flow.target[0]) is None

    # Accepted differences.

    def unmade(self, step, linux, sluice):
        """Whether it is accepted that a step's packet was sent to only one system. Such a packet depends on an earlier
        packet that only this system has forwarded."""
        flow = self.scenario.flows[step.flow]
        if flow.number in self.parted or isinstance(step, Report) and linux is None and step.about in self.alone:
            return True
        return linux is None and self.plain(flow) and self._forgive("stateless")

    def verdict(self, step, linux, sluice):
        """Whether a difference in the set of forwarded packets is accepted, regardless of their content."""
        flow = self.scenario.flows[step.flow]
        if flow.number in self.parted:
            return True
        if sluice and step.answer and _opens(step) and flow.number in self.closed:
            self.parted.add(flow.number)
            return self._forgive("reopened")
        if self.world.filter and (name := self._filtered(step, linux, sluice)):
            return self._forgive(name)
        if linux and not sluice and isinstance(step, Report) and flow.number in self.again:
            # The error is about the previous connection, and the session of that connection has ended.
            return self._forgive("reopened")
        if linux and not sluice and _deprecated(step):
            if isinstance(step, Send):
                self.parted.add(flow.number)
            return self._forgive("deprecated")
        refused = all(interface == INVALID for interface, _ in linux)
        if not refused or not sluice:
            return (
                isinstance(step, Report) and step.fault == "quoted-checksum" and not sluice
                and self._forgive("quoted-checksum")
            )
        if isinstance(step, Report):
            names = {"stateless": linux and _told(linux[0][1]) == _told(sluice[0][1]), "redirect": step.kind == 5, "reset": flow.number in self.closed}
            name = next((name for name, holds in names.items() if holds), None)
        else:
            self.alone.add(step.form["identification"])
            names = {
                "expired": linux and step.form.get("ttl") == 1 and _own(sluice[0][1]), "stateless": self.plain(flow),
                "tcp-state": linux and flow.protocol == packet.TCP,
            }
            name = next((name for name, holds in names.items() if holds), None)
        return name is not None and self._forgive(name)

    def _filtered(self, step, linux, sluice):
        """The name of an accepted difference in the set of packets that passed a filter, or `None`."""
        flow = self.scenario.flows[step.flow]
        if not self.world.tracks and is_malformed(step) and linux:
            # If the packet was fragmented, only its first fragment may be recognised as malformed.
            return "malformed" if len(sluice) < len(linux) or not _all_pass(linux) else None
        if linux and isinstance(step, Send) and all(_can_not_go_on(datagram) for _, datagram in linux):
            # Rules may refuse some of the fragments.
            asked = [datagram for interface, datagram in sluice if not _refuses(step, [(interface, datagram)])]
            return "order" if len(asked) < len(linux) and all(map(_can_not_go_on, asked)) else None
        if isinstance(step, Send) and step.size and not self.world.tracks:
            told = [output for output in sluice if _refuses(step, [output])]
            passed = [output for output in sluice if output not in told]
            return "fragment" if len(told) == 1 and passed == linux else None
        if self.world.filter.follows and flow.number in self.answered and isinstance(step, Send) and not step.answer:
            if sluice and not _refuses(step, sluice) and (not linux or _refuses(step, linux)):
                self.parted.add(flow.number)
                return "turned"
        if isinstance(step, Send) and self._may_be_asked_again(step) and sluice and not _refuses(step, sluice):
            if not linux or _refuses(step, linux):
                self.alone.add(step.form["identification"])
                return "unanswered"
        if _opens(step) and not step.answer and flow.number in self.closed and sluice and not _refuses(step, sluice):
            if not linux or _refuses(step, linux):
                self.parted.add(flow.number)
                return "reopened"
        if linux and all(interface == INVALID for interface, _ in linux) and sluice:
            if _refuses(step, sluice):
                return "rejected"
            if isinstance(step, Send) and step.answer and _deprecated(step):
                return "unasked"
            if isinstance(step, Report) and not self.world.sources and not self.world.destinations:
                return "unknown" if step.fault in ("quoted-port", "receiver") else None
        return None

    def told_of_later(self, sluice):
        """Sluice's outputs without its errors about later IPv6 fragments that rules reject."""
        kept = [(name, datagram) for name, datagram in sluice or [] if not (is_prohibition(datagram) and _quotes_later(datagram))]
        if sluice and self.world.six and len(kept) < len(sluice) and self._forgive("later"):
            return kept
        return sluice

    def _may_be_asked_again(self, step):
        """Whether an earlier packet of the flow is still unanswered, and rules match fields that may differ between packets."""
        asked = self.world.tracks and any(map(self.world.filter.looks_at, ("code_points", "length", "flags")))
        first = (step.flow, step.stranger or False) in self.passed
        return asked and first and not step.answer and (step.flow, True) not in self.passed

    def own(self, linux, sluice):
        """Whether the gateway has generated the errors of a step."""
        return any(_own(datagram) for datagram in (linux, sluice)) and self._forgive("own-header")

    def source_of_own(self, linux, sluice):
        """Linux's error from the gateway, with Sluice's source address if the difference is accepted."""
        if _own(sluice) and not _own(linux):
            quoted = packet.read(linux.payload[8:], quoted=True)
            if linux.source == quoted.destination and self._forgive("own-source"):
                return linux.but(source=sluice.source)
        return linux

    def quote_of_refused(self, linux, sluice, told):
        """The packet quoted by an error of the filter. Linux has already decremented its TTL."""
        if self.world.filter and told and linux.ttl + 1 == sluice.ttl and self._forgive("order"):
            return linux.but(ttl=sluice.ttl)
        return linux

    def quote_of_own(self, linux, sluice):
        """The packet quoted by an error of the gateway about a fragment."""
        if sluice.flags & packet.MF and not linux.flags & packet.MF and self._forgive("own-quote"):
            return linux.but(flags=sluice.flags, length=sluice.length)
        return linux

    def identification(self, linux, sluice):
        """Linux's datagram with Sluice's IP ID, if the gateway may choose the IP ID. In IPv6 only fragments have an
        IP ID."""
        if self.world.six and linux.whole and not linux.atomic:
            return linux.but(identification=sluice.identification)
        if linux.identification != sluice.identification and not linux.flags & packet.DF:
            self._forgive("identification")
            return linux.but(identification=sluice.identification)
        return linux

    def reopened(self, step):
        """Whether Linux's mapping of a flow may change at this step."""
        flow = self.scenario.flows[step.flow]
        first = step.stranger or not step.answer
        return first and _opens(step) and flow.number in self.closed and self._forgive("reopened")

    def note(self, step, sluice):
        """Record a step that has been compared."""
        self.steps += 1
        late = self.steps > len(self.scenario.steps) // 2
        if late and isinstance(step, Send) and step.answer and not step.stranger and sluice and not _refuses(step, sluice):
            self.answered.add(step.flow)
        if isinstance(step, Send) and sluice and not _refuses(step, sluice):
            self.passed.add((step.flow, step.stranger or step.answer))
            if _opens(step) and step.flow in self.closed:
                self.passed.discard((step.flow, True))
                self.again.add(step.flow)
        if isinstance(step, Send) and step.form.get("control", 0) & (RST | FIN):
            self.closed.add(step.flow)

    # Conditions that must hold regardless of Linux.

    def wrong(self, step, sluice):
        """Describes an error in a packet that Sluice forwarded, according to the rules and earlier packets. Returns
        `None` if there is no error."""
        if not isinstance(step, Send) or step.stranger or len(sluice) != 1 or sluice[0][1].is_error:
            return None
        if step.flow in self.parted or step.answer and _opens(step) and step.flow in self.closed:
            # The answering host has started a new connection.
            return None
        if is_refusal(step, sluice[0][1]) or not sluice[0][1].whole:
            return None
        flow = self.scenario.flows[step.flow]
        interface, datagram = sluice[0]
        ends = (interface, datagram.source, datagram.destination, datagram.ports)
        if _opens(step) and flow.number in self.closed:
            # The packet starts a new connection with another port.
            for direction in (False, True):
                self.ends.pop((step.flow, direction), None)
        before = self.ends.setdefault((step.flow, step.answer), ends)
        if before != ends:
            return f"{ends} where its flow was {before} before"
        rule = self.rule(flow)
        if not step.answer and datagram.source != flow.source[0]:
            # The destination rule determines the destination. A source rule for this destination determines the source.
            led_to = getattr(rule, "to", None)
            sourcing = self.world.source(flow.source[0], side_of(led_to)) if led_to else rule
            pool = getattr(sourcing, "pool", None)
            if pool is None or datagram.source not in pool.addresses:
                return f"a source address that {rule} does not give"
        if step.answer:
            ports = (flow.target[1], flow.source[1]) if flow.protocol in packet.PORTS else None
            if flow.protocol == datagram.MESSAGES:
                ports = (flow.source[1],) * 2
            if ends != (flow.near, flow.target[0], flow.source[0], ports):
                return f"an answer that is not what the flow's sender expects"
        return None


def _refuses(step, outputs):
    """Whether the only output is an error of the filter to the sender of the packet."""
    if len(outputs) != 1:
        return False
    datagram = outputs[0][1]
    return is_refusal(step, datagram) or is_prohibition(datagram) and (_own(datagram) or _for_another(datagram))


def _can_not_go_on(datagram):
    """Whether the packet is an error about an expired TTL or an excessive length."""
    told = (b"\x03\0", b"\x02\0") if datagram.MESSAGES == packet.ICMPV6 else (b"\x0b\0", b"\x03\x04")
    return datagram.is_error and datagram.payload[:2] in told


def _for_another(error):
    """Whether the source of the error is the destination of the quoted packet, as in Linux's errors about translated
    packets."""
    return error.source == packet.read(error.payload[8:], quoted=True).destination


def _quotes_later(error):
    return _own(error) and packet.read(error.payload[8:], quoted=True).offset > 0


def _all_pass(outputs):
    return not any(_own(datagram) for _, datagram in outputs)


def _told(error):
    """Sender and receiver of an error, and addresses and ports of the quoted packet."""
    quoted = packet.read(error.payload[8:], quoted=True)
    return error.source, error.destination, quoted.source, quoted.destination, quoted.ports


def _opens(step):
    """Whether the step sends a SYN without other control flags."""
    return isinstance(step, Send) and step.form.get("control", 0) & (SYN | ACK | RST | FIN) == SYN


def _deprecated(step):
    """Whether the step sends a source quench, or an information request or its answer."""
    return step.kind == 4 if isinstance(step, Report) else step.form.get("kind") in (15, 16)


def _own(datagram):
    return datagram.is_error and datagram.source in OWN
