"""A sweep on three nodes that loses a worker and a node, and ends as if nothing had happened.

    pip install 'omg-marl[ray]'
    python examples/sweep_on_a_small_cluster.py            # a few minutes on two cores

Ray makes the three nodes on this machine. `omg sweep` trains eight short runs on them. In between
one worker is killed and one node is removed. Then all eight runs are trained again, alone and
without Ray, and their weights are compared bit by bit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import omg
from omg.integrations.ray.cluster import load_ray
from omg.storage.files import RunFolder
from omg.studies.sweep.marks import read_mark

SETTINGS: dict[str, Any] = {
    "env_args": {"key": "Foraging-5x5-2p-1f-v3"},
    "batch_size_run": 4,
    "batch_size": 8,
    "test_interval": 1000,
    "test_nepisode": 4,
    "resume_interval": 500,
    "use_sacred": False,
    "use_tensorboard": False,
}
RATES = (0.0005, 0.002)
PATIENCE = 600.0


def small_cluster(nodes: int, folder: Path) -> Any:
    """A head and more nodes, a core each; the sockets lie in `folder`."""
    load_ray()
    from ray._common.utils import get_default_ray_temp_dir
    from ray.cluster_utils import Cluster

    # Ray notes the head's address there, wherever the sockets lie, and does not make the folder.
    Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
    common = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    head = {**common, "temp_dir": str(folder)}
    cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
    for _ in range(nodes - 1):
        cluster.add_node(**common)
    return cluster


def start_sweep(out: Path, *words: str, runs: int, steps: int) -> subprocess.Popen[bytes]:
    """`omg sweep` as a process of its own: `runs` runs, two learning rates."""
    command = [sys.executable, "-m", "omg", "sweep", "--config=iql", "--env-config=foraging"]
    command += [f"lr=grid:{','.join(map(str, RATES))}", f"--seeds=1:{runs // len(RATES)}"]
    command += [f"--t_max={steps}", f"--out={out}", *_words(SETTINGS), *words]
    return subprocess.Popen(command, start_new_session=True)


def _words(settings: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _words(value, f"{prefix}{key}.")
        else:
            yield f"--{prefix}{key}={value}"


def training(out: Path) -> dict[str, int]:
    """The processes that train now, by the name of their run."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        line = " ".join(words)
        if "omg.integrations.ray.child" in line and f"{out}/runs" in line:
            named = re.search(rf"run_name=(\S+)|--resume={re.escape(str(out))}/runs/(\S+)", line)
            if named:
                found[named[1] or named[2]] = int(folder.name)
    return found


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"PPid:\s+(\d+)", status)[1])  # type: ignore[index]


