"""Tests the host of a router. Daemons in the host's namespace use the router's addresses on the router's links."""

import os
import signal
import socket

import pytest

from lab import configuration, waiting
from lab.connection import connect, exchange
from lab.gateway import Sluice
from lab.host import Host
from lab.pings import answered
from lab.wire import ARP, IP, TCP, UDP, Dot1Q, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

STAFF = "192.168.100.1"
BGP = 179
ALL_ROUTERS = "224.0.0.5"
RIP = ("224.0.0.9", 520)


@pytest.fixture(scope="module")
def document():
    return configuration.changed(
        configuration.standard(),
        routers={"default": {"daemon": True}},
        interfaces={"staff": {"parent": "inside2", "vlan": "100", "addresses": [f"{STAFF}/24"]}},
    )


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()
    assert not os.path.exists("/run/netns/sluice-default")


@pytest.fixture(scope="module")
def router(gateway, topology):
    """The router's host, as a host of the lab."""
    return Host("sluice-default", topology.folder, make=False)


@pytest.fixture
def daemons(topology, router):
    """Programs of the router and of Alice, which are ended with the test."""
    before = [len(host.processes) for host in [topology.alice, router]]
    yield
    for host, count in zip([topology.alice, router], before):
        for process in host.processes[count:]:
            process.stop()


@pytest.mark.parametrize("client, address", [
    ("alice", "192.168.1.1"), ("alice", "198.51.100.2"), ("bob", "192.168.2.1"), ("server", "198.51.100.2"),
])
def test_connection_to_an_address_of_the_router_reaches_its_host(topology, router, client, address):
    ours, theirs = connect(getattr(topology, client), router, address, BGP)
    with ours, theirs:
        exchange(ours, theirs)


@pytest.mark.parametrize("client, address", [("alice", "2001:db8:1::1"), ("server", "2001:db8:a::2")])
def test_connection_over_ipv6_reaches_the_host(topology, router, client, address):
    ours, theirs = connect(getattr(topology, client), router, address, BGP, socket.AF_INET6)
    with ours, theirs:
        exchange(ours, theirs)


@pytest.mark.parametrize("address", ["192.168.1.1", "2001:db8:1::1", "198.51.100.2"])
@pytest.mark.parametrize("size", [56, 3000])
def test_echo_request_is_answered_once(topology, router, address, size):
    output = topology.alice.run("ping", "-n", "-c", "5", "-i", "0.1", "-w", "5", "-s", size, address)
    assert answered(output, 5) and "DUP" not in output


def test_port_where_nobody_listens_is_closed_by_the_host(topology, router):
    with topology.alice.open_socket(kind=socket.SOCK_STREAM) as asking, pytest.raises(ConnectionRefusedError):
        asking.connect(("192.168.1.1", 9))


@pytest.mark.parametrize("target, source", [("alice", "192.168.1.1"), ("server", "198.51.100.2")])
def test_host_reaches_neighbours_and_who_is_beyond_a_gateway(topology, router, target, source):
    host = getattr(topology, target)
    ours, theirs = connect(router, host, host.address, 8000)
    with ours, theirs:
        assert source == theirs.getpeername()[0]
        exchange(ours, theirs)
    assert answered(router.run("ping", "-n", "-c", "3", "-i", "0.1", "-w", "5", host.address), 3)
    assert answered(router.run("ping", "-n", "-c", "3", "-i", "0.1", "-w", "5", host.address6), 3)


def member(host, interface, own, group, port):
    """A UDP socket that receives from and sends to a multicast group on an interface."""
    made = host.open_socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
    made.bind(("", port))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(own))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return made


def test_rip_is_heard_in_both_directions(topology, router):
    ours = member(topology.alice, "eth0", "192.168.1.2", *RIP)
    theirs = member(router, "inside1", "192.168.1.1", *RIP)
    with ours, theirs:
        for sender, receiver, source in [(ours, theirs, "192.168.1.2"), (theirs, ours, "192.168.1.1")]:
            sender.sendto(b"routes", RIP)
            data, (address, _) = receiver.recvfrom(100)
            assert (b"routes", source) == (data, address)


def test_vlan_reaches_the_host_and_back(topology, router):
    with Wire(topology.bob, tags=True) as wire, router.listener(BGP), member(router, "staff", STAFF, *RIP) as rip:

        def tagged(destination, packet):
            return Ether(src=wire.mac, dst=destination) / Dot1Q(vlan=100) / packet

        def came(wanted):
            return wire.expect(lambda frame: Dot1Q in frame and frame[Dot1Q].vlan == 100 and wanted(frame))

        wire.send(tagged("ff:ff:ff:ff:ff:ff", ARP(hwsrc=wire.mac, psrc="192.168.100.2", pdst=STAFF)))
        mac = came(lambda frame: ARP in frame and frame[ARP].op == 2).src
        wire.send(tagged(mac, IP(src="192.168.100.2", dst=STAFF) / TCP(sport=40000, dport=BGP, flags="S")))
        answer = came(lambda frame: TCP in frame)
        assert (wire.mac, STAFF, "SA") == (answer.dst, answer[IP].src, str(answer[TCP].flags))
        update = IP(src="192.168.100.2", dst=RIP[0], ttl=1) / UDP(sport=RIP[1], dport=RIP[1]) / Raw(b"routes")
        wire.send(tagged("01:00:5e:00:00:09", update))
        assert (b"routes", ("192.168.100.2", RIP[1])) == rip.recvfrom(100)
        rip.sendto(b"answer", RIP)
        answer = came(lambda frame: UDP in frame and frame[UDP].dport == RIP[1])
        assert ("01:00:5e:00:00:09", STAFF, b"answer") == (answer.dst, answer[IP].src, bytes(answer[UDP].payload)[:6])


