"""Paths of the project's files."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
CAPTURES = os.path.join(TARGET, "lab-captures")


def binary(profile="dev", name="sluice"):
    """A built binary; `dev` and `release` are cargo's profiles."""
    path = os.path.join(TARGET, "debug" if profile == "dev" else profile, name)
    if not os.path.exists(path):
        raise SystemExit(f"{path} is not built: cargo build --profile {profile} -p sluice")
    return path
