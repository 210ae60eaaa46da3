"""Scenarios consist of flows, and of steps that each send a packet. Scenarios are random, and equal for both systems.

A scenario does not contain the outside address and port of a flow, which each system chooses itself. A step specifies
"the answer of this flow", and `Seen` builds the packet from the address and port that the system has used.
"""

import dataclasses
import ipaddress

from lab.oracle import packet
from lab.oracle.world import random_host, side_of

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
# Maximum number of fragments that Sluice queues until the first of their datagram arrives.
WAITING = 8
RAMP = bytes(range(251)) * 8
# The output for packets that Linux's connection tracking considers invalid.
INVALID = "invalid"
# Ports that only destination rules use. These ports are lower than the ports that pools allocate.
UNLENT = range(600, 1000)


@dataclasses.dataclass(frozen=True)
class Flow:
    """A flow with its initiator and its target, each as (address, port)."""

    number: int
    protocol: int
    source: tuple
    target: tuple

    @property
    def near(self):
        """The interface on which the initiator's packets arrive."""
        return side_of(self.source[0])


@dataclasses.dataclass(frozen=True)
class Send:
    """A packet of a flow, or an answer. `form` contains arguments of the protocol's builder in `packet`."""

    flow: int
    answer: bool
    form: dict
    # Size of the fragments, and the order in which they are sent.
    size: int | None = None
    order: tuple = ()
    # A foreign sender instead of the flow's target: another port, or another address.
    stranger: str | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """An ICMP error about a received packet of a flow or a received answer. `about` is the IP ID of the step that
    sent the packet."""

    flow: int
    answer: bool
    about: int
    kind: int
    code: int
    parameter: int
    length: int
    identification: int
    sender: str | None = None
    fault: str | None = None


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Flows and steps; `name` reproduces the scenario. The outside link has an MTU of `outside_mtu` bytes."""

    name: str
    outside_mtu: int
    flows: tuple
    steps: tuple

    def but(self, steps):
        return dataclasses.replace(self, steps=tuple(steps))


class Seen:
    """The observed results of a system for a scenario's flows, and the next packets that depend on these results."""

    def __init__(self, scenario):
        self.scenario = scenario
        # Received datagram with its interface, by flow and direction, and by the IP ID that a step has sent.
        self.arrived = {}

    def frames(self, step):
        """The interface and the datagrams of a step. Returns `None` if the datagrams depend on packets that did not
        arrive, or exceed the MTU of the link."""
        made = self._made(step)
        if made and made[0] == "outside" and any(len(bytes(piece)) > self.scenario.outside_mtu for piece in made[1]):
            return None
        return made

    def _made(self, step):
        flow = self.scenario.flows[step.flow]
        if isinstance(step, Report):
            return self._report(step)
        if step.answer:
            if (flow.number, False) not in self.arrived:
                return None
            interface, last = self.arrived[flow.number, False]
            ends = _ends(last, flow)[::-1]
        else:
            interface, ends = flow.near, (flow.source, flow.target)
        if step.stranger == "port":
            ends = ((ends[0][0], ends[0][1] ^ 1), ends[1])
        elif step.stranger == "address":
            ends = ((_neighbour(ends[0][0]), ends[0][1]), ends[1])
        return interface, _build(flow.protocol, ends, step)

    def _report(self, step):
        if step.about not in self.arrived:
            return None
        interface, last = self.arrived[step.about]
        quoted = last.made(ttl=max(1, last.ttl - 1))
        if step.fault == "quoted-checksum":
            quoted = quoted.but(checksum=quoted.checksum ^ 0x0101)
        quote = bytes(quoted)
        if step.fault == "quoted-port":
            at = quoted.before + (4 if quoted.protocol == quoted.MESSAGES else 0)
            quote = quote[:at] + bytes([quote[at] ^ 0x10]) + quote[at + 1 :]
        sender = step.sender or last.destination
        receiver = _neighbour(last.source) if step.fault == "receiver" else last.source
        length = step.length + quoted.before - (40 if ":" in last.source else 20)
        report = packet.error(
            sender, receiver, step.kind, step.code, step.parameter, quote[:length],
            fault=step.fault == "checksum", identification=step.identification,
        )
        return interface, [report]

    def note(self, step, outputs):
        """Record received packets, each as (interface, datagram)."""
        if isinstance(step, Report) or step.stranger or is_malformed(step) or len(outputs) != 1:
            return
        interface, datagram = outputs[0]
        if interface != INVALID and datagram.whole and not datagram.is_error and not is_refusal(step, datagram):
            self.arrived[step.flow, step.answer] = (interface, datagram)
            self.arrived[step.form["identification"]] = (interface, datagram)


