"""Tests destination rules as in rule listings: for any destination address on an interface, to servers on the
gateway's own host, and with several hosts with health checks."""

import os
import socket

import pytest

from lab import configuration, waiting
from lab.connection import connect, exchange
from lab.gateway import Sluice
from lab.host import Host
from lab.services import NAME, NGINX
from lab.topology import POOL

pytestmark = pytest.mark.sluice

BALANCED = "203.0.113.41"
PROXY = 3128
# An address without a host.
NOWHERE = "198.51.100.140"


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def document(request, topology):
    made = configuration.changed(
        configuration.standard(), system={"workers": request.param}, routers={"default": {"daemon": True}},
    )
    inside = ["inside1", "inside2"]
    made["nat"]["source"].append({"from": "192.168.1.1/32", "local": True, "out": "outside", "pool": "carrier"})
    made["nat"]["destination"] += [
        {"in": "outside", "protocol": "tcp", "port": 808, "to": topology.alice.address, "to-port": 80},
        {"in": inside, "protocol": "udp", "port": 53, "to": "gateway"},
        {"local": True, "protocol": "tcp", "port": 7000, "to": topology.bob.address, "to-port": 7001},
        {"in": inside, "protocol": "tcp", "port": 80, "to": "gateway", "to-port": PROXY},
        {
            "protocol": "tcp", "address": BALANCED, "port": 443,
            "to": [topology.alice.address, {"host": topology.bob.address, "weight": 2}], "to-port": 8443,
            "health": {"interval": "200ms", "timeout": "200ms", "failures": 2, "successes": 1},
        },
        {
            "protocol": "udp", "address": BALANCED, "port": 443, "balance": "source",
            "to": [topology.alice.address, topology.bob.address],
            "health": {"protocol": "icmp", "interval": "200ms", "timeout": "200ms"},
        },
    ]
    return made


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def router(gateway, topology):
    """The router's host, with a web server and a DNS server."""
    made = Host("sluice-default", topology.folder, make=False)
    folder = os.path.join(topology.folder, "proxy")
    os.makedirs(folder, exist_ok=True)
    text = NGINX.format(folder=folder).replace("listen 80;", f"listen {PROXY};").replace("listen [::]:80;", "")
    path = os.path.join(folder, "nginx.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    servers = [
        made.spawn("nginx", "-e", "stderr", "-c", path, label="proxy"),
        made.spawn(
            "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root",
            "--pid-file", "--log-facility=-", f"--host-record={NAME},192.0.2.77",
            "--txt-record=long.example.test," + ",".join(["x" * 250] * 8), "--edns-packet-max=4096",
        ),
    ]
    made.wait_listening(PROXY)
    made.wait_listening(53, "udp")
    yield made
    for server in servers:
        server.stop()


@pytest.mark.parametrize("address", ["198.51.100.2", "203.0.113.77", "203.0.113.20"])
def test_connection_by_the_interface_reaches_the_host_whatever_its_destination(topology, gateway, address):
    listener = topology.alice.listener(80)
    with listener, topology.server.open_socket(kind=socket.SOCK_STREAM) as ours:
        ours.connect((address, 808))
        theirs, peer = listener.accept()
        with theirs:
            theirs.settimeout(5)
            assert ours.getsockname() == peer
            exchange(ours, theirs)


def test_dns_to_anybody_is_answered_by_the_gateways_own_server(topology, router):
    for client, asked in [(topology.alice, "8.8.8.8"), (topology.bob, NOWHERE), (topology.alice, topology.alice.gateway)]:
        output = client.run("dig", "+short", "+tries=1", "+time=3", f"@{asked}", NAME)
        assert "192.0.2.77\n" == output


def test_long_answer_of_the_gateways_own_server_comes_in_fragments(topology, router):
    output = topology.alice.run("dig", "+short", "+bufsize=4096", "+ignore", "+tries=1", "+time=3", "@8.8.8.8", "long.example.test", "TXT")
    assert 8 == output.count("x" * 250)


