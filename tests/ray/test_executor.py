"""`omg pipeline --executor=ray`: the results of the local executor, whatever is lost on the way."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.studies.execute import run_pipeline
from omg.studies.plan import plan_of
from omg.studies.steps import Plan, cpus_of
from omg.types import OmgError

ray = pytest.importorskip("ray", reason="these tests need the extra: pip install 'omg-marl[ray]'")
pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
STUDY = """
env_config: foraging
common:
  env: tests.ray.slow_game:SlowForagingEnv
  env_args: {key: Foraging-5x5-2p-1f-v3, max_episode_steps: 8}
  batch_size_run: 2
  batch_size: 4
  buffer_size: 16
  rnn_hidden_dim: 16
  test_nepisode: 2
  test_interval: 100000
  resume_interval: 100
  save_model_interval: 100000
  use_tensorboard: false
  use_sacred: false
opponents:
  settings: {t_max: 1200}
  runs:
    - {config: iql, seeds: [1, 2]}
agents:
  settings: {t_max: 40}
  seeds: [1]
  methods:
    - {name: D3QN, config: d3qn}
"""


def study(folder: Path, name: str) -> Plan:
    file = folder / "study.yaml"
    file.write_text(STUDY)
    return plan_of(pipeline=str(file), out=str(folder / name))


def wait_for(done: Callable[[], Any], seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three machines on this one; the head does not work."""
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": 80_000_000, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **options})
    del options["include_dashboard"]
    for _ in range(2):
        made.add_node(num_cpus=2, **options)
    ray.init(
        address=made.address,
        logging_level=logging.ERROR,
        log_to_driver=False,
        configure_logging=False,
    )
    yield made
    ray.shutdown()
    made.shutdown()


class Saboteur(threading.Thread):
    """Kills the Ray worker of one run and removes the machine of another, once both have a state
    to continue from."""

    def __init__(self, cluster: Any, out: Path) -> None:
        super().__init__(daemon=True)
        self._cluster, self._out = cluster, out
        self.lost: list[str] = []

    def run(self) -> None:
        wait_for(lambda: self._saved(1))
        os.kill(parent_of(self._pid(1)), signal.SIGKILL)
        self.lost.append("worker")
        wait_for(lambda: self._saved(2))
        raylet = parent_of(parent_of(self._pid(2)))
        node = next(
            node
            for node in self._cluster.worker_nodes
            if node.all_processes["raylet"][0].process.pid == raylet
        )
        self._cluster.remove_node(node, allow_graceful=False)
        self.lost.append("machine")

    def _saved(self, seed: int) -> bool:
        return any((self._out / f"opponents/iql-s{seed}/resume").glob("[0-9]*/state.pt"))

    def _pid(self, seed: int) -> int:
        told = (self._out / f"logs/opponents-iql-s{seed}.pid").read_text()
        return int(told.split()[1])


