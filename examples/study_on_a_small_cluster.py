"""A study on three machines, one of which is lost in between.

    pip install 'omg-marl[ray]'
    python examples/study_on_a_small_cluster.py            # two minutes on two cores

Ray makes the machines on this one: a head that does not compute, and two with two CPUs each. `omg
pipeline` trains the smallest shipped study on them. As soon as an agent learns, its machine is
removed. Then the study is made again without Ray, and all weights and tables are compared.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from omg.integrations.ray.cluster import load_ray

PATIENCE = 600.0


def small_cluster(folder: Path) -> Any:
    """A head and two machines; the sockets lie in `folder`."""
    load_ray()
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": 80 << 20, "include_dashboard": False}
    head = {**common, "num_cpus": 0, "temp_dir": str(folder)}
    cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
    for _ in range(2):
        cluster.add_node(num_cpus=2, **common)
    return cluster


def start_study(out: Path, *words: str) -> subprocess.Popen[bytes]:
    """`omg pipeline` as a process of its own."""
    command = [sys.executable, "-m", "omg", "pipeline", "--pipeline=tiny", f"--out={out}"]
    return subprocess.Popen([*command, *words])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def lose_a_machine(cluster: Any, out: Path, study: subprocess.Popen[bytes]) -> None:
    """Remove the machine on which an agent learns."""
    deadline = time.monotonic() + PATIENCE
    while not (learning := [*out.glob("agents/*/resume/[0-9]*/state.pt")]):
        if study.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("FAILED: no agent began to learn")
        time.sleep(0.02)
    name = learning[0].parents[2].name
    pid = int((out / f"logs/agents-{name}.pid").read_text().split()[1])
    raylet = parent_of(parent_of(pid))
    for node in cluster.worker_nodes:
        if node.all_processes["raylet"][0].process.pid == raylet:
            cluster.remove_node(node, allow_graceful=False)
            print(f"--- the machine of agents/{name} is removed", flush=True)
            return
    raise SystemExit("FAILED: the machine of a run was not found")


def main() -> None:
    """Make the study twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/study_on_a_small_cluster"))
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="omg-ex-"))
    cluster = small_cluster(folder)
    try:
        study = start_study(out / "ray", "--executor=ray", f"--address={cluster.address}")
        lose_a_machine(cluster, out / "ray", study)
        if study.wait(PATIENCE):
            raise SystemExit("FAILED: the study did not end well")
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    if start_study(out / "alone").wait(PATIENCE):
        raise SystemExit("FAILED: the study without Ray did not end well")
    files = [p for p in sorted((out / "alone").rglob("*")) if p.suffix in (".th", ".csv")]
    for path in files:
        if path.read_bytes() != (out / "ray" / path.relative_to(out / "alone")).read_bytes():
            raise SystemExit(f"FAILED: {path} differs")
    print(f"{len(files)} files of weights and tables are equal, bit by bit.")


if __name__ == "__main__":
    main()
