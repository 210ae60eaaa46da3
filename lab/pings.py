"""Evaluates the output of ping.

Without -w, ping waits for its last answer no longer than two round trips or an interval. With -w it continues to
send until the requested number of answers has arrived. So neither count alone shows that no packet was lost.
"""

import re
import signal


def counts(output):
    """Number of requests sent, and number of requests answered."""
    return tuple(map(int, re.search(r"(\d+) packets transmitted, (\d+) received", output).groups()))


def unanswered(output, count):
    """The requests without an answer among the first `count`; ping must not be started with -q."""
    answered = set(map(int, re.findall(r"icmp_seq=(\d+) ttl=", output)))
    return [number for number in range(1, count + 1) if number not in answered]


def answered(output, count):
    """Whether the first `count` requests have answers."""
    return not unanswered(output, count)


def none_lost(ping, timeout=10):
    """End a ping, assert that every request was answered except one that was just sent, and return their number."""
    ping.signal(signal.SIGINT)
    ping.wait(timeout)
    sent, received = counts(ping.output)
    assert sent - received <= 1 < sent, ping.output
    return sent
