"""The wheel and the source archive: complete, and enough to train without a clone or a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from omg import prebuilt

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long
pytest.importorskip("build")
pytest.importorskip("setuptools_scm")
LEVELS = prebuilt.levels_of_this_machine() if shutil.which("gcc") else []


def run(*words: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of this folder, and the wheel that is built from it: so the archive is
    complete. One level of kernels, because compiling all takes a while."""
    folder, source = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source") / "omg"
    left = shutil.ignore_patterns(".*", "results", "build", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=left)  # building writes beside the sources
    env = {"OMG_PREBUILT": LEVELS[0] if LEVELS else "0"}
    words = ("-m", "build", "--no-isolation", "-o", str(folder))
    run(sys.executable, *words, env=env, cwd=source)
    return folder


def test_the_archives_hold_every_file_of_omg(archives: Path) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "omg").rglob("*")
        if path.is_file() and path.suffix in (".py", ".yaml", ".c", ".h", ".css", ".js", ".typed")
    }
    (wheel,) = archives.glob("*.whl")
    (source,) = archives.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert ours <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]
    if LEVELS:
        kernels = [name for name in names if name.endswith(".so")]
        assert {Path(name).name.partition("-x86")[0] for name in kernels} >= {"gru", "battle"}
        assert "linux_x86_64" in wheel.name
    with tarfile.open(source) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert ours <= inside
    assert {"README.md", "LICENSE", "setup.py", "pyproject.toml"} <= inside


def test_the_wheel_alone_trains_with_its_kernels_and_no_compiler(
    archives: Path, tmp_path: Path
) -> None:
    place = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", str(place))
    python = place / "bin" / "python"
    (wheel,) = archives.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    run(*pip, "--no-index", str(wheel), env={"PYTHONPATH": ""}, cwd=tmp_path)
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    borrowed = sysconfig.get_paths()["purelib"]  # torch and the like; not this clone
    (Path(site.strip()) / "borrowed.pth").write_text(f"{borrowed}\n")
    env = {
        "PATH": str(place / "bin"),
        "CC": "no-such-compiler",
        "PYTHONPATH": "",
        "OMG_CACHE": str(tmp_path / "cache"),
    }
    omg = str(place / "bin" / "omg")
    where = run(str(python), "-c", "import omg; print(omg.__file__)", env=env, cwd=tmp_path)
    assert where.startswith(str(place))
    words = "train --config=qmix_quick --env-config=foraging --t_max=200 --test_nepisode=2"
    run(omg, *words.split(), "--run_name=run", "--use_sacred=False", env=env, cwd=tmp_path)
    assert (tmp_path / "results" / "run" / "models" / "last" / "agent.th").is_file()
    told = json.loads(run(omg, "doctor", "--json", env=env, cwd=tmp_path))
    lines = {line["name"]: line for line in told["checks"]}
    assert lines["omg-marl"]["state"] == "ok"
    if LEVELS:
        for name in ("GRU kernel", "battle kernel"):
            assert f"built for {LEVELS[0]} in the wheel" in lines[name]["detail"], lines[name]
