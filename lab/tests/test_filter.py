"""Tests the packet filter with real hosts: accepted packets, refused packets and their errors, counters, and the
effect of commits."""

import ipaddress
import json
import socket
import time

import pytest

from lab import configuration, waiting

pytestmark = pytest.mark.sluice

RULES = [
    {"name": "ping", "action": "accept", "icmp": "echo-request"},
    {"name": "web", "action": "accept", "to-port": 80, "protocol": "tcp", "from": "@inside", "out": "outside"},
    {"name": "across", "action": "accept", "in": "inside1", "out": "inside2", "protocol": "tcp", "to-port": 7100},
    {"name": "noted", "action": "log", "protocol": "udp", "to-port": 7101},
    {"name": "silent", "action": "drop", "protocol": "udp", "to-port": 7101},
    {"name": "told", "action": "reject"},
]


def _filter(rules):
    inside = ["192.168.0.0/16", "2001:db8:1::/64", "2001:db8:2::/64"]
    return {"addresses": {"inside": inside}, "rules": rules}


@pytest.fixture(scope="module")
def document():
    made = configuration.standard()
    made["filter"] = _filter(RULES)
    # The default number of shards, with which packets of both directions of an untranslated flow must find one session.
    made["system"]["shards"] = 16
    return made


@pytest.fixture(scope="module", autouse=True)
def served(services, gateway):
    """A web server behind the gateway."""


def _rules(gateway):
    return {rule["name"]: rule for rule in gateway.show("filter")["rules"]}


def _connect(client, address, port, family=socket.AF_INET):
    with client.open_socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(3)
        connection.connect((address, port))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(100)


def test_what_is_accepted_passes_with_its_replies(topology, gateway):
    before = _rules(gateway)["web"]["packets"]
    assert b"HTTP" in _connect(topology.alice, topology.server.address, 80)
    assert b"HTTP" in _connect(topology.bob, topology.server.address6, 80, socket.AF_INET6)
    rule = _rules(gateway)["web"]
    # The rule counts only the first packet of each flow.
    assert before + 2 == rule["packets"]
    assert rule["last"] < 10


def test_flows_between_inside_networks_have_sessions_without_translation(topology):
    listener = topology.bob.listener(7100)
    for _ in range(8):
        with topology.alice.open_socket(kind=socket.SOCK_STREAM) as connection:
            connection.settimeout(3)
            connection.connect((topology.bob.address, 7100))
            accepted, peer = listener.accept()
            with accepted:
                assert topology.alice.address == peer[0]
                accepted.sendall(b"hello")
                assert b"hello" == connection.recv(100)
    listener.close()
    # Connections in the opposite direction are refused.
    with pytest.raises(ConnectionRefusedError):
        _connect(topology.bob, topology.alice.address, 7100)


def test_what_is_rejected_is_refused_at_once(topology):
    for address, family in [(topology.server.address, socket.AF_INET), (topology.server.address6, socket.AF_INET6)]:
        begin = time.monotonic()
        with pytest.raises(ConnectionRefusedError):
            _connect(topology.alice, address, 22, family)
        assert time.monotonic() - begin < 2


def test_what_is_dropped_is_silent_counted_and_logged(topology, gateway):
    before = _rules(gateway)["silent"]["packets"]
    with topology.alice.open_socket() as asking:
        asking.settimeout(0.5)
        asking.connect((topology.server.address, 7101))
        asking.send(b"anybody?")
        with pytest.raises(TimeoutError):
            asking.recv(100)
    rules = _rules(gateway)
    assert before + 1 == rules["silent"]["packets"]
    assert rules["noted"]["packets"] >= 1
    line = f"filter: rule noted: udp {topology.alice.address}:"
    waiting.until(lambda: line in gateway.process.output, "the log to name the packet", 5)
    assert gateway.drops()["filter-drop"] >= 1


def test_ping_passes_both_ways_of_a_session_and_errors_come_back(topology):
    assert "1 received" in topology.alice.run("ping", "-c", "1", "-W", "2", topology.server.address)
    output = topology.alice.run("ping", "-c", "1", "-W", "2", "-t", "2", topology.server.address, check=False)
    assert "exceeded" in output.lower()


def test_show_says_which_rule_decides(topology, gateway):
    def decision(packet, *words):
        return gateway.show("filter", "--match", packet, *words)["decision"]

    web = decision(f"tcp {topology.alice.address}:5000 > {topology.server.address}:80")
    assert ("accept", "web", ["inside1", "outside"]) == (web["verdict"], web["rule"]["name"], web["interfaces"])
    silent = decision(f"udp {topology.alice.address}:5000 > {topology.server.address}:7101")
    assert ("drop", "silent", ["noted"]) == (
        silent["verdict"], silent["rule"]["name"], [rule["name"] for rule in silent["before"]],
    )
    turned = decision(f"tcp {topology.alice.address}:5000 > {topology.server.address}:80", "--out", "inside2")
    assert "told" == turned["rule"]["name"]
    text = gateway.command("show", "filter")
    assert "rules" in text and "web" in text and "default" in text
    refused = gateway.command("show", "filter", "--match", "tcp nonsense", check=False)
    assert "is not a packet" in refused


