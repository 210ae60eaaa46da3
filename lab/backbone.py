"""The backbone consists of three virtual routers, each with its own routing daemon, and the routing daemons of
inside sites and outside networks. The test and the demonstration use this module."""

import copy
import signal

from lab import waiting
from lab.host import Host
from lab.pings import counts
from lab.routing import Bird, Frr
from lab.topology import Backbone

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

# Source address of each customer.
SOURCES = {"red": "10.0.1.1", "blue": "10.0.0.2"}


def configuration():
    """Sluice's configuration: `core` connects two uplinks and two customers with the same addresses, each with its own pool."""
    interfaces = {
        "north-out": {"device": "north-out", "router": "core", "addresses": ["198.51.100.2/30", "2001:db8:a::2/64"]},
        "south-out": {"device": "south-out", "router": "core", "addresses": ["198.51.100.6/30"]},
    }
    routers = {
        "core": {
            "daemon": True, "fpm": {"listen": LOCAL, "grace": "60s"},
            "routes": [{"to": "203.0.113.32/28", "via": "100.64.0.2"}, {"to": "::/0", "via": "2001:db8:a::1"}],
        },
        # OSPF is used without graceful restart, so red's daemon has no default route while the daemon of `core`
        # restarts.
        "red": {
            "daemon": True, "fpm": {"listen": LOCAL, "grace": "60s"},
            "routes": [{"to": "0.0.0.0/0", "via": "100.64.0.1", "distance": 250}],
        },
        "blue": {"fpm": {"listen": "10.255.0.1:2620", "peers": ["10.255.0.2"], "grace": "60s"}},
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


def without_red(document):
    """The configuration without red. Red's device stays open, but belongs to no router."""
    without = copy.deepcopy(document)
    del without["routers"]["red"], without["nat"]["pools"]["red"]
    for name in ["red-in", "red-up", "red-down"]:
        del without["interfaces"][name]
    without["interfaces"]["red-in"] = {"device": "red-in"}
    return without


def red_daemons(host):
    """FRR of the router red, which announces red's translation pool."""
    made = Frr(host, "127.0.0.1", ospfd=RED_OSPF, ospf6d=RED_OSPF6, ripd=RED_RIP, ripngd=RED_RIPNG)
    made.start()
    made.configure("ip route 203.0.113.16/28 blackhole")
    return made


def daemons(topology):
    """The routing daemons of the routers, of the site behind red, and of the outside networks."""
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
    """Next hops and origin of a router's route."""
    rows = gateway.show("routes", "--router", router)["routes"]
    return [(row.get("interface"), row["kind"]) for row in rows if row["to"] == destination]


def wait_for(gateway, router, destination, *wanted, timeout=60):
    def leads():
        found = ways(gateway, router, destination)
        if found != list(wanted):
            raise LookupError(f"{found}")
        return True

    waiting.until(leads, f"{destination} of {router} by {wanted}", timeout)


def converge(gateway):
    """Wait until every router has the routes that its daemons have learned."""
    wait_for(gateway, "core", "0.0.0.0/0", ("north-out", "bgp"))
    wait_for(gateway, "core", "203.0.113.16/28", ("red-down", "ospf"))
    wait_for(gateway, "core", "2001:db8:11::1/128", ("red-down", "ospf"))
    wait_for(gateway, "red", "0.0.0.0/0", ("red-up", "ospf"))
    wait_for(gateway, "red", "::/0", ("red-up", "ospf"))
    wait_for(gateway, "red", "10.0.1.1/32", ("red-in", "rip"))
    wait_for(gateway, "red", "2001:db8:11::1/128", ("red-in", "ripng"))
    wait_for(gateway, "blue", "0.0.0.0/0", ("blue-up", "static"))


def cut(topology):
    """Take the link to the north down at its remote end."""
    topology.north.run("ip", "link", "set", "eth0", "down")


def mend(topology):
    """Bring the link to the north up again, and restore the state that the kernel has deleted."""
    topology.north.run("ip", "link", "set", "eth0", "up")
    topology.north.run("ip", "-6", "address", "replace", "2001:db8:a::1/64", "dev", "eth0", "nodad")
    topology.north.run("ip", "-6", "route", "replace", "2001:db8:10::/44", "via", "2001:db8:a::2")


def kill(gateway, daemon):
    """Kill a router's daemon, and return when the gateway has detected the failure."""
    before = gateway.process.output.count("the daemon disconnected")
    daemon.kill()
    waiting.until(lambda: gateway.process.output.count("the daemon disconnected") > before, "the daemon to be gone", 10)


def start_again(gateway, daemon):
    """Start the daemon of `core` again, and return when it has learned its routes and sent them to the gateway."""
    before = gateway.process.output.count("sends routes")
    daemon.start()
    waiting.until(lambda: gateway.process.output.count("sends routes") > before, "the daemon to be back", 30)
    waiting.until(lambda: "Established" in daemon.ask("bgpd", "show bgp neighbors 198.51.100.1"), "BGP to the north", 60)
    wait_for(gateway, "core", "0.0.0.0/0", ("north-out", "bgp"))


def connections(server, port):
    """Number of established connections to a port of a server."""
    return len(server.run("ss", "-Htn", "state", "established", f"sport = :{port}").splitlines())


def transfer(host, server, source, port):
    """A transfer in progress, and its server. After a daemon's restart its neighbours have no route for a moment. A
    connection attempt at that time fails immediately, so the attempt is repeated."""
    command = ["iperf3", "-c", server.address, "-p", port, "-B", source, "-b", "1M", "-t", "300", "-J"]

    def begin():
        taking = server.spawn("iperf3", "--server", "--port", port, "--one-off", label="iperf3-server")
        server.wait_listening(port)
        sending = host.spawn(*command, label="iperf3")
        waiting.until(lambda: sending.popen.poll() is not None or connections(server, port) == 2, "a connection", 10)
        if sending.popen.poll() is None:
            return sending, taking
        taking.stop()
        return None

    return waiting.until(begin, "a transfer to begin", 30)


class Flows:
    """Pings and a transfer of a customer that run until the end."""

    def __init__(self, host, server, source, port):
        self.transfer, self.server = transfer(host, server, source, port)
        self.ping = host.spawn("ping", "-n", "-i", "0.05", "-I", source, server.address, label="ping")
        self.asked = 0

    def end(self):
        """Number of lost pings, excluding the last ping. The transfer must still be running."""
        self.ping.signal(signal.SIGINT)
        self.ping.wait(10)
        assert self.transfer.popen.poll() is None, self.transfer.output
        self.transfer.signal(signal.SIGINT)
        self.transfer.wait(10)
        self.asked, received = counts(self.ping.output)
        assert self.asked > 20
        return max(0, self.asked - received - 1)

    def stop(self):
        """End all programs that are still running."""
        for process in [self.ping, self.transfer, self.server]:
            process.stop()


def flows_of(topology):
    """The flows of both customers."""
    numbered = enumerate(SOURCES.items())
    return {
        name: Flows(getattr(topology, name), topology.server, source, 5300 + number)
        for number, (name, source) in numbered
    }


def seen_as(host, server, source):
    """The source address of a customer as seen by the server."""
    return host.run("curl", "-sS", "-m", "10", "--interface", source, f"http://{server.address}/whoami").split()[0]
