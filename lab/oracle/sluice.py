"""The Sluice system: all scenarios of a world are processed in one run of `sluice replay`, which has a virtual clock.

A replay of equal captures has equal output, and the output for a longer capture starts with the output for its
beginning. The scenarios therefore advance in rounds. Each round adds the packets that do not depend on unknown answers,
and replays all packets from the start. The additional output is the result of the round.
"""

import json
import os
import struct
import subprocess

from lab.oracle import packet
from lab.oracle.scenario import Seen, waits_for
from lab.oracle.world import GATEWAY_MAC, INTERFACES, NEIGHBOUR_MAC

START = 1_000_000_000_000_000
STEP = 20_000
MAGIC = 0xA1B23C4D
# The header of a capture file with times in nanoseconds.
HEAD = struct.pack("<IHHiIII", MAGIC, 2, 4, 0, 0, 65535, 1)


def _mac(text):
    return bytes.fromhex(text.replace(":", ""))


HEADS = {name: _mac(GATEWAY_MAC[name]) + _mac(NEIGHBOUR_MAC[name]) for name in INTERFACES}


class Sluice:
    """Runs replays with files in a folder."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.summary = {}

    def play(self, world, scenarios):
        """The results of all scenarios. The result of a scenario is a list with an entry per step: a list of
        (interface, datagram), or `None` if the step could not be sent."""
        with open(self._path("sluice.toml"), "w", encoding="utf-8") as file:
            file.write(world.text())
        runs = [_Run(scenario) for scenario in scenarios]
        captures = {name: [HEAD] for name in INTERFACES}
        now = START
        while True:
            places = {}
            for run in runs:
                for step in run.ready():
                    made = run.seen.frames(step)
                    run.pending.append(step)
                    if made is None:
                        run.outputs.append(None)
                        continue
                    interface, datagrams = made
                    now += STEP
                    places[now] = (run, len(run.outputs))
                    run.outputs.append([])
                    for datagram in datagrams:
                        captures[interface].append(record(now, HEADS[interface] + datagram.TYPE + bytes(datagram)))
            if not any(run.pending for run in runs):
                return [run.outputs for run in runs]
            if places:
                self._replay(captures)
            for name in INTERFACES:
                for at, frame in records(self._path(f"{name}.out")) if places else ():
                    if at in places:
                        run, place = places[at]
                        run.outputs[place].append((name, _read(name, frame)))
            for run in runs:
                run.learn()

    def _replay(self, captures):
        arguments = []
        for name, pieces in captures.items():
            with open(self._path(f"{name}.in"), "wb") as file:
                file.writelines(pieces)
            arguments += ["--in", f"{name}={name}.in", "--out", f"{name}={name}.out"]
        done = subprocess.run(
            [self.binary, "replay", "-c", "sluice.toml", "--json", *arguments], cwd=self.folder, check=False,
            capture_output=True, encoding="utf-8",
        )
        assert 0 == done.returncode, done.stderr
        self.summary = json.loads(done.stdout)

    def _path(self, name):
        return os.path.join(self.folder, name)


class _Run:
    """The progress of a scenario."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.seen = Seen(scenario)
        self.outputs = []
        self.pending = []

    def ready(self):
        """The next steps, up to the first step that depends on another step among them."""
        unknown = set()
        for step in self.scenario.steps[len(self.outputs) :]:
            if waits_for(step) in unknown:
                return
            yield step
            unknown.add((step.flow, getattr(step, "answer")))

    def learn(self):
        """The results of the pending steps."""
        first = len(self.outputs) - len(self.pending)
        for place, step in enumerate(self.pending, first):
            outputs = self.outputs[place]
            if outputs is not None:
                self.outputs[place] = outputs = whole(outputs)
                self.seen.note(step, outputs)
        self.pending = []


def whole(outputs):
    """Datagrams by interface, reassembled from fragments."""
    result = []
    for name in sorted({name for name, _ in outputs}):
        datagrams = [datagram for other, datagram in outputs if other == name]
        result += [(name, datagram) for datagram in packet.reassembled(datagrams)]
    return result


def _read(name, frame):
    expected = HEADS[name][6:] + HEADS[name][:6]
    assert expected == frame[:12], f"a frame of {name}: {frame[:60].hex()}"
    datagram = packet.read(frame[14:])
    assert datagram.TYPE == frame[12:14], f"a frame of {name}: {frame[:60].hex()}"
    return datagram


def record(at, frame):
    """A capture record with a time in nanoseconds."""
    return struct.pack("<IIII", at // 10**9, at % 10**9, len(frame), len(frame)) + frame


def records(path):
    """Time in nanoseconds and frame of all records of a capture."""
    with open(path, "rb") as file:
        data = file.read()
    assert MAGIC == struct.unpack_from("<I", data)[0]
    at = 24
    while at < len(data):
        seconds, nanoseconds, length = struct.unpack_from("<III", data, at)
        yield seconds * 10**9 + nanoseconds, data[at + 16 : at + 16 + length]
        at += 16 + length
