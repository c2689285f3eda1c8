"""`omg doctor`: what a user is told, whatever is missing."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import omg.cli.doctor.machine
from omg.cli.app import app
from omg.cli.doctor.packages import OPTIONAL


def doctor(*words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the lines by name."""
    result = CliRunner().invoke(app, ["doctor", "--json", *words])
    content = json.loads(result.stdout)
    assert content["ok"] == (result.exit_code == 0)
    return result.exit_code, {line["name"]: line for line in content["checks"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """As if packages were not installed."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_a_complete_installation_is_well_and_every_subject_has_a_line(folder: Path) -> None:
    code, lines = doctor()
    assert code == 0, [line for line in lines.values() if line["needed"] and line["state"] != "ok"]
    subjects = "omg-marl Python platform processor memory numpy sacred setuptools torch devices"
    for name in (*subjects.split(), "threads", "lbforaging", "mpe2", "pettingzoo", "rware"):
        assert lines[name]["state"] == "ok", lines[name]
    for name in ("C compiler", "GRU kernel", "step kernel", "pymongo", "tensorboard"):
        assert name in lines
    for name in ("package smac", "package smacv2", "StarCraft II", "SMAC maps"):
        assert lines[name]["state"] == "ok" or lines[name]["advice"]
    assert "torch_threads=1" in lines["threads"]["detail"]
    assert lines["results folder"]["detail"].startswith(str(folder / "results"))
    assert not (folder / "results").exists()
    assert "/dev/shm" in lines["shared memory"]["detail"]


def test_the_table_says_the_same_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "mpe2")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    at = next(i for i, row in enumerate(rows) if row[:2] == ["missing", "mpe2"])
    assert rows[at + 1] == ["→", "pip", "install", "'omg-marl[mpe]'"]
    assert rows[-1][:4] == ["Everything", "needed", "is", "there."]


def test_an_optional_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [row[0] for row in OPTIONAL]
    hide(monkeypatch, *names)
    code, lines = doctor()
    assert code == 0
    for name in names:
        assert lines[name]["state"] == "missing"
        assert lines[name]["advice"].startswith("pip install '")


def test_every_extra_that_is_advised_exists() -> None:
    project = (Path(omg.cli.doctor.machine.__file__).parents[3] / "pyproject.toml").read_text()
    extras = set(re.findall(r"^(\w+) = \[", project, re.MULTILINE))
    advised = {row[3].partition("[")[2].rstrip("]") for row in OPTIONAL} - {""}
    assert advised
    assert advised <= extras


def test_ray_is_named_and_its_cluster_only_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    _, lines = doctor()
    if lines["ray"]["state"] == "ok":
        assert re.match(r"\d+\.\d+", lines["ray"]["detail"])
        assert "none runs on this machine" in lines["cluster"]["detail"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        code, lines = doctor()
        assert code == 0
        assert lines["cluster"]["state"] == "problem"
        assert f"{address} does not answer" in lines["cluster"]["detail"]
    hide(monkeypatch, "ray")
    code, lines = doctor()
    assert (code, lines["ray"]["state"]) == (0, "missing")
    assert lines["ray"]["advice"] == "pip install 'omg-marl[ray]'"
    assert "cluster" not in lines


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("pkg_resources", "setuptools", "pip install 'setuptools<81'"),
        ("sacred", "sacred", "use_sacred=false"),
        ("yaml", "yaml", "pip install pyyaml"),
        ("torch", "torch", "pip install torch"),
    ],
)
def test_a_needed_package_that_is_missing_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, advice: str
) -> None:
    hide(monkeypatch, module)
    code, lines = doctor()
    assert code == 1
    assert lines[name]["state"] == "problem"
    assert advice in lines[name]["advice"]


def broken(monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, fault: str) -> None:
    """A package that is installed and cannot be imported."""
    (folder / "broken" / module).mkdir(parents=True)
    (folder / "broken" / module / "__init__.py").write_text(f"print('hello')\n{fault}\n")
    monkeypatch.syspath_prepend(folder / "broken")


def test_a_package_is_imported_before_it_is_called_ok(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    broken(monkeypatch, folder, "mpe2", "raise SystemExit(1)")
    broken(monkeypatch, folder, "rware", "import os; os._exit(3)")
    code, lines = doctor()
    assert code == 0
    assert lines["mpe2"]["state"] == lines["rware"]["state"] == "problem"
    assert "installed, but cannot be imported: SystemExit" in lines["mpe2"]["detail"]
    assert "importing it ends Python (exit code 3)" in lines["rware"]["detail"]
    assert lines["matplotlib"]["state"] == "ok"  # after it
    broken(monkeypatch, folder, "sacred", "raise ValueError('too old')")
    code, lines = doctor()
    assert code == 1
    assert "cannot be imported: ValueError: too old" in lines["sacred"]["detail"]
    assert "use_sacred=false" in lines["sacred"]["advice"]


def test_a_tensorboard_that_does_not_fit_protobuf_is_named_and_not_needed(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    fault = "from google.protobuf import no_such_thing"
    broken(monkeypatch, folder, "tensorboard", fault)
    code, lines = doctor()
    assert code == 0
    line = lines["tensorboard"]
    assert (line["state"], line["needed"]) == ("problem", False)
    assert re.search(r"beside protobuf \d.*no_such_thing.*; runs leave it out", line["detail"])
    assert "'tensorboard<2.20'" in line["advice"]


def ended(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program that ended with exit code 1 and no traceback."""
    told = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=400
    )
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    return told


def test_it_runs_without_the_packages_of_the_omg_command() -> None:
    without = "import runpy, sys; sys.modules.update(typer=None, rich=None, numpy=None)"
    told = ended(f"{without}; runpy.run_module('omg.cli.doctor', run_name='__main__')")
    assert "Needed and not in order: numpy, rich, typer." in told.stdout


@pytest.mark.parametrize("missing", ["numpy, torch", "numpy, pydantic, torch"])
def test_it_runs_where_nothing_else_can_be_imported(missing: str) -> None:
    absent = dict.fromkeys(missing.split(", "))
    without = f"import sys; sys.modules.update({absent})"
    start = f"{without}; sys.argv[0] = 'omg'; from omg.cli.app import main; main()"
    told = ended(start, "doctor", "--debug")
    assert f"Needed and not in order: {missing}." in told.stdout
    assert "results folder" in told.stdout
    assert re.search("kernels +not examined, because torch cannot be imported", told.stdout)
    for words in (["train", "--config=qmix"], ["pool", "list", "x"], ["envs", "list"]):
        assert "'omg doctor' says what is missing" in ended(start, *words).stderr


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("no C compiler found", "missing"),
        ("switched off by OMG_KERNELS=0", "missing"),
        ("its self-test was off by 0.5", "problem"),
    ],
)
def test_without_the_kernel_it_says_what_is_used_instead_and_why(
    monkeypatch: pytest.MonkeyPatch, reason: str, state: str
) -> None:
    monkeypatch.setattr("omg.modules.kernels.gru.gru_kernel", lambda: (None, reason))
    code, lines = doctor()
    assert code == 0  # torch does the same
    line = lines["GRU kernel"]
    assert line["state"] == state
    assert f"nn.GRU is used instead, because {reason}" in line["detail"]
    assert line["advice"]


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CC", "no_such_compiler")
    code, lines = doctor()
    assert code == 0
    assert lines["C compiler"]["state"] == "missing"


