"""Functions that wait for events. The lab uses them instead of sleeping for a fixed time."""

import time

INTERVAL = 0.02


class Timeout(AssertionError):
    """The expected event did not occur."""


def until(condition, what, timeout=10.0):
    """Poll `condition` until it is true, and return its value.

    An `OSError` or `LookupError` of `condition` counts as false. After the timeout, the last such error is reported.
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
