"""Tests the import of listings of another packet filter. The kernel with the original rules is compared with Sluice,
which uses the result of `sluice import`.

Probes are chosen at random from the addresses, ports and interfaces in the listing. If Sluice handles a packet
differently, the packet must match a rule that the import has reported as not converted or converted to another form. No
program listens on the gateway's own addresses, so both systems answer accepted probes to these addresses themselves.
"""

import dataclasses
import ipaddress
import json
import os
import random
import re
import select
import socket
import subprocess
import tomllib

from lab import configuration
from lab.host import Host, connect
from lab.oracle import packet
from lab.oracle.netfilter import SETTINGS
from lab.oracle.sluice import HEAD, START, STEP, record, records
from lab.oracle.wires import IGNORE_OUTGOING, SOL_PACKET
from lab.wire import ETH_P_ALL

INTERFACES = 12
PAIRS = 8
PROBES = 24
TOKEN = re.compile(rb"probe-(\d{6})-([qa])")
SYN, ACK, RST = 0x02, 0x10, 0x04
ESP = 50
# The name that replaces the output interface for probes to the gateway's own addresses.
GATEWAY = "gateway"
# Addresses that do not occur in a listing.
ELSEWHERE = ["198.51.100.0/24", "203.0.113.0/24", "10.77.0.0/16", "172.29.3.0/24", "192.168.200.0/24", "100.99.0.0/16"]


