"""The kernel's routing table of a namespace: lookups by netlink, and random changes."""

import errno
import http.client
import ipaddress
import json
import math
import os
import socket
import struct
import subprocess

GET_ROUTE, ERROR, DONE = 26, 2, 3
REQUEST = 1
# RTM_F_LOOKUP_TABLE and RTM_F_FIB_MATCH request the matching route itself and its table.
FIB_MATCH = 0x1000 | 0x2000
DESTINATION, INTERFACE, GATEWAY, MULTIPATH, TABLE, VIA = 1, 4, 5, 9, 15, 18
MAIN = 254
ACTIONS = {6: "blackhole", 7: "unreachable", 8: "prohibit"}
ERRORS = {errno.EINVAL: "blackhole", errno.EHOSTUNREACH: "unreachable", errno.EACCES: "prohibit"}


def _attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3:]


def _shares(ways):
    """Next hops with their weights, divided by the greatest common divisor."""
    total = {}
    for way, weight in ways:
        total[way] = total.get(way, 0) + weight
    divisor = math.gcd(*total.values()) if total else 1
    return {way: weight // divisor for way, weight in total.items()}


class KernelTable:
    """Route lookups in the kernel of a host's namespace."""

    def __init__(self, host):
        with host.network():
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
            self.socket.bind((0, 0))
            self.names = dict(socket.if_nameindex())

    def route(self, address):
        """The result for packets to an address: an action, `None`, or next hops with their shares."""
        return self._ask(address, FIB_MATCH)

    def next_hop(self, address):
        """The next hop that a packet takes, or the action."""
        taken = self._ask(address, 0)
        return next(iter(taken)) if isinstance(taken, dict) else taken

    def _ask(self, address, flags):
        address = ipaddress.ip_address(address)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        fixed = struct.pack("=BBBBBBBBI", family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, flags)
        body = fixed + struct.pack("=HH", 4 + len(address.packed), DESTINATION) + address.packed
        self.socket.send(struct.pack("=IHHII", 16 + len(body), GET_ROUTE, REQUEST, 1, 0) + body)
        answer = self.socket.recv(65536)
        kind = struct.unpack_from("=H", answer, 4)[0]
        if kind == ERROR:
            return ERRORS.get(-struct.unpack_from("=i", answer, 16)[0])
        table, forwards = answer[20], answer[23]
        values = dict(_attributes(answer[28:struct.unpack_from("=I", answer)[0]]))
        if TABLE in values:
            table = struct.unpack("=I", values[TABLE])[0]
        if table != MAIN:
            return None
        if forwards in ACTIONS:
            return ACTIONS[forwards]
        return _shares(self._ways(values))

    def _ways(self, values):
        if MULTIPATH not in values:
            index = struct.unpack("=I", values[INTERFACE])[0]
            yield (self._gateway(values), self.names.get(index)), 1
            return
        data = values[MULTIPATH]
        while len(data) >= 8:
            length, _, hops, index = struct.unpack_from("=HBBI", data)
            flags = data[2]
            # RTNH_F_DEAD
            if not flags & 1:
                nested = dict(_attributes(data[8:length]))
                yield (self._gateway(nested), self.names.get(index)), hops + 1
            data = data[(length + 3) & ~3:]

    @staticmethod
    def _gateway(values):
        if GATEWAY in values:
            return str(ipaddress.ip_address(values[GATEWAY]))
        if VIA in values:
            return str(ipaddress.ip_address(values[VIA][2:]))
        return None


class SluiceTable:
    """Route lookups in the gateway, through one connection to its control socket."""

    def __init__(self, path):
        self.connection = http.client.HTTPConnection("sluice")
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.connect(path)

    def route(self, address):
        """The result for packets to an address, in the format of `KernelTable.route`."""
        rows = self.rows(f"address={address}&router=default")
        actions = [row["action"] for row in rows if "action" in row]
        if actions:
            return None if actions == ["throw"] else actions[0]
        return _shares(((row.get("via"), row["interface"]), row["weight"]) for row in rows) or None


    def rows(self, query):
        """The routes that the gateway lists."""
        self.connection.request("GET", f"/v1/routes?{query}")
        return json.loads(self.connection.getresponse().read())["items"]


class Changes:
    """Random changes of a table in the format of `ip -batch`. Only `random` determines the changes."""

    LINKS = {
        "inside1": (["192.168.1.2", "192.168.1.3"], ["2001:db8:1::2", "fe80::1"]),
        "inside2": (["192.168.2.2", "192.168.2.3"], ["2001:db8:2::2", "fe80::1"]),
        "outside": (["198.51.100.1", "198.51.100.7"], ["2001:db8:a::1", "2001:db8:a::7", "fe80::7"]),
    }
    ADDRESSES = {
        "inside1": ["192.168.1.1/24", "2001:db8:1::1/64"],
        "inside2": ["192.168.2.1/24", "2001:db8:2::1/64"],
        "outside": ["198.51.100.2/25", "2001:db8:a::2/64"],
    }
    # Each prefix has a sample address that no more specific prefix contains.
    PREFIXES = [
        {"0.0.0.0/0": "8.8.8.8", "10.0.0.0/8": "10.200.0.1", "10.1.0.0/16": "10.1.200.1", "10.1.1.0/24": "10.1.1.200",
         "10.1.1.1/32": "10.1.1.1"},
        {"::/0": "2a00::8", "2001:db8:f000::/36": "2001:db8:ff00::1", "2001:db8:f001::/48": "2001:db8:f001:f::1",
         "2001:db8:f001:1::/64": "2001:db8:f001:1::f", "2001:db8:f001:1::1/128": "2001:db8:f001:1::1"},
    ]
    SAMPLES = [address for family in PREFIXES for address in family.values()]
    # Numbers of next-hop objects by family: single next hops, and groups.
    SINGLES = [range(1, 6), range(11, 16)]
    GROUPS = [range(21, 24), range(31, 34)]

    def __init__(self, random, links):
        self.random = random
        self.links = links

    def step(self):
        """The lines of `ip -batch` for one step."""
        kinds = [self._route] * 30 + [self._delete] * 14 + [self._object] * 8
        return self.random.choice(kinds + [self._link, self._address, self._mtu] * self.links)()

    def _way(self, six, single=True):
        device = self.random.choice(list(self.LINKS))
        gateway = self.random.choice(self.LINKS[device][six])
        chance = self.random.random()
        if single and chance < 0.12:
            return f"dev {device}"
        if not six and chance < 0.2:
            return f"via 203.0.113.77 dev {device} onlink"
        if not six and chance < 0.28:
            return f"via inet6 {self.random.choice(self.LINKS[device][1])} dev {device}"
        return f"via {gateway} dev {device}"

    def _target(self, six):
        """The target of a route: its type before the prefix, and the words after the prefix."""
        chance = self.random.random()
        if chance < 0.12:
            return self.random.choice(["blackhole", "unreachable", "prohibit", "throw"]) + " ", ""
        if chance < 0.3:
            return "", f"nhid {self.random.choice([*self.SINGLES[six], *self.GROUPS[six]])}"
        if chance < 0.5:
            ways = (self._way(six, six == 0) + self._weight() for _ in range(self.random.randint(2, 4)))
            return "", " ".join(f"nexthop {way}" for way in ways)
        return "", self._way(six)

    def _weight(self):
        return self.random.choice(["", "", f" weight {self.random.randint(2, 4)}"])

    def _attributes(self, six, target):
        chance, words = self.random.random(), []
        if self.random.random() < 0.4:
            words.append(f"metric {self.random.choice([10, 20, 300])}")
        if self.links and six and "via" not in target:
            # The kernel's listing does not show an entry between two next hops of one route. If all routes are listed
            # again after a link has changed, such an entry exists only in the kernel.
            words = [f"metric {self.random.choice([11, 301, 2000])}"]
        if self.random.random() < 0.2:
            words.append(f"proto {self.random.choice(['static', 'bgp', 'ospf', 'bird'])}")
        if chance < 0.06:
            words.append("mtu 1400")
        elif chance < 0.12:
            words.append("src " + self.random.choice([words[six] for words in self.ADDRESSES.values()]).split("/")[0])
        elif chance < 0.16 and not six:
            words.append("tos 0x10")
        elif chance < 0.2:
            words.append("table 100")
        return " ".join(words)

    def _route(self):
        six = self.random.randrange(2)
        verb = self.random.choice(["add", "add", "append", "append", "prepend", "replace", "replace", "change"])
        kind, target = self._target(six)
        return [f"route {verb} {kind}{self.random.choice(list(self.PREFIXES[six]))} {self._attributes(six, target)} {target}"]

    def _delete(self):
        six = self.random.randrange(2)
        prefix = self.random.choice(list(self.PREFIXES[six]))
        metric = self.random.choice(["", "", *(f"metric {metric}" for metric in (10, 11, 20, 300, 301, 2000))])
        if self.random.random() < 0.4:
            return [f"route delete {prefix} {metric}"]
        kind, target = self._target(six)
        return [f"route delete {kind}{prefix} {metric} {target}"]

    def _object(self):
        six = self.random.randrange(2)
        single, group = self.random.choice(self.SINGLES[six]), self.random.choice(self.GROUPS[six])
        verb = self.random.choice(["add", "replace"])
        chance = self.random.random()
        if chance < 0.25:
            return [f"nexthop delete id {self.random.choice([single, group])}"]
        if chance < 0.55:
            members = self.random.sample(self.SINGLES[six], self.random.randint(1, 3))
            weighted = "/".join(f"{member},{self.random.randint(1, 3)}" for member in members)
            return [f"nexthop {verb} id {group} group {weighted}"]
        if chance < 0.6:
            return [f"nexthop {verb} id {single} blackhole"]
        way = self._way(six, False)
        # The family of an object is the family of its gateway.
        return [f"nexthop {verb} id {single} {way.replace('inet6 ', '')}"]

    def _link(self):
        device = self.random.choice(list(self.LINKS))
        if self.random.random() < 0.5:
            return [f"link set {device} down"]
        return self.restored()

    def restored(self):
        """Restore links and addresses to their initial state."""
        up = [f"link set {name} up" for name in self.LINKS]
        return up + [f"address replace {address} dev {device}{' nodad' if ':' in address else ''}"
                for device, addresses in self.ADDRESSES.items() for address in addresses]

    def _address(self):
        device = self.random.choice(list(self.LINKS))
        chance = self.random.random()
        if chance < 0.3:
            return [f"address delete {self.random.choice(self.ADDRESSES[device])} dev {device}"]
        if chance < 0.6:
            return self.restored()
        verb = self.random.choice(["add", "delete"])
        return [f"address {verb} {self.random.choice(['10.77.0.1/24', '2001:db8:77::1/64'])} dev {device}"]

    def _mtu(self):
        return [f"link set {self.random.choice(list(self.LINKS))} mtu {self.random.choice([1400, 1500])}"]


def batch(host, lines):
    """Apply all lines with `ip`, even if the kernel rejects some of them, and return the output of `ip`."""
    done = subprocess.run(
        ["ip", "-n", host.name, "-force", "-batch", "-"], input="\n".join(lines) + "\n", encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60,
    )
    return done.stdout


def compatible(host, value):
    """Whether the kernel reports changed routes when their next-hop object changes (`nexthop_compat_mode`)."""
    with host.network():
        # /proc/sys shows the namespace of the thread that opens it.
        with open("/proc/sys/net/ipv4/nexthop_compat_mode", "w", encoding="ascii") as file:
            file.write(str(value))


STEPS = int(os.environ.get("SLUICE_ROUTE_STEPS", "3000"))
SEED = int(os.environ.get("SLUICE_ROUTE_SEED", "1"))
