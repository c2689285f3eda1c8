"""Joining and leaving Ray; machines that cannot work together."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omg.integrations.ray import cluster, nodes
from omg.integrations.ray.child import program
from omg.integrations.ray.cluster import Connection, Node, check_address, connected
from omg.integrations.ray.nodes import check_nodes, our_versions
from omg.types import OmgError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "Ray's client.*--address=auto"),
        ("head", "is not an address. Write auto"),
        ("http://head:80", "is not an address"),
    ],
)
def test_an_address_that_is_none_is_refused(address: str, said: str) -> None:
    with pytest.raises(OmgError, match=said):
        check_address(address)


def test_addresses_of_clusters_are_taken() -> None:
    for address in ("", "auto", "local", "10.0.0.1:6379", "head.example.org:6379", "[::1]:6379"):
        check_address(address)


# --- answers of other machines, made up -----------------------------------------------------------


def cluster_of(*answers: tuple[str, dict[str, str]]) -> list[Node]:
    return [Node(f"id{i}", f"node{i} (10.0.0.{i})", 1.0) for i, _ in enumerate(answers)]


def made_up(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Connection:
    """A connection whose machines answer like this; an answer may be made from the token's path."""
    names = cluster_of(*answers)
    connection = Connection(SimpleNamespace(), local=False, address="x")
    monkeypatch.setattr(Connection, "nodes", lambda self: names)

    def ask(connection: Connection, asked: list[Node], path: Path | None) -> list[Any]:
        token = path.read_text() if path is not None else ""
        return [
            (node, nodes._Answer(token if seen else "", versions))
            for node, (seen, versions) in zip(asked, answers, strict=True)
        ]

    monkeypatch.setattr(nodes, "_ask", ask)
    return connection


def test_machines_that_see_the_folder_and_have_our_omg_are_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = our_versions()
    check_nodes(made_up(monkeypatch, (True, ours), (True, ours)), tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == [], "the token is removed"


def test_a_machine_that_does_not_see_the_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = our_versions()
    connection = made_up(monkeypatch, (True, ours), (False, ours), (False, ours))
    with pytest.raises(OmgError, match=r"not the same folder on node1 .* and node2 .*every mach"):
        check_nodes(connection, tmp_path)


def test_a_machine_with_another_omg_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = our_versions()
    other = {**ours, "omg": "0.0.9 (sources 00000000)"}
    with pytest.raises(OmgError, match=r"different versions of omg: .* here, node1 .* has 0\.0\.9"):
        check_nodes(made_up(monkeypatch, (True, ours), (True, other)))
    with pytest.raises(OmgError, match=r"node0 .* has none\. Install"):
        check_nodes(made_up(monkeypatch, (True, {"torch": ours["torch"]})))


def test_nodes_of_one_name_are_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = our_versions()
    other = {**ours, "omg": "0.0.9"}
    for answers in ([(True, other), (True, ours)], [(True, ours), (True, other)]):
        connection = made_up(monkeypatch, *answers)
        same = [Node(f"id{i}", "one machine", 1.0) for i in range(2)]
        monkeypatch.setattr(Connection, "nodes", lambda self, same=same: same)
        with pytest.raises(OmgError, match=r"one machine has 0\.0\.9"):
            check_nodes(connection)


@pytest.mark.long
@pytest.mark.parametrize("changed", ["types.py", "kernel.c", "config/default.yaml"])
def test_sources_and_presets_make_the_version(changed: str, tmp_path: Path) -> None:
    """Of an omg that lies in the folder where Python is started."""
    for name in ("__init__.py", "types.py", "kernel.c", "config/default.yaml"):
        (tmp_path / "omg" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "omg" / name).write_text("# one\n")

    def version() -> str:
        done = subprocess.run(
            [sys.executable, "-c", nodes._VERSIONS], capture_output=True, text=True, cwd=tmp_path
        )
        return str(json.loads(done.stdout)["omg"])

    before = version()
    assert version() == before
    (tmp_path / "omg" / changed).write_text("# two\n")
    assert version() != before


def test_only_folders_of_our_dead_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_is_alive", lambda pid: pid == 20)
    monkeypatch.setattr(cluster, "LONGEST_FOLDER", 1000)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    for name in ("omg-ray-10-a", "omg-ray-20-b", "omg-ray-example-c", "omg-run-10-d"):
        (tmp_path / name).mkdir()
    made = cluster._temporary_folder()
    left = {path.name for path in tmp_path.iterdir()} - {made.name}
    assert left == {"omg-ray-20-b", "omg-ray-example-c", "omg-run-10-d"}
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    (tmp_path / "omg-ray-30-e").mkdir()
    cluster._temporary_folder()
    assert (tmp_path / "omg-ray-30-e").exists(), "somebody else's"


@pytest.mark.long
def test_a_run_whose_worker_died_before_it_could_look_ends() -> None:
    gone = "1"  # not our process: as if the parent had changed by then
    command = [sys.executable, "-m", "omg.integrations.ray.child", gone, "train"]
    words = ["--config=iql", "--env-config=foraging", "--dry-run"]
    assert program()[-1] == str(os.getpid())
    done = subprocess.run([*command, *words], capture_output=True, timeout=60, cwd=ROOT)
    assert done.returncode in (-15, 130)


# --- real ones ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_local_ray_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """In a process of its own: another test may be connected in this one."""
    code = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from omg.integrations.ray.cluster import connected\n"
        "with connected(cpus=2) as connection:\n"
        "    assert connection.local and connection.cpus() == 2\n"
        "    inside = list(Path(sys.argv[1]).iterdir())\n"
        "    assert len(inside) == 1 and inside[0].name.startswith('omg-ray-')\n"
        "assert list(Path(sys.argv[1]).iterdir()) == []\n"
    )
    short = Path("/tmp") / f"omgt{os.getpid()}"
    short.mkdir()
    environ = {**os.environ, "TMPDIR": str(short)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(short)], env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert not _processes_in(short)
    finally:
        shutil.rmtree(short, ignore_errors=True)


def _processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """A head, and a node whose workers find another omg first."""
    from examples.sweep_on_a_small_cluster import small_cluster

    folder = Path("/tmp") / f"omgc{os.getpid()}"
    folder.mkdir()
    other = folder / "other"
    shutil.copytree(ROOT / "omg", other / "omg", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "omg" / "types.py").open("a") as file:
        file.write("# changed\n")
    cluster = small_cluster(1, folder / "ray")
    cluster.add_node(
        num_cpus=1,
        object_store_memory=80 << 20,
        include_dashboard=False,
        env_vars={"PYTHONPATH": str(other)},
    )
    yield cluster
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_a_real_node_with_changed_sources_is_found_and_named(
    two_nodes: Any, tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from omg.integrations.ray.cluster import connected\n"
        "from omg.integrations.ray.nodes import check_nodes\n"
        "from omg.types import OmgError\n"
        "with connected(address=sys.argv[1]) as connection:\n"
        "    assert len(connection.nodes()) == 2 and not connection.local\n"
        "    try:\n"
        "        check_nodes(connection, Path(sys.argv[2]))\n"
        "    except OmgError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, two_nodes.address, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The machines have different versions of omg: ")
    assert done.stdout.count("sources") == 2


def test_a_missing_cluster_is_a_sentence() -> None:
    said = re.escape("There is no Ray cluster at --address=127.0.0.1:1 that answers")
    with pytest.raises(OmgError, match=said), connected(address="127.0.0.1:1"):
        pass
