"""Worlds with a packet filter, and scenarios with hosts and ports from its rules."""

import dataclasses
import ipaddress
import random

from lab.oracle import packet
from lab.oracle.filter import OTHERS, Words, changed, random_filter
from lab.oracle.scenario import Flow, Maker, Report, Send, is_malformed
from lab.oracle.world import World, random_world, side_of

PORTS = (1024, 4000, 40000, 65535, 500, 53, 80, 443, 8080)
NEAR = ("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/23", "10.128.0.0/24", "10.128.64.0/23")
FAR = ("198.18.0.0/24", "198.18.1.0/24", "198.19.0.0/22")
NEAR6 = ("2001:db8::/64", "2001:db8:1::/48", "2001:db8:1:4::/62", "2001:db8:8000::/64", "2001:db8:8000:40::/63")
FAR6 = ("3fff::/64", "3fff:0:0:1::/64", "3fff:1::/62")
ROUTERS6 = {"inside1": "2001:db8:7fff::1", "inside2": "2001:db8:ffff::1", "outside": "3fff:fff::1"}
KINDS = ("stateless", "stateless6", "sessions", "translated", "stateless", "stateless6", "sessions6")


def made(seed, number, count):
    """The world with a number, and its scenarios. The same seed produces the same world and scenarios. The kinds of
    worlds alternate."""
    pick = random.Random(f"filter.{seed}.{number}")
    kind = KINDS[int(number) % len(KINDS)]
    six, stateless = kind.endswith("6"), kind.startswith("stateless")
    fragments = stateless or pick.random() < 0.5
    if kind == "translated":
        world = random_world(pick)
        near = tuple(rule.prefix for rule in world.sources)
        behind = tuple(f"{rule.to}/32" for rule in world.destinations)
        pools = tuple(f"{address}/32" for address in world.pool_addresses())
        words = Words((*near, *near, *NEAR[-2:], *FAR), (*FAR, *FAR, *behind, *behind, *near, pools[0]), (*PORTS, *(
            port for rule in world.destinations for port in (rule.first, rule.to_first))), NEAR6)
    else:
        mtu = pick.choice([1500, 1500, 1400, 1280] + [576] * (not six))
        world = World(outside_mtu=mtu, shards=pick.choice([1, 4, 16]), six=six)
        networks = (NEAR6 + FAR6, NEAR + FAR) if six else (NEAR + FAR, NEAR6 + FAR6)
        words = Words(networks[0], networks[0], PORTS, networks[1], six)
    world = dataclasses.replace(world, filter=random_filter(pick, words, not stateless, fragments))
    maker = TranslatedMaker if kind == "translated" else SixMaker if six else FilterMaker
    maker = maker(world, pick, fragments)
    return world, [maker.scenario(f"{seed}.{number}.{index}") for index in range(count)]


def made_to_count(seed, number, count):
    """A world without sessions, a changed version of this world, and scenarios. Each system evaluates the rules for
    every packet of a scenario, and for no other packets: no packet is malformed, has an expired TTL, or is too long."""
    pick = random.Random(f"count.{seed}.{number}")
    six = int(number) % 2 == 1
    networks = (NEAR6 + FAR6, NEAR + FAR) if six else (NEAR + FAR, NEAR6 + FAR6)
    words = Words(networks[0], networks[0], PORTS, networks[1], six)
    world = World(six=six, filter=random_filter(pick, words, False, True))
    maker = (SixMaker if six else FilterMaker)(world, pick, True)
    scenarios = [maker.scenario(f"{seed}.{number}.{index}") for index in range(count)]
    after = dataclasses.replace(world, filter=changed(pick, world.filter, words))
    return (world, after), [scenario.but(filter(_is_asked_about, scenario.steps)) for scenario in scenarios]


def made_to_follow(seed, number, count):
    """A world with sessions, another set of rules that replaces it, and scenarios. Rules match only fields that all
    packets of a flow have in common, because sessions are revalidated without a packet. Errors don't create
    sessions."""
    pick = random.Random(f"follow.{seed}.{number}")
    six = int(number) % 2 == 1
    networks = (NEAR6 + FAR6, NEAR + FAR) if six else (NEAR + FAR, NEAR6 + FAR6)
    words = Words(networks[0], networks[0], PORTS, networks[1], six)
    before = random_filter(pick, words, True, True)
    after = dataclasses.replace(changed(pick, before, words), follows=True)
    worlds = [
        World(six=six, filter=dataclasses.replace(one, rules=tuple(map(_of_flows, one.rules)))) for one in (before, after)
    ]
    maker = (SixMaker if six else FilterMaker)(worlds[0], pick, True)
    maker.KINDS = (128,) if six else (8,)
    scenarios = [maker.scenario(f"{seed}.{number}.{index}") for index in range(count)]
    return worlds, [_without_late_reports(scenario) for scenario in scenarios]


def _of_flows(rule):
    return dataclasses.replace(rule, flags=None, part=None, code_points=(), length=None)


def _without_late_reports(scenario):
    while True:
        half = len(scenario.steps) // 2
        kept = [step for at, step in enumerate(scenario.steps) if at < half or isinstance(step, Send)]
        if len(kept) == len(scenario.steps):
            return scenario
        scenario = scenario.but(kept)


