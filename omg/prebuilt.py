"""C code of ours as the wheel carries it: compiled for common levels of x86-64 when the wheel is
built (`setup.py`), chosen by what the processor can do. Nothing but the standard library."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "prebuilt"  # beside the sources
# What a level adds to the one before, as /proc/cpuinfo names it (x86-64 psABI).
LEVELS = {
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


@dataclass(frozen=True, slots=True)
class Prebuilt:
    """A library in the wheel, and the level it was compiled for."""

    path: Path
    level: str


def key_of(source: Path, more: Sequence[str]) -> str:
    """What a library depends on: its source, all headers beside it, and whatever else."""
    paths = (source, *sorted(source.parent.glob("*.h")))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return hashlib.sha256("\n".join([*texts, *more]).encode()).hexdigest()[:20]


def name_of(source: Path, flags: Sequence[str], level: str) -> str:
    """A library's file; other sources or flags have another, so that none is out of date."""
    return f"{source.stem}-{level}-{key_of(source, flags)}.so"


def levels_of_this_machine() -> list[str]:
    """The levels that the processor can run, the best first; empty where that is not known."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return []
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return levels_of(flags)


def levels_of(flags: Sequence[str]) -> list[str]:
    """The levels that such a processor can run, the best first."""
    able: list[str] = []
    for level, needed in LEVELS.items():
        if not needed <= set(flags):
            break
        able.insert(0, level)
    return able


def best(source: Path, flags: Sequence[str]) -> Prebuilt | None:
    """The best library of the wheel for this processor, if it has one for this source."""
    for level in levels_of_this_machine():
        path = source.parent / FOLDER / name_of(source, flags, level)
        if path.is_file():
            return Prebuilt(path, level)
    return None


def build(
    compiler: str,
    source: Path,
    flags: Sequence[str],
    folder: Path,
    levels: Sequence[str] = (*LEVELS,),
) -> list[Path]:
    """Compile a source for every level into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for level in levels:
        target = folder / name_of(source, flags, level)
        part = target.with_suffix(".o")
        compiling = [f"-march={level}" if flag == "-march=native" else flag for flag in flags]
        compiling = ["-w", *(flag for flag in compiling if flag != "-shared")]
        subprocess.run([compiler, *compiling, "-c", str(source), "-o", str(part)], check=True)
        linking = ["-shared", "-s", str(part), "-lm", "-o", str(target)]
        subprocess.run([compiler, *linking], check=True)
        part.unlink()
        made.append(target)
    return made