def wait_for(what: str, done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait while the sweep runs."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"FAILED: {what} did not happen")
        time.sleep(0.05)


def begun(out: Path, name: str) -> bool:
    """Whether a run has a state that can be lost, and has not ended."""
    whole = RunFolder(out / "runs" / name).resume_steps()  # not one that is being written
    return bool(whole) and not read_mark(out, name).get("status")


def hold_two(
    cluster: Any, out: Path, process: subprocess.Popen[bytes]
) -> tuple[tuple[str, int], tuple[str, int, Any]]:
    """Two runs that are under way, the second not on the head: name, process, node. Both are
    stopped, or a fast machine would end them before they are lost."""
    held: dict[str, int] = {}
    nodes = {raylet_of(node): node for node in cluster.worker_nodes}

    def raylet(pid: int) -> int:
        return parent_of(parent_of(pid))

    def ready() -> bool:
        for name, pid in training(out).items():
            if name not in held and begun(out, name):
                os.kill(pid, signal.SIGSTOP)
                held[name] = pid
        return len(held) > 1 and any(raylet(pid) in nodes for pid in held.values())

    wait_for("a run on each of two nodes", ready, process)
    far = next(name for name, pid in held.items() if raylet(pid) in nodes)
    near = next(name for name in held if name != far)
    for name in held.keys() - {near, far}:
        os.kill(held[name], signal.SIGCONT)
    return (near, held[near]), (far, held[far], nodes[raylet(held[far])])


def lose_two(cluster: Any, out: Path, process: subprocess.Popen[bytes]) -> list[str]:
    """Kill the Ray worker of one run, and remove the node of another; the two runs."""
    (near, pid), (far, far_pid, node) = hold_two(cluster, out, process)
    os.kill(parent_of(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGCONT)  # it finds its worker gone, and ends
    print(f"        the worker of {near} is killed", flush=True)
    held = {pid, far_pid}
    wait_for("work after it", lambda: bool({*training(out).values()} - held), process)
    cluster.remove_node(node, allow_graceful=False)
    os.kill(far_pid, signal.SIGKILL)  # a machine that is lost takes all of its processes along
    print(f"        the node of {far} is removed", flush=True)
    return [near, far]


def raylet_of(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def differences(out: Path, alone: Path, *, steps: int, runs: int) -> list[str]:
    """Train every run again without Ray; the names of those whose weights differ in any bit."""
    different = []
    for number, rate in enumerate(RATES):
        for seed in range(1, runs // len(RATES) + 1):
            name = f"{number:03d}-s{seed}"
            lies = {"local_results_path": str(alone), "run_name": name, "quiet": True}
            omg.train("iql", "foraging", lr=rate, seed=seed, t_max=steps, **SETTINGS, **lies)
            if not same_weights(out / "runs" / name, alone / name):
                different.append(name)
    return different


def same_weights(mine: Path, theirs: Path) -> bool:
    """Whether two runs ended with the same weights and optimiser states, bit by bit."""
    files = sorted(path.name for path in (theirs / "models" / "last").glob("*.th"))
    pairs = [(_load(mine, name), _load(theirs, name)) for name in files]
    return bool(files) and all(_equal(a, b) for a, b in pairs)


def _load(run: Path, name: str) -> Any:
    return torch.load(run / "models" / "last" / name, weights_only=True)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def sessions(out: Path, name: str) -> int:
    """How often a run was begun or continued; one that starts again begins to count again."""
    content = json.loads((out / "runs" / name / "run.json").read_text(encoding="utf-8"))
    return len(content["sessions"])


def play(folder: Path, *, nodes: int, runs: int, steps: int) -> list[str]:
    """The whole story; what went wrong."""
    out, problems, lost = folder / "sweep", list[str](), list[str]()
    sockets = Path(tempfile.mkdtemp(prefix="omg-ray-example-", dir="/tmp"))
    cluster = small_cluster(nodes, sockets)
    process = None
    try:
        process = start_sweep(out, f"--address={cluster.address}", runs=runs, steps=steps)
        lost += lose_two(cluster, out, process)
        if process.wait(PATIENCE) != 0:
            problems.append(f"omg sweep ended with exit code {process.returncode}")
    finally:
        if process is not None and process.poll() is None:
            process.kill()
        cluster.shutdown()
        shutil.rmtree(sockets, ignore_errors=True)
    names = [f"{n:03d}-s{s}" for n in range(len(RATES)) for s in range(1, runs // len(RATES) + 1)]
    undone = [name for name in names if read_mark(out, name).get("status") != "finished"]
    if undone:
        return [*problems, f"not finished: {', '.join(undone)}"]
    again = [name for name in lost if sessions(out, name) < 2]
    if again:
        problems.append(f"started again instead of continued: {', '.join(again)}")
    print(f"All {runs} runs are finished; now each of them alone, without Ray", flush=True)
    different = differences(out, folder / "alone", steps=steps, runs=runs)
    if different:
        problems.append(f"weights differ from the run made alone: {', '.join(different)}")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--runs", type=int, default=8, help="an even number")
    parser.add_argument("--steps", type=int, default=6000, help="of each run")
    parser.add_argument("--keep", default="", help="a new folder to keep the runs in")
    words = parser.parse_args()
    folder = Path(words.keep or tempfile.mkdtemp(prefix="omg-small-cluster-")).absolute()
    try:
        problems = play(folder, nodes=words.nodes, runs=words.runs, steps=words.steps)
    finally:
        if not words.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if problems:
        raise SystemExit(f"FAILED: {'; '.join(problems)}")
    print(
        f"PASSED: {words.runs} runs over {words.nodes} nodes; one worker killed, one node removed; "
        "all weights equal those of the runs made alone, bit by bit"
    )


if __name__ == "__main__":
    main()
