"""Generates random rules of the packet filter from a small set of values, in the syntax of Sluice and of nftables."""

import dataclasses
import ipaddress
import itertools

from lab.oracle import packet

INTERFACES = ("inside1", "inside2", "outside")
# Protocols without ports, for which connection tracking has no special support.
OTHERS = (50, 89, 99)
FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg")
CODE_POINTS = (0, 0x03 >> 2, 0x10 >> 2, 0xB8 >> 2, 0xE0 >> 2)
ESTABLISHED = "ct state established,related accept"
# Actions after which evaluation continues.
GOING_ON = ("count", "log")
REJECTS = {"reset": "port-unreachable", "port-unreachable": "port-unreachable", "prohibited": "admin-prohibited"}


@dataclasses.dataclass(frozen=True)
class Family:
    """The nftables syntax for expressions that IPv4 and IPv6 have in common."""

    version: int
    ip: str
    icmp: str
    message: int
    length: str
    parts: dict
    # This expression prevents nftables from interpreting the start of a later fragment as a transport header.
    first: str
    # Lines that precede all other lines.
    before: tuple = ()
    # Types of an echo request and its reply.
    echo: int = 8
    reply: int = 0
    # The ICMP protocol of the other family, which is an ordinary protocol in this family.
    odd: tuple = ()
    # Names of ICMP messages.
    names: dict = dataclasses.field(default_factory=dict)


FOUR = Family(
    4, "ip", "icmp", packet.ICMP, "ip length",
    {"whole": "ip frag-off & 0x3fff == 0", "first": "ip frag-off & 0x3fff == 0x2000", "later": "ip frag-off & 0x1fff != 0"},
    "ip frag-off & 0x1fff == 0 ",
    odd=(packet.ICMPV6,),
    names={0: "echo-reply", 3: "destination-unreachable", 8: "echo-request", 11: "time-exceeded", 12: "parameter-problem"},
)
# Not every IPv6 packet has a fragment header that rules could match, so packet marks show the kind of fragment.
SIX = Family(
    6, "ip6", "icmpv6", packet.ICMPV6, "meta length",
    {"whole": "meta mark & 6 == 0", "first": "meta mark & 6 == 2", "later": "meta mark & 6 == 4"},
    "meta mark & 4 == 0 ",
    ("frag frag-off != 0 meta mark set 4", "frag frag-off 0 frag more-fragments 1 meta mark set 2"),
    echo=128, reply=129, odd=(packet.ICMP,),
    names={1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 128: "echo-request", 129: "echo-reply"},
)


