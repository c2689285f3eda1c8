"""The original's three stages on 8m with the team 7iql1iql_omg: in battles, and by the same words
in StarCraft II, where a stand-in plays the game."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from omg.cli.train import main
from omg.experiment.output import read_metrics
from omg.experiment.training import TrainingLoop
from omg.storage.files import load_tensors

from .sc2_game import standin  # noqa: F401 - a fixture
from .test_mixed_teams import frozen_modules

pytestmark = pytest.mark.long

SHORT = (
    *("--batch_size=2", "--batch_size_run=4", "--test_nepisode=2", "--test_interval=100000"),
    *("--use_tensorboard=False", "--use_sacred=False", "--quiet", "--learner_log_interval=100"),
    *("--buffer_size=64", "--save_model_interval=100000", "--runner=batch"),
    *("with", "env_args.map_name=8m"),
)
TEAM = ("--config=7iql1iql_omg", "--multi_algs", "--train_alg=iql_omg", "--mac=multi_module_mac")
PRIOR = ("--am_model=omg_am", "--learner=am_learner", "--prior_min_accuracy=0")
AGENT = ("--learner=omg_learner", "--is_agent_shift=True", "--subgoal_mode=True")
OBS, STATE, ACTIONS, AGENTS = 80, 168, 14, 8


def stages(env: str, folder: Path, *, steps: int) -> Path:
    """Train the teammates, pre-train the prior, train the one agent; the folder of the runs."""
    common = (f"--env-config={env}", f"--local_results_path={folder}")
    found = (f"--init_param_path={folder}", *common)
    for words in (
        ("--config=iql", *common, "--run_name=iql", f"--t_max={steps}"),
        (*TEAM, *PRIOR, *found, "--run_name=iql_omg", f"--t_max={steps}"),
        (*TEAM, *AGENT, *found, "--run_name=omg", "--prior_min_accuracy=0", f"--t_max={steps}"),
    ):
        assert main([*words, *SHORT]) == 0
    return folder


@pytest.fixture(scope="module")
def battles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stages("battle", tmp_path_factory.mktemp("battle"), steps=400)


def shapes(run: Path) -> dict[str, tuple[int, ...]]:
    """Of every tensor of the newest model, by file and name."""
    last = run / "models" / "last"
    return {
        f"{file.relative_to(last)}:{name}": tuple(tensor.shape)
        for file in sorted(last.rglob("*.th"))
        if file.name != "opt.th"
        for name, tensor in load_tensors(file).items()
    }


def test_the_saved_stages_have_the_sizes_of_8m(battles: Path) -> None:
    team, prior, agent = (shapes(battles / name) for name in ("iql", "iql_omg", "omg"))
    # An observation, the last action and the number of the seat.
    width = OBS + ACTIONS + AGENTS
    assert team["agent.th:fc1.weight"] == (64, width)
    assert team["agent.th:fc2.weight"] == (ACTIONS, 64)
    assert prior["iql_omg/vae.th:encoder.0.weight"] == (128, STATE)
    assert agent["iql_omg/agent.th:fc1.weight"] == (64, width + 64)  # and a subgoal
    assert agent["iql_omg/agent.th:fc2.weight"] == (ACTIONS, 64)
    history = next(shape for name, shape in agent.items() if "cond_rnn" in name and "ih" in name)
    assert history == (3 * 96, OBS + AGENTS * ACTIONS)
    assert set(prior) == {name for name in agent if "/vae.th" in name}


def test_the_agent_learns_while_prior_and_teammates_stay_what_they_were(battles: Path) -> None:
    losses = [r for r in read_metrics(battles / "omg" / "metrics.jsonl") if "loss" in r]
    assert losses
    before = load_tensors(battles / "iql_omg" / "models" / "last" / "iql_omg" / "vae.th")
    after = load_tensors(battles / "omg" / "models" / "last" / "iql_omg" / "vae.th")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_frozen_seats_do_not_change(
    battles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of every frozen module in a run, before and after its training."""
    seen: list[str] = []
    run = TrainingLoop.run

    def digest(mac: Any) -> str:
        whole = hashlib.sha256()
        for module in frozen_modules(mac):
            for tensor in module.state_dict().values():
                whole.update(tensor.numpy().tobytes())
        return whole.hexdigest()

    def watched(self: TrainingLoop) -> dict[str, float]:
        seen.append(digest(self.parts.mac))
        found = run(self)
        seen.append(digest(self.parts.mac))
        return found

    monkeypatch.setattr(TrainingLoop, "run", watched)
    words = [*TEAM, *AGENT, "--env-config=battle", f"--local_results_path={tmp_path}"]
    words += [f"--init_param_path={battles}", "--prior_min_accuracy=0", "--t_max=200"]
    assert main([*words, *SHORT]) == 0
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_starcraft_gives_the_same_networks_by_the_same_words(
    battles: Path,
    standin: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    game = stages("sc2", tmp_path, steps=40)
    for name in ("iql", "iql_omg", "omg"):
        assert shapes(game / name) == shapes(battles / name)
    # Weights from the simulator play the game.
    words = ["--config=iql", "--env-config=sc2", f"--local_results_path={tmp_path}"]
    assert main([*words, f"--checkpoint_path={battles / 'iql'}", "--evaluate", *SHORT]) == 0
