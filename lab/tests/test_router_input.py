"""Tests access to the host of a router, with filter rules with `out = "gateway"`, a real service on the host, and
connections that the host opens."""

import socket

import pytest

from lab import configuration
from lab.connection import connect, exchange
from lab.gateway import Sluice
from lab.host import Host
from lab.topology import Customers

pytestmark = pytest.mark.sluice

ONE, OTHER = Customers.NAMES[:2]
SSH, TELNET = 22, 23


def rule(name, action, **keys):
    written = {key.replace("_", "-"): value for key, value in keys.items()}
    return {"name": name, "action": action, "out": "gateway"} | written


CLOSED = rule("closed", "drop")
RULES = [rule("ssh", "accept", protocol="tcp", to_port=SSH, **{"in": f"{ONE}-in"}), CLOSED]


@pytest.fixture(scope="module")
def topology():
    made = Customers()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document():
    interfaces = {}
    for name in (ONE, OTHER):
        interfaces[f"{name}-in"] = {"device": f"{name}-in", "router": name, "addresses": ["10.0.0.1/24"]}
        interfaces[f"{name}-out"] = {"device": f"{name}-out", "router": name, "addresses": ["198.51.100.2/25"]}
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces,
        "routers": {
            ONE: {"daemon": True, "filter": {"default": "accept", "rules": RULES}},
            OTHER: {"daemon": True},
        },
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def hosts(gateway, topology):
    return {name: Host(f"sluice-{name}", topology.folder, make=False) for name in (ONE, OTHER)}


def counted(gateway):
    """The counters of the first router's rules."""
    return {row["name"].removeprefix(f"{ONE}/"): row["packets"] for row in gateway.show("filter")["rules"]}


def is_refused(client, server, address, port):
    """Whether a connection to a listening service is refused."""
    with server.listener(port), client.open_socket(socket.AF_INET, socket.SOCK_STREAM, timeout=1.5) as ours:
        try:
            ours.connect((address, port))
        except TimeoutError:
            return True
        return False


def pings(host, address):
    return "1 received" in host.run("ping", "-c", "1", "-W", "2", address, check=False)


def test_service_of_the_host_is_reached_where_a_rule_lets_it_be(topology, gateway, hosts):
    customer, server = topology.customers[ONE], topology.servers[ONE]
    before = counted(gateway)
    ours, theirs = connect(customer, hosts[ONE], "10.0.0.1", SSH)
    with ours, theirs:
        exchange(ours, theirs)
    assert before["ssh"] + 1 == counted(gateway)["ssh"]
    assert is_refused(customer, hosts[ONE], "10.0.0.1", TELNET)
    # No rule accepts the connection on another interface.
    assert is_refused(server, hosts[ONE], "198.51.100.2", SSH)
    assert counted(gateway)["closed"] >= before["closed"] + 2
    assert gateway.drops()["filter-drop"] >= 2


def test_connections_that_the_host_opens_itself_need_no_rule(topology, gateway, hosts):
    before = counted(gateway)
    ours, theirs = connect(hosts[ONE], topology.customers[ONE], "10.0.0.2", 8000)
    with ours, theirs:
        exchange(ours, theirs)
    assert pings(hosts[ONE], "10.0.0.2")
    assert before == counted(gateway)


def test_echo_requests_are_asked_about_and_other_routers_are_not(topology, gateway, hosts):
    before = counted(gateway)
    assert not pings(topology.customers[ONE], "10.0.0.1")
    assert before["closed"] < counted(gateway)["closed"]
    assert pings(topology.customers[OTHER], "10.0.0.1")
    ours, theirs = connect(topology.customers[OTHER], hosts[OTHER], "10.0.0.1", TELNET)
    with ours, theirs:
        exchange(ours, theirs)


def test_rule_that_decides_is_named(gateway):
    def decision(packet, *words):
        shown = gateway.show("filter", "--router", ONE, "--match", packet, *words)["decision"]
        return shown["verdict"], shown.get("rule", {}).get("name"), shown["interfaces"][1]

    ssh, telnet = "tcp 10.0.0.2:4000 > 10.0.0.1:22", "tcp 10.0.0.2:4000 > 10.0.0.1:23"
    assert ("accept", f"{ONE}/ssh", "gateway") == decision(ssh)
    assert ("drop", f"{ONE}/closed", "gateway") == decision(telnet)
    assert ("drop", f"{ONE}/closed", "gateway") == decision("tcp 10.0.0.2:4000 > 192.0.2.9:23", "--out", "gateway")
    assert ("accept", f"{ONE}/default", f"{ONE}-out") == decision("tcp 10.0.0.2:4000 > 192.0.2.9:23", "--out", f"{ONE}-out")


def test_commit_and_single_rules_are_in_force_for_connections_under_way(topology, gateway, document, hosts):
    ours, theirs = connect(topology.customers[ONE], hosts[ONE], "10.0.0.1", SSH)
    own, far = connect(hosts[ONE], topology.customers[ONE], "10.0.0.2", 8000)
    with ours, theirs, own, far:
        exchange(ours, theirs)
        gateway.apply(configuration.changed(document, routers={ONE: {"filter": {"rules": [CLOSED]}}}))
        before = counted(gateway)
        ours.sendall(b"not any more")
        gateway.wait_for_drop("filter-drop", gateway.drops()["filter-drop"])
        exchange(own, far)
        gateway.command("filter", "insert", "--router", ONE, 'name = "again", action = "accept", to-port = 22, out = "gateway"')
        # The dropped data arrives by retransmission.
        received = theirs.recv(100)
        assert b"not any more" == received
        exchange(ours, theirs)
        assert before["closed"] < counted(gateway)["closed"]
        gateway.command("filter", "remove", f"{ONE}/again")
        gateway.apply(document)