def test_commit_that_denies_ends_the_flow_within_a_second(topology, gateway):
    original = gateway.document
    counted = _rules(gateway)["ping"]["packets"]
    pinging = topology.alice.spawn("ping", "-i", "0.1", "-w", "20", topology.server.address, label="pinging")
    waiting.until(lambda: _rules(gateway)["ping"]["packets"] > counted, "the ping to pass", 5)
    denied = [{**rule, "action": "drop"} if rule["name"] == "ping" else rule for rule in RULES]
    dropped = gateway.drops().get("filter-drop", 0)
    gateway.apply({**original, "filter": _filter(denied)})
    waiting.until(lambda: gateway.drops()["filter-drop"] > dropped, "the ping to be dropped", 1)
    answered = pinging.output.count("time=")
    dropped = gateway.drops()["filter-drop"]
    waiting.until(lambda: gateway.drops()["filter-drop"] > dropped + 3, "more of it to be dropped", 3)
    assert answered == pinging.output.count("time=")
    pinging.stop()
    # Unchanged rules keep their counters.
    web = _rules(gateway)["web"]["packets"]
    assert web >= 2
    gateway.apply(original)


def test_set_that_changes_denies_a_flow_and_lets_it_in_again_without_a_commit(topology, gateway):
    original, address = gateway.document, topology.alice.address
    marked = [
        {"name": "banned", "action": "drop", "from": "@banned"},
        {"name": "marked", "action": "set-mark", "new-mark": "0x10/0xf0", "from": "@inside"},
        {"name": "others", "action": "drop", "mark": "!0x10/0xf0"},
        *RULES,
    ]
    gateway.apply({**original, "filter": {**_filter(marked), "sets": {"banned": {"size": 100}}}})
    counted = _rules(gateway)["ping"]["packets"]
    pinging = topology.alice.spawn("ping", "-i", "0.1", "-w", "20", topology.server.address, label="pinging")
    waiting.until(lambda: _rules(gateway)["ping"]["packets"] > counted, "the ping to pass", 5)
    assert 0x10 in {session["mark"] for session in gateway.show("sessions", "--protocol", "icmp")["sessions"]}
    dropped = gateway.drops().get("filter-drop", 0)
    assert "1 added, 1 elements" in gateway.command("set", "add", "banned", address, "--timeout", "1h")
    waiting.until(lambda: gateway.drops().get("filter-drop", 0) > dropped + 3, "the ping to be dropped", 3)
    listed = json.loads(gateway.command("set", "list", "banned", "--json"))["sets"][0]
    assert (1, 100, address) == (listed["count"], listed["size"], listed["elements"][0]["element"])
    assert 3_590 < listed["elements"][0]["expires"] <= 3_600
    answered = pinging.output.count("time=")
    assert "1 removed, 0 elements" in gateway.command("set", "flush", "banned")
    waiting.until(lambda: pinging.output.count("time=") > answered, "the ping to pass again", 3)
    pinging.stop()
    assert "there is no set `other`" in gateway.command("set", "add", "other", address, check=False)
    gateway.apply(original)


def test_sets_of_networks_and_of_ports_are_kept_over_a_commit(topology, gateway):
    original, address = gateway.document, topology.server.address
    network = str(ipaddress.ip_network(f"{address}/20", strict=False))
    rules = [{"name": "listed", "action": "accept", "protocol": "tcp", "to": "@servers", "to-port": "@services"}]
    sets = {"servers": {"type": "networks", "size": 100}, "services": {"type": "ports", "elements": ["8000-8009"]}}
    filtered = {**_filter(rules), "sets": sets}
    gateway.apply({**original, "filter": filtered})
    with pytest.raises(OSError):
        _connect(topology.alice, address, 80)
    assert "1 added, 1 elements" in gateway.command("set", "add", "servers", network)
    assert "1 added, 11 elements" in gateway.command("set", "add", "services", "80")
    assert b"HTTP" in _connect(topology.alice, address, 80)
    gateway.apply({**original, "filter": {**filtered, "default": "reject"}})
    assert b"HTTP" in _connect(topology.alice, address, 80)
    listed = gateway.command("set", "list", "services").split()
    assert ["PORTS", "EXPIRES", "80", "-", "8000-8009", "-"] == listed
    assert "`80` does not fit into" in gateway.command("set", "add", "servers", "80", check=False)
    assert "1 removed, 0 elements" in gateway.command("set", "remove", "servers", network)
    with pytest.raises(OSError):
        _connect(topology.alice, address, 80)
    gateway.apply(original)


def test_station_is_known_by_its_mac_address(topology, gateway):
    original = gateway.document
    mac = json.loads(topology.alice.run("ip", "-j", "link", "show"))
    mac = next(link["address"] for link in mac if link["link_type"] == "ether")
    alone = [{"name": "alice", "action": "accept", "from-mac": mac}, {"name": "told", "action": "reject"}]
    gateway.apply({**original, "filter": _filter(alone)})
    assert "1 received" in topology.alice.run("ping", "-c", "1", "-W", "2", topology.server.address)
    before = _rules(gateway)["told"]["packets"]
    topology.bob.run("ping", "-c", "1", "-W", "2", topology.server.address, check=False)
    assert before < _rules(gateway)["told"]["packets"]
    gateway.apply(original)


def test_wrong_filter_is_refused_and_the_old_one_goes_on(topology, gateway):
    wrong = _filter([{"action": "accept", "to": "@nobody"}])
    output = gateway.command("apply", gateway.write({**gateway.document, "filter": wrong}, "wrong.toml"), check=False)
    assert "there is no group of addresses named `nobody`" in output
    assert b"HTTP" in _connect(topology.alice, topology.server.address, 80)
