"""Which configurations are shipped. Imports nothing, so that a list of them is there at once."""

from __future__ import annotations

from pathlib import Path

CONFIG_DIR = Path(__file__).parent


def available(kind: str) -> list[str]:
    """Names of the shipped configurations of a kind (`algs` or `envs`)."""
    return sorted(path.stem for path in (CONFIG_DIR / kind).glob("*.yaml"))
