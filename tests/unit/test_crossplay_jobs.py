"""Cross-play with several processes: the same cells in the same order, and clear ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from omg.evaluation.agent_runs import AgentRun, read_agent_run
from omg.evaluation.crossplay import CrossplayPlan, Task, run_crossplay
from omg.evaluation.crossplay_jobs import Games, check_jobs, play_all
from omg.evaluation.crossplay_table import Cell
from omg.evaluation.gap import measure_headroom
from omg.opponents.pool import OpponentPool
from omg.types import OmgError, RunFailedError, cores

from .studies import make_study

PLAN = CrossplayPlan(splits=("train",), episodes=5)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.mark.long
def test_two_processes_play_what_one_plays(study: Path) -> None:
    runs = [study / name for name in ("naive-s1", "naive-s2", "omg-s1")]
    told: list[tuple[str, int]] = []
    alone = run_crossplay(runs, "", PLAN)
    both = run_crossplay(runs, "", PLAN, jobs=2, on_cell=lambda c, n: told.append((c.agent, n)))
    assert both == alone
    assert told == [(cell.agent, len(alone.cells)) for cell in alone.cells]


@pytest.mark.long
def test_headroom_is_measured_alike(study: Path) -> None:
    names, runs = {"plain": "Naive"}, [study / "naive-s1", study / "naive-s2"]
    one, two = (
        measure_headroom(runs, study / "pool", names=names, episodes=4, jobs=n) for n in (1, 2)
    )
    assert one == two


def games(study: Path, play: object) -> list[Games]:
    agent = read_agent_run(study / "naive-s1")
    return [Games(name, agent, (), play) for name in ("a", "b")]  # type: ignore[arg-type]


def dies(
    agent_id: str, agent: AgentRun, pool: OpponentPool, tasks: Sequence[Task], plan: CrossplayPlan
) -> Iterator[Cell]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield Cell(agent_id, "", "homologue", "train", 0, {})


def refuses(
    agent_id: str, agent: AgentRun, pool: OpponentPool, tasks: Sequence[Task], plan: CrossplayPlan
) -> Iterator[Cell]:
    raise OmgError(f"{agent_id} may not play. Leave it out.")
    yield


@pytest.mark.long
def test_a_process_that_is_killed_gets_one_sentence(study: Path) -> None:
    pool = OpponentPool.open(study / "pool")
    with pytest.raises(RunFailedError, match=r"ended from outside.*--jobs=1"):
        list(play_all(games(study, dies), pool, PLAN, jobs=2))


@pytest.mark.long
def test_what_a_process_refuses_is_refused_in_its_words(study: Path) -> None:
    pool = OpponentPool.open(study / "pool")
    with pytest.raises(OmgError, match=r"^a may not play. Leave it out.$"):
        list(play_all(games(study, refuses), pool, replace(PLAN, episodes=1), jobs=2))


ORPHANS = """
import sys
from pathlib import Path
from tests.unit import test_crossplay_jobs as here
from omg.opponents.pool import OpponentPool
from omg.evaluation.crossplay_jobs import play_all
if __name__ == "__main__":
    study = Path(sys.argv[1])
    pool = OpponentPool.open(study / "pool")
    list(play_all(here.games(study, here.waits), pool, here.PLAN, jobs=2))
"""


def waits(
    agent_id: str, agent: AgentRun, pool: OpponentPool, tasks: Sequence[Task], plan: CrossplayPlan
) -> Iterator[Cell]:
    Path(pool.path, f"{agent_id}.pid").write_text(str(os.getpid()))
    time.sleep(600)
    yield Cell(agent_id, "", "homologue", "train", 0, {})


@pytest.mark.long
def test_processes_end_with_the_one_that_asked_them(study: Path, tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ORPHANS)
    root = str(Path(__file__).parents[2])
    asking = subprocess.Popen(
        [sys.executable, str(script), str(study)], env={**os.environ, "PYTHONPATH": root}
    )
    told = [study / "pool" / f"{name}.pid" for name in ("a", "b")]
    try:
        until(lambda: all(path.is_file() and path.read_text() for path in told))
    finally:
        asking.terminate()
        asking.wait()
    playing = [int(path.read_text()) for path in told]
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in playing))


def until(is_so: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "too late"
        time.sleep(0.1)


def test_how_many_processes() -> None:
    assert [check_jobs(n) for n in (0, 1, 3)] == [cores(), 1, 3]
    with pytest.raises(OmgError, match="jobs=-1 is not possible"):
        check_jobs(-1)
