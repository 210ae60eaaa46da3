"""The measurement for one number of sessions: plain forwarding, then NAT44-ED in both directions."""

import dataclasses
import os
import statistics
import tempfile
from random import Random

from lab.vpp.fault import Fault
from lab.vpp.frames import ACK, SYN, TTL, Frames, Sessions
from lab.vpp.instance import Instance

SEED = 42
# A round replays the frames of all sessions several times, in whole bursts of the packet generator.
BURST = 256
PACKETS = 4_096_000
REPETITIONS = 8
# A disturbed round is one in which the thread waits for the processor longer than this share of the time.
DISTURBED = 0.01
UNDISTURBED_ROUNDS = 3

# The hosts with which pg0, the inside interface, and pg1, the outside interface, exchange frames.
INSIDE_HOST, OUTSIDE_HOST = bytes.fromhex("02000000aa02"), bytes.fromhex("02000000bb02")
INTERFACES = [
    "create packet-generator interface pg0",
    "create packet-generator interface pg1",
    "set interface state pg0 up",
    "set interface state pg1 up",
    "set interface ip address pg0 172.31.255.1/24",
    "set interface ip address pg1 192.0.2.1/24",
    f"set ip neighbor pg0 172.31.255.2 {INSIDE_HOST.hex(':')}",
    f"set ip neighbor pg1 192.0.2.2 {OUTSIDE_HOST.hex(':')}",
    "ip route add 10.0.0.0/8 via 172.31.255.2 pg0",
    "ip route add 198.18.0.0/16 via 192.0.2.2 pg1",
]
POOL_RANGE = "203.0.113.1 - 203.0.113.64"


@dataclasses.dataclass
class Round:
    """Cycles per packet of one round, and the share of its time for which the thread waited for the processor."""

    cycles: float
    packet_generator: float
    waited: float


@dataclasses.dataclass
class Result:
    """Cycles per packet of one direction, without the packet generator."""

    sessions: int
    direction: str
    median: float
    minimum: float
    maximum: float
    packet_generator: float
    rounds: int
    used_rounds: int
    packets_per_round: int
    memory_pages: str
    version: str


