"""Three virtual routers at once, each with a routing daemon of its own, and everything that routers talk: nobody notices when a
link is cut, a daemon dies, or a neighbour goes."""

import copy
import re
import signal

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.host import Host
from lab.routing import Bird, Frr
from lab.services import Services
from lab.topology import Backbone

pytestmark = pytest.mark.sluice

LOCAL = "127.0.0.1:2620"

CORE_BGP = """\
router bgp 65000
 bgp router-id 198.51.100.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 neighbor 198.51.100.1 remote-as 65001
 neighbor 198.51.100.5 remote-as 65002
 neighbor 198.51.100.1 timers 1 3
 neighbor 198.51.100.5 timers 1 3
 neighbor 198.51.100.1 timers connect 1
 neighbor 198.51.100.5 timers connect 1
 address-family ipv4 unicast
  network 203.0.113.0/24
  neighbor 198.51.100.1 weight 100
 exit-address-family
"""

CORE_OSPF = """\
interface red-down
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf network point-to-point
router ospf
 ospf router-id 198.51.100.2
 network 100.64.0.0/31 area 0
 default-information originate always
"""

CORE_OSPF6 = """\
interface red-down
 ipv6 ospf6 area 0
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 dead-interval 4
 ipv6 ospf6 network point-to-point
router ospf6
 ospf6 router-id 198.51.100.2
 default-information originate always
"""

RED_OSPF = """\
interface red-up
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf network point-to-point
router ospf
 ospf router-id 100.64.0.0
 network 100.64.0.0/31 area 0
 redistribute static
"""

RED_OSPF6 = """\
interface red-up
 ipv6 ospf6 area 0
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 dead-interval 4
 ipv6 ospf6 network point-to-point
router ospf6
 ospf6 router-id 100.64.0.0
 redistribute ripng
"""

RED_RIP = """\
router rip
 network red-in
 timers basic 2 10 10
 default-information originate
"""

RED_RIPNG = """\
router ripng
 network red-in
 timers basic 2 10 10
 default-information originate
"""

SITE_RIP = """\
router rip
 network eth0
 timers basic 2 10 10
 redistribute connected
"""

SITE_RIPNG = """\
router ripng
 network eth0
 timers basic 2 10 10
 redistribute connected
"""

NORTH_BGP = """\
router bgp 65001
 bgp router-id 198.51.100.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 198.51.100.2 remote-as 65000
 neighbor 198.51.100.2 timers 1 3
 neighbor 198.51.100.2 timers connect 1
 address-family ipv4 unicast
  neighbor 198.51.100.2 default-originate
 exit-address-family
"""

SOUTH = """\
router id 198.51.100.5;
protocol device { scan time 1; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol static { ipv4; route 0.0.0.0/0 via 198.51.100.17; }
protocol bgp core {
  local 198.51.100.5 as 65002;
  neighbor 198.51.100.6 as 65000;
  hold time 3; keepalive time 1; connect retry time 1; connect delay time 1;
  ipv4 { import all; export where source = RTS_STATIC; };
}
"""


@pytest.fixture(scope="module")
def topology():
    made = Backbone()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    return Services(topology.server)


@pytest.fixture(scope="module")
def document():
    interfaces = {
        "north-out": {"device": "north-out", "router": "core", "addresses": ["198.51.100.2/30", "2001:db8:a::2/64"]},
        "south-out": {"device": "south-out", "router": "core", "addresses": ["198.51.100.6/30"]},
    }
    routers = {
        "core": {
            "daemon": True, "fpm": {"listen": LOCAL, "grace": "60s"},
            "routes": [{"to": "203.0.113.32/28", "via": "100.64.0.2"}, {"to": "::/0", "via": "2001:db8:a::1"}],
        },
        "red": {"daemon": True, "fpm": {"listen": LOCAL, "grace": "60s"}},
        "blue": {"fpm": {"listen": "10.255.0.1:2620", "grace": "60s"}},
    }
    pools = {}
    for number, name in enumerate(Backbone.NAMES):
        up, down = f"100.64.0.{2 * number}", f"100.64.0.{2 * number + 1}"
        interfaces[f"{name}-in"] = {"device": f"{name}-in", "router": name, "addresses": ["10.0.0.1/24"]}
        interfaces[f"{name}-up"] = {"peer": f"{name}-down", "router": name, "addresses": [f"{up}/31"]}
        interfaces[f"{name}-down"] = {"peer": f"{name}-up", "router": "core", "addresses": [f"{down}/31"]}
        routers[name]["nat"] = {"source": [{"from": "10.0.0.0/16", "out": f"{name}-up", "pool": name}]}
        pools[name] = {"addresses": [f"203.0.113.{16 * (number + 1)}/28"]}
    interfaces["red-in"]["addresses"].append("2001:db8:1::1/64")
    interfaces["red-up"]["addresses"].append("2001:db8:f::/127")
    interfaces["red-down"]["addresses"].append("2001:db8:f::1/127")
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 16384, "ipv6": 4096},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces,
        "routers": routers,
        "nat": {"pools": pools},
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


