"""Tests `sluice top` with the running daemon, with and without a terminal."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

from lab import waiting

pytestmark = [pytest.mark.sluice, pytest.mark.usefixtures("gateway", "services")]


@pytest.fixture
def traffic(topology):
    """Echo requests and their answers, 100 per second in each direction."""
    ping = topology.alice.spawn("ping", "-n", "-i", "0.01", "-c", "3000", topology.server.address)
    ping.wait_for_line("icmp_seq=5 ")
    yield
    ping.stop()


def test_top_once_shows_the_traffic_and_predicts_more(gateway, traffic):
    snapshot = json.loads(gateway.command("top", "--once", "--json"))
    (worker,) = snapshot["workers"]
    assert 100 < worker["packets"] < 1000
    assert worker["predicted"] > worker["packets"]
    assert worker["predicted"] == pytest.approx(worker["packets"] / worker["busy"], rel=0.01)
    assert worker["cycles-per-packet"]["session"] > 0
    rates = {interface["name"]: interface for interface in snapshot["interfaces"]}
    assert rates["inside1"]["received"] > 50 and rates["inside1"]["received-bits"] > 50 * 8 * 98
    text = gateway.command("top", "--once")
    assert "PREDICTED" in text and "inside1" in text


class Terminal:
    """A program with its own terminal of 24 lines and 80 columns."""

    def __init__(self, host, *command):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.output = b""
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", host.name, *command], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        )
        os.set_blocking(self.ours, False)

    def shows(self, text):
        try:
            self.output += os.read(self.ours, 1 << 16)
        except BlockingIOError:
            pass
        return text in self.output

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.mark.parametrize("key", [b"q", b"\x1b", b"\x03"], ids=["q", "escape", "control-c"])
def test_top_on_a_terminal_is_ended_by_a_key_and_leaves_the_terminal_as_it_was(topology, gateway, traffic, key):
    socket = gateway.document["control"]["socket"]
    terminal = Terminal(topology.gateway, gateway.binary, "top", "--interval", "200ms", "--socket", socket)
    try:
        waiting.until(lambda: terminal.shows(b"inside1"), "the interfaces to be shown")
        assert terminal.before != termios.tcgetattr(terminal.theirs)
        os.write(terminal.ours, key)
        waiting.until(lambda: terminal.shows(b"\x1b[?1049l"), "the screen to be given back")
        assert 0 == terminal.process.wait(10)
        assert terminal.before == termios.tcgetattr(terminal.theirs)
    finally:
        terminal.close()
