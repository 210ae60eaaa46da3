"""Worlds with a packet filter, and scenarios of hosts and ports that its rules name."""

import dataclasses
import random

from lab.oracle import packet
from lab.oracle.filter import OTHERS, Words, random_filter
from lab.oracle.scenario import Flow, Maker, Send
from lab.oracle.world import World, random_world, side_of

PORTS = (1024, 4000, 40000, 65535, 500, 53, 80, 443, 8080)
NEAR = ("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/23", "10.128.0.0/24", "10.128.64.0/23")
FAR = ("198.18.0.0/24", "198.18.1.0/24", "198.19.0.0/22")
KINDS = ("stateless", "stateless", "sessions", "translated")


def made(seed, number, count):
    """The world of a number, and its scenarios: the same of the same seed. Kinds of worlds take turns."""
    pick = random.Random(f"filter.{seed}.{number}")
    kind = KINDS[int(number) % len(KINDS)]
    fragments = kind == "stateless" or pick.random() < 0.5
    if kind == "translated":
        world = random_world(pick)
        near = tuple(rule.prefix for rule in world.sources)
        behind = tuple(f"{rule.to}/32" for rule in world.destinations)
        pools = tuple(f"{address}/32" for address in world.pool_addresses())
        words = Words((*near, *near, *NEAR[-2:], *FAR), (*FAR, *FAR, *behind, *behind, *near, pools[0]), (*PORTS, *(
            port for rule in world.destinations for port in (rule.first, rule.to_first))))
    else:
        mtu = pick.choice([1500, 1500, 1400, 1280, 576])
        world = World(outside_mtu=mtu, shards=pick.choice([1, 4, 16]))
        words = Words(NEAR + FAR, NEAR + FAR, PORTS)
    world = dataclasses.replace(world, filter=random_filter(pick, words, kind != "stateless", fragments))
    maker = (TranslatedMaker if kind == "translated" else FilterMaker)(world, pick, fragments)
    return world, [maker.scenario(f"{seed}.{number}.{index}") for index in range(count)]


class TranslatedMaker(Maker):
    """Where addresses are translated: as there, with more of what rules look at."""

    def __init__(self, world, pick, fragments):
        super().__init__(world, pick)
        self.fragments = fragments

    def _pieces(self, form, header):
        return super()._pieces(form, header) if self.fragments else {}


class FilterMaker(TranslatedMaker):
    """Where they are not: flows between any two sides, of any protocol."""

    def _host(self):
        return self._of(NEAR)

    def _of(self, networks):
        """A host of these networks, among which rules may name some."""
        rules = self.world.filter.rules
        named = [address for rule in rules for address in (*rule.sources, *rule.targets) if address.replace(".", "").isdigit()]
        if named and self.pick.random() < 0.3:
            return self.pick.choice(named)
        head, tail = self.pick.choice(networks).split("/")
        first, second, third, _ = head.split(".")
        third = int(third) + self.pick.randrange(1 << max(0, 24 - int(tail)))
        return f"{first}.{second}.{third}.{self.pick.randrange(1, 255)}"

    def _peer(self):
        return self._of(FAR)

    def _flow(self, number, hosts, peers):
        pick = self.pick
        hosts = [*hosts, *(peer for peer in peers if peer), *(host for host in [self._fresh(self._host)] if host)]
        if len(hosts) < 2:
            return None
        protocol = pick.choice([packet.TCP] * 3 + [packet.UDP] * 3 + [packet.ICMP] * 2 + [pick.choice(OTHERS)])
        source, target = pick.sample(hosts, 2)
        if side_of(source) == side_of(target) and pick.random() < 0.7:
            return None
        port = pick.choice([*PORTS[:5], pick.randrange(1024, 65536), 0 if protocol == packet.UDP else 1])
        return Flow(number, protocol, (source, port), (target, pick.choice([*PORTS, pick.randrange(1, 65536)])))

    def _script(self, flow):
        if flow.protocol not in OTHERS:
            return super()._script(flow)
        steps = [self._other(flow, self.pick.random() < 0.4) for _ in range(self.pick.randrange(1, 5))]
        if self.pick.random() < 0.4:
            report = self._report(flow, self.pick.choice(steps))
            # Less than a header and 8 bytes is no quote (RFC 792).
            steps.append(dataclasses.replace(report, length=max(28, report.length)))
        return steps

    def _other(self, flow, answer):
        form = {"length": self._data() + 8, **self._fields()}
        return Send(flow.number, answer, form, **self._pieces(form, 0))