def test_a_results_folder_that_cannot_be_is_a_problem(folder: Path) -> None:
    (folder / "file").write_text("")
    code, lines = doctor("--results=file/results")
    assert code == 1
    assert lines["results folder"]["state"] == "problem"
    assert "is a file" in lines["results folder"]["detail"]


def test_a_results_folder_that_cannot_be_written_to_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(omg.cli.doctor.machine.tempfile, "TemporaryFile", refuse)
    code, lines = doctor()
    assert code == 1
    assert "cannot be written to: Permission denied" in lines["results folder"]["detail"]


def test_a_full_disk_is_a_problem_and_little_shared_memory_is_advised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = SimpleNamespace(total=2**26, free=2**20)
    monkeypatch.setattr(omg.cli.doctor.machine.shutil, "disk_usage", lambda path: full)
    code, lines = doctor()
    assert code == 1
    assert "1.0 MiB free" in lines["results folder"]["detail"]
    assert lines["shared memory"]["state"] == "problem"
    assert "runner=batch" in lines["shared memory"]["advice"]
    assert not lines["shared memory"]["needed"]


def test_a_check_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("the folder is on fire")

    monkeypatch.setattr("omg.envs.sc2.install.describe_installation", fail)
    code, lines = doctor()
    assert code == 0
    assert "the folder is on fire" in lines["StarCraft II"]["detail"]
    assert lines["results folder"]["state"] == "ok"
