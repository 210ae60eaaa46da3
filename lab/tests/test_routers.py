"""Tests virtual routers with equal addresses on all interfaces. The routers are isolated, and each can be changed
without affecting the other."""

import copy
import os
import socket
import subprocess

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.pings import answered, none_lost
from lab.topology import Customers
from lab.wire import ARP, ICMP, IP, Dot1Q, Ether, Wire

pytestmark = pytest.mark.sluice

NAMES = Customers.NAMES


def router(name):
    """A router of a customer, with translation to a pool and one denied port."""
    return {
        "routes": [{"to": "203.0.113.0/24", "action": "blackhole"}],
        "nat": {
            "source": [{"from": "10.0.0.0/24", "out": f"{name}-out", "pool": f"{name}-pool"}],
            "destination": [
                {"protocol": "tcp", "address": "203.0.113.40", "port": 8080, "to": "10.0.0.2", "to-port": 80},
            ],
        },
    }


@pytest.fixture(scope="module")
def topology():
    made = Customers()
    for name in NAMES:
        for host in [made.customers[name], made.servers[name]]:
            folder = os.path.join(made.folder, host.name)
            os.makedirs(folder)
            with open(os.path.join(folder, "who"), "w", encoding="ascii") as file:
                file.write(host.name)
            host.spawn("python3", "-m", "http.server", "80", "--directory", folder)
            host.wait_listening(80)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document():
    interfaces = {}
    for name in NAMES:
        interfaces[f"{name}-in"] = {
            "device": f"{name}-in", "router": name, "addresses": ["10.0.0.1/24", "2001:db8:1::1/64"],
        }
        interfaces[f"{name}-out"] = {
            "device": f"{name}-out", "router": name, "addresses": ["198.51.100.2/25", "2001:db8:a::2/64"],
        }
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces,
        "routers": {name: router(name) for name in NAMES},
        "nat": {"pools": {f"{name}-pool": {"addresses": ["203.0.113.16/28"]} for name in NAMES}},
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document)
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def as_configured(gateway, document):
    yield
    if gateway.document != document:
        gateway.apply(document)


def who(host, url="http://198.51.100.1/who", check=True):
    return host.run("curl", "-sS", "--max-time", "5", url, check=check)


def test_customers_with_the_same_addresses_reach_each_its_own_server_by_the_same_pool(gateway, topology):
    for name in NAMES:
        assert f"{name}-server" == who(topology.customers[name])
    for name in NAMES:
        rows = gateway.show("sessions", "--router", name)["sessions"]
        assert {name} == {row["router"] for row in rows}
        assert {("10.0.0.2", "198.51.100.1")} == {
            (row["forward"]["source"], row["forward"]["destination"]) for row in rows if row["protocol"] == "tcp"
        }
        assert {f"{name}-pool"} == {row["pool"] for row in rows}


def test_port_forwarded_by_two_routers_leads_each_to_its_own_host(gateway, topology):
    for name in NAMES:
        assert f"{name}-host" == who(topology.servers[name], "http://203.0.113.40:8080/who")


def test_ping_and_ipv6_of_both_work_at_once(gateway, topology):
    for name in NAMES:
        for target in ["198.51.100.1", "10.0.0.1", "2001:db8:a::1", "2001:db8:1::1"]:
            assert answered(topology.customers[name].run("ping", "-c3", "-i0.2", "-w9", target), 3), (name, target)


def test_filter_of_one_router_denies_nothing_in_the_other(gateway, topology, document):
    changed = copy.deepcopy(document)
    changed["routers"]["red"]["filter"] = {
        "default": "accept", "rules": [{"name": "web", "action": "reject", "protocol": "tcp", "to-port": 80}],
    }
    gateway.apply(changed)
    assert "Failed to connect" in who(topology.customers["red"], check=False)
    assert "blue-server" == who(topology.customers["blue"])
    rules = {row["name"]: row["packets"] for row in gateway.show("filter")["rules"]}
    assert ["red/web", "red/default"] == list(rules)
    assert 1 <= rules["red/web"]
    gateway.command("filter", "insert", "--router", "red", 'name = "let", action = "accept", to-port = 80')
    waiting.until(lambda: who(topology.customers["red"], check=False) == "red-server", "the inserted rule to count")
    gateway.command("filter", "remove", "red/let")
    assert "Failed to connect" in who(topology.customers["red"], check=False)