def is_malformed(step):
    """Whether a packet is malformed: a wrong checksum or length, or invalid flags."""
    if isinstance(step, Report):
        return step.fault == "checksum"
    control = step.form.get("control", ACK)
    nonsense = control == 0 or control & SYN and control & (FIN | RST)
    return bool(nonsense) or "spoil" in step.form or "fault" in step.form


def is_refusal(step, datagram):
    """Whether the packet is a reset with which a gateway has answered another packet."""
    control = step.form.get("control") if isinstance(step, Send) else None
    resets = datagram.protocol == packet.TCP and datagram.whole and len(datagram.payload) == 20 and datagram.payload[13] & RST
    return control is not None and not control & RST and bool(resets)


def is_prohibition(datagram):
    """Whether the packet is an error with which a filter may answer another packet."""
    told = (b"\x01\x04", b"\x01\x01") if datagram.MESSAGES == packet.ICMPV6 else (b"\x03\x03", b"\x03\x0d")
    return datagram.is_error and datagram.payload[:2] in told


def waits_for(step):
    """Flow and direction of a packet that must have arrived before a step; `None` if the step has no such condition."""
    if isinstance(step, Report):
        return (step.flow, step.answer)
    return (step.flow, False) if step.answer else None


def _neighbour(address):
    address = ipaddress.ip_address(address)
    return str(type(address)(int(address) ^ 1))


def _ends(datagram, flow):
    ports = datagram.ports or (0, 0)
    # An answer to an ICMP query contains the identifier of the query, because the flow's target has no port.
    other = ports[0] if flow.protocol == datagram.MESSAGES else ports[1]
    return ((datagram.source, ports[0]), (datagram.destination, other))


def _build(protocol, ends, step):
    form = dict(step.form)
    spoil = form.pop("spoil", None)
    # No two packets of a scenario have the same content.
    form["data"] = RAMP[form["identification"] % 251 :][: form.pop("length")]
    if protocol == packet.TCP:
        datagram = packet.tcp(ends, **form)
    elif protocol == packet.UDP:
        datagram = packet.udp(ends, **form)
    elif protocol != (packet.ICMPV6 if ":" in ends[0][0] else packet.ICMP):
        form.pop("fault", None)
        datagram = packet.other(ends[0][0], ends[1][0], protocol, **form)
    else:
        if step.answer:
            form["kind"] = packet.QUERIES.get(form["kind"], form["kind"])
        datagram = packet.query(ends, **form)
    if spoil == "header-checksum":
        datagram = datagram.made()
        datagram = datagram.but(checksum=datagram.checksum ^ 0x0101)
    elif spoil == "length":
        datagram = datagram.but(length=datagram.made().length + 8)
    elif spoil == "data-offset":
        body = bytearray(datagram.payload)
        body[12] = 0x20
        datagram = datagram.but(payload=bytes(body))
    if not step.size:
        return [datagram]
    pieces = packet.fragments(datagram, step.size)
    order = [index for index in step.order if index < len(pieces)]
    return [pieces[index] for index in order + [n for n in range(len(pieces)) if n not in order]]


