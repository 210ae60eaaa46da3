"""Tests two providers: load sharing of hosts, and the effect on flows when a provider fails beyond its link."""

import contextlib
import re
import socket
import threading
import time

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.host import Host
from lab.routing import Frr
from lab.topology import Providers

pytestmark = pytest.mark.sluice

PORT = 7000
HEALTH = {"interval": "200ms", "timeout": "200ms", "failures": 3, "successes": 3}


@pytest.fixture(scope="module")
def topology():
    made = Providers()
    yield made
    made.remove()


def own(name):
    """The gateway's address at a provider."""
    return f"{Providers.LINKS[name][0]}.2"


@pytest.fixture(scope="module")
def document():
    """A configuration in which both uplinks probe the server. The address of an uplink is the address of its
    interface."""
    names = list(Providers.LINKS)
    interfaces = {name: {"device": name, "addresses": [f"{own(name)}/24"]} for name in names}
    uplinks = {
        name: {"interface": name, "via": [f"{Providers.LINKS[name][0]}.1"], "health": {"ping": [Providers.SERVER], **HEALTH}}
        for name in names
    }
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 16384, "ipv6": 4096},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {"inside": {"device": "inside", "addresses": ["192.168.1.1/24"]}, **interfaces},
        "uplinks": uplinks,
        "routes": [{"to": "0.0.0.0/0", "uplinks": names}],
        "nat": {
            "pools": {name: {"addresses": [own(name)]} for name in names},
            "source": [{"from": "192.168.0.0/16", "out": name, "pool": name} for name in names],
        },
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


class Echo:
    """A server that answers with the sender's address, followed by the received data."""

    def __init__(self, host):
        self.listener = host.listener(PORT)
        self.listener.settimeout(None)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                made, peer = self.listener.accept()
                threading.Thread(target=self._serve, args=(made, peer[0]), daemon=True).start()

    @staticmethod
    def _serve(made, peer):
        with contextlib.suppress(OSError), made:
            while made.recv(64):
                made.sendall(peer.encode() + b"\n")


@pytest.fixture(scope="module")
def echo(topology):
    return Echo(topology.server)


def connected(topology, address, timeout=5.0):
    """A connection of one of Alice's hosts to the server."""
    made = topology.alice.open_socket(kind=socket.SOCK_STREAM, timeout=timeout)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, 0))
    made.connect((Providers.SERVER, PORT))
    return made


def seen(made):
    """The outside address of a connection, after a check that the connection works."""
    made.sendall(b"who am I?")
    return made.recv(64).decode().strip()


def provider(topology, address):
    """The provider that a new connection of a host takes."""
    with connected(topology, address) as made:
        outside = seen(made)
    return next(name for name in Providers.LINKS if own(name) == outside)


def states(gateway):
    """The state of each uplink."""
    return {row["name"]: row.get("cause", "up") for row in gateway.show("uplinks")["uplinks"]}


def wait_for(gateway, timeout=10.0, **wanted):
    waiting.until(lambda: wanted.items() <= states(gateway).items(), f"uplinks {wanted}", timeout)


@contextlib.contextmanager
def cut(topology, name):
    """A provider loses its connection to the Internet, but its link to the gateway stays up."""
    host = topology.providers[name]
    host.run("iptables", "-w", "-I", "FORWARD", "-j", "DROP")
    yield
    host.run("iptables", "-w", "-D", "FORWARD", "-j", "DROP")


@pytest.fixture
def healthy(gateway, echo):
    """Wait until both uplinks are up before a test."""
    wait_for(gateway, fibre="up", cable="up")


@pytest.fixture
def shares(topology, healthy):
    """The provider of each of Alice's hosts."""
    found = {address: provider(topology, address) for address in Providers.HOSTS}
    assert set(Providers.LINKS) == set(found.values())
    return found


def test_host_keeps_its_provider_and_hosts_are_shared(topology, shares):
    again = {address: provider(topology, address) for address in Providers.HOSTS}
    assert shares == again


def test_failure_behind_the_link_moves_new_flows_and_leaves_those_of_the_other_provider(topology, gateway, shares):
    by = {name: next(address for address, other in shares.items() if other == name) for name in Providers.LINKS}
    kept, lost = connected(topology, by["cable"]), connected(topology, by["fibre"])
    with kept, lost:
        assert (own("cable"), own("fibre")) == (seen(kept), seen(lost))
        with cut(topology, "fibre"):
            wait_for(gateway, fibre="no-answer", cable="up")
            gateway.process.wait_for_line("uplink fibre: down, no host answers through the uplink")
            assert {"cable"} == {provider(topology, address) for address in Providers.HOSTS}
            # Connections through the other provider continue. Connections with an outside address of the failed
            # provider can't continue.
            assert own("cable") == seen(kept)
            lost.settimeout(1.0)
            with pytest.raises(OSError):
                seen(lost)
            rows = gateway.show("routes", "--all")["routes"]
            unused = {row.get("via"): row.get("unused") for row in rows if row["to"] == "0.0.0.0/0"}
            assert {"198.51.100.1": "uplink-down", "203.0.113.1": None} == unused
        wait_for(gateway, fibre="up", cable="up")
        assert own("cable") == seen(kept)
        assert shares == {address: provider(topology, address) for address in Providers.HOSTS}


