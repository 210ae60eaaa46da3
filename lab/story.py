"""A demonstration that prints its steps."""

import sys


class Story:
    """Prints each step with its result, and records failures."""

    def __init__(self):
        self.number = 0
        self.wrong = []

    def step(self, text):
        self.number += 1
        print(f"\n{self.number}. {text}", flush=True)

    def show(self, text, lines=12):
        """Print the first lines of an output."""
        shown = text.rstrip().splitlines()
        for line in shown[:lines]:
            print("   | " + line)
        if len(shown) > lines:
            print(f"   | … {len(shown) - lines} lines more")
        sys.stdout.flush()

    def check(self, true, text):
        print(f"   {'✓' if true else '✗'} {text}", flush=True)
        if not true:
            self.wrong.append(f"step {self.number}: {text}")

    def end(self):
        """Print the overall result, and exit."""
        if self.wrong:
            print("\nWrong:\n  " + "\n  ".join(self.wrong))
            sys.exit(1)
        print("\nAll of it worked, and nothing is left behind.")
