"""Clients determine the behaviour of a pool from outside, which must match the configuration (RFC 5780 for UDP, and
equivalent tests for TCP).

Every configuration has a pool of one address. One address of alice and one address of bob are translated to the pool's
address.
"""

import dataclasses
import errno
import select
import socket
import struct

import pytest

from lab import configuration, stun, waiting

pytestmark = pytest.mark.sluice

INDEPENDENT = "endpoint-independent"
BY_ADDRESS = "address-dependent"
BY_PORT = "address-and-port-dependent"
SERVERS = ("198.51.100.130", "198.51.100.131")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Configuration keys of a pool, and the resulting mapping and filtering behaviour."""

    keys: dict
    udp: tuple
    tcp: tuple


SETTINGS = {
    "as-it-comes": Setting({}, udp=(INDEPENDENT, INDEPENDENT), tcp=(INDEPENDENT, INDEPENDENT)),
    "by-address": Setting({"filtering": BY_ADDRESS}, udp=(INDEPENDENT, BY_ADDRESS), tcp=(INDEPENDENT, BY_ADDRESS)),
    "by-port": Setting({"filtering": BY_PORT}, udp=(INDEPENDENT, BY_PORT), tcp=(INDEPENDENT, BY_PORT)),
    "symmetric": Setting({"mapping": BY_PORT}, udp=(BY_PORT, BY_PORT), tcp=(BY_PORT, BY_PORT)),
    "each-its-own": Setting(
        {"mapping": {"udp": BY_PORT}, "filtering": {"tcp": BY_ADDRESS}},
        udp=(BY_PORT, BY_PORT), tcp=(INDEPENDENT, BY_ADDRESS),
    ),
}
each_setting = pytest.mark.parametrize("name", SETTINGS)


def _last(name):
    """The last byte of the addresses of a setting."""
    return 16 + list(SETTINGS).index(name)


def _alice(name):
    return f"192.168.1.{_last(name)}"


def _bob(name):
    return f"192.168.2.{_last(name)}"


def _pool(name):
    return f"203.0.113.{_last(name)}"


@pytest.fixture(scope="module")
def document():
    made = configuration.standard()
    made["nat"] = {
        "pools": {name: {"addresses": [_pool(name)], **setting.keys} for name, setting in SETTINGS.items()},
        "source": [
            {"from": f"{address}/32", "out": "outside", "pool": name}
            for name in SETTINGS for address in (_alice(name), _bob(name))
        ],
    }
    return made


@pytest.fixture(scope="module", autouse=True)
def addressed(topology):
    topology.server.run("ip", "address", "add", f"{SERVERS[1]}/25", "dev", "eth0")
    for name in SETTINGS:
        topology.alice.run("ip", "address", "add", f"{_alice(name)}/24", "dev", "eth0")
        topology.bob.run("ip", "address", "add", f"{_bob(name)}/24", "dev", "eth0")


@pytest.fixture(scope="module")
def server(topology, addressed):
    return stun.Server(topology.server, SERVERS)


@pytest.fixture(scope="module")
def discoveries(topology, gateway, server):
    """The results of the clients of all settings. The clients run in parallel, because they wait for filtered
    packets."""
    return {
        (name, what): stun.Discovery(topology.alice, _alice(name), server, what)
        for what in ("mapping", "filtering", "hairpinning") for name in SETTINGS
    }


@each_setting
def test_rfc4787_req1_udp_is_mapped_as_set(discoveries, name):
    assert SETTINGS[name].udp[0] == discoveries[name, "mapping"].result()


@each_setting
def test_rfc4787_req8_udp_is_filtered_as_set(discoveries, name):
    assert SETTINGS[name].udp[1] == discoveries[name, "filtering"].result()


@each_setting
def test_rfc4787_req9_udp_hairpins_to_a_socket_that_hears_everybody(discoveries, name):
    """The client sends a packet to itself, from a second socket to which the first socket has not sent."""
    assert (SETTINGS[name].udp[1] == INDEPENDENT) == discoveries[name, "hairpinning"].result()


def _socket(host, kind, local):
    """A socket that shares its local address and port."""
    made = host.open_socket(kind=kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(local)
    return made


def _connected(host, kind, local, remote):
    made = _socket(host, kind, local)
    made.connect(remote)
    return made


def _listening(host, local):
    made = _socket(host, socket.SOCK_STREAM, local)
    made.listen(16)
    return made


class _Attempt:
    """A TCP connection that may be refused."""

    def __init__(self, host, local, remote):
        self.socket = _socket(host, socket.SOCK_STREAM, local)
        self.local = self.socket.getsockname()
        self.socket.setblocking(False)
        self.socket.connect_ex(remote)

    def over(self, timeout):
        return bool(select.select([], [self.socket], [], timeout)[1])

    def succeeds(self):
        """Wait for the result of the attempt, and return whether it succeeded. A refused attempt fails after six
        seconds (RFC 5382, REQ-4)."""
        assert self.over(20), "neither made nor refused"
        problem = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert problem in (0, errno.ECONNREFUSED), errno.errorcode[problem]
        return problem == 0


@each_setting
def test_rfc5382_req1_tcp_is_mapped_as_set(topology, gateway, server, name):
    """The tests of RFC 5780, 4.3: the same socket address sends to a first server, to a second server, and to
    another port of the second server."""
    places = [(SERVERS[0], stun.PORTS[0]), (SERVERS[1], stun.PORTS[0]), (SERVERS[1], stun.PORTS[1])]
    connections, local = [], (_alice(name), 0)
    for place in places:
        connections.append(_connected(topology.alice, socket.SOCK_STREAM, local, place))
        local = connections[0].getsockname()
    first, second, third = [stun.mapped(connection) for connection in connections]
    assert {_pool(name)} == {first[0], second[0], third[0]}
    found = INDEPENDENT if first == second else BY_ADDRESS if second == third else BY_PORT
    assert SETTINGS[name].tcp[0] == found


class _Contact:
    """A connection of alice to a server. The server then connects to alice's outside address and port, and to the
    port on which alice listens."""

    def __init__(self, topology, name):
        self.server = topology.server
        self.listener = _listening(topology.server, (SERVERS[0], 0))
        self.met = self.listener.getsockname()
        self.alice = _connected(topology.alice, socket.SOCK_STREAM, (_alice(name), 0), self.met)
        self.listening = _listening(topology.alice, self.alice.getsockname())
        self.accepted, self.mapped = self.listener.accept()
        self.attempts = {
            INDEPENDENT: self.back((SERVERS[1], 0)),
            BY_ADDRESS: self.back((SERVERS[0], 0)),
        }

    def back(self, local):
        return _Attempt(self.server, local, self.mapped)

    def arrives(self, attempt):
        """Whether a connection attempt reaches alice and succeeds."""
        if attempt.succeeds():
            _, peer = self.listening.accept()
            assert attempt.local == peer
            return True
        return False


@pytest.fixture(scope="module")
def contacts(topology, gateway, addressed):
    """The contacts of all settings, made in parallel because refused attempts wait."""
    return {name: _Contact(topology, name) for name in SETTINGS}


@each_setting
def test_rfc5382_req3_tcp_is_filtered_as_set(contacts, name):
    contact = contacts[name]
    let_in = [filtering for filtering, attempt in contact.attempts.items() if contact.arrives(attempt)]
    expected = {INDEPENDENT: [INDEPENDENT, BY_ADDRESS], BY_ADDRESS: [BY_ADDRESS], BY_PORT: []}
    assert expected[SETTINGS[name].tcp[1]] == let_in


@each_setting
def test_tcp_from_where_the_inside_host_has_connected_to_is_let_in(contacts, name):
    """The first connection is reset, so that another connection can use the same addresses and ports."""
    contact = contacts[name]
    contact.accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    contact.accepted.close()
    with pytest.raises(ConnectionResetError):
        contact.alice.recv(1)
    contact.alice.close()
    assert contact.arrives(contact.back(contact.met))


@pytest.fixture
def kept_out(gateway):
    """Returns a function that waits until more packets from outside were dropped since its last call. With one
    outside port per destination, packets from other hosts match no mapping and are counted as unsolicited."""

    def count():
        drops = gateway.drops()
        return drops.get("filtered", 0) + drops.get("unsolicited", 0)

    seen = [count()]

    def more():
        waiting.until(lambda: count() > seen[0], "a packet to be dropped")
        seen[0] = count()

    return more


def _behind(topology, server, kind, name):
    """A socket of alice and a socket of bob, and the outside address and port of each socket as seen by the STUN
    server."""
    hosts = ((topology.alice, _alice(name)), (topology.bob, _bob(name)))
    place = (SERVERS[0], stun.PORTS[0])
    asked = [_connected(host, kind, (address, 0), place) for host, address in hosts]
    return asked, [stun.mapped(each) for each in asked]


@each_setting
def test_rfc4787_req9_udp_hairpins_between_hosts_as_filtered(topology, server, kept_out, name):
    """A host receives packets from the other host's outside address and port if it has sent to that host. With ports
    that depend on the destination, it receives none."""
    mapping, filtering = SETTINGS[name].udp
    asked, (alice_outside, bob_outside) = _behind(topology, server, socket.SOCK_DGRAM, name)
    alice, bob = [_socket(host, socket.SOCK_DGRAM, each.getsockname())
                  for host, each in zip((topology.alice, topology.bob), asked)]
    for each in asked:
        each.close()
    bob.sendto(b"from bob", alice_outside)
    if filtering != INDEPENDENT:
        kept_out()
        alice.sendto(b"from alice", bob_outside)
        if mapping != INDEPENDENT:
            kept_out()
            return
        assert (b"from alice", alice_outside) == bob.recvfrom(100)
        bob.sendto(b"from bob", alice_outside)
    assert (b"from bob", bob_outside) == alice.recvfrom(100)
    alice.sendto(b"answer", bob_outside)
    assert (b"answer", alice_outside) == bob.recvfrom(100)


@each_setting
def test_rfc5382_req8_tcp_hairpins_between_hosts_as_filtered(topology, server, kept_out, name):
    """If filtering depends on the endpoint, both hosts must connect: a simultaneous open (REQ-2) through the
    gateway."""
    mapping, filtering = SETTINGS[name].tcp
    asked, (alice_outside, bob_outside) = _behind(topology, server, socket.SOCK_STREAM, name)
    alice, bob = [each.getsockname() for each in asked]
    listening = _listening(topology.alice, alice)
    calling = _Attempt(topology.bob, bob, alice_outside)
    if filtering == INDEPENDENT:
        answering, peer = listening.accept()
        assert bob_outside == peer
    else:
        kept_out()
        assert not calling.over(0)
        back = _Attempt(topology.alice, alice, bob_outside)
        if mapping != INDEPENDENT:
            kept_out()
            assert not calling.over(0) and not back.over(0)
            return
        assert back.succeeds()
        answering = back.socket
        answering.settimeout(5)
    assert calling.succeeds()
    calling.socket.settimeout(5)
    calling.socket.sendall(b"question")
    assert b"question" == answering.recv(100)
    answering.sendall(b"answer")
    assert b"answer" == calling.socket.recv(100)
