"""Where Ray is missing: one sentence, and nothing else of omg needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omg.integrations.ray.cluster import load_ray
from omg.types import OmgError

ROOT = Path(__file__).parents[2]
# Ray as if it were not installed.
HIDDEN = "import sys; sys.modules['ray'] = None; sys.argv[0] = 'omg'; "


def test_ray_is_installed_for_these_tests() -> None:
    pytest.importorskip("ray", reason="tests/ray need the extra: pip install 'omg-marl[ray]'")


def test_without_ray_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OmgError, match=r"Ray is not installed.*pip install 'omg-marl\[ray\]'"):
        load_ray()


@pytest.mark.long
def test_omg_sweep_without_ray_says_what_to_install_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["sweep", "--config=iql", "--env-config=foraging", "lr=grid:0.1,0.2", f"--out={out}"]
    code = f"{HIDDEN}sys.argv[1:] = {words!r}; from omg.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    sentence = "omg: Ray is not installed. Install it: pip install 'omg-marl[ray]'"
    assert done.stderr.strip() == sentence
    assert not out.exists()


@pytest.mark.long
def test_a_dry_run_needs_no_ray() -> None:
    words = ["sweep", "--config=iql", "--env-config=foraging", "lr=grid:0.1,0.2", "--dry-run"]
    code = f"{HIDDEN}sys.argv[1:] = {words!r}; from omg.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["omg", "train"]] * 2
