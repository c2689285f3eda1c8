"""The wheel and the source archive: complete, and enough to train without a clone or a compiler."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from omg import prebuilt

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long
pytest.importorskip("build")
pytest.importorskip("setuptools_scm")
BORROWED = sysconfig.get_paths()["purelib"]  # torch and the like; not this clone
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
        built = {Path(name).name.partition("-x86")[0] for name in kernels}
        assert built == {path.stem for path in (ROOT / "omg").rglob("*.c")} >= {"gru", "battle"}
        assert "linux_x86_64" in wheel.name
    with tarfile.open(source) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert ours <= inside
    assert {"README.md", "LICENSE", "setup.py", "pyproject.toml"} <= inside


def by_pip(wheel: Path, place: Path) -> Path:
    run(sys.executable, "-m", "venv", "--without-pip", str(place))
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "-q"]
    run(*pip, "--no-deps", "--no-index", str(wheel), env={"PYTHONPATH": ""}, cwd=place)
    return place / "bin"


def tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return found or pytest.skip(f"{name} is not installed")


def borrowing(folder: Path) -> Path:
    """A wheel of nothing but a path: to torch and the like of this environment."""
    path, about = folder / "borrowed-1-py3-none-any.whl", "borrowed-1.dist-info"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("borrowed.pth", f"{BORROWED}\n")
        packed.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: borrowed\nVersion: 1\n")
        packed.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        packed.writestr(f"{about}/RECORD", "")
    return path


def by_pipx(wheel: Path, place: Path) -> Path:
    """pipx asks every package that is needed for its metadata, so they are there before."""
    place.mkdir()
    env = {"PIPX_HOME": str(place), "PIPX_BIN_DIR": str(place / "commands"), "PYTHONPATH": ""}
    words = ["install", "--python", sys.executable, f"--preinstall={borrowing(place)}"]
    given = ["--pip-args=--no-deps --no-index --force-reinstall", str(wheel)]
    run(tool("pipx"), *words, *given, env=env, cwd=wheel.parent)
    return place / "venvs" / "omg-marl" / "bin"


def by_uv(wheel: Path, place: Path) -> Path:
    """uv always looks for what a package needs: here it is told that nothing is."""
    given = [f"UV_TOOL_DIR={place}", f"UV_TOOL_BIN_DIR={place / 'commands'}", "PYTHONPATH="]
    env = dict(pair.split("=", 1) for pair in (*given, f"UV_CACHE_DIR={place / 'cache'}"))
    place.mkdir()
    needed = [n for n in distribution("omg-marl").requires or () if "extra ==" not in n]
    names = [re.split(r"[<>=!~\[ ]", need)[0] for need in needed]
    nothing = place / "nothing.txt"
    nothing.write_text("".join(f"{name} ; python_version < '3'\n" for name in names))
    words = ["tool", "install", "--offline", "--python", sys.executable, "--overrides"]
    run(tool("uv"), *words, str(nothing), str(wheel), env=env, cwd=wheel.parent)
    return place / "omg-marl" / "bin"


TRAIN = "train --config=qmix_quick --env-config=foraging --t_max=200 --test_nepisode=2"


@pytest.mark.parametrize(
    ("install", "words", "made"),
    [
        (by_pip, f"{TRAIN} --run_name=run --use_sacred=False", "run/models/last/agent.th"),
        (by_pipx, "demo --quick", "demo-quick/report.html"),
        (by_uv, "demo --quick", "demo-quick/report.html"),
    ],
)
def test_the_wheel_alone_works_with_its_kernels_and_no_compiler(
    archives: Path, tmp_path: Path, install: Callable[[Path, Path], Path], words: str, made: str
) -> None:
    (wheel,) = archives.glob("*.whl")
    commands = install(wheel, tmp_path / "env")
    python, omg = str(commands / "python"), str(commands / "omg")
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    (Path(site.strip()) / "borrowed.pth").write_text(f"{BORROWED}\n")
    env = {
        "PATH": str(commands),
        "CC": "no-such-compiler",
        "PYTHONPATH": "",
        "OMG_CACHE": str(tmp_path / "cache"),
    }
    where = run(python, "-c", "import omg; print(omg.__file__)", env=env, cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    run(omg, *words.split(), env=env, cwd=tmp_path)
    assert (tmp_path / "results" / made).is_file()
    told = json.loads(run(omg, "doctor", "--json", env=env, cwd=tmp_path))
    lines = {line["name"]: line for line in told["checks"]}
    assert lines["omg-marl"]["state"] == "ok"
    if LEVELS:
        assert lines["C compiler"]["state"] == "ok"
        for name in ("GRU kernel", "battle kernel"):
            assert f"built for {LEVELS[0]} in the wheel" in lines[name]["detail"], lines[name]
