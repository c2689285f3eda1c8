"""Any run tested in its own game: a team by itself, an agent among those it was trained with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from omg.config.schema import Config
from omg.controllers import CONTROLLERS
from omg.envs.registry import make_batched
from omg.evaluation.agent_runs import copies_for
from omg.evaluation.crossplay_files import prepare_folder
from omg.experiment.trained import TrainedRun, load_players, read_run
from omg.modules.device import set_up_torch
from omg.runners import runner_of
from omg.runners.assembly import make_rollout
from omg.runners.rollout import EpisodeStats, run_test
from omg.storage.files import write_text
from omg.types import EnvSpec, OmgError, user_path

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric over episodes: its mean, and the deviation of the episodes."""

    mean: float
    std: float
    episodes: int  # those that report it

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.episodes)


@dataclass(frozen=True, slots=True)
class OwnGame:
    """What came of a run's policy in the game it was trained in."""

    run: str
    model: str
    env_steps: int
    env: str
    env_args: Mapping[str, Any]
    others: tuple[str, ...]  # frozen players in the other seats; empty: the policy takes them all
    episodes: int
    seed: int
    greedy: bool
    metrics: Mapping[str, Measured]
    files: tuple[Path, ...] = field(default=(), compare=False)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per metric."""
        return [{"metric": name, **asdict(value)} for name, value in self.metrics.items()]

    def as_dict(self) -> dict[str, Any]:
        """As it is written down."""
        content = asdict(self)
        del content["files"]
        return content


def needs_pool(folder: str | Path, which: str = "last") -> bool:
    """Whether a run is one agent that was trained with a pool, whose members it can be tested
    against; any other run is tested in its own game."""
    config = read_run(folder, which).config
    return CONTROLLERS[config.mac].models and bool(config.opponent_pool)


def check_seed(seed: int) -> None:
    """NumPy takes no negative ones."""
    if seed < 0:
        raise OmgError(f"seed={seed} is not possible. Use 0 or more.")


def told_greedy(*, sample: bool, greedy: bool) -> bool | None:
    """Whether agents act greedily; None: as each is tested in training."""
    if sample and greedy:
        raise OmgError("Agents act greedily or sample, not both. Leave out --greedy or --sample.")
    return greedy if sample or greedy else None


def play_own_game(
    folder: str | Path,
    *,
    episodes: int = 200,
    which: str = "last",
    seed: int = 0,
    sample: bool = False,
    greedy: bool = False,
    out: str | Path | None = None,
) -> OwnGame:
    """Test a run with its own environment, settings and players; `out` gets own_game.json. It acts
    as it is tested in training, unless `sample` or `greedy` says how."""
    if episodes < 1:
        raise OmgError(f"episodes={episodes} is too few. Play at least one.")
    check_seed(seed)
    told = told_greedy(sample=sample, greedy=greedy)
    run = read_run(folder, which)
    place = None if out is None else prepare_folder(Path(out))
    config = with_places(run)
    best = config.test_greedy if told is None else told
    set_up_torch(config)
    spec = _spec(config)
    how = {"seed": seed, "greedy": best, "which": which}
    mac = load_players(run, spec, CPU, config=config, episodes=episodes, options=how)
    runner = runner_of(config)
    env = runner.copies(copies_for(runner, episodes, 1 if mac.seats else spec.n_agents))
    try:
        rollout = make_rollout(
            config,
            env=env,
            mac=mac.recording(),
            stream="evaluation.own",
            device=CPU,
            greedy=best,
            seed=seed,
        )
        played = run_test(rollout, episodes, round_number=0, env_steps=run.env_steps)
    finally:
        env.close()
    result = OwnGame(
        run=str(run.folder),
        model=run.model.name,
        env_steps=run.env_steps,
        env=config.env,
        env_args=config.as_dict()["env_args"],
        others=tuple(mac.players()),
        episodes=len(played.lengths),
        seed=seed,
        greedy=best,
        metrics=_measured(played),
    )
    return result if place is None else _written(result, place)


def with_places(run: TrainedRun) -> Config:
    """A run's configuration with its opponents where they lie. A relative path was one of the
    folder in which the run was started, which may be any folder above the run."""
    places = {}
    for key in ("opponent_pool", "init_param_path"):
        named = getattr(run.config, key)
        if not named or user_path(named).exists():
            continue
        above = (folder / named for folder in run.folder.resolve().parents)
        places[key] = str(next((path for path in above if path.exists()), named))
    return Config.model_validate({**run.config.as_dict(), **places})


def _spec(config: Config) -> EnvSpec:
    probe = make_batched(config.env, config.env_args, n_copies=1)
    probe.close()
    return probe.spec


def _measured(played: EpisodeStats) -> dict[str, Measured]:
    """Every number of the episodes; what an episode does not report is left out of its mean."""
    values: dict[str, Any] = {
        "return": played.team_returns,
        "ep_length": played.lengths,
        "truncated": played.truncated,
        **{f"agent_{seat}_return": value for seat, value in enumerate(played.returns.T)},
        **played.info,
    }
    known = {name: np.asarray(v, np.float64)[np.isfinite(v)] for name, v in values.items()}
    return {
        name: Measured(float(found.mean()), float(found.std()), found.size)
        for name, found in known.items()
        if found.size
    }


def _written(result: OwnGame, out: Path) -> OwnGame:
    path = out / "own_game.json"
    write_text(path, json.dumps(result.as_dict(), indent=1, ensure_ascii=False) + "\n")
    return replace(result, files=(path,))


def refuse_pool_options(options: Mapping[str, tuple[Any, Any]], run: str | Path) -> None:
    """Options about opponents of a pool, as (given, default), where there is none."""
    given: Sequence[str] = [name for name, (value, usual) in options.items() if value != usual]
    if given:
        raise OmgError(
            f"{run} is tested in its own game, because it was not trained with a pool, so "
            f"{', '.join(given)} would have no effect. Leave it out, or name a pool."
        )