class Unloadable(Exception):
    """The kernel does not accept a listing."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """A numbered packet, with its incoming interface and the interface towards its destination."""

    number: int
    into: str
    out: str
    source: str
    destination: str
    protocol: int
    from_port: int
    to_port: int
    control: int = SYN

    def datagram(self):
        data = b"probe-%06d-q" % self.number
        ends = ((self.source, self.from_port), (self.destination, self.to_port))
        if self.protocol == packet.TCP:
            return packet.tcp(ends, self.control, 1000, 1 if self.control & ACK else 0, data)
        if self.protocol == packet.UDP:
            return packet.udp(ends, data)
        if self.protocol == packet.ICMP:
            return packet.query(ends, 8, 1, data)
        return packet.other(self.source, self.destination, self.protocol, data)

    def __str__(self):
        ports = f" ports {self.from_port} to {self.to_port}" if self.protocol in (packet.TCP, packet.UDP) else ""
        control = " without SYN" if self.protocol == packet.TCP and not self.control & SYN else ""
        return f"protocol {self.protocol} from {self.source} by {self.into} to {self.destination} by {self.out}{ports}{control}"


@dataclasses.dataclass(frozen=True)
class Fate:
    """The result of a probe and, if the probe passed, of the answer."""

    passed: tuple = ()
    answered: bool = False
    back: tuple = ()

    def __str__(self):
        if not self.passed:
            return "answered" if self.answered else "dropped"
        back = f", its answer comes back to {self.back}" if self.back else ", its answer does not come back"
        return f"passed as {self.passed}{back}"


def _names(text):
    """Interfaces in a listing."""
    found = re.findall(r"(?:^|\s)-[io]\s+(\S+)", text)
    for piece in re.findall(r"\b[io]if(?:name)?\s+(?:!=\s*)?(\{[^}]*\}|\"[^\"]+\"|\$?[\w.+*-]+)", text):
        found += re.findall(r"[$\w][\w.+*-]*", piece)
    defined = dict(re.findall(r"define\s+(\w+)\s*=\s*\"?([\w.+*-]+)\"?", text))
    names = []
    for name in found:
        name = defined.get(name.removeprefix("$"), name).strip('"').replace("+", "0").replace("*", "0")
        if name not in ("lo", "vmap", "type", "!=") and re.fullmatch(r"[a-zA-Z][\w.-]{0,14}", name) and name not in names:
            names.append(name)
    while len(names) < 2:
        names.append(f"other{len(names)}")
    return names[:INTERFACES]


def _networks(text):
    found = []
    for match in re.findall(r"(?<![\d.])(\d+\.\d+\.\d+\.\d+)(/\d+)?(?![\d.])", text):
        try:
            network = ipaddress.ip_network("".join(match), strict=False)
        except ValueError:
            continue
        if network.prefixlen >= 8 and network[0].is_private | network[0].is_global and not network[0].is_loopback:
            if not network[0].is_multicast and not network[0].is_reserved:
                found.append(str(network))
    return sorted(set(found))


def _ports(text):
    words = r"(?:dports?|sports?|dport|sport|--to-ports?|to|:)\s*[!= {]*([\d,:\- {}]+)"
    found = {int(number) for group in re.findall(words, text) for number in re.findall(r"\d+", group)}
    return sorted(port for port in found if 0 < port < 65535) or [80]


class Listings:
    """The kernel in one namespace, and all hosts behind one packet socket in another namespace."""

    def __init__(self, folder, binary):
        self.folder, self.binary = folder, binary
        os.makedirs(folder, exist_ok=True)

    def compared(self, path, seed, probes=PROBES):
        """The unreported differences of a listing, the number of differences that the import has reported, and the
        number of probes."""
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        one = _Listing(self, os.path.basename(path), text)
        try:
            return one.compared(random.Random(f"{seed}.{os.path.basename(path)}"), probes)
        finally:
            one.remove()


class _Listing:
    def __init__(self, listings, name, text):
        self.folder, self.binary, self.name, self.text = listings.folder, listings.binary, name, text
        self.interfaces = _names(text)
        self.gateway, self.hosts = Host("listing", self.folder), Host("listing-around", self.folder)
        self.tables = "nft" if re.search(r"^\s*table\s", text, re.MULTILINE) else "iptables"
        self.number = 0
        for host in (self.gateway, self.hosts):
            host.setting("net.ipv6.conf.all.disable_ipv6=1")
        self.macs = {}
        for place, interface in enumerate(self.interfaces):
            connect(self.gateway, interface, self.hosts, interface)
            self.hosts.run("ip", "link", "set", interface, "arp", "off")
            self.macs[interface] = bytes.fromhex(self.gateway.mac(interface).replace(":", ""))
            own, other = self._ends(place)
            self.gateway.run("ip", "address", "add", f"{own}/30", "dev", interface)
            self.gateway.run(
                "ip", "neighbour", "add", other, "lladdr", self.hosts.mac(interface), "dev", interface, "nud", "permanent"
            )
        for setting in SETTINGS:
            if "nf_conntrack" not in setting:
                self.gateway.setting(setting)
        with self.hosts.network():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)

    def remove(self):
        self.socket.close()
        self.gateway.remove()
        self.hosts.remove()

    @staticmethod
    def _ends(place):
        return f"192.0.2.{4 * place + 1}", f"192.0.2.{4 * place + 2}"

    def _in_gateway(self, *command, text=None):
        return subprocess.run(
            ["ip", "netns", "exec", self.gateway.name, *command], input=text, encoding="utf-8", errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
        )

    def _load(self):
        """Load the rules into the kernel, and return the kernel's listing of them."""
        if self.tables == "nft":
            return self._load_nft()
        lines = self.text.splitlines()
        for _ in range(40):
            done = self._in_gateway("iptables-restore", text="\n".join(lines) + "\n")
            if done.returncode == 0:
                return self._in_gateway("iptables-save").stdout
            found = re.search(r"line[: ]+(\d+)", done.stderr)
            at = int(found.group(1)) - 1 if found else None
            if at is None or not lines[at].startswith("-A"):
                # An error of a whole table refers to its COMMIT, and does not show the rule for which this kernel lacks a module.
                at = self._unknown(lines)
            del lines[at]
        raise Unloadable(done.stderr)

    def _unknown(self, lines):
        modules = ("--match-set", "-m recent", "hashlimit", "--uid-owner", "-j SET", "-m geoip", "-j TEE", "-j NFQUEUE", "TCPMSS",
                   "-m string", "-m time", "-m physdev", "CHECKSUM", "-j CT", "-m policy", "TPROXY", "-m socket", "connlimit")
        for at, line in enumerate(lines):
            if any(module in line for module in modules):
                return at
        raise Unloadable("the kernel refuses a table as a whole")

    def _load_nft(self):
        text = re.sub(r"^\s*include\s.*$", "", self.text, flags=re.MULTILINE)
        done = self._in_gateway("nft", "-f", "-", text=text)
        if done.returncode != 0:
            raise Unloadable(done.stderr)
        listed = json.loads(self._in_gateway("nft", "-j", "list", "ruleset").stdout)["nftables"]
        for item in listed:
            if "rule" in item:
                expressions = item["rule"]["expr"]
                if not any("counter" in expression for expression in expressions):
                    place = next((at for at, one in enumerate(expressions) if not set(one) & {"match"}), len(expressions))
                    expressions.insert(place, {"counter": {"packets": 0, "bytes": 0}})
        whole = {"nftables": [{"flush": {"ruleset": None}}, *listed]}
        done = self._in_gateway("nft", "-j", "-f", "-", text=json.dumps(whole))
        if done.returncode != 0:
            raise Unloadable(done.stderr)
        return self._in_gateway("nft", "-j", "list", "ruleset").stdout

    def _import(self, listing):
        path = os.path.join(self.folder, f"{self.name}.listing")
        with open(path, "w", encoding="utf-8") as file:
            file.write(listing)
        addresses = []
        for place, interface in enumerate(self.interfaces):
            addresses += ["--address", f"{interface}={self._ends(place)[0]}/30"]
        done = subprocess.run(
            [self.binary, "import", path, "--json", *addresses], check=False, capture_output=True, encoding="utf-8"
        )
        assert done.returncode in (0, 1), done.stderr
        imported = json.loads(done.stdout)
        # For each reported rule: whether the report concerns only answers.
        named = {}
        entries = imported["leftovers"] + imported["notes"]
        # Packets that arrive on another interface do not match the reported rule.
        self.wide = any(entry["reason"].startswith("converted for the address of") for entry in entries)
        for entry in entries:
            place = entry["line"] if entry["line"] else entry["place"]
            named[place] = named.get(place, True) and entry["reason"].startswith("replies to flows of the gateway's host")
        return tomllib.loads(imported["configuration"]), named

    def _counted(self):
        """Number of matches of each rule, by its name in the import."""
        if self.tables == "nft":
            listed = json.loads(self._in_gateway("nft", "-j", "list", "ruleset").stdout)["nftables"]
            counts = {}
            for rule in (item["rule"] for item in listed if "rule" in item):
                place = f"{rule['family']} {rule['table']} {rule['chain']} handle {rule['handle']}"
                counts[place] = sum(one["counter"]["packets"] for one in rule["expr"] if "counter" in one)
            return counts
        lines = self._in_gateway("iptables-save", "-c").stdout.splitlines()
        met = ((at, re.match(r"\[(\d+):\d+\] -A", line)) for at, line in enumerate(lines, 1))
        return {at: int(found.group(1)) for at, found in met if found}

    def compared(self, pick, count):
        listing = self._load()
        document, named = self._import(listing)
        # The gateway's own addresses, which no other host uses.
        nat = document.get("nat", {})
        led = nat.get("destination", [])
        self.own = {rule["address"] for rule in nat.get("destination", []) if "address" in rule}
        self.forwarded = {rule["address"] for rule in nat.get("destination", []) if rule.get("address", rule["to"]) != rule["to"]}
        self.own |= {address for pool in nat.get("pools", {}).values() for address in pool["addresses"]}
        translates = bool(re.search(r"SNAT|MASQUERADE|DNAT|REDIRECT|NETMAP|\"(snat|dnat|masquerade|redirect)\"", listing))
        self.gateway.setting("net.netfilter.nf_conntrack_tcp_loose=0")
        pairs = [(one, other) for one in self.interfaces for other in self.interfaces if one != other]
        pairs = pick.sample(pairs, min(PAIRS, len(pairs)))
        unnamed, forgiven, played = [], 0, 0
        for into, out in pairs:
            probes = [probe for probe in (self._probe(pick, into, out, translates) for _ in range(count)) if probe]
            probes = self._apart(probes)
            self._route(into, out, probes)
            kernel = self._kernel(probes)
            sluice = self._sluice(document, into, out, probes)
            for probe in probes:
                played += 1
                if self._same(kernel[probe.number], sluice[probe.number], translates):
                    continue
                if self.wide and any(rule.get("address") == probe.destination and self._is_led(rule, probe) for rule in led):
                    forgiven += 1
                    continue
                met = self._met(probe)
                is_answer = kernel[probe.number].passed == sluice[probe.number].passed
                if any(named.get(place) in ((True, False) if is_answer else (False,)) for place in met):
                    forgiven += 1
                else:
                    unnamed.append((probe, kernel[probe.number], sluice[probe.number], self._lines(listing, met)))
        if re.search(r"^:INPUT DROP|^-A INPUT|\"hook\": \"input\"", listing, re.MULTILINE):
            for probe, kernel, sluice in self._to_gateway(pick, count, document):
                played += 1
                if kernel.answered == sluice.answered:
                    continue
                met = self._met(probe)
                if any(named.get(place) is False for place in met):
                    forgiven += 1
                else:
                    unnamed.append((probe, kernel, sluice, self._lines(listing, met)))
        return unnamed, forgiven, played

    def _to_gateway(self, pick, count, document):
        """Probes to the gateway itself, each with its results in both systems."""
        led = document.get("nat", {}).get("destination", [])
        # Translated packets are not subject to the filter, and hosts may share an address of the gateway.
        document = {key: value for key, value in document.items() if key != "nat"}
        for into in pick.sample(self.interfaces, min(PAIRS, len(self.interfaces))):
            out = next(name for name in self.interfaces if name != into)
            probes = [probe for probe in (self._probe_to_gateway(pick, into) for _ in range(count)) if probe]
            probes = [probe for probe in probes if not any(self._is_led(rule, probe) for rule in led)]
            self._route(into, out, probes)
            kernel = self._kernel(probes)
            sluice = self._sluice(document, into, out, probes)
            yield from ((probe, kernel[probe.number], sluice[probe.number]) for probe in probes if not kernel[probe.number].passed)

    @staticmethod
    def _is_led(rule, probe):
        """Whether a destination rule may apply to a probe."""
        first, _, last = str(rule.get("port", "0-65535")).partition("-")
        return probe.protocol in (packet.TCP, packet.UDP) and int(first) <= probe.to_port <= int(last or first)

    def _probe_to_gateway(self, pick, into):
        source, port = self._host(pick), self._port(pick)
        own = self._ends(self.interfaces.index(into))[0]
        if source in self.own | {self._ends(place)[0] for place in range(len(self.interfaces))}:
            return None
        self.number += 1
        protocol = pick.choice([packet.TCP] * 4 + [packet.UDP] * 3 + [packet.ICMP] * 2)
        return Probe(self.number, into, GATEWAY, source, own, protocol, 20_000 + self.number % 40_000, port)

    @staticmethod
    def _same(kernel, sluice, translates):
        # If the destination is the gateway itself, the kernel answers, because no program listens.
        if not kernel.passed and not sluice.passed:
            return translates or kernel.answered == sluice.answered
        return (kernel.passed, kernel.back) == (sluice.passed, sluice.back)

    @staticmethod
    def _lines(listing, met):
        lines = listing.splitlines()
        return [lines[at - 1] if isinstance(at, int) else at for at in sorted(met, key=str)]

    def _met(self, probe):
        """The matching rules among the rules that the kernel evaluates for a probe."""
        before = self._counted()
        self.number += 1
        again = dataclasses.replace(probe, number=self.number, from_port=20_000 + self.number % 40_000)
        self._kernel([again])
        after = self._counted()
        return {place for place, packets in after.items() if packets > before.get(place, 0)}

    def _host(self, pick):
        networks = _networks(self.text)
        network = ipaddress.ip_network(pick.choice(networks if networks and pick.random() < 0.7 else ELSEWHERE))
        size = network.num_addresses
        return str(network[pick.randrange(1, size - 1) if size > 2 else 0])

    def _port(self, pick):
        if pick.random() < 0.2:
            return pick.randrange(1, 65_535)
        return max(1, min(65_534, pick.choice(_ports(self.text)) + pick.choice([0, 0, 0, 0, 1, -1])))

    def _probe(self, pick, into, out, translates):
        source, destination = self._host(pick), self._host(pick)
        own = self.own | {self._ends(place)[0] for place in range(len(self.interfaces))}
        if translates and pick.random() < 0.2:
            destination = self._ends(self.interfaces.index(into))[0]
        if translates and self.forwarded and pick.random() < 0.2:
            destination = pick.choice(sorted(self.forwarded))
        to_own = destination in own - self.forwarded and not (translates and destination == self._ends(self.interfaces.index(into))[0])
        if source == destination or source in own or to_own:
            return None
        self.number += 1
        protocol = pick.choice([packet.TCP] * 4 + [packet.UDP] * 3 + [packet.ICMP] * 2 + ([] if translates else [ESP]))
        control = SYN if translates or pick.random() < 0.8 else ACK
        # Each probe has its own port, so that no state exists for the probe.
        return Probe(self.number, into, out, source, destination, protocol, 20_000 + self.number % 40_000, self._port(pick), control)

    @staticmethod
    def _apart(probes):
        sources = {probe.source for probe in probes}
        return [probe for probe in probes if probe.destination not in sources]

    def _route(self, into, out, probes):
        other = {name: self._ends(self.interfaces.index(name))[1] for name in (into, out)}
        lines = ["route flush proto 99"]
        lines += [f"route replace {source}/32 via {other[into]} proto 99" for source in sorted({probe.source for probe in probes})]
        lines.append(f"route replace default via {other[out]} proto 99")
        done = self._in_gateway("ip", "-force", "-batch", "-", text="\n".join(lines) + "\n")
        assert "default" in self._in_gateway("ip", "route").stdout, done.stderr

    def _kernel(self, probes):
        outputs = self._exchange([(probe.into, probe.datagram()) for probe in probes])
        fates, answers = self._read(probes, outputs), []
        for probe in probes:
            if probe.number in fates and fates[probe.number][0]:
                answers.append(self._answer(*fates[probe.number][0]))
        backs = self._exchange([answer for answer in answers if answer])
        return self._fates(probes, fates, backs)

    def _exchange(self, sent):
        outputs = []
        for interface, datagram in sent:
            frame = self.macs[interface] + bytes(6) + datagram.TYPE + bytes(datagram)
            self.socket.sendto(frame, (interface, int.from_bytes(datagram.TYPE)))
        while select.select([self.socket], [], [], 0.05)[0]:
            frame, address = self.socket.recvfrom(65535)
            if frame[12:14] == b"\x08\x00" and not frame[0] & 1:
                outputs.append((address[0], packet.read(frame[14:])))
        return outputs

    @staticmethod
    def _read(probes, outputs):
        """Output interface of each probe, and whether the probe was answered, by the number of the probe."""
        fates = {}
        ports = {probe.from_port: probe for probe in probes}
        for interface, datagram in outputs:
            data = bytes(datagram.payload)
            found = TOKEN.search(data)
            is_error = datagram.protocol == packet.ICMP and data[0] in (3, 5, 11)
            if found and not is_error:
                number = int(found.group(1))
                probe = next((probe for probe in probes if probe.number == number), None)
                echoed = datagram.protocol == packet.ICMP and data[0] == 0
                if probe and echoed and probe.out == GATEWAY:
                    fates[number] = (None, True)
                elif probe and not echoed:
                    fates[number] = ((interface, datagram), fates.get(number, (None, False))[1])
            elif is_error and found:
                number = int(found.group(1))
                fates[number] = (fates.get(number, (None, False))[0], True)
            elif datagram.protocol == packet.TCP and data[13] & RST:
                probe = ports.get(int.from_bytes(data[2:4]))
                if probe:
                    fates[probe.number] = (fates.get(probe.number, (None, False))[0], True)
        return fates

    @staticmethod
    def _answer(interface, datagram):
        """The answer of the remote host to a forwarded packet."""
        data = bytes(datagram.payload)
        token = TOKEN.search(data).group(0)[:-1] + b"a"
        source, destination = datagram.destination, datagram.source
        if datagram.protocol == packet.ICMP:
            return interface, packet.query(((source, int.from_bytes(data[4:6])), (destination, 0)), 0, 1, token)
        if datagram.protocol not in (packet.TCP, packet.UDP):
            return None
        from_port, to_port = int.from_bytes(data[:2]), int.from_bytes(data[2:4])
        ends = ((source, to_port), (destination, from_port))
        if datagram.protocol == packet.UDP:
            return interface, packet.udp(ends, token)
        return interface, packet.tcp(ends, SYN | ACK, 5000, 1001 + len(token), token)

    @staticmethod
    def _fates(probes, fates, backs):
        returned = {}
        for interface, datagram in backs:
            found = TOKEN.search(bytes(datagram.payload))
            if found and found.group(2) == b"a":
                returned[int(found.group(1))] = (interface, datagram.source, datagram.destination)
        result = {}
        for probe in probes:
            out, answered = fates.get(probe.number, (None, False))
            passed = ()
            if out:
                interface, datagram = out
                port = int.from_bytes(bytes(datagram.payload)[2:4]) if datagram.protocol in (packet.TCP, packet.UDP) else 0
                passed = (interface, datagram.source, datagram.destination, port)
            result[probe.number] = Fate(passed, answered, returned.get(probe.number, ()))
        return result

    def _sluice(self, document, into, out, probes):
        document = json.loads(json.dumps(document))
        ends = {name: self._ends(place) for place, name in enumerate(self.interfaces)}
        written = document.setdefault("interfaces", {})
        for place, (name, (own, _)) in enumerate(ends.items()):
            one = written.setdefault(name, {})
            one |= {"device": "null:", "addresses": [f"{own}/30"], "mac": f"02:00:00:00:01:{place:02x}", "source-validation": "off"}
        document |= {
            "system": {"workers": 1},
            "sessions": {"ipv4": 4096, "ipv6": 64},
            "gateway": document.get("gateway", {}) | {
                "icmp-errors": {"rate": 1_000_000, "burst": 1_000_000},
                "policing": {one: {"rate": 1_000_000, "burst": 1_000_000} for one in ("echo", "other")},
            },
            "routes": [{"to": f"{source}/32", "via": ends[into][1]} for source in sorted({probe.source for probe in probes})]
            + [{"to": "0.0.0.0/0", "via": ends[out][1]}],
            "neighbours": {"static": [
                {"address": other, "mac": f"02:00:00:00:02:{place:02x}"} for place, (_, other) in enumerate(ends.values())
            ]},
        }
        path = os.path.join(self.folder, "sluice.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(configuration.text(document))
        sent = [(probe.into, probe.datagram()) for probe in probes]
        outputs = self._replay(sent)
        fates = self._read(probes, outputs)
        answers = [self._answer(*fate[0]) for fate in fates.values() if fate[0]]
        backs = self._replay([*sent, *(answer for answer in answers if answer)])
        return self._fates(probes, fates, backs)

    def _replay(self, sent):
        heads = {name: bytes([2, 0, 0, 0, 1, place, 2, 0, 0, 0, 2, place]) for place, name in enumerate(self.interfaces)}
        captures = {name: [HEAD] for name in self.interfaces}
        for at, (name, datagram) in enumerate(sent, 1):
            captures[name].append(record(START + at * STEP, heads[name] + datagram.TYPE + bytes(datagram)))
        arguments = []
        for name, pieces in captures.items():
            with open(os.path.join(self.folder, f"{name}.in"), "wb") as file:
                file.writelines(pieces)
            arguments += ["--in", f"{name}={name}.in", "--out", f"{name}={name}.out"]
        done = subprocess.run(
            [self.binary, "replay", "-c", "sluice.toml", *arguments], cwd=self.folder, check=False, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        frames = ((name, frame) for name in self.interfaces for _, frame in records(os.path.join(self.folder, f"{name}.out")))
        return [(name, packet.read(frame[14:])) for name, frame in frames if frame[12:14] == b"\x08\x00"]