class Maker:
    """Generates the scenarios of a world. The scenarios share no hosts or peers, so they can run in parallel."""

    KINDS = (8, 8, 8, 13, 15, 17, 0)
    LONG = (1200, 1372, 1400, 1452)
    UNSUMMED = 0.1
    SPOILS = ("header-checksum", "transport", "length", "data-offset")

    def __init__(self, world, pick):
        self.world, self.pick = world, pick
        self.taken = set()
        self.identification = 0

    def scenario(self, name):
        self.identification = 0
        flows = []
        hosts = [self._fresh(self._host) for _ in range(self.pick.choice([1, 2, 2, 3]))]
        peers = [self._fresh(self._peer) for _ in range(self.pick.choice([1, 2]))]
        for number in range(self.pick.choice([1, 1, 2, 3, 4])):
            flow = self._flow(number, [host for host in hosts if host], peers)
            # If two flows with equal addresses and ports reach one host, each system chooses another source port for
            # the second flow.
            if flow and all(self._ends(flow) != self._ends(other) for other in flows):
                flows.append(dataclasses.replace(flow, number=len(flows)))
        scripts = [self._script(flow) for flow in flows]
        steps = []
        while scripts := [script for script in scripts if script]:
            steps.append(self.pick.choice(scripts).pop(0))
        return Scenario(name, self.world.outside_mtu, tuple(flows), tuple(steps))

    def _fresh(self, make):
        for _ in range(50):
            address = make()
            if address not in self.taken and not address.endswith((".0", ".255")):
                self.taken |= {address, _neighbour(address)}
                return address
        return None

    def _host(self):
        return random_host(self.pick, self.world)

    def _peer(self):
        return f"198.{self.pick.choice([18, 19])}.{self.pick.randrange(256)}.{self.pick.randrange(1, 255)}"

    def _flow(self, number, hosts, peers):
        pick = self.pick
        protocol = pick.choice([packet.TCP, packet.TCP, packet.UDP, packet.UDP, packet.ICMP])
        peer = pick.choice(peers)
        port = pick.choice([1024, 4000, 4000, 40000, 65535, pick.randrange(1024, 65536), 500])
        server = pick.choice([53, 80, 443, 4000, pick.randrange(1024, 65536)])
        choice = pick.random()
        if choice < 0.2 and self.world.destinations:
            rule = pick.choice(self.world.destinations)
            protocol = packet.TCP if rule.protocol == "tcp" else packet.UDP
            return self._led(number, protocol, rule, hosts, (peer, port))
        if choice < 0.3:
            return Flow(number, protocol, (peer, port), (pick.choice(self.world.pool_addresses()), pick.choice(UNLENT)))
        if not hosts:
            return None
        if choice < 0.4 and len(hosts) > 1:
            source, target = pick.sample(hosts, 2)
            # A flow that no rule matches has no session in Sluice, so no rule may match its answers either.
            if self.world.source(source, side_of(target)) or not self.world.source(target, side_of(source)):
                return Flow(number, protocol, (source, port), (target, server))
        return Flow(number, protocol, (pick.choice(hosts), port), (peer, server))

    def _ends(self, flow):
        """Protocol and ends of a flow, as determined by rules."""
        protocol = {packet.TCP: "tcp", packet.UDP: "udp"}.get(flow.protocol)
        rule = self.world.destination(protocol, *flow.target, flow.near)
        target = (rule.to, rule.to_first + flow.target[1] - rule.first) if rule else flow.target
        return flow.protocol, flow.source, target

    def _led(self, number, protocol, rule, hosts, peer):
        """A flow that a destination rule matches."""
        pick = self.pick
        to_port = pick.randrange(rule.first, rule.last + 1)
        if rule.incoming in (None, "outside"):
            anywhere = pick.choice(["203.0.114.9", pick.choice(self.world.pool_addresses()), self._host()])
            return Flow(number, protocol, peer, (rule.address or anywhere, to_port))
        near = [host for host in hosts if side_of(host) == rule.incoming]
        return Flow(number, protocol, (near[0], peer[1]), (peer[0], to_port)) if near else None

    # Actions of a flow.

    def _script(self, flow):
        if flow.protocol == packet.TCP:
            steps = self._tcp(flow)
        elif flow.protocol == packet.UDP:
            steps = [self._datagram(flow, self.pick.random() < 0.4) for _ in range(self.pick.randrange(1, 8))]
        else:
            kind = self.pick.choice(self.KINDS)
            steps = [self._query(flow, kind, turn) for turn in range(self.pick.randrange(1, 6))]
        for _ in range(self.pick.choice([0, 0, 0, 1, 1, 2])):
            at = self.pick.randrange(1, len(steps) + 1)
            steps.insert(at, self._report(flow, self.pick.choice(steps[:at])))
        return [step for step in self._disturbed(steps) if step]

    def _fields(self):
        """Fields of the IP header. The IP ID makes a step's packet unique."""
        pick = self.pick
        self.identification += 1
        fields = {"identification": self.identification}
        if pick.random() < 0.5:
            fields["flags"] = packet.DF
        if pick.random() < 0.2:
            fields["tos"] = pick.choice([0xB8, 0x03, 0x10, 0xE0])
        if pick.random() < 0.1:
            fields["ttl"] = pick.choice([1, 1, 2, 255])
        if pick.random() < 0.05:
            fields["options"] = pick.choice([b"\x01\x01\x01\x00", b"\x94\x04\x00\x00"])
        return fields

    def _data(self):
        pick = self.pick
        if pick.random() < 0.15:
            return pick.choice(self.LONG)
        return pick.choice([0, 1, 8, 33, 100, 512])

    def _pieces(self, form, header):
        """Send some packets as fragments."""
        length = header + form["length"]
        if self.pick.random() > 0.12 or length < 80:
            return {}
        form["flags"] = 0
        form.pop("options", None)
        size = self.pick.choice([32, 64, 128, 256, 512])
        count = -(-length // size)
        order = list(range(count))
        if self.pick.random() < 0.6:
            self.pick.shuffle(order)
            # Sluice queues no more than this number of fragments before the first fragment.
            order.insert(min(order.index(0), WAITING), order.pop(order.index(0)))
        return {"size": size, "order": tuple(order)}

    def _send(self, flow, answer, form, header):
        return Send(flow.number, answer, form, **self._pieces(form, header))

    def _datagram(self, flow, answer):
        form = {"length": self._data(), **self._fields()}
        if self.pick.random() < self.UNSUMMED:
            form["sums"] = False
        return self._send(flow, answer, form, 8)

    def _query(self, flow, kind, turn):
        form = {"kind": kind, "sequence": turn, "length": self._data(), **self._fields()}
        # Only the first fragment shows that the datagram is an unsolicited answer.
        if kind not in packet.QUERIES:
            return Send(flow.number, False, form)
        return self._send(flow, self.pick.random() < 0.5, form, 8)

    def _tcp(self, flow):
        pick = self.pick
        sides = {False: pick.randrange(1 << 32), True: pick.randrange(1 << 32)}

        def segment(answer, flags, length=0):
            options = b"\x02\x04\x05\xb4\x01\x03\x03\x07" if flags & SYN else b""
            form = {
                "control": flags, "sequence": sides[answer], "acknowledgment": sides[not answer] if flags & ACK else 0,
                "length": length, "tcp_options": options, **self._fields(),
            }
            step = self._send(flow, answer, form, 20 + len(options))
            sides[answer] += length + bool(flags & (SYN | FIN))
            return step

        plays = {
            "refused": [(False, SYN), (True, RST | ACK), (False, SYN)],
            "simultaneous": [(False, SYN), (True, SYN), (False, SYN | ACK), (True, SYN | ACK), (False, ACK)],
            "silent": [(False, SYN), (False, SYN)],
            "midstream": [(False, ACK), (True, ACK), (False, SYN), (True, SYN | ACK), (False, ACK)],
            "answer-first": [(False, SYN | ACK), (False, RST), (False, FIN | ACK), (False, SYN)],
        }
        opening = [(False, SYN), (True, SYN | ACK), (False, ACK)]
        talk = [(pick.random() < 0.5, ACK | pick.choice([0, PSH])) for _ in range(pick.randrange(6))]
        closing = pick.choice([
            [(False, FIN | ACK), (True, FIN | ACK), (False, ACK)],
            [(True, FIN | ACK), (False, ACK), (False, FIN | ACK), (True, ACK)],
            [(False, FIN | ACK), (True, FIN | ACK), (False, ACK), (False, SYN), (True, SYN | ACK)],
            [(False, RST | ACK), (True, ACK), (False, SYN)],
            [(True, RST | ACK), (True, RST), (False, ACK)],
            [],
        ])
        names = ["ordinary"] * 8 + list(plays)
        name = pick.choice(names)
        play = opening + talk + closing if name == "ordinary" else plays[name]
        steps = []
        for answer, flags in play:
            steps.append(segment(answer, flags, self._data() if flags & ACK and not flags & (SYN | RST) else 0))
            if pick.random() < 0.03:
                steps.append(segment(pick.random() < 0.5, pick.choice([SYN, ACK, RST, FIN, URG, FIN | ACK, SYN | FIN, 0])))
        return steps

    def _report(self, flow, about):
        """An error about a packet, or about the packet quoted in it."""
        about_step = about.about if isinstance(about, Report) else about.form["identification"]
        pick = self.pick
        kind, codes = pick.choice([(3, range(16)), (3, [1, 3, 4, 13]), (11, [0, 1]), (12, [0, 1]), (4, [0]), (5, [1])])
        code = pick.choice(list(codes))
        parameter = 0
        if (kind, code) == (3, 4):
            parameter = pick.choice([576, 1280, 1300])
        elif kind == 12:
            parameter = pick.choice([0, 9, 16]) << 24
        elif kind == 5:
            parameter = 0xC6120001
        self.identification += 1
        faults = ["checksum", "quoted-checksum", "quoted-port", "receiver"]
        return Report(
            flow.number, about.answer, about_step, kind, code, parameter, pick.choice([28, 28, 48, 56, 128, 548, 20]),
            self.identification, sender=pick.choice([None, self._router(flow, about.answer)]),
            fault=pick.choice(faults) if pick.random() < 0.2 else None,
        )

    def _router(self, flow, answer):
        """A router on the link on which a packet of a flow, or an answer, arrives; `None` if source rules treat the
        router differently from the flow."""
        side = flow.near if answer else side_of(flow.target[0])
        if flow.near == "outside" and not answer:
            side = "inside1"
        router = {"inside1": "10.127.255.254", "inside2": "10.255.255.254", "outside": "198.19.255.254"}[side]
        if side != "outside" and answer:
            out = side_of(flow.target[0])
            if (self.world.source(router, out) is None) != (self.world.source(flow.source[0], out) is None):
                return None
        return router

    def _disturbed(self, steps):
        """Packets that are lost, duplicated, reordered, corrupted, or sent by another host."""
        pick = self.pick
        result = []
        for step in steps:
            if pick.random() < 0.03:
                continue
            result.append(step)
            if not isinstance(step, Send) or step.size:
                continue
            if pick.random() < 0.03:
                self.identification += 1
                result.append(dataclasses.replace(step, form={**step.form, "identification": self.identification}))
            if pick.random() < 0.06:
                self.identification += 1
                form = {**step.form, "identification": self.identification}
                result.append(dataclasses.replace(step, form=form, stranger=pick.choice(["port", "address"]), answer=True))
            if pick.random() < 0.06:
                self.identification += 1
                form = {**step.form, "identification": self.identification, "ttl": 64}
                spoil = pick.choice(self.SPOILS)
                if spoil == "transport":
                    form["fault"] = True
                elif spoil != "data-offset" or "acknowledgment" in form:
                    form["spoil"] = spoil
                result.insert(pick.randrange(len(result)), dataclasses.replace(step, form=form))
        for at in range(len(result) - 1):
            if pick.random() < 0.03:
                result[at], result[at + 1] = result[at + 1], result[at]
        return result
