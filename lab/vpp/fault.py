"""The error of a measurement that can't be completed."""


class Fault(Exception):
    """A fault with its place and a hint for the operator."""

    def __init__(self, what, where, hint):
        super().__init__(f"{what}\n  where: {where}\n  hint: {hint}")