def test_limits_of_one_router_leave_the_other_alone(gateway, topology, document):
    changed = copy.deepcopy(document)
    changed["routers"]["red"]["limits"] = {"sessions": 1}
    gateway.apply(changed)
    gateway.command("clear", "sessions", "--router", "red")
    held = topology.customers["red"].open_socket(kind=socket.SOCK_STREAM)
    held.connect(("198.51.100.1", 80))
    waiting.until(lambda: gateway.show("routers", "--router", "red")["routers"][0]["limited-sessions"] == 1, "a session")
    assert "" != who(topology.customers["red"], check=False) != "red-server"
    assert 1 <= gateway.drops()["router-sessions"]
    assert "blue-server" == who(topology.customers["blue"])
    held.close()


def test_routes_and_neighbours_are_listed_by_router(gateway, topology):
    for name in NAMES:
        who(topology.customers[name])
        routes = gateway.show("routes", "--router", name)["routes"]
        assert {name} == {row["router"] for row in routes}
        assert {("203.0.113.0/24", "blackhole"), ("10.0.0.0/24", "connected")} <= {
            (row["to"], row["kind"]) for row in routes
        }
        neighbours = gateway.show("neighbours", "--router", name)["neighbours"]
        assert {f"{name}-in", f"{name}-out"} == {row["interface"] for row in neighbours}
    assert "there is no router" in subprocess.run(
        [gateway.binary, "check", gateway.write('[interfaces.a]\ndevice = "null:"\nrouter = "x"\n', "wrong.toml")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, encoding="utf-8",
    ).stdout


def linked(document):
    """Red reaches a network of blue's provider over an inter-router link, with translation on this link."""
    changed = copy.deepcopy(document)
    changed["interfaces"]["red-blue"] = {"peer": "blue-red", "router": "red", "addresses": ["100.64.0.0/31"]}
    changed["interfaces"]["blue-red"] = {"peer": "red-blue", "router": "blue", "addresses": ["100.64.0.1/31"]}
    changed["routers"]["red"]["routes"].append({"to": "192.0.2.0/24", "via": "100.64.0.1"})
    changed["routers"]["red"]["nat"]["source"].append({"from": "10.0.0.0/24", "out": "red-blue", "pool": "link"})
    changed["nat"]["pools"]["link"] = {"addresses": ["100.64.1.1"]}
    changed["routers"]["blue"]["routes"] += [
        {"to": "192.0.2.0/24", "via": "198.51.100.1"}, {"to": "100.64.1.0/24", "via": "100.64.0.0"},
    ]
    return changed


@pytest.fixture(scope="module")
def far(topology):
    server = topology.servers["blue"]
    server.run("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
    server.run("ip", "route", "add", "100.64.0.0/16", "via", "198.51.100.2")
    with open(os.path.join(topology.folder, server.name, "download"), "wb") as file:
        file.write(os.urandom(4 << 20))
    return "192.0.2.1"


def test_virtual_link_that_comes_while_packets_flow_leads_from_one_router_to_the_other(gateway, topology, document, far):
    ping = topology.customers["blue"].spawn("ping", "-n", "-i", "0.02", "198.51.100.1")
    gateway.apply(linked(document))
    customer = topology.customers["red"]
    assert answered(customer.run("ping", "-c3", "-i0.2", "-w9", far), 3)
    assert "blue-server" == who(customer, f"http://{far}/who")
    took = customer.run("curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{size_download}", f"http://{far}/download")
    assert str(4 << 20) == took
    # Each router has a separate session for the flow: with translation in red, and without in blue.
    rows = gateway.show("interfaces", "--router", "red")["interfaces"]

    def ends():
        rows = {row["name"]: row for row in gateway.show("interfaces")["interfaces"]}
        red, blue = rows["red-blue"], rows["blue-red"]
        return [red["sent"], red["received"]], [blue["received"], blue["sent"]]

    # Packets sent at one end of the link are received at the other end. There are fewer acknowledgements than segments.
    waiting.until(lambda: ends()[0] == ends()[1], "both ends to agree")
    (acknowledgements, segments), _ = ends()
    assert acknowledgements > 100 and segments > (4 << 20) // 1460
    gateway.apply(document)
    assert {"red-in", "red-out"} == {row["name"] for row in gateway.show("interfaces", "--router", "red")["interfaces"]}
    assert "blue-server" not in who(customer, f"http://{far}/who", check=False)
    gateway.apply(linked(document))
    assert "blue-server" == who(customer, f"http://{far}/who")
    none_lost(ping)


def test_routes_in_a_circle_end_after_as_many_routers_as_a_packet_may_pass(gateway, topology, document):
    changed = linked(document)
    changed["routers"]["red"]["nat"] = {}
    changed["routers"]["red"]["routes"].append({"to": "192.0.3.0/24", "via": "100.64.0.1"})
    changed["routers"]["blue"]["routes"].append({"to": "192.0.3.0/24", "via": "100.64.0.0"})
    del changed["nat"]["pools"]["red-pool"], changed["nat"]["pools"]["link"]
    gateway.apply(changed)
    before = gateway.drops().get("too-many-passes", 0)
    topology.customers["red"].run("ping", "-c3", "-i0.2", "-W1", "192.0.3.1", check=False)
    waiting.until(lambda: gateway.drops()["too-many-passes"] >= before + 3, "packets to be dropped on their fourth way")


def test_router_that_goes_and_comes_back_disturbs_no_other(gateway, topology, document):
    ping = topology.customers["blue"].spawn("ping", "-n", "-i", "0.02", "198.51.100.1")
    changed = copy.deepcopy(document)
    for _ in range(3):
        del changed["routers"]["red"], changed["nat"]["pools"]["red-pool"]
        for name in ["red-in", "red-out"]:
            changed["interfaces"][name] = {"device": name}
        gateway.apply(changed)
        assert ["default", "blue"] == [row["name"] for row in gateway.show("routers")["routers"]]
        assert [] == [row for row in gateway.show("sessions")["sessions"] if row["router"] not in ["blue", "default"]]
        assert "red-server" not in who(topology.customers["red"], check=False)
        changed = copy.deepcopy(document)
        gateway.apply(changed)
        assert "red-server" == who(topology.customers["red"])
    none_lost(ping)


def test_vlan_of_a_router_comes_and_goes_while_the_daemon_runs(gateway, topology, document):
    changed = copy.deepcopy(document)
    changed["interfaces"]["red-in.7"] = {
        "parent": "red-in", "vlan": 7, "router": "green", "addresses": ["10.0.0.1/24"],
    }
    changed["routers"]["green"] = {}
    gateway.apply(changed)
    customer = topology.customers["red"]
    mac = gateway.show("interfaces", "--router", "green")["interfaces"][0]["mac"]
    with Wire(customer, "eth0") as wire:
        echo = Ether(src=customer.mac(), dst=mac) / Dot1Q(vlan=7) / IP(src="10.0.0.9", dst="10.0.0.1") / ICMP(id=7) / b"x"
        ask = Ether(src=customer.mac(), dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=7) / ARP(
            op="who-has", hwsrc=customer.mac(), psrc="10.0.0.9", pdst="10.0.0.1"
        )
        wire.send(ask)
        wire.send(echo)
        # The kernel removes the tag of delivered frames.
        answer = wire.expect(lambda frame: ICMP in frame and frame[ICMP].type == 0 and frame[ICMP].id == 7)
        assert "10.0.0.9" == answer[IP].dst
        gateway.apply(document)
        wire.send(echo)
    waiting.until(lambda: gateway.drops()["unknown-vlan"] >= 1, "the VLAN to be gone")
