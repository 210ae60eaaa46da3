"""Evaluates the output of ping.

Without -w, ping waits for its last answer no longer than two round trips or an interval. With -w, ping continues to
send until the requested number of answers has arrived. Therefore neither the number of requests nor the number of
answers alone shows that no packet was lost.
"""

import re
import signal


def counts(output):
    """Number of requests sent, and number of requests answered."""
    return tuple(map(int, re.search(r"(\d+) packets transmitted, (\d+) received", output).groups()))


def unanswered(output, count):
    """The unanswered requests among the first `count` requests. Ping must not be started with -q."""
    answered = set(map(int, re.findall(r"icmp_seq=(\d+) ttl=", output)))
    return [number for number in range(1, count + 1) if number not in answered]


def answered(output, count):
    """Whether the first `count` requests have answers."""
    return not unanswered(output, count)


def none_lost(ping, timeout=10):
    """End a ping, and assert that every request was answered, except possibly the last request. Returns the number
    of requests."""
    ping.signal(signal.SIGINT)
    ping.wait(timeout)
    sent, received = counts(ping.output)
    assert sent - received <= 1 < sent, ping.output
    return sent