MESSAGES = (
    (8, None), (8, 0), (0, None), (13, None), (14, None), (17, None), (3, None), (3, 1), (3, 3), (11, None), (12, 0),
)
MESSAGES6 = (
    (128, None), (128, None), (128, 0), (129, None), (129, 0), (1, None), (1, 1), (1, 4), (2, None), (3, None), (3, 0), (4, 1),
    (200, None),
)
LENGTHS = (0, 1, 8, 9, 16, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32)
LENGTHS6 = (0, 1, 16, 20, 31, 32, 33, 34, 47, 48, 49, 62, 63, 64, 65, 66, 96, 112, 119, 120, 121, 124, 126, 127, 128)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule. An empty or absent field matches everything. Addresses are in Sluice's syntax, and numbers are pairs
    of first and last. `@name` is a group of addresses or numbers."""

    action: str
    reject: str = "reset"
    sources: tuple = ()
    targets: tuple = ()
    protocols: tuple = ()
    source_ports: tuple = ()
    target_ports: tuple = ()
    # Type, and code or `None`. A type without a code is given by name, if it has a name.
    messages: tuple = ()
    named: bool = False
    # Flags that must be set, and mask of the compared flags.
    flags: tuple | None = None
    part: str | None = None
    code_points: tuple = ()
    length: tuple | None = None
    incoming: tuple = ()
    outgoing: tuple = ()

    def document(self, name, family):
        """The rule in Sluice's configuration."""
        names = family.names if self.named else {}
        keys = {
            "from": list(self.sources), "to": list(self.targets), "protocol": [str(number) for number in self.protocols],
            "from-port": [_numbers(ports) for ports in self.source_ports],
            "to-port": [_numbers(ports) for ports in self.target_ports],
            "icmp": [names.get(kind, str(kind)) if code is None else f"{kind}/{code}" for kind, code in self.messages],
            "flags": self.flags and "/".join(",".join(names) or "none" for names in self.flags),
            "fragment": self.part, "dscp": list(self.code_points), "length": self.length and _numbers(self.length),
            "in": list(self.incoming), "out": list(self.outgoing),
        }
        with_what = {"with": self.reject} if self.action == "reject" else {}
        return {"name": name, "action": self.action, **with_what, **{key: value for key, value in keys.items() if value}}

    def nftables(self, name, family, groups):
        """The rule in nftables, with one line for every combination of values. A group is one set. Addresses of the
        other family match nothing."""
        sources, targets = groups.addresses(self.sources, family), groups.addresses(self.targets, family)
        if (self.sources and not sources) or (self.targets and not targets):
            return []
        ports = groups.ports(self.source_ports), groups.ports(self.target_ports)
        if self.action in GOING_ON:
            # A packet that matches several values is counted once.
            sources, targets, *ports = (_set(members) for members in (sources, targets, *ports))
        protocols = self.protocols
        if not protocols and (self.source_ports or self.target_ports):
            protocols = (packet.TCP, packet.UDP)
        if self.flags:
            protocols = (packet.TCP,)
        if self.messages:
            protocols = (family.message,)
        choices = [
            [f'iifname "{interface}" ' for interface in self.incoming],
            [f'oifname "{interface}" ' for interface in self.outgoing],
            [f"{family.ip} saddr {addresses} " for addresses in sources],
            [f"{family.ip} daddr {addresses} " for addresses in targets],
            [f"{family.ip} dscp {point} " for point in self.code_points],
            [f"{family.length} {_numbers(self.length)} "] if self.length else [],
            [f"{family.parts[self.part]} "] if self.part else [],
        ]
        lines = []
        for parts in itertools.product(*[choice or [""] for choice in choices]):
            for protocol in protocols or (None,):
                for match in self._transport(protocol, family, ports):
                    lines += verdict("".join(parts) + match, protocol, self.action, self.reject, name, family)
        return lines

    def again(self, family):
        """The rule for revalidating existing sessions. It is evaluated for a first packet, which is an echo request for
        ICMP, and it does not count."""
        if self.action in GOING_ON:
            return None
        if self.messages and not {(family.echo, None), (family.echo, 0)} & set(self.messages):
            return None
        protocols = (family.message,) if self.messages else self.protocols
        action = "accept" if self.action == "accept" else "return"
        return dataclasses.replace(self, action=action, protocols=protocols, messages=())

    def turned(self):
        """The rule for the opposite direction."""
        return dataclasses.replace(
            self, sources=self.targets, targets=self.sources, source_ports=self.target_ports,
            target_ports=self.source_ports, incoming=self.outgoing, outgoing=self.incoming,
        )

    def _transport(self, protocol, family, ports):
        """Matches for the protocol and its header."""
        head = "" if protocol is None else f"meta l4proto {protocol} "
        if self.messages:
            return [
                f"{head}{family.first}{family.icmp} type {kind} " + ("" if code is None else f"{family.icmp} code {code} ")
                for kind, code in self.messages
            ]
        if self.source_ports or self.target_ports or self.flags:
            head += family.first
        choices = [
            [f"th sport {numbers} " for numbers in ports[0]] or [""],
            [f"th dport {numbers} " for numbers in ports[1]] or [""],
        ]
        flags = ""
        if self.flags:
            wanted, counting = (sum(1 << FLAGS.index(name) for name in names) for names in self.flags)
            flags = f"tcp flags & {counting:#x} == {wanted:#x} "
        return [f"{head}{source}{target}{flags}" for source, target in itertools.product(*choices)]


