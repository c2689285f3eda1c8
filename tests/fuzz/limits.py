"""Few open files, little memory, small and read-only disks."""

from __future__ import annotations

import functools
import resource
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from .cases import Case, Started
from .children import Outcome, Task, run
from .judging import Judgement, files_of, judge
from .world import SMALL, TASK, World, train

MIB = 2**20
LIMITS: dict[str, tuple[int, tuple[int, ...]]] = {
    "open files": (resource.RLIMIT_NOFILE, (16, 32, 64, 128)),
    "memory in MiB": (resource.RLIMIT_AS, (400, 700, 1000, 1500, 2500)),
    "bytes of a file": (resource.RLIMIT_FSIZE, (0, 1000, 10_000, 50_000)),
}
DISKS = ("8k", "32k", "100k", "200k", "400k", "1m", "ro")
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": train("iql", "limited"),
    "parallel": train("iql", "limited", "--runner=parallel", "--n_workers=4", "--batch_size_run=8"),
    "ahead": train("iql", "limited", "--collect_ahead=1"),
    "resume": ("train", "--resume=results/iql", "--t_max=48"),
    "sacred": train("iql", "limited", "--use_sacred=True", "--use_tensorboard=True"),
    "evaluate": ("evaluate", "results/agent", "--episodes=2", "--out=small/evaluation"),
    "crossplay": ("crossplay", "results/agent", "results/omg", "--episodes=2", "--out=small/table"),
    "add": ("pool", "add", "pool", "results/qmix"),
    "report": ("report", "results/agent", "crossplay", "--out=small/report.html"),
    "plot": ("plot", "results/iql", "--out=small/curve.png"),
    "play": ("envs", "play", "foraging", "--out=small/play"),
    "pipeline": ("pipeline", "--pipeline=tiny", "--out=small/study"),
    "list": ("algorithms",),
}
ON_DISK: dict[str, tuple[str, ...]] = {
    **{
        k: v for k, v in COMMANDS.items() if k not in ("resume", "list", "add", "parallel", "ahead")
    },
    "train": ("train", "--config=qmix", *SMALL, "--local_results_path=small", *TASK),
    "sacred": (
        *("train", "--config=iql", *SMALL, "--local_results_path=small", "--use_sacred=True"),
        *("--use_tensorboard=True", *TASK),
    ),
    "add": ("pool", "add", "small/pool", "results/iql", "--steps=early,final"),
}


@functools.cache
def combinations(seed: int) -> tuple[tuple[str, str, str], ...]:
    """Kind of limit, its value and the command, in an order drawn from the seed."""
    found = [
        (kind, str(value), command)
        for kind, (_, values) in LIMITS.items()
        for value in values
        for command in COMMANDS
    ]
    found += [("disk", size, command) for size in DISKS for command in ON_DISK]
    Random(f"{seed}/limits").shuffle(found)
    return tuple(found)


def mounted(folder: Path, size: str) -> bool:
    """A disk of its own at a folder, where we may have one."""
    options = "ro" if size == "ro" else f"size={size}"
    command = ["mount", "-t", "tmpfs", "-o", options, "omg-fuzz", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def unmount_all(root: Path) -> None:
    """Give back every disk below a folder."""
    lines = Path("/proc/mounts").read_text().splitlines() if Path("/proc/mounts").exists() else []
    for line in lines:
        name, place = line.split()[:2]
        if name == "omg-fuzz" and place.startswith(str(root)):
            subprocess.run(["umount", "-l", place], capture_output=True)


@dataclass(frozen=True)
class LimitCase(Case):
    """One command under one limit."""

    def start(self, world: World, place: Path) -> Started:
        every = combinations(self.seed)
        kind, value, command = every[self.number % len(every)]
        folder = world.copy(place)
        small = folder / "small"
        small.mkdir()
        # Compiled kernels of its own, so that no limit of one case spoils those of the others.
        environ = world.environ(folder)
        if kind == "disk":
            return self._on_disk(world, folder, small, value, command)
        number = LIMITS[kind][0]
        most = int(value) * (MIB if number == resource.RLIMIT_AS else 1)
        words = (*COMMANDS[command],)
        task = Task(words, folder, environ, 60.0, limits={number: most}, anew=True)
        before = files_of(folder)

        def verdict(outcome: Outcome) -> Judgement:
            found = judge(outcome, before, files_of(folder))
            faults = [f"{kind} {value}: {fault}" for fault in found.faults]
            if number == resource.RLIMIT_FSIZE and outcome.code == 1 and not outcome.err:
                return Judgement("refused")  # not even the message may be written
            return Judgement(found.verdict, tuple(faults))

        return Started(task, verdict)

    def _on_disk(self, world: World, folder: Path, small: Path, size: str, command: str) -> Started:
        permitted = mounted(small, size)
        task = Task(ON_DISK[command], folder, world.environ(folder), 60.0)
        if not permitted:
            skip = replace(task, words=("--version",))
            return Started(skip, lambda outcome: Judgement("skipped"))
        before = files_of(folder)

        def verdict(outcome: Outcome) -> Judgement:
            found = judge(outcome, before, files_of(folder))
            faults = [f"disk {size}: {fault}" for fault in found.faults]
            faults += [f"disk {size}, then: {f}" for f in _afterwards(world, folder, small)]
            subprocess.run(["umount", "-l", str(small)], capture_output=True)
            return Judgement("wrong" if faults else found.verdict, tuple(faults))

        return Started(task, verdict)


def _afterwards(world: World, folder: Path, small: Path) -> list[str]:
    """With more room, what was saved is intact: runs go on, pools open."""
    subprocess.run(["mount", "-o", "remount,rw,size=64m", str(small)], capture_output=True)
    faults = []
    for path in sorted(small.glob("*/config.yaml")):
        run_folder = path.parent.relative_to(folder)
        if any(path.parent.glob("resume/[0-9]*")):
            words = ("train", f"--resume={run_folder}", "--t_max=30", "--use_sacred=False")
            done = run(Task(words, folder, world.environ(folder)))
            if done.code != 0:
                faults.append(f"{run_folder} does not resume: {done.err.strip()[-200:]}")
        elif not any(path.parent.iterdir()):
            faults.append(f"an empty folder {run_folder}")
    if (small / "pool" / "pool.json").exists():
        done = run(Task(("pool", "list", "small/pool"), folder, world.environ(folder)))
        if done.code != 0:
            faults.append(f"the pool does not open: {done.err.strip()[-200:]}")
    return faults