def test_ospf_is_heard_in_both_directions(topology, router):
    ospf = 89
    with Wire(topology.alice) as wire, router.open_socket(kind=socket.SOCK_RAW, protocol=ospf) as listening:
        own = socket.inet_aton("192.168.1.1")
        listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(ALL_ROUTERS) + own)
        listening.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        hello = IP(src="192.168.1.2", dst=ALL_ROUTERS, ttl=1, proto=ospf) / Raw(b"hello")
        wire.send(Ether(src=wire.mac, dst="01:00:5e:00:00:05") / hello)
        data, _ = listening.recvfrom(100)
        assert b"hello" == data[20:25]
        listening.sendto(b"answer", (ALL_ROUTERS, 0))
        frame = wire.expect(lambda frame: IP in frame and frame[IP].proto == ospf)
        assert ("01:00:5e:00:00:05", "192.168.1.1", 1) == (frame.dst, frame[IP].src, frame[IP].ttl)


def test_flood_of_one_class_leaves_a_session_of_bgp_alive(topology, gateway, router):
    alice = topology.alice
    mac = alice.mac_of(alice.gateway)
    ours, theirs = connect(alice, router, alice.gateway, BGP)
    with ours, theirs, Wire(alice) as wire:
        before = gateway.drops().get("punt-policed-other", 0)
        datagram = IP(src=alice.address, dst=alice.gateway) / UDP(sport=9, dport=9) / Raw(b"flood")
        flood = bytes(Ether(src=wire.mac, dst=mac) / datagram)
        for _ in range(20):
            wire.send(*[flood] * 1000)
            exchange(ours, theirs)
        gateway.wait_for_drop("punt-policed-other", before)
        assert 0 == gateway.drops().get("punt-policed-routing", 0)


def test_link_that_goes_down_is_seen_in_the_host(topology, router):
    def carrier():
        return "LOWER_UP" in router.run("ip", "link", "show", "dev", "inside1")

    assert carrier()
    topology.alice.run("ip", "link", "set", "eth0", "down")
    waiting.until(lambda: not carrier(), "inside1 to lose its carrier in the host")
    topology.alice.run("ip", "link", "set", "eth0", "up")
    waiting.until(carrier, "inside1 to have its carrier back in the host")
    topology.alice.run("ip", "route", "replace", "default", "via", topology.alice.gateway)
    topology.alice.run("ip", "-6", "address", "replace", f"{topology.alice.address6}/64", "dev", "eth0", "nodad")
    topology.alice.run("ip", "-6", "route", "replace", "default", "via", topology.alice.gateway6)


BIRD = """
router id {own};
debug protocols {{ states }};
protocol device {{ scan time 1; }}
protocol direct {{ ipv4; interface "{other}"; }}
protocol kernel {{ ipv4 {{ export filter {{ if source ~ [RTS_OSPF, RTS_OSPF_EXT1, RTS_OSPF_EXT2] then accept; reject; }}; }}; }}
protocol ospf v2 {{
  ipv4 {{ export where source = RTS_DEVICE; }};
  area 0 {{ interface "{link}" {{ type broadcast; hello 1; dead 4; wait 2; }}; }};
}}
"""