class Measurement:
    """VPP with sessions, and the frames of these sessions."""

    def __init__(self, instance, count, progress):
        self.instance = instance
        self.count = count
        self.progress = progress
        self.packets = -(-max(PACKETS, REPETITIONS * count) // BURST) * BURST
        self.random = Random(SEED)
        progress("prepares addresses and ports")
        self.sessions = Sessions(count, self.random)
        instance.configure(*INTERFACES)
        self.inside_mac, self.outside_mac = instance.mac("pg0"), instance.mac("pg1")

    def shuffled(self):
        """The numbers of all sessions in random order."""
        numbers = list(range(self.count))
        self.random.shuffle(numbers)
        return numbers

    def stream(self, name, source, frames, numbers, flow, limit):
        """Load one frame per session into the packet generator."""
        self.progress(f"prepares the frames of the stream {name}")
        path = os.path.join(self.instance.folder, f"{name}.pcap")
        frames.write(path, numbers, flow)
        self.instance.configure(f"packet-generator new {{ name {name} limit {limit} source {source} pcap {path} }}")
        os.remove(path)

    def from_inside(self, name, flags, numbers, limit):
        """Load packets of the clients."""
        frames = Frames(INSIDE_HOST, self.inside_mac, flags)
        self.stream(name, "pg0", frames, numbers, self.sessions.inside, limit)

    def from_outside(self, name, flags, numbers, limit):
        """Load packets of the servers."""
        frames = Frames(OUTSIDE_HOST, self.outside_mac, flags)
        self.stream(name, "pg1", frames, numbers, self.sessions.reply, limit)

    def captured(self, name, output):
        """Run a stream once, delete it, and return the path of a capture of the frames that VPP sends."""
        path = os.path.join(self.instance.folder, f"{name}-sent.pcap")
        self.instance.configure(f"packet-generator capture {output} pcap {path} count {self.count}")
        self.instance.run_stream(name)
        self.instance.configure(f"packet-generator capture {output} disable", f"packet-generator delete {name}")
        self.progress(f"verifies the translated frames of the stream {name}")
        return path

    def verify_sent(self, name, flags, flow, learn=None):
        """Run a stream of the clients, and verify the translated frames."""
        path = self.captured(name, "pg1")
        Frames(self.outside_mac, OUTSIDE_HOST, flags, TTL - 1).verify(path, self.count, flow, learn)
        os.remove(path)

    def create_sessions(self):
        """Enable NAT44-ED, and create all sessions: SYN, SYN and ACK, ACK for TCP, three datagrams for UDP."""
        sessions = self.sessions
        self.instance.configure(
            f"nat44 plugin enable sessions {self.count + self.count // 64}",
            f"nat44 add address {POOL_RANGE}",
            "set interface nat44 in pg0 out pg1",
        )
        self.from_inside("first", SYN, range(self.count), self.count)
        self.verify_sent("first", SYN, sessions.outside, sessions.learn)

        self.from_outside("reply", SYN | ACK, self.shuffled(), self.count)
        path = self.captured("reply", "pg0")
        frames = Frames(self.inside_mac, INSIDE_HOST, SYN | ACK, TTL - 1)
        frames.verify(path, self.count, sessions.translated_reply)
        os.remove(path)

        self.from_inside("acknowledgement", ACK, self.shuffled(), self.count)
        self.verify_sent("acknowledgement", ACK, sessions.outside)
        self.check_sessions({"established": sessions.tcp, "transitory": 0})

    def check_sessions(self, wanted):
        """Compare the summary of NAT44-ED with the number of sessions and other expected values."""
        for name, expected in {"total sessions": self.count, **wanted}.items():
            actual = self.instance.summary(name)
            if actual != expected:
                raise Fault(f"{name}: {actual} instead of {expected}", "show nat44 summary", "VPP 26.06 is known to work")

    def round(self, stream, output, seconds):
        """Run a stream, check that VPP sends every packet on its fast path, and return the cycles per packet."""
        instance = self.instance
        instance.clear_counters()
        waited = instance.waited()
        duration = instance.run_stream(stream, seconds)
        waited = instance.waited() - waited
        nodes, counters = instance.nodes(), instance.interface_counters()
        received, generator = nodes.get("pg-input", (0, 0.0))
        sent = counters.get((output, "tx packets"), 0)
        dropped = sum(value for (_, name), value in counters.items() if name == "drops")
        slow = sum(packets for name, (packets, _) in nodes.items() if "slowpath" in name)
        if (received, sent, dropped, slow) != (self.packets, self.packets, 0, 0):
            raise Fault(f"of {self.packets} packets, VPP received {received}, sent {sent}, dropped {dropped}, and passed {slow} "
                        "to its slow path", f"stream {stream}\n{instance.show('show errors').rstrip()}",
                        "use fewer sessions; VPP 26.06 is known to work")
        cycles = sum(cycles for _, cycles in nodes.values())
        share = min(1.0, waited * 1e-9 * instance.frequency / cycles)
        # VPP counts cycles with the time-stamp counter, which does not stop while the thread waits.
        scale = (1 - share) / self.packets
        return duration, Round((cycles - generator) * scale, generator * scale, share)

    def rounds(self, direction, stream, output, number):
        """Measure one direction in several rounds after one that fills caches and tables."""
        self.progress(f"measures {direction}")
        duration = self.instance.run_stream(stream)
        measured = []
        for _ in range(number):
            seconds, outcome = self.round(stream, output, 0.85 * duration)
            duration = min(duration, seconds)
            measured.append(outcome)
        undisturbed = [outcome for outcome in measured if outcome.waited <= DISTURBED]
        used = undisturbed if len(undisturbed) >= UNDISTURBED_ROUNDS else measured
        if len(undisturbed) < len(used):
            self.progress(f"WARNING: VPP waited for the processor in {len(used) - len(undisturbed)} of {len(used)} rounds; "
                          "the figures contain these rounds without the waiting time")
        cycles = [outcome.cycles for outcome in used]
        return Result(
            self.count, direction, statistics.median(cycles), min(cycles), max(cycles),
            statistics.median(outcome.packet_generator for outcome in used), len(measured), len(used), self.packets,
            self.instance.page, self.instance.version,
        )


def measure(build, core, count, rounds, progress):
    """Start VPP, measure three directions, and yield a result for each."""
    progress("starts VPP")
    with tempfile.TemporaryDirectory(prefix="measure-vpp-") as folder, Instance(build, core, count, folder) as instance:
        measurement = Measurement(instance, count, progress)
        measurement.from_inside("in2out", ACK, measurement.shuffled(), measurement.packets)
        # Without NAT, the packets of the clients are forwarded unchanged.
        yield measurement.rounds("forwarding", "in2out", "pg1", rounds)
        measurement.create_sessions()
        measurement.from_outside("out2in", ACK, measurement.shuffled(), measurement.packets)
        yield measurement.rounds("in2out", "in2out", "pg1", rounds)
        yield measurement.rounds("out2in", "out2in", "pg0", rounds)
        measurement.check_sessions({})
