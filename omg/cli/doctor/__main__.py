"""`python -m omg.cli.doctor`: the same without the packages that the `omg` command needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from omg.cli.doctor import as_json, diagnose, healthy, verdict


def main(words: Sequence[str]) -> int:
    """Print the diagnosis as plain text; the exit code."""
    parser = argparse.ArgumentParser(prog="omg doctor", description="What works here.")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument("--results", default="results", help="the folder that runs are kept in")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)  # hides nothing
    asked = parser.parse_args(words)
    lines = diagnose(Path(asked.results))
    if asked.json:
        print(as_json(lines))
        return 0 if healthy(lines) else 1
    for line in lines:
        print(f"{line.state:8} {line.name:16} {line.detail}")
        if line.advice and line.state != "ok":
            print(f"{'':26}→ {line.advice}")
    print(verdict(lines))
    return 0 if healthy(lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