def test_lost_link_counts_at_once(topology, gateway, shares):
    host = topology.providers["cable"]
    host.run("ip", "link", "set", "eth0", "down")
    wait_for(gateway, timeout=2.0, cable="link-down", fibre="up")
    assert {"fibre"} == {provider(topology, address) for address in Providers.HOSTS}
    host.run("ip", "link", "set", "eth0", "up")
    wait_for(gateway, fibre="up", cable="up")


def test_both_that_are_lost_leave_no_route(topology, gateway, healthy):
    with cut(topology, "fibre"), cut(topology, "cable"):
        wait_for(gateway, fibre="no-answer", cable="no-answer")
        with pytest.raises(OSError):
            connected(topology, Providers.HOSTS[0], timeout=3.0)
        assert gateway.drops()["no-route"] > 0


def test_table_says_what_checks_say(gateway, healthy):
    table = gateway.command("show", "uplinks")
    assert re.search(r"fibre +default +fibre +198\.51\.100\.1 +1 +up .* 192\.0\.2\.130 \d+ of \d+ in [\d.]+ ms", table), table


def test_routes_by_source_choose_an_uplink_and_go_back_when_it_is_lost(topology, gateway, document, healthy):
    network, guest, other = "192.168.1.16/28", "192.168.1.17", "192.168.1.2"
    gateway.apply(document | {"routes": [
        {"to": "0.0.0.0/0", "uplinks": ["fibre"]}, {"to": "0.0.0.0/0", "from": network, "uplinks": ["cable"]},
    ]})
    assert ["cable", "fibre"] == [provider(topology, guest), provider(topology, other)]
    rows = gateway.show("routes", Providers.SERVER, "--from", guest)["routes"]
    assert [(network, "203.0.113.1")] == [(row["from"], row["via"]) for row in rows]
    with cut(topology, "cable"):
        wait_for(gateway, cable="no-answer")
        assert ["fibre", "fibre"] == [provider(topology, guest), provider(topology, other)]
    gateway.apply(document)


BGP = """\
router bgp {own}
 bgp router-id {identifier}
 no bgp ebgp-requires-policy
{neighbours}
 address-family ipv4 unicast
{networks}
"""

BFD = """\
bfd
{peers}
"""


def bgp(own_as, identifier, peers, networks=()):
    """Configurations of bgpd and bfdd of a router."""
    neighbours = "".join(f" neighbor {peer} remote-as {number}\n neighbor {peer} bfd\n" for peer, number in peers)
    fast = " peer {}\n  detect-multiplier 3\n  receive-interval 100\n  transmit-interval 100\n"
    announced = "".join(f"  network {network}\n" for network in networks)
    return {
        "bgpd": BGP.format(own=own_as, identifier=identifier, neighbours=neighbours, networks=announced),
        "bfdd": BFD.format(peers="".join(fast.format(peer) for peer, _ in peers)),
    }


@pytest.fixture
def with_bgp(topology, gateway, document):
    """Each provider announces its own network by BGP, and BFD monitors the neighbours."""
    health = {name: {"route": announced, "successes": 1} for name, (_, _, announced) in Providers.LINKS.items()}
    uplinks = {name: {**uplink, "health": health[name]} for name, uplink in document["uplinks"].items()}
    fpm = {"listen": "127.0.0.1:2620"}
    gateway.apply(document | {"uplinks": uplinks, "routers": {"default": {"daemon": True, "fpm": fpm}}})
    running = []
    for name, (network, number, announced) in Providers.LINKS.items():
        host = topology.providers[name]
        host.run("ip", "route", "add", "blackhole", announced)
        running.append(Frr(host, None, **bgp(number, f"{network}.1", [(f"{network}.2", 65000)], [announced])))
    router = Host("sluice-default", topology.folder, make=False)
    peers = [(f"{network}.1", number) for network, number, _ in Providers.LINKS.values()]
    running.append(Frr(router, "127.0.0.1", **bgp(65000, "192.168.1.1", peers)))
    for frr in running:
        frr.start()
    yield running[-1]
    for frr in running:
        frr.kill()
    gateway.apply(document)


def test_neighbour_that_bfd_finds_gone_takes_its_uplink_down_in_a_second(topology, gateway, echo, with_bgp):
    waiting.until(lambda: 2 == with_bgp.ask("bfdd", "show bfd peers").count("Status: up"), "BFD with both", 30)
    settled = "FRR to have told all of its routes"
    waiting.until(lambda: gateway.show("routers")["routers"][0]["fpm"]["state"] == "settled", settled, 60)
    wait_for(gateway, timeout=90, fibre="up", cable="up")
    host = topology.providers["cable"]
    began = time.monotonic()
    host.run("iptables", "-w", "-I", "INPUT", "-j", "DROP")
    wait_for(gateway, timeout=5.0, cable="no-route", fibre="up")
    # Without BFD, BGP would detect the failure only after three minutes.
    assert time.monotonic() - began < 3
    assert {"fibre"} == {provider(topology, address) for address in Providers.HOSTS}
    host.run("iptables", "-w", "-D", "INPUT", "-j", "DROP")
    wait_for(gateway, timeout=90, fibre="up", cable="up")
