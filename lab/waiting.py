"""Waiting for events. The lab never sleeps for a fixed time instead."""

import time

INTERVAL = 0.02


class Timeout(AssertionError):
    """The expected event did not occur."""


def until(condition, what, timeout=10.0):
    """Poll `condition` until it is true, and return its value.

    What it raises of `OSError` or `LookupError` counts as not yet; the last is told when time is up.
    """
    deadline = time.monotonic() + timeout
    problem = None
    while True:
        try:
            value = condition()
            if value:
                return value
        except (OSError, LookupError) as error:
            problem = error
        if time.monotonic() >= deadline:
            raise Timeout(f"waited {timeout:g} s for {what}" + (f"; last: {problem!r}" if problem else ""))
        time.sleep(INTERVAL)