def red_daemons(host):
    """FRR of the router red, which announces the pool that it translates onto."""
    made = Frr(host, "127.0.0.1", ospfd=RED_OSPF, ospf6d=RED_OSPF6, ripd=RED_RIP, ripngd=RED_RIPNG)
    made.start()
    made.configure("ip route 203.0.113.16/28 blackhole")
    return made


@pytest.fixture(scope="module")
def daemons(topology, gateway):
    """All that speak: of the routers, of the site behind red, and outside."""
    core = Host("sluice-core", topology.folder, make=False)
    made = {
        "core": Frr(core, "127.0.0.1", bgpd=CORE_BGP, ospfd=CORE_OSPF, ospf6d=CORE_OSPF6),
        "red-site": Frr(topology.red, ripd=SITE_RIP, ripngd=SITE_RIPNG),
        "north": Frr(topology.north, bgpd=NORTH_BGP),
        "teller": Frr(topology.teller, "10.255.0.1"),
        "south": Bird(topology.south, SOUTH),
    }
    for daemon in made.values():
        daemon.start()
    made["red"] = red_daemons(Host("sluice-red", topology.folder, make=False))
    made["teller"].configure("ip route 0.0.0.0/0 100.64.0.3")
    return made


def ways(gateway, router, destination):
    """Where a route of a router leads, and who told it."""
    rows = gateway.show("routes", "--router", router)["routes"]
    return [(row.get("interface"), row["kind"]) for row in rows if row["to"] == destination]


def wait_for(gateway, router, destination, *wanted, timeout=60):
    def leads():
        found = ways(gateway, router, destination)
        if found != list(wanted):
            raise LookupError(f"{found}")
        return True

    waiting.until(leads, f"{destination} of {router} by {wanted}", timeout)


@pytest.fixture(scope="module")
def converged(gateway, daemons):
    """Every router knows what its daemons have learned."""
    wait_for(gateway, "core", "0.0.0.0/0", ("north-out", "bgp"))
    wait_for(gateway, "core", "203.0.113.16/28", ("red-down", "ospf"))
    wait_for(gateway, "core", "2001:db8:11::1/128", ("red-down", "ospf"))
    wait_for(gateway, "red", "0.0.0.0/0", ("red-up", "ospf"))
    wait_for(gateway, "red", "::/0", ("red-up", "ospf"))
    wait_for(gateway, "red", "10.0.1.1/32", ("red-in", "rip"))
    wait_for(gateway, "red", "2001:db8:11::1/128", ("red-in", "ripng"))
    wait_for(gateway, "blue", "0.0.0.0/0", ("blue-up", "static"))


class Flows:
    """Pings and a transfer of a customer that go on until the end."""

    def __init__(self, host, server, source, port):
        self.ping = host.spawn("ping", "-n", "-i", "0.05", "-I", source, server.address, label="ping")
        self.transfer = host.spawn(
            "iperf3", "-c", server.address, "-p", port, "-B", source, "-b", "1M", "-t", "300", "-J", label="iperf3"
        )

    def end(self):
        """How many pings were lost, the last aside."""
        self.ping.signal(signal.SIGINT)
        self.ping.wait(10)
        assert self.transfer.popen.poll() is None, self.transfer.output
        self.transfer.signal(signal.SIGINT)
        self.transfer.wait(10)
        sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", self.ping.output).groups()
        assert int(sent) > 20
        return max(0, int(sent) - int(received) - 1)