@dataclasses.dataclass(frozen=True)
class Groups:
    """Groups of addresses and ports by name. Members may be earlier groups."""

    of_addresses: dict = dataclasses.field(default_factory=dict)
    of_ports: dict = dataclasses.field(default_factory=dict)

    def document(self):
        """The groups in Sluice's configuration."""
        ports = {name: [_numbers(ports) for ports in members] for name, members in self.of_ports.items()}
        tables = {"addresses": {name: list(members) for name, members in self.of_addresses.items()}, "ports": ports}
        return {key: table for key, table in tables.items() if table}

    def addresses(self, members, family):
        """Members of one family in nftables."""
        found = [text for text in _flat(members, self.of_addresses) if (":" in text) == (family is SIX)]
        return _set(found) if _names_groups(members) else found

    def ports(self, members):
        """Port members in nftables."""
        found = [_numbers(ports) for ports in _flat(members, self.of_ports)]
        return _set(found) if _names_groups(members) else found


def _names_groups(members):
    return any(str(member).startswith("@") for member in members)


def _flat(members, groups):
    """A list of members, in which groups are replaced by their members."""
    found = [_flat(groups[member[1:]], groups) if _names_groups([member]) else [member] for member in members]
    return list(itertools.chain(*found))


def _set(members):
    """Members as one nftables set, or `None`. A set is returned unchanged."""
    if not members or members[0].startswith("{"):
        return members
    return [f"{{ {', '.join(dict.fromkeys(members))} }}"]


@dataclasses.dataclass(frozen=True)
class Filter:
    """Rules in order. `conditions` contains the fields that at least one rule matches."""

    default: str
    sessions: bool
    rules: tuple
    matcher: str = "best"
    groups: Groups = Groups()
    # Whether sessions exist that another set of rules has accepted.
    follows: bool = False

    def hosts(self):
        """The single addresses in the rules."""
        lists = [members for rule in self.rules for members in (rule.sources, rule.targets)]
        lists += self.groups.of_addresses.values()
        return [member for members in lists for member in members if not set("@/-") & set(member)]

    def looks_at(self, field):
        """Whether any rule matches this field."""
        return any(getattr(rule, field) for rule in self.rules)

    def document(self, six=False):
        """The filter in Sluice's configuration."""
        family = SIX if six else FOUR
        rules = [rule.document(f"rule{number}", family) for number, rule in enumerate(self.rules)]
        keys = {"default": self.default, "sessions": self.sessions, "matcher": self.matcher}
        return {**keys, **self.groups.document(), "rules": rules}

    def nftables(self, before, six=False):
        """The filter in nftables, with counters and a chain that starts with the given lines."""
        family = SIX if six else FOUR
        counters = [f"counter rule{number} {{ }}" for number in range(len(self.rules))]
        lines = [*counters, "counter default { }", "chain filter { type filter hook forward priority filter; policy accept;"]
        lines += [*before, *family.before]
        if self.sessions:
            # Invalid packets are routed to a separate exit.
            lines += ['oifname "invalid" accept', *(self._asked_again(family) if self.follows else [ESTABLISHED])]
        for number, rule in enumerate(self.rules):
            lines += rule.nftables(f"rule{number}", family, self.groups)
        lines += [*verdict("", None, self.default, "reset", "default", family), "}"]
        if self.sessions and self.follows:
            for direction, turn in (("original", lambda rule: rule), ("reply", Rule.turned)):
                rules = [turn(rule) for rule in (rule.again(family) for rule in self.rules) if rule]
                inner = [line for rule in rules for line in rule.nftables("again", family, self.groups)]
                lines = [f"chain {direction} {{", *inner, *["accept"] * (self.default == "accept"), "}", *lines]
            lines = ["counter again { }", *lines]
            lines += ["chain unopened { type filter hook forward priority filter + 1;", "meta mark & 8 == 8 drop", "}"]
        return lines

    def _asked_again(self, family):
        """Rules for established connections, which are evaluated as for the first packet. If a packet no longer
        passes but could start a connection, it is evaluated again."""
        replies = f"{family.icmp} type {family.reply}"
        return [
            "ct state related accept",
            "ct state established ct direction original jump original",
            "ct state established ct direction reply jump reply",
            "ct state established meta l4proto 6 tcp flags & 0x17 != 0x02 meta mark set 8",
            f"ct state established {replies} meta mark set 8",
        ]