def test_web_to_anybody_is_answered_by_the_gateways_own_server(topology, router, gateway):
    for client in (topology.alice, topology.bob):
        output = client.run("curl", "-s", "-m", "5", f"http://{NOWHERE}/whoami")
        assert output.startswith(f"{client.address} ")
    rules = [rule for rule in gateway.show("nat")["rules"] if rule.get("in") == "inside1" and rule.get("ports") == "80"]
    assert f"192.168.1.1:{PROXY}" == rules[0]["to"] and rules[0]["flows"] > 0


def test_what_the_gateways_host_sends_itself_stays_as_it_is(topology, router):
    ours, theirs = connect(router, topology.server, topology.server.address, 8000)
    with ours, theirs:
        exchange(ours, theirs)
        assert "198.51.100.2" == theirs.getpeername()[0]


def test_what_the_gateways_host_sends_from_an_address_of_a_rule_is_translated(topology, router):
    listener = topology.server.listener(8001)
    with listener, router.open_socket(kind=socket.SOCK_STREAM) as ours:
        ours.bind(("192.168.1.1", 0))
        ours.connect((topology.server.address, 8001))
        theirs, peer = listener.accept()
        with theirs:
            theirs.settimeout(5)
            assert peer[0] in POOL
            exchange(ours, theirs)


def test_what_the_gateways_host_asks_anybody_is_led_to_the_host_of_a_rule(topology, router):
    listener = topology.bob.listener(7001)
    with listener, router.open_socket(kind=socket.SOCK_STREAM) as ours:
        ours.connect((topology.server.address, 7000))
        theirs, _ = listener.accept()
        with theirs:
            theirs.settimeout(5)
            exchange(ours, theirs)


def _state(gateway, host, number=1):
    rows = [row for row in gateway.show("nat")["hosts"] if row["address"] == host.address]
    return rows[number - 1]["state"]


def test_host_that_does_not_answer_gets_no_new_connections_and_sessions_stay(topology, gateway):
    alice, bob = topology.alice, topology.bob
    waiting.until(lambda: _state(gateway, alice) == _state(gateway, bob) == "down", "hosts without a server to be down")
    with topology.server.open_socket(kind=socket.SOCK_STREAM) as ours:
        ours.settimeout(1)
        before = gateway.drops().get("no-host-up", 0)
        with pytest.raises(OSError):
            ours.connect((BALANCED, 443))
        gateway.wait_for_drop("no-host-up", before)
    with bob.listener(8443) as listener:
        waiting.until(lambda: _state(gateway, bob) == "up", "a host with a server to be up")
        assert "down" == _state(gateway, alice)
        with topology.server.open_socket(kind=socket.SOCK_STREAM) as ours:
            ours.connect((BALANCED, 443))
            peer = None
            while peer != ours.getsockname():
                # Health checks connect to the servers, too.
                theirs, peer = listener.accept()
            theirs.settimeout(5)
            listener.close()
            waiting.until(lambda: _state(gateway, bob) == "down", "a host whose server ended to be down")
            with theirs:
                exchange(ours, theirs)


def test_host_that_answers_echo_requests_is_up(topology, gateway):
    waiting.until(lambda: _state(gateway, topology.alice, 2) == "up", "a host that answers echo requests to be up")
    assert topology.alice.run("ping", "-c", "1", "-W", "2", topology.alice.gateway)
    topology.bob.setting("net.ipv4.icmp_echo_ignore_all=1")
    try:
        waiting.until(lambda: _state(gateway, topology.bob, 2) == "down", "a host that does not answer to be down")
    finally:
        topology.bob.setting("net.ipv4.icmp_echo_ignore_all=0")
    waiting.until(lambda: _state(gateway, topology.bob, 2) == "up", "a host that answers again to be up")
