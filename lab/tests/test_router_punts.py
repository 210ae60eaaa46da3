"""Tests limits on traffic to a router's host, by class and by multicast group, and changes of the limits while
daemons run. A device through which the machine is managed is not taken from the kernel."""

import contextlib
import os
import socket
import subprocess

import pytest

from lab import configuration, waiting
from lab.connection import connect, exchange
from lab.gateway import Sluice
from lab.host import Host
from lab.pings import answered
from lab.wire import IP, UDP, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

BGP, OSPF, SSH = 179, 89, 22
ALL_ROUTERS = "224.0.0.5"
BURST = 5


def hosted(**host):
    """The standard configuration with a host for the router, and with these limits."""
    return configuration.changed(configuration.standard(), routers={"default": {"daemon": True, "host": host}})


@pytest.fixture(scope="module")
def document():
    return hosted()


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def router(gateway, topology):
    """The router's host, as a host of the lab."""
    return Host("sluice-default", topology.folder, make=False)


@pytest.fixture(autouse=True)
def as_configured(gateway, document):
    yield
    gateway.apply(document)


@pytest.fixture
def session(topology, router):
    """Alice's BGP session with the router."""
    ours, theirs = connect(topology.alice, router, topology.alice.gateway, BGP)
    with ours, theirs:
        yield lambda: exchange(ours, theirs)


def dropped(gateway, name):
    return gateway.drops().get(name, 0)


@pytest.mark.parametrize("multicast", ["link-local", "all"])
def test_hello_of_ospf_comes_to_the_host_but_for_one_that_wants_no_groups(topology, gateway, router, multicast):
    with Wire(topology.alice) as wire, router.open_socket(kind=socket.SOCK_RAW, protocol=OSPF) as listening:
        own = socket.inet_aton("192.168.1.1")
        listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(ALL_ROUTERS) + own)

        def hello(text):
            packet = IP(src="192.168.1.2", dst=ALL_ROUTERS, ttl=1, proto=OSPF) / Raw(text)
            wire.send(Ether(src=wire.mac, dst="01:00:5e:00:00:05") / packet)

        gateway.apply(hosted(multicast="none"))
        before = dropped(gateway, "multicast")
        hello(b"to nobody")
        gateway.wait_for_drop("multicast", before)
        gateway.apply(hosted(multicast=multicast))
        hello(b"to the host")
        assert b"to the host" == listening.recvfrom(100)[0][20:31]


def test_flood_above_the_limit_of_its_class_is_dropped_and_routing_goes_on(topology, gateway, router, session):
    alice = topology.alice
    mac = alice.mac_of(alice.gateway)
    gateway.apply(hosted(limits={"other": {"rate": 1, "burst": BURST}}))
    inode = os.stat("/run/netns/sluice-default").st_ino
    before = dropped(gateway, "punt-policed-other")
    flood = 5000
    with Wire(alice) as wire:
        datagram = IP(src=alice.address, dst=alice.gateway) / UDP(sport=9, dport=9) / Raw(b"flood")
        frame = bytes(Ether(src=wire.mac, dst=mac) / datagram)
        for _ in range(10):
            wire.send(*[frame] * (flood // 10))
            session()
    # The gateway does not count packets that the queue of the device has dropped.
    waiting.until(lambda: dropped(gateway, "punt-policed-other") > before + flood // 10, "the flood to be dropped")
    assert 0 == dropped(gateway, "punt-policed-routing")
    gateway.apply(hosted())
    session()
    assert inode == os.stat("/run/netns/sluice-default").st_ino
    # The router's host answers fragmented echo requests.
    assert answered(alice.run("ping", "-n", "-c", "3", "-i", "0.1", "-s", "3000", "-w", "5", alice.gateway), 3)


def test_class_at_a_rate_of_nothing_does_not_come_to_the_host(topology, gateway, router, session):
    alice = topology.alice
    gateway.apply(hosted(limits={"other": {"rate": 0, "burst": 0}}))
    before = dropped(gateway, "punt-policed-other")
    output = alice.run("ping", "-n", "-c", "2", "-i", "0.1", "-s", "3000", "-W", "1", alice.gateway, check=False)
    assert "0 received" in output
    # Each request consists of several fragments.
    gateway.wait_for_drop("punt-policed-other", before + 3)
    session()
    assert answered(alice.run("ping", "-n", "-c", "2", "-i", "0.1", "-w", "5", alice.gateway), 2)


def check(gateway, device, **keys):
    """Exit status and output of `sluice check` for a device in the gateway's namespace."""
    document = {"interfaces": {"a": {"device": device, **keys}}}
    words = [gateway.binary, "check", gateway.write(document, "device.toml")]
    result = subprocess.run(
        ["ip", "netns", "exec", gateway.host.name, *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, encoding="utf-8",
    )
    return result.returncode, result.stdout


@pytest.fixture
def spare(gateway):
    """A device of the gateway's machine with an address in the kernel."""
    host = gateway.host
    host.run("ip", "link", "add", "spare", "type", "veth", "peer", "name", "end")
    for words in ["address add 192.0.2.1/24 dev spare", "link set end up", "link set spare up"]:
        host.run("ip", *words.split())
    yield host
    host.run("ip", "link", "delete", "spare")


def test_device_of_the_default_route_is_taken_only_where_it_is_told_so(gateway, spare):
    assert 0 == check(gateway, "spare")[0]
    spare.run("ip", "route", "add", "default", "via", "192.0.2.254")
    status, text = check(gateway, "spare")
    assert status != 0 and "the default route of this machine uses spare" in text and 'in-use = "take"' in text
    assert 0 == check(gateway, "spare", **{"in-use": "take"})[0]
    assert 0 == check(gateway, "end")[0]


def test_device_that_somebody_is_logged_in_over_is_taken_only_where_it_is_told_so(gateway, spare):
    with contextlib.ExitStack() as sockets:
        for end in connect(spare, spare, "192.0.2.1", SSH):
            sockets.enter_context(end)
        status, text = check(gateway, "spare")
        assert status != 0 and "an SSH session from 192.0.2.1 uses spare" in text
        assert 0 == check(gateway, "spare", **{"in-use": "take"})[0]
        assert 0 == check(gateway, "end")[0]