def verdict(match, protocol, action, reject, name, family):
    """Lines of nftables that apply the action to matching packets, and count them under a name."""
    count = f"counter name {name}"
    if action in GOING_ON:
        return [f"{match}{count}"]
    if action != "reject":
        return [f"{match}{count} {action}"]
    lines = []
    if reject == "reset" and protocol in (None, packet.TCP):
        lines.append(f"{match}{'meta l4proto 6 ' if protocol is None else ''}{count} reject with tcp reset")
    return [*lines, f"{match}{count} reject with {family.icmp} {REJECTS[reject]}"]


def _numbers(pair):
    if isinstance(pair, str):
        return pair
    first, last = pair
    return str(first) if first == last else f"{first}-{last}"


def random_filter(pick, words, sessions, fragments):
    """Random rules with addresses and ports from the given words. Connection tracking reassembles fragments before
    rules are evaluated. With sessions, rules therefore match lengths only if there are no fragments (`fragments`)."""
    count = pick.choice([0, 1, 2, 3, 5, 8, 13, 21, 30])
    groups = _groups(pick, words)
    rules = tuple(_rule(pick, words, sessions, fragments, groups) for _ in range(count))
    matcher = pick.choice(["best", "best", "best", "linear", "trie", "cached-trie"])
    return Filter(pick.choice(["accept", "accept", "drop", "reject"]), sessions, rules, matcher, groups)


def changed(pick, filter, words):
    """The filter with some rules removed, added and moved."""
    rules = [rule for rule in filter.rules if pick.random() < 0.8]
    if pick.random() < 0.3:
        pick.shuffle(rules)
    for _ in range(pick.choice([0, 1, 1, 2, 4])):
        rules.insert(pick.randint(0, len(rules)), _rule(pick, words, filter.sessions, True, filter.groups))
    default = pick.choice([filter.default, filter.default, "accept", "drop", "reject"])
    return dataclasses.replace(filter, default=default, rules=tuple(rules))


def _groups(pick, words):
    """Random groups of either family, possibly none. Some groups contain other groups."""
    addresses, ports = {}, {}
    for number in range(pick.choice([0, 0, 1, 2, 3])):
        among = words.foreign if pick.random() < 0.1 else words.sources + words.targets
        members = tuple(_addresses(pick, among) for _ in range(pick.choice([1, 2, 4, 9])))
        addresses[f"hosts{number}"] = members + tuple(f"@{name}" for name in addresses if pick.random() < 0.2)
    for number in range(pick.choice([0, 0, 1, 2])):
        members = tuple(_ports(pick, words.ports) for _ in range(pick.choice([1, 2, 5])))
        ports[f"ports{number}"] = members + tuple(f"@{name}" for name in ports if pick.random() < 0.2)
    return Groups(addresses, ports)


@dataclasses.dataclass(frozen=True)
class Words:
    """The values in rules: hosts and networks of sources and destinations, ports, and networks of the other family."""

    sources: tuple
    targets: tuple
    ports: tuple
    foreign: tuple
    six: bool = False


