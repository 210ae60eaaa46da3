"""Reading what ping wrote.

Without -w, ping waits for its last answer no longer than two round trips or an interval. With -w it goes on
sending until as many were answered as it was told to send. So neither of its counts alone says that none was lost.
"""

import re
import signal


def counts(output):
    """How many requests were sent, and how many were answered."""
    return tuple(map(int, re.search(r"(\d+) packets transmitted, (\d+) received", output).groups()))


def unanswered(output, count):
    """Which of the first `count` requests have no answer; ping must not be told to be quiet (-q)."""
    answered = set(map(int, re.findall(r"icmp_seq=(\d+) ttl=", output)))
    return [number for number in range(1, count + 1) if number not in answered]


def none_lost(ping, timeout=10):
    """End a ping: every request was answered, but for one that was just sent. How many there were."""
    ping.signal(signal.SIGINT)
    ping.wait(timeout)
    sent, received = counts(ping.output)
    assert sent - received <= 1 < sent, ping.output
    return sent