def results(out: Path) -> dict[str, Any]:
    """Weights, and metrics without times, by file."""
    found: dict[str, Any] = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*.th")}
    for path in out.rglob("metrics.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        timed = ("wall_s", "steps_per_second")
        found[str(path.relative_to(out))] = [
            {key: value for key, value in record.items() if key not in timed} for record in records
        ]
    return found


def test_a_study_that_loses_a_worker_and_a_machine_has_the_results_of_one_made_here(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = study(tmp_path, "here"), study(tmp_path, "there")
    saboteur = Saboteur(cluster, there.out)
    saboteur.start()
    run_pipeline(there, executor="ray")
    saboteur.join(timeout=30)
    assert saboteur.lost == ["worker", "machine"]
    said = capsys.readouterr().out
    assert len(re.findall(r"^lost +opponents", said, re.MULTILINE)) >= 2
    assert len(re.findall(r"^resumed +opponents", said, re.MULTILINE)) >= 2
    assert not list(there.out.glob("logs/*.pid"))

    run_pipeline(here)
    made = results(there.out)
    assert made == results(here.out)
    assert len([name for name in made if name.endswith("last/agent.th")]) == 2

    capsys.readouterr()
    run_pipeline(there, executor="ray")
    assert "started" not in (again := capsys.readouterr().out)
    assert again.count("skipped") == len(there.steps)


def test_a_folder_that_a_machine_does_not_see_is_refused_before_anything_runs(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omg.integrations.ray import nodes

    versions = nodes.our_versions()
    monkeypatch.setattr(nodes, "_probe_function", lambda: lambda *told: ("", versions))
    plan = study(tmp_path, "unseen")
    with pytest.raises(
        OmgError, match=r"unseen is not the same folder on .*network disk"
    ) as caught:
        run_pipeline(plan, executor="ray")
    assert caught.value.exit_code == 2
    assert not (plan.out / "opponents").exists()


def test_the_doctor_tells_which_cluster_it_is_and_what_it_has(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    told = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["checks"]
    line = next(line for line in told if line["name"] == "cluster")
    machines = [node for node in ray.nodes() if node["Alive"]]
    cpus = sum(node["Resources"].get("CPU", 0) for node in machines)
    counted = f"{len(machines)} machines, {cpus:g} CPUs"
    assert line["detail"] == f"{cluster.address}: {counted}; --address=auto uses it"
    assert line["state"] == "ok"


def test_a_step_that_no_machine_has_the_cpus_for_is_refused(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(OmgError, match=r"takes 3 CPUs, and no machine .* more than 2"):
        run_pipeline(study(tmp_path, "large"), executor="ray", cpus=3)


def test_the_cpus_of_a_step_follow_from_its_settings(tmp_path: Path) -> None:
    from omg.config.loader import load_command_line

    def cpus(*words: str) -> int:
        return cpus_of(load_command_line(["--config=qmix", "--env-config=foraging", *words]).config)

    assert cpus() == 1
    assert cpus("--torch_threads=2") == 2
    assert cpus("--collect_ahead=1", "--runner=parallel", "--n_workers=3") == 5
    plan = plan_of(pipeline="tiny", out=str(tmp_path / "out"), words=["--torch_threads=2"])
    assert {step.cpus for step in plan.steps if step.kind == "train"} == {2}


def refused(*words: str) -> str:
    told = CliRunner().invoke(app, ["pipeline", "--pipeline=tiny", *words])
    assert told.exit_code == 2, told.output
    return told.stderr


def test_without_ray_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    out = tmp_path / "out"
    said = refused("--executor=ray", f"--out={out}")
    assert said == "omg: Ray is not installed. Install it: pip install 'omg-marl[ray]'\n"
    assert not out.exists()


def test_options_that_have_no_effect_and_unknown_executors_are_refused(tmp_path: Path) -> None:
    out = f"--out={tmp_path / 'out'}"
    assert "are for --executor=ray" in refused("--address=auto", out)
    assert "did you mean 'ray'" in refused("--executor=rays", out)
    assert "--address=ray://x:1 is Ray's client" in refused(
        "--executor=ray", "--address=ray://x:1", out
    )


STAND_IN = """
import signal, sys, time
from pathlib import Path
options = dict(word[2:].split("=", 1) for word in sys.argv[2:])
folder = Path(options["local_results_path"], options["run_name"])
def stop(*_):
    (folder / "saved").touch()
    if "stubborn" not in sys.argv[0]:
        sys.exit(130)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, lambda *_: (folder / "interrupted").touch())
folder.mkdir(parents=True)
while True:
    time.sleep(1)
"""
DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from omg.studies.execute import run_pipeline
from omg.studies.plan import plan_of
from omg.cli.errors import report_errors
plan = plan_of(pipeline="tiny", out=sys.argv[1])
sys.exit(report_errors(False, lambda: run_pipeline(
    plan, executor="ray", program=(sys.executable, sys.argv[2]))))
"""


@pytest.mark.parametrize("name", ["orderly", pytest.param("stubborn", marks=pytest.mark.slow)])
def test_ctrl_c_lets_runs_save_and_leaves_nothing_and_a_second_one_does_not_wait(
    name: str, tmp_path: Path
) -> None:
    stand_in, driver, out = tmp_path / f"{name}.py", tmp_path / "driver.py", tmp_path / "out"
    stand_in.write_text(STAND_IN)
    driver.write_text(DRIVER)
    process = subprocess.Popen(
        [sys.executable, str(driver), str(out), str(stand_in)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    run = out / "opponents/iql-s1"
    try:
        wait_for(run.exists)
        pid = int(wait_for((out / "logs/opponents-iql-s1.pid").read_text).split()[1])
        os.killpg(process.pid, signal.SIGINT)
        if name == "stubborn":
            wait_for((run / "saved").exists)
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err.startswith("omg: interrupted. ")
    assert [path.name for path in run.iterdir()] == ["saved"]  # told once, by the pipeline
    record = json.loads((out / "pipeline.json").read_text())["steps"]["opponents/iql-s1"]
    assert record["status"] == "started"
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 10)
    assert not list(Path(tempfile.gettempdir()).glob(f"omg-ray-{process.pid}-*"))


@pytest.mark.slow
def test_the_shipped_study_has_the_same_results_by_both_executors(tmp_path: Path) -> None:
    plans = {name: plan_of(pipeline="tiny", out=str(tmp_path / name)) for name in ("local", "ray")}
    for name, plan in plans.items():
        run_pipeline(plan, executor=name)
    local, there = (plan.out for plan in plans.values())
    assert results(local) == results(there)
    for path in local.glob("*.csv"):
        assert path.read_bytes() == (there / path.name).read_bytes(), path.name
