"""Tests TCP connections that end and start again, with idle periods between them. The same segments are sent through
Linux's connection tracking in real time, and through `sluice replay` in virtual time.

A script is a random list of segments of one connection, each with the second in which it is sent. The script marks the
segments whose result is compared. For forged segments, only their effect on the connection is compared.
"""

import dataclasses
import json
import subprocess
import time

from lab import configuration
from lab.oracle import packet
from lab.oracle.netfilter import MARKER_PASSES, Netfilter
from lab.oracle.sluice import HEAD, HEADS, START, Sluice, record, records
from lab.oracle.world import GATEWAY_MAC, LINKS, NEIGHBOUR_MAC

FIN, SYN, RST, ACK = 1, 2, 4, 16
# Idle timeouts of a session in seconds: while opening, when established, and after closing.
OPENING, OPEN, OVER = 4, 7440, 2
# Factors by which the real time of Linux is stretched. If segments are sent late, the next factor is tried.
SCALES = (1, 2, 4)
# Port on which outside hosts may also open connections.
SERVED = 22
WINDOW = 8192
DIRECTIONS = ("inside1", "outside")


@dataclasses.dataclass(frozen=True)
class Segment:
    """A segment, and the second in which it is sent. `forged`: neither host of the connection sends the segment."""

    second: int
    by_client: bool
    control: int
    sequence: int
    acknowledgment: int
    length: int = 0
    forged: bool = False


class Script:
    """The segments of consecutive connections between the same two addresses and ports."""

    def __init__(self, pick, number):
        self.pick, self.second, self.segments = pick, 0, []
        port = pick.choice([SERVED, 80])
        # The client is on the inside. Each script has its own hosts.
        self.ends = ((f"10.0.{number >> 8}.{number & 255 or 1}", 40000 + number % 2000), (f"203.0.{number >> 8}.{number & 255 or 1}", port))
        self.served = port == SERVED
        self.next = [0, 0]
        # Hosts that may open a connection: the client, and the server if the port is open.
        by_client, closed = pick.random() < 0.7, ""
        for _ in range(pick.choice([1, 2, 2, 3])):
            before = self.next
            # After a reset Linux keeps the timer of the reset until the connection is established.
            if not self._open(by_client, waits=closed != "reset"):
                # The previous connection is unchanged.
                self.next = before
                break
            self._talk()
            closed = self._close()
            self.second += pick.choice([0, 1, 1, OVER + 1])
            if pick.random() < 0.3:
                self._speak_after_the_end()
            # After a reset Linux admits only the host that opened the last connection.
            by_client = by_client if closed == "reset" else pick.random() < 0.5
        self.segments.append(self._segment(True, ACK))

    def _segment(self, by_client, control, length=0, shift=0, acknowledgment=0, forged=False):
        this, other = (0, 1) if by_client else (1, 0)
        made = Segment(
            self.second, by_client, control, (self.next[this] + shift) % 2**32,
            (self.next[other] + acknowledgment) % 2**32 if control & ACK else 0, length, forged,
        )
        if not forged:
            self.next[this] = (self.next[this] + length + bool(control & SYN) + bool(control & FIN)) % 2**32
        return made

    def _say(self, *arguments, **more):
        self.segments.append(self._segment(*arguments, **more))

    def _open(self, by_client, waits):
        """Perform the three-way handshake as far as segments pass, and return whether the connection is established."""
        self.next = [self.pick.randrange(2**32) for _ in range(2)]
        self._say(by_client, SYN)
        if not by_client and not self.served:
            # In Linux a SYN that rules refuse ends the old connection immediately. In Sluice it has no effect.
            self.second += OVER + 1
            return False
        if self.pick.random() < 0.15:
            self._say(not by_client, RST | ACK)
            # Linux deletes the connection immediately; Sluice keeps the session for the transitory timeout (RFC 7857, 2.2).
            self.second += OPENING + 1
            return False
        if waits and self.pick.random() < 0.15:
            self.second += self.pick.choice([OPENING - 2, OPENING + 2])
            self._say(not by_client, SYN | ACK)
            if self.second >= self.segments[-2].second + OPENING:
                return False
        else:
            self._say(not by_client, SYN | ACK)
        self._say(by_client, ACK)
        return True

    def _talk(self):
        for _ in range(self.pick.randrange(4)):
            self._say(self.pick.random() < 0.5, ACK, length=self.pick.randrange(1, 500))
            # Data is acknowledged immediately, so that both systems have the same window state.
            self._say(not self.segments[-1].by_client, ACK)
        if self.pick.random() < 0.4:
            self._forge()
        self.second += self.pick.choice([0, 0, 1, OPENING + 2])
        for by_client in (True, False):
            self._say(by_client, ACK, length=7)
            self._say(not by_client, ACK)

    def _forge(self):
        """Send FINs in both directions, or a reset, with sequence numbers far outside the window."""
        far = self.pick.randrange(2**24, 2**31) * self.pick.choice([1, -1])
        if self.pick.random() < 0.5:
            for by_client in (True, False):
                self._say(by_client, FIN | ACK, shift=far, acknowledgment=far, forged=True)
        else:
            self._say(self.pick.random() < 0.5, RST, shift=far, forged=True)

    def _close(self):
        by_client = self.pick.random() < 0.5
        if self.pick.random() < 0.35:
            self._say(by_client, RST | ACK)
            return "reset"
        self._say(by_client, FIN | ACK)
        self._say(not by_client, ACK)
        if self.pick.random() < 0.3:
            self._say(not by_client, ACK, length=9)
            self._say(by_client, ACK)
        self._say(not by_client, FIN | ACK)
        self._say(by_client, ACK)
        return "FINs"

    def _speak_after_the_end(self):
        """Retransmit a segment, to test whether the session still exists. The retransmission also restarts Linux's
        timer, so no later step may depend on this timer."""
        gone = self.second >= self.segments[-1].second + OVER
        made = self._segment(self.pick.random() < 0.5, ACK)
        self.segments.append(made)
        self.second += 0 if gone else OVER + 1

    def datagram(self, segment, identification):
        """A segment as a datagram."""
        ends = self.ends if segment.by_client else self.ends[::-1]
        return packet.tcp(
            ends, segment.control, segment.sequence, segment.acknowledgment, bytes(segment.length), window=WINDOW,
            identification=identification,
        )