def bird(host, folder, own, link, other):
    """BIRD with OSPF on one link, which announces the networks of another link."""
    path = os.path.join(folder, f"{host.name}.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BIRD.format(own=own, link=link, other=other))
    control = os.path.join(folder, f"{host.name}.ctl")
    host.spawn("bird", "-f", "-c", path, "-s", control, label="bird")
    return control


def test_ospf_of_bird_becomes_full_and_learns_routes(topology, router, daemons, folder):
    alice = topology.alice
    alice.run("ip", "link", "add", "stub", "type", "veth", "peer", "name", "end")
    alice.run("ip", "link", "set", "end", "up")
    alice.run("ip", "address", "add", "10.77.0.1/24", "dev", "stub")
    alice.run("ip", "link", "set", "stub", "up")
    alice.run("ip", "route", "delete", "default")
    controls = [
        bird(alice, folder, "192.168.1.2", "eth0", "stub"),
        bird(router, folder, "192.168.1.1", "inside1", "outside"),
    ]
    for host, control in zip([alice, router], controls):
        waiting.until(
            lambda host=host, control=control: "Full" in host.run("birdc", "-s", control, "show", "ospf", "neighbors", check=False),
            f"OSPF of {host.name} to be full", 40,
        )
    waiting.until(lambda: "10.77.0.0/24 via 192.168.1.2" in router.run("ip", "route"), "alice's network in the host", 20)
    waiting.until(lambda: "198.51.100.0/25 via 192.168.1.1" in alice.run("ip", "route"), "the outside at alice", 20)
    alice.run("ip", "route", "replace", "default", "via", alice.gateway)


FRR = """
hostname router
log file {folder}/{daemon}.log
router bgp 65001
 bgp router-id 192.168.1.1
 no bgp ebgp-requires-policy
 timers bgp 1 3
 neighbor 192.168.1.2 remote-as 65002
 neighbor 192.168.1.2 timers connect 1
 address-family ipv4 unicast
  redistribute connected
  redistribute kernel
 exit-address-family
"""

BGP_OF_BIRD = """
router id 192.168.1.2;
protocol device { scan time 1; }
protocol static { ipv4; route 10.88.0.0/16 blackhole; }
protocol bgp {
  local 192.168.1.2 as 65002;
  neighbor 192.168.1.1 as 65001;
  connect retry time 1;
  connect delay time 1;
  ipv4 { import all; export all; };
}
"""


def frr(host, folder):
    """FRR's zebra and bgpd in a host, and a function that runs their commands."""
    os.chmod(folder, 0o777)
    for daemon in ["zebra", "bgpd"]:
        configured = os.path.join(folder, f"{daemon}.conf")
        with open(configured, "w", encoding="utf-8") as file:
            file.write(FRR.format(folder=folder, daemon=daemon) if daemon == "bgpd" else "hostname router\n")
        api, place = os.path.join(folder, "zserv.api"), ["-i", f"{folder}/{daemon}.pid", "--vty_socket", folder]
        host.spawn(f"/usr/lib/frr/{daemon}", "-f", configured, "-z", api, *place)
        waiting.until(lambda daemon=daemon: os.path.exists(f"{folder}/{daemon}.vty"), f"{daemon} to listen")
    return lambda words: host.run("vtysh", "--vty_socket", folder, "-c", words, check=False)


def test_bgp_of_frr_sees_links_and_addresses_and_exchanges_routes(topology, router, daemons, folder):
    show = frr(router, folder)
    path = os.path.join(folder, "alice.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BGP_OF_BIRD)
    control = os.path.join(folder, "alice.ctl")
    topology.alice.spawn("bird", "-f", "-c", path, "-s", control, label="bird")
    waiting.until(lambda: "B>* 10.88.0.0/16 [20/0] via 192.168.1.2, inside1" in show("show ip route"), "alice's route", 40)
    known = show("show ip route")
    for network, link in [("192.168.1.0/24", "inside1"), ("198.51.100.0/25", "outside"), ("192.168.100.0/24", "staff")]:
        assert f"C>* {network} is directly connected, {link}" in known
    # The route to Sluice does not appear in the daemon's routing table.
    assert "0.0.0.0/0" not in known
    heard = waiting.until(
        lambda: [text for text in [topology.alice.run("birdc", "-s", control, "show", "route")] if "198.51.100.0/25" in text],
        "the router's routes at alice", 20,
    )
    assert "0.0.0.0/0" not in heard[0]
    assert "via 192.168.1.2 dev inside1 proto bgp" in router.run("ip", "route", "show", "10.88.0.0/16")


def test_host_outlives_a_gateway_that_is_killed(topology, gateway, router):
    alice = topology.alice
    ours, theirs = connect(alice, router, alice.gateway, BGP)
    inode = os.stat("/run/netns/sluice-default").st_ino
    with ours, theirs:
        exchange(ours, theirs)
        gateway.process.signal(signal.SIGKILL)
        gateway.process.wait()
        waiting.until(lambda: "LOWER_UP" not in router.run("ip", "link", "show", "dev", "inside1"), "no carrier")
        assert "192.168.1.1/24" in router.run("ip", "address", "show", "dev", "inside1")
        gateway.start()
        assert inode == os.stat("/run/netns/sluice-default").st_ino
        exchange(ours, theirs)


def test_router_that_loses_its_daemon_answers_by_itself_again(topology, gateway, document, folder):
    alice = topology.alice
    gateway.apply(configuration.changed(document, routers={"default": {"daemon": False}}))
    assert not os.path.exists("/run/netns/sluice-default")
    before = gateway.drops().get("no-local-service", 0)
    with alice.open_socket() as asking:
        asking.sendto(b"anyone?", (alice.gateway, 9))
    gateway.wait_for_drop("no-local-service", before)
    gateway.apply(document)
    again = Host("sluice-default", folder, make=False)
    ours, theirs = connect(alice, again, alice.gateway, BGP)
    with ours, theirs:
        exchange(ours, theirs)
