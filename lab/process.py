"""A program that runs in parallel with the test, and its output."""

import re
import signal
import subprocess

from lab import waiting


class Process:
    """A running program. Its standard output and its standard error are written to one log file."""

    def __init__(self, command, log):
        self.log = log
        self.command = command
        with open(log, "wb") as output:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self):
        """The output of the program so far."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def running(self):
        return self.popen.poll() is None

    def wait_for_line(self, pattern, timeout=10.0):
        """Wait until a line of the log matches. If the program ends without such a line, the error contains the log."""

        def seen():
            match = re.search(pattern, self.output, re.MULTILINE)
            if match is None and not self.running:
                raise AssertionError(f"{self.command[0]} ended ({self.popen.returncode}):\n{self.output}")
            return match

        try:
            return waiting.until(seen, f"/{pattern}/ in the log of {self.command}", timeout)
        except waiting.Timeout as error:
            raise waiting.Timeout(f"{error}\n{self.output}") from None

    def wait(self, timeout=30.0):
        """Wait for the end of the program, and return its exit status."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise waiting.Timeout(f"{self.command} still runs after {timeout:g} s:\n{self.output}") from None

    def signal(self, number):
        self.popen.send_signal(number)

    def stop(self, timeout=10.0):
        """Terminate the program, kill it if it does not end, and return its exit status."""
        if self.running:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        return self.popen.returncode