def _rule(pick, words, sessions, fragments, groups):
    family = SIX if words.six else FOUR
    action = pick.choice(["accept"] * 4 + ["drop"] * 3 + ["reject"] * 3 + ["count", "log"])
    conditions = {}

    def some(key, make, most=3):
        conditions[key] = tuple(dict.fromkeys(make() for _ in range(pick.randint(1, most))))

    def grouped(key, names):
        """The values, replaced by a group or extended by a group."""
        if names and pick.random() < 0.4:
            conditions[key] = (f"@{pick.choice(list(names))}", *conditions[key] * (pick.random() < 0.4))

    kind = pick.choice(["any", "any", "protocol", "protocol", "ports", "ports", "ports", "icmp", "flags"])
    if kind == "protocol":
        some("protocols", lambda: pick.choice([packet.TCP, packet.UDP, family.message, family.message, *OTHERS, *family.odd]))
    elif kind == "ports":
        if pick.random() < 0.6:
            some("protocols", lambda: pick.choice([packet.TCP, packet.UDP]))
        for key in pick.choice([["source_ports"], ["target_ports"], ["target_ports"], ["source_ports", "target_ports"]]):
            some(key, lambda: _ports(pick, words.ports))
            grouped(key, groups.of_ports)
    elif kind == "icmp":
        # A packet that matches two messages would be counted twice.
        messages = MESSAGES6 if words.six else MESSAGES
        some("messages", lambda: pick.choice(messages), 1 if action in GOING_ON else 3)
        conditions["named"] = pick.random() < 0.5
        if pick.random() < 0.3:
            conditions["protocols"] = (family.message,)
    elif kind == "flags":
        counting = pick.choice([("syn",), ("syn", "ack"), ("fin", "syn", "rst", "ack"), ("rst",), ("psh", "ack"), FLAGS])
        conditions["flags"] = (tuple(name for name in counting if pick.random() < 0.4), counting)
        if pick.random() < 0.3:
            some("target_ports", lambda: _ports(pick, words.ports))
    for key, among in (("sources", words.sources), ("targets", words.targets)):
        if pick.random() < 0.45:
            some(key, lambda: _addresses(pick, among))
    if pick.random() < 0.05:
        # Rules may contain addresses of both families in one list. Addresses of one family never match packets of the
        # other family.
        foreign = (_addresses(pick, words.foreign),)
        conditions["sources"] = foreign + conditions.get("sources", ()) * (pick.random() < 0.5)
    for key in ("sources", "targets"):
        if key in conditions:
            grouped(key, groups.of_addresses)
    if not any(_concerns(conditions, one, groups) for one in ([family] if kind == "icmp" else [FOUR, SIX])):
        # Sluice refuses a rule that no packet of either family could match.
        conditions = {key: value for key, value in conditions.items() if key not in ("sources", "targets")}
    for key in ("incoming", "outgoing"):
        if pick.random() < 0.15:
            some(key, lambda: pick.choice(INTERFACES))
    if pick.random() < 0.12:
        some("code_points", lambda: pick.choice(CODE_POINTS))
    if pick.random() < 0.12 and not (sessions and fragments):
        low = pick.choice([0, 28, 40, 48, 60, 100, 577, pick.randrange(20, 1500)])
        conditions["length"] = (low, pick.choice([low, low + 8, low + 100, 65535]))
    if pick.random() < (0.05 if sessions else 0.12) and not (sessions and fragments):
        conditions["part"] = pick.choice(list(family.parts))
    return Rule(action, pick.choice(list(REJECTS)), **conditions)


def _concerns(conditions, family, groups):
    """Whether packets of this family can match."""
    lists = [conditions[key] for key in ("sources", "targets") if key in conditions]
    return all(groups.addresses(members, family) for members in lists)


def _ports(pick, ports):
    port = pick.choice(ports)
    choices = [(port, port), (port, port), (0, 65535), (0, 1023), (1024, 65535), (max(0, port - 9), min(65535, port + 5)), (0, 0)]
    return pick.choice(choices)


def _addresses(pick, among):
    """A host, range or prefix that contains one of these addresses or networks, or a part of it."""
    network = ipaddress.ip_network(pick.choice(among))
    address = network[pick.randrange(network.num_addresses)] if pick.random() < 0.5 else network[0]
    shape = pick.random()
    if shape < 0.25:
        return str(network)
    if shape < 0.45:
        return str(address)
    if shape < 0.65:
        low = max(0, int(address) - pick.choice([0, 3, 300]))
        high = min(2**address.max_prefixlen - 1, int(address) + pick.choice([1, 20, 700]))
        return f"{type(address)(low)}-{type(address)(high)}"
    lengths = LENGTHS6 if address.version == 6 else LENGTHS
    length = pick.choice(lengths)
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False))
