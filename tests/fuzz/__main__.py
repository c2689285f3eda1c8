"""`python -m tests.fuzz`: try everything, count, and say how each wrong case is repeated."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import environments, limits
from .cases import Case, Done, play
from .children import sweep, warm_up
from .commands import CommandCase
from .environments import EnvironmentCase
from .files import FileCase
from .judging import told
from .kills import KILLS, KillCase
from .limits import LimitCase
from .world import World

KINDS = ("commands", "files", "environments", "limits", "kills")
VERDICTS = ("tried", "ok", "refused", "wrong", "skipped")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: of the clock")
    parser.add_argument("--commands", type=int, default=2000, metavar="N")
    parser.add_argument("--files", type=int, default=500, metavar="N")
    parser.add_argument("--kills", type=int, default=30, metavar="N")
    parser.add_argument("--environments", type=int, default=0, metavar="N", help="default: all")
    parser.add_argument("--limits", type=int, default=0, metavar="N", help="default: all")
    parser.add_argument("--only", action="append", choices=KINDS, help="may be given repeatedly")
    parser.add_argument("--case", action="append", metavar="ID", help="run this one and show it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--quick", action="store_true", help="without files of a whole study")
    parser.add_argument("--keep", action="store_true", help="keep all folders")
    return parser.parse_args(words)


def cases_of(kind: str, seed: int, asked: argparse.Namespace) -> list[Case]:
    """All cases of a kind, in order."""
    if kind == "commands":
        return [CommandCase(kind, seed, n) for n in range(asked.commands)]
    if kind == "files":
        return [FileCase(kind, seed, n, not asked.quick) for n in range(asked.files)]
    if kind == "environments":
        count = asked.environments or len(environments.combinations(seed))
        return [EnvironmentCase(kind, seed, n) for n in range(count)]
    if kind == "limits":
        count = asked.limits or len(limits.combinations(seed))
        return [LimitCase(kind, seed, n) for n in range(count)]
    return [KillCase(kind, seed, n) for n in range(math.ceil(asked.kills / KILLS))]


def chosen(seed: int, asked: argparse.Namespace) -> dict[str, list[Case]]:
    """The cases that a command line asks for, by kind."""
    if not asked.case:
        return {kind: cases_of(kind, seed, asked) for kind in asked.only or KINDS}
    found: dict[str, list[Case]] = {}
    for wanted in asked.case:
        kind, _, number = wanted.rpartition("-")
        if kind not in KINDS or not number.isdecimal():
            raise SystemExit(f"--case={wanted} is none. Write e.g. files-17.")
        types = (CommandCase, FileCase, EnvironmentCase, LimitCase, KillCase)
        made = dict(zip(KINDS, types, strict=True))[kind](kind, seed, int(number))
        found.setdefault(kind, []).append(made)
    return found


@contextlib.contextmanager
def working_folder(keep: bool) -> Iterator[Path]:
    """Everything happens in here; afterwards nothing of it is left."""
    root = Path(tempfile.mkdtemp(prefix="omg-fuzz-"))
    owner = os.getpid()
    try:
        yield root
    finally:
        if os.getpid() == owner:
            limits.unmount_all(root)
            sweep()
            if keep:
                print(f"Everything is in {root}")
            else:
                shutil.rmtree(root, ignore_errors=True)


def show(done: Done, seed: int, *, whole: bool) -> None:
    """A wrong case, and how to repeat it; `whole`: whatever it was, and all that was said."""
    words = shlex.join(done.words)
    shown = words if whole or len(words) < 600 else f"{words[:600]} …"
    print(f"\n{done.judgement.verdict.upper()} {done.case.id}: {'; '.join(done.judgement.faults)}")
    if isinstance(done.case, FileCase):
        print(f"  {done.case.told()}")
    print(f"  omg {shown!a}" if not shown.isprintable() else f"  omg {shown}")
    print(f"  exit {done.outcome.code} after {done.outcome.seconds:.1f} s: {told(done.outcome)!r}")
    print(f"  repeat: python -m tests.fuzz --seed {seed} --case {done.case.id}", flush=True)
    if whole:
        print(done.outcome.out[-4000:], done.outcome.err[-4000:], sep="\n")


def table(counts: dict[str, Counter[str]]) -> str:
    """Tried, refused and wrong, by kind."""
    lines = [f"{'':14}" + "".join(f"{name:>9}" for name in VERDICTS)]
    for kind, count in counts.items():
        lines.append(f"{kind:14}" + "".join(f"{count[name]:>9,}" for name in VERDICTS))
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 where anything is wrong."""
    asked = arguments(words)
    seed = int(time.time()) if asked.seed is None else asked.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {seed}", flush=True)
    warm_up()
    counts: dict[str, Counter[str]] = {}
    begun = time.monotonic()
    with working_folder(asked.keep) as root:
        cases = chosen(seed, asked)
        world = World(root, study=not asked.quick and bool(cases.keys() & {"files", "kills"}))
        print(f"prepared in {time.monotonic() - begun:.0f} s", flush=True)
        for kind, some in cases.items():
            count = counts[kind] = Counter()
            since = time.monotonic()
            for done in play(some, world, jobs=asked.jobs, keep=asked.keep):
                # A story counts as so many kills; its verdict is that of all of them.
                weight = KILLS if kind == "kills" else 1
                count["tried"] += weight
                count[done.judgement.verdict] += weight
                if count["tried"] % 100 == 0:
                    print(f"{kind}: {count['tried']:,} of {len(some) * weight:,}", flush=True)
                if done.judgement.verdict == "wrong" or asked.case:
                    show(done, seed, whole=bool(asked.case))
            sweep()
            line = ", ".join(f"{number:,} {name}" for name, number in count.items())
            print(f"{kind}: {line} in {time.monotonic() - since:.0f} s", flush=True)
    print(f"\n{table(counts)}\nseed {seed}, {(time.monotonic() - begun) / 60:.0f} minutes")
    return int(any(count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