@pytest.fixture
def flows(topology, services, converged):
    """Of both customers."""
    made = {}
    for number, (host, source) in enumerate([(topology.red, "10.0.1.1"), (topology.blue, "10.0.0.2")]):
        port = 5300 + number
        server = topology.server.spawn("iperf3", "--server", "--port", port, "--one-off", label="iperf3-server")
        topology.server.wait_listening(port)
        made[host.name] = Flows(host, topology.server, source, port)
        made[host.name].server = server
    yield made
    for flow in made.values():
        for process in [flow.ping, flow.transfer, flow.server]:
            process.stop()


def seen_as(host, server, source):
    """The address that the server sees a customer by."""
    return host.run("curl", "-sS", "-m", "10", "--interface", source, f"http://{server.address}/whoami").split()[0]


def test_every_router_knows_what_its_daemons_have_learned(converged):
    """The fixture says what."""


def test_each_customer_reaches_the_server_by_the_pool_of_its_own_router(topology, services, converged):
    assert re.fullmatch(r"203\.0\.113\.(1[6-9]|2\d|3[01])", seen_as(topology.red, topology.server, "10.0.1.1"))
    assert re.fullmatch(r"203\.0\.113\.(3[2-9]|4[0-7])", seen_as(topology.blue, topology.server, "10.0.0.2"))


def test_ipv6_goes_by_the_routes_of_ripng_and_ospf(topology, converged):
    assert "3 received" in topology.red.run(
        "ping", "-n", "-c", "3", "-i", "0.2", "-W", "5", "-I", "2001:db8:11::1", topology.server.address6
    )


def test_link_that_is_cut_leaves_the_way_by_the_other_and_comes_back(topology, gateway, flows):
    topology.north.run("ip", "link", "set", "eth0", "down")
    wait_for(gateway, "core", "0.0.0.0/0", ("south-out", "bgp"))
    for host, source in [(topology.red, "10.0.1.1"), (topology.blue, "10.0.0.2")]:
        assert seen_as(host, topology.server, source).startswith("203.0.113.")
    topology.north.run("ip", "link", "set", "eth0", "up")
    topology.north.run("ip", "-6", "address", "replace", "2001:db8:a::1/64", "dev", "eth0", "nodad")
    topology.north.run("ip", "-6", "route", "replace", "2001:db8:10::/44", "via", "2001:db8:a::2")
    wait_for(gateway, "core", "0.0.0.0/0", ("north-out", "bgp"))
    for flow in flows.values():
        # At most what was on its way until the link was known to be down, and BGP had said so.
        assert flow.end() < 20 * 20


def test_daemon_that_is_killed_and_comes_back_loses_nobody_a_packet(topology, gateway, daemons, flows):
    before = gateway.process.output.count("tells its routes")
    daemons["core"].kill()
    gateway.process.wait_for_line("the daemon is gone")
    assert [("north-out", "bgp")] == ways(gateway, "core", "0.0.0.0/0")
    daemons["core"].start()
    waiting.until(lambda: gateway.process.output.count("tells its routes") > before, "the daemon to be back", 30)
    waiting.until(
        lambda: "Established" in daemons["core"].ask("bgpd", "show bgp neighbors 198.51.100.1"), "BGP to the north", 60
    )
    wait_for(gateway, "core", "0.0.0.0/0", ("north-out", "bgp"))
    for flow in flows.values():
        assert 0 == flow.end()


def test_router_that_goes_and_comes_back_leaves_the_other_alone(topology, gateway, document, daemons, flows):
    without = copy.deepcopy(document)
    del without["routers"]["red"], without["nat"]["pools"]["red"]
    for name in ["red-in", "red-up", "red-down"]:
        del without["interfaces"][name]
    without["interfaces"]["red-in"] = {"device": "red-in"}
    daemons["red"].kill()
    gateway.apply(without)
    output = topology.red.run(
        "curl", "-sS", "-m", "3", "--interface", "10.0.1.1", f"http://{topology.server.address}/whoami", check=False
    )
    assert "203.0.113." not in output
    gateway.apply(document)
    assert 0 == flows["blue"].end()
    daemons["red"].start()
    wait_for(gateway, "red", "0.0.0.0/0", ("red-up", "ospf"))
    wait_for(gateway, "core", "203.0.113.16/28", ("red-down", "ospf"))
    assert re.fullmatch(r"203\.0\.113\.(1[6-9]|2\d|3[01])", seen_as(topology.red, topology.server, "10.0.1.1"))
