"""Comparison with the kernel: after random changes of a namespace's table the gateway selects the same next hops as the kernel."""

import random
from ipaddress import ip_address, ip_network

import pytest

from lab import configuration, waiting
from lab.gateway import Sluice
from lab.host import Host
from lab.kernel_table import SEED, STEPS, Changes, KernelTable, SluiceTable, batch, compatible

pytestmark = pytest.mark.sluice


@pytest.fixture
def gateway(topology, binary):
    document = configuration.changed(
        configuration.standard(), routes=[], routers={"default": {"daemon": True}}, control={"log": "info"},
    )
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def router(gateway, topology):
    return Host("sluice-default", topology.folder, make=False)


class Race:
    """The kernel and the gateway, changed together."""

    def __init__(self, router, path):
        self.router = router
        self.kernel = KernelTable(router)
        self.sluice = SluiceTable(path)
        self.marks = 0
        self.history = []

    def change(self, lines, compat):
        """Change the table, and return when the gateway has read all changes."""
        mark = f"172.16.{self.marks // 250}.{self.marks % 250}"
        self.marks += 1
        compatible(self.router, compat)
        said = batch(self.router, [*lines, f"route add blackhole {mark}"])
        compatible(self.router, 1)
        self.history.append((lines, said))
        waiting.until(lambda: self.sluice.route(mark) == "blackhole", f"the gateway to read of {mark}")
        batch(self.router, [f"route delete blackhole {mark}"])

    def differences(self):
        """The addresses for which kernel and gateway choose different next hops."""
        both = ((address, self.kernel.route(address), self.sluice.route(address)) for address in Changes.SAMPLES)
        return [(address, kernel, sluice) for address, kernel, sluice in both
                if kernel != sluice and not self.is_own_to_linux(address, sluice)]

    def is_own_to_linux(self, address, sluice):
        """Whether a difference is specific to IPv6 in Linux.

        If the hash selects a dead next hop, Linux may continue with shorter prefixes. For a route with a next-hop
        object, Linux may show another route with such an object; the next hop that Linux uses must then be a next hop
        of the gateway.
        """
        if ":" not in address:
            return False
        table = self.table(address)
        taken = self.kernel.next_hop(address)
        may_take = taken in sluice if isinstance(sluice, dict) else taken == sluice
        return "dead" in table or "nhid" in table and may_take

    @staticmethod
    def covering(address):
        """The prefixes that contain an address."""
        return [prefix for family in Changes.PREFIXES for prefix in family if ip_address(address) in ip_network(prefix)]

    def table(self, address):
        """The kernel's routes to an address."""
        show = ["ip", "-6" if ":" in address else "-4", "-d", "route", "show", "table", "main", "exact"]
        return "".join(self.router.run(*show, prefix) for prefix in self.covering(address))

    def settle(self):
        """Wait until kernel and gateway agree. The error of a timeout shows the preceding changes."""
        try:
            waiting.until(lambda: not self.differences(), "the gateway to choose as the kernel does", 5)
        except waiting.Timeout:
            raise AssertionError(self.report(self.differences())) from None

    def report(self, differences):
        """The choices of kernel and gateway for differing addresses, the routes to these addresses, and the
        preceding changes."""
        lines = [f"step {len(self.history)}"]
        for address, kernel, sluice in differences:
            covering = self.covering(address)
            lines.append(f"{address}: the kernel {kernel}, the gateway {sluice}; changes of {' '.join(covering)}:")
            own = [(number, line) for number, (batch_, _) in enumerate(self.history) for line in batch_
                   if any(prefix in line.split() for prefix in covering) or not line.startswith("route")]
            lines += [f"  {number} {line}" for number, line in own[-60:]]
            lines.append(self.table(address))
            lines.append("\n".join(str(row) for row in self.sluice.rows(f"all=true&address={address}")))
        return "\n".join([*lines, self.router.run("ip", "nexthop")])


@pytest.fixture
def race(gateway, router):
    # With forwarding enabled, the kernel's choice does not depend on round robin or on the state of neighbours.
    router.setting("net.ipv6.conf.all.forwarding=1")
    return Race(router, gateway.document["control"]["socket"])


@pytest.mark.parametrize("links", [False, True], ids=["while_links_stay", "while_links_and_addresses_change"])
def test_gateway_chooses_the_next_hops_of_the_kernel(race, links):
    chosen = random.Random(SEED)
    changes, done, found = Changes(chosen, links), 0, set()
    while done < STEPS:
        steps = [changes.step() for _ in range(chosen.choice([1, 1, 2, 4, 8, 16]))]
        done += len(steps)
        race.change([line for step in steps for line in step], chosen.randrange(2))
        race.settle()
        found.update(str(race.kernel.route(address)) for address in Changes.SAMPLES)
    # The random table contained enough different routes.
    assert {"None", "blackhole", "unreachable", "prohibit"} < found
    assert len(found) > 50