def _is_asked_about(step):
    if is_malformed(step):
        return False
    return isinstance(step, Report) or step.form.get("ttl", 64) > 1


class TranslatedMaker(Maker):
    """Generates scenarios with translation, and with more variation of the fields that rules match."""

    def __init__(self, world, pick, fragments):
        super().__init__(world, pick)
        self.fragments = fragments

    def _pieces(self, form, header):
        return super()._pieces(form, header) if self.fragments else {}


class FilterMaker(TranslatedMaker):
    """Generates scenarios without translation. Flows connect any two interfaces, with any protocol."""

    NEAR, FAR, MESSAGES, HEADER = NEAR, FAR, packet.ICMP, 20
    ODD = packet.ICMPV6

    @property
    def _others(self):
        """Protocols without ports, including the protocols in rules."""
        return OTHERS if self.world.tracks else (*OTHERS, self.ODD)

    def _host(self):
        return self._of(self.NEAR)

    def _of(self, networks):
        """A host of these networks, often a host that occurs in a rule."""
        named = [address for address in self.world.filter.hosts() if (":" in address) == self.world.six]
        if named and self.pick.random() < 0.3:
            return self.pick.choice(named)
        network = ipaddress.ip_network(self.pick.choice(networks))
        # In a large IPv6 network, usually one of the first addresses is chosen.
        some = network.num_addresses if self.pick.random() < 0.3 else min(1 << 12, network.num_addresses)
        return str(network[self.pick.randrange(1, some - 1)])

    def _peer(self):
        return self._of(self.FAR)

    def _flow(self, number, hosts, peers):
        pick = self.pick
        hosts = [*hosts, *(peer for peer in peers if peer), *(host for host in [self._fresh(self._host)] if host)]
        if len(hosts) < 2:
            return None
        protocol = pick.choice([packet.TCP] * 3 + [packet.UDP] * 3 + [self.MESSAGES] * 2 + [pick.choice(self._others)])
        source, target = pick.sample(hosts, 2)
        if side_of(source) == side_of(target) and pick.random() < 0.7:
            return None
        port = pick.choice([*PORTS[:5], pick.randrange(1024, 65536), 0 if protocol == packet.UDP else 1])
        return Flow(number, protocol, (source, port), (target, pick.choice([*PORTS, pick.randrange(1, 65536)])))

    def _script(self, flow):
        if flow.protocol not in self._others:
            return super()._script(flow)
        steps = [self._other(flow, self.pick.random() < 0.4) for _ in range(self.pick.randrange(1, 5))]
        if self.pick.random() < 0.4:
            report = self._report(flow, self.pick.choice(steps))
            # A quote needs at least a header and 8 bytes (RFC 792).
            steps.append(dataclasses.replace(report, length=max(self.HEADER + 8, report.length)))
        return steps

    def _other(self, flow, answer):
        form = {"length": self._data() + 8, **self._fields()}
        return Send(flow.number, answer, form, **self._pieces(form, 0))


class SixMaker(FilterMaker):
    """Generates scenarios without translation for IPv6."""

    NEAR, FAR, MESSAGES, HEADER = NEAR6, FAR6, packet.ICMPV6, 40
    ODD = packet.ICMP
    KINDS = (128, 128, 128, 129)
    SPOILS = ("transport", "length", "data-offset")
    LONG = (1200, 1232, 1372, 1424)

    def _fields(self):
        pick = self.pick
        self.identification += 1
        fields = {"identification": self.identification}
        if pick.random() < 0.2:
            fields["tos"] = pick.choice([0xB8, 0x03, 0x10, 0xE0])
        if pick.random() < 0.1:
            fields["ttl"] = pick.choice([1, 1, 2, 255])
        if pick.random() < 0.2:
            fields["label"] = pick.randrange(1 << 20)
        # With connection tracking, Linux removes the fragment header of unfragmented packets.
        if not self.world.tracks and pick.random() < 0.05:
            fields["atomic"] = True
        if pick.random() < 0.1:
            filled = bytes([1, 4, 0, 0, 0, 0])
            fields["options"] = pick.choice([((packet.HOPS, filled),), ((packet.DESTINATION, filled),)])
        return fields

    def _report(self, flow, about):
        about_step = about.about if isinstance(about, Report) else about.form["identification"]
        pick = self.pick
        kind, codes = pick.choice([(1, range(8)), (1, [1, 3, 4]), (3, [0, 1]), (4, [0, 1, 2]), (2, [0])])
        parameter = {2: pick.choice([1280, 1300]), 4: pick.choice([0, 6, 40])}.get(kind, 0)
        self.identification += 1
        faults = ["checksum", "quoted-port", "receiver"]
        return Report(
            flow.number, about.answer, about_step, kind, pick.choice(list(codes)), parameter,
            pick.choice([48, 48, 68, 76, 148, 568, 40]), self.identification,
            sender=pick.choice([None, self._router(flow, about.answer)]),
            fault=pick.choice(faults) if pick.random() < 0.2 else None,
        )

    def _router(self, flow, answer):
        return ROUTERS6[flow.near if answer else side_of(flow.target[0])]