def timeline(scripts):
    """The segments of all scripts as (second, script, position), in the order in which they are sent."""
    entries = [
        (segment.second, number, place)
        for number, script in enumerate(scripts)
        for place, segment in enumerate(script.segments)
    ]
    return sorted(entries)


class Tracking(Netfilter):
    """Linux's connection tracking. Inside hosts may open all connections, and outside hosts only connections to one
    port."""

    SETTINGS = {
        "be_liberal": 0, "loose": 0, "timeout_syn_sent": OPENING, "timeout_syn_recv": OPENING, "timeout_established": OPEN,
        "timeout_fin_wait": OPEN, "timeout_close_wait": OPEN, "timeout_last_ack": OVER, "timeout_time_wait": OVER,
        "timeout_close": OVER, "timeout_unacknowledged": OPEN, "timeout_max_retrans": OPEN,
    }
    RULES = f"""
flush ruleset
table ip states {{
  chain forward {{
    type filter hook forward priority 0; policy drop;
    {MARKER_PASSES}
    ct state established,related accept
    ct state new iifname "inside1" accept
    ct state new tcp sport {SERVED} accept
  }}
}}
"""

    def __init__(self, folder):
        super().__init__(folder, "states")
        subprocess.run(
            ["ip", "netns", "exec", self.gateway.name, "nft", "-f", "-"], input=self.RULES, encoding="utf-8", check=True
        )

    def passes(self, scripts):
        """Whether each segment of each script came out at the other side.

        On a busy machine segments are sent late and a timer that should have expired has not. The scripts are then sent
        again, with timeouts and idle periods of twice the length."""
        for scale in SCALES:
            result, late = self._sent(scripts, scale)
            if late < 0.8 * scale:
                return result
        raise AssertionError(f"segments were {late:.1f} s late")

    def _sent(self, scripts, scale):
        """Whether each segment passed, and by how many seconds a segment was late at most. A second of the scripts
        takes `scale` seconds."""
        self.forget()
        for name, value in self.SETTINGS.items():
            self.gateway.setting(f"net.netfilter.nf_conntrack_tcp_{name}={value * scale}")
        result = [[] for _ in scripts]
        begin, late = time.monotonic(), 0
        for count, (second, number, place) in enumerate(timeline(scripts)):
            script = scripts[number]
            segment = script.segments[place]
            time.sleep(max(0, begin + second * scale - time.monotonic()))
            datagram = script.datagram(segment, count & 0xFFFF)
            outputs = self._exchange(DIRECTIONS[not segment.by_client], [datagram])
            late = max(late, time.monotonic() - begin - second * scale)
            result[number].append(any(out.identification == datagram.identification for _, out in outputs))
        return result, late


class Replayed(Sluice):
    """Sluice, with the same rules as Linux."""

    def passes(self, scripts):
        """Whether each segment of each script came out at the other side."""
        with open(self._path("sluice.toml"), "w", encoding="utf-8") as file:
            file.write(configuration.text(self._document()))
        captures = {name: [] for name in DIRECTIONS}
        times = {}
        for count, (second, number, place) in enumerate(timeline(scripts)):
            script = scripts[number]
            segment = script.segments[place]
            datagram = script.datagram(segment, count & 0xFFFF)
            name = DIRECTIONS[not segment.by_client]
            now = START + second * 10**9 + count * 1000
            captures[name].append((now, HEADS[name] + datagram.TYPE + bytes(datagram)))
            times[now] = (number, place)
        self._replay({name: [HEAD, *(record(*frame) for frame in frames)] for name, frames in captures.items()})
        out = {times[at] for name in DIRECTIONS for at, _ in records(self._path(f"{name}.out")) if at in times}
        return [[(number, place) in out for place in range(len(script.segments))] for number, script in enumerate(scripts)]

    def _document(self):
        links = {name: LINKS[name] for name in DIRECTIONS}
        return {
            "system": {"workers": 1, "shards": 4},
            "sessions": {
                "ipv4": 65536, "ipv6": 64,
                "timeouts": {
                    "tcp-transitory-open": f"{OPENING}s", "tcp-established": f"{OPEN}s", "tcp-transitory-close": f"{OVER}s",
                },
            },
            "interfaces": {
                name: {"device": "null:", "addresses": [f"{own}/24"], "mac": GATEWAY_MAC[name]}
                for name, (own, _, _) in links.items()
            },
            "routes": [{"to": network, "via": neighbour} for _, neighbour, network in links.values()],
            "neighbours": {
                "static": [{"address": neighbour, "mac": NEIGHBOUR_MAC[name]} for name, (_, neighbour, _) in links.items()]
            },
            "filter": {
                "default": "drop",
                "rules": [
                    {"name": "out", "action": "accept", "in": "inside1"},
                    {"name": "served", "action": "accept", "protocol": "tcp", "from-port": SERVED},
                ],
            },
        }


def text(script, passed):
    """A script with the results of its segments, by system."""
    lines = [f"{script.ends}"]
    for place, segment in enumerate(script.segments):
        lines.append(f"{segment} " + json.dumps({name: each[place] for name, each in passed.items()}))
    return "\n".join(lines)
