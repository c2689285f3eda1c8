"""An opponent model of the user's: the shipped example, its arguments, its files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import omg
from omg.cli.train import train
from omg.config.loader import load_command_line
from omg.evaluation.crossplay import CrossplayPlan, run_crossplay
from omg.experiment.output import read_metrics
from omg.modules.opponent_models import ModelRows
from omg.opponents.pool import OpponentPool
from omg.policies.policy import build_model
from omg.storage.files import load_tensors
from omg.types import EnvSpec, OmgError

from .test_mixed_teams import SMALL, TASK, assert_acts_as, collect, make_rollout, original
from .test_registry import write_module

EXAMPLES = Path(next(iter(omg.__path__))).parent / "examples"
EXAMPLE = "my_opponent_model:WhereAndWhat"
# Two agents; the state is a food's place and both agents' places.
SPEC = EnvSpec(
    name="x",
    n_agents=2,
    n_actions=4,
    obs_dim=6,
    state_dim=6,
    episode_limit=9,
    agent_features=((2, 3), (4, 5)),
)


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pools") / "scripts"
    made = OpponentPool.create(path)
    made.add_script("nearest_food")
    made.add_script("highest_level", split="heldout")
    return path


def words(pool: Path, results: Path, *more: str) -> list[str]:
    learn = ["--config=iql_am", f"--am_model={EXAMPLE}", "--am_hidden_dim=32"]
    learn += [f"--opponent_pool={pool}", f"--local_results_path={results}"]
    return [*SMALL, *learn, "--am_args.embed_dim=6", *more, *TASK]


def settings(*more: str) -> Any:
    return load_command_line(["--config=iql_am", "--am_hidden_dim=64", *more]).config


def moments(count: int) -> ModelRows:
    """The other moves away from the food (action 1) where it stands above it, else stays."""
    torch.manual_seed(0)
    state = torch.rand(count, 6)
    seats = torch.arange(count) % 2
    columns = torch.tensor([[4, 5], [2, 3]])[seats]
    other = state.gather(1, columns)
    return ModelRows(
        own=state,
        last_action=torch.full((count,), -1),
        others_last=torch.zeros(count, 1, dtype=torch.int64),
        seats=seats,
        state=state,
        others_actions=(other[:, :1] < state[:, :1]).long(),
    )


@pytest.mark.long
def test_the_example_learns_where_the_others_stand_and_what_they_do() -> None:
    torch.manual_seed(0)
    model = build_model(settings(f"--am_model={EXAMPLE}"), SPEC)
    given = moments(400)
    # Who is who depends on the seat, which the observation of this game does not tell.
    given = given.take((given.seats == 0).nonzero().squeeze(1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    first = model.loss(given)  # type: ignore[operator]
    for _ in range(200):
        optimiser.zero_grad()
        model.loss(given)["am_loss"].backward()  # type: ignore[operator]
        optimiser.step()
    last = model.loss(given)  # type: ignore[operator]
    assert last["am_where"] < 0.1 * first["am_where"]
    assert last["am_accuracy"] > 0.95
    assert last["am_accuracy"] > first["am_accuracy"] + 0.1


def test_am_args_are_the_models_own_arguments() -> None:
    kind = importlib.import_module("my_opponent_model").WhereAndWhat
    chosen = ["--am_args.embed_dim=3", "--am_args.action_weight=0"]
    model = build_model(settings(f"--am_model={EXAMPLE}", *chosen), SPEC)
    assert isinstance(model, kind)
    assert model.feature_dim == 3
    assert model.feature(moments(5)).shape == (5, 3)
    terms = model.loss(moments(5))
    assert torch.equal(terms["am_loss"], terms["am_where"])


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ([f"--am_model={EXAMPLE}", "--am_args.width=3"], "does not take am_args.width. It takes: "),
        ([f"--am_model={EXAMPLE}", "--am_args.spec=3"], "am_args.spec is set by omg itself"),
        (["--am_model=base_am", "--am_args.width=3"], "base_am does not take .*It takes none"),
    ],
)
def test_an_argument_that_the_model_does_not_take_is_refused(given: list[str], answer: str) -> None:
    with pytest.raises(OmgError, match=answer):
        build_model(settings(*given), SPEC)


HEAD = """
from torch import nn
from omg.modules.opponent_models.base import MemorylessModel
class Model(MemorylessModel):
"""
INIT = "    def __init__(self, *, spec, own_dim, config):\n        super().__init__()\n"
FEATURE = "    def feature(self, rows):\n        return rows.own.new_zeros(len(rows.own), 1)\n"


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (INIT + FEATURE, "has no feature_dim"),
        (INIT + "        self.feature_dim = 1\n" + FEATURE, ""),
        (INIT.replace(", config", "") + "        self.feature_dim = 1\n" + FEATURE, ""),
        (INIT.replace(", *, spec, own_dim, config", "") + FEATURE, "has no feature_dim"),
        ("    feature_dim = 1\n" + FEATURE, ""),
        (
            INIT + "        self.feature_dim = 1\n        self.body = nn.Linear(2, 2)\n" + FEATURE,
            r"would not save body.weight, body.bias. Return .* from files\(\)",
        ),
        (
            INIT
            + "        self.feature_dim = 1\n        self.body = nn.Linear(2, 2)\n"
            + "    def files(self):\n        return {'agent': self}\n"
            + FEATURE,
            "a file called 'agent', which is the policy's",
        ),
        (
            INIT
            + "        self.feature_dim = 1\n        self.body = nn.Linear(2, 2)\n"
            + "    def files(self):\n        return {'body': self}\n"
            + FEATURE,
            r"has weights and no loss .* Define loss\(rows\)",
        ),
        (
            INIT.replace("config)", "config, steps)") + "        self.feature_dim = 1\n" + FEATURE,
            "needs am_args.steps",
        ),
    ],
)
def test_a_model_that_could_not_be_used_or_saved_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, answer: str
) -> None:
    name = write_module(tmp_path, monkeypatch, HEAD + body)
    config = settings(f"--am_model={name}:Model")
    if not answer:
        assert build_model(config, SPEC).feature_dim == 1
        return
    with pytest.raises(OmgError, match=answer):
        build_model(config, SPEC)


@pytest.mark.long
def test_the_example_trains_saves_resumes_exactly_and_is_evaluated(
    pool: Path, tmp_path: Path
) -> None:
    whole = train(words(pool, tmp_path, "--run_name=whole")).folder
    train(words(pool, tmp_path, "--run_name=half", "--t_max=300"))
    half = train(words(pool, tmp_path, "--run_name=half", "--resume", "--t_max=500")).folder
    for name in ("agent", "where_and_what"):
        mine, theirs = (
            load_tensors(folder / "models" / "last" / "iql_am" / f"{name}.th")
            for folder in (whole, half)
        )
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    records = list(read_metrics(whole / "metrics.jsonl"))
    assert any("am_where" in record and "am_what" in record for record in records)
    meta = json.loads((whole / "models" / "last" / "meta.json").read_text(encoding="utf-8"))
    assert meta["policy"]["am_model"] == EXAMPLE
    assert meta["policy"]["am_args"] == {"embed_dim": 6}

    table = run_crossplay([whole], str(pool), CrossplayPlan(splits=("heldout",), episodes=4))
    assert [cell.opponent for cell in table.cells if cell.lineup == "homologue"] == [
        "script-highest_level-0"
    ]

    opponents = OpponentPool.create(tmp_path / "pool")
    (member,) = opponents.add_run(whole)
    assert list(member.model) == ["where_and_what"]
    beside = [*SMALL, "--config=iql_am", f"--opponent_pool={opponents.path}", *TASK]
    rollout = make_rollout(beside)
    episodes = [finished.episodes for finished in collect(rollout, 30)]
    enough = sum(int(batch.lengths.sum()) for batch in episodes) // 2
    assert_acts_as({0: original(whole, rollout.env.spec)}, episodes, least=enough)

    again = words(pool, tmp_path, "--evaluate", f"--checkpoint_path={whole}")
    assert "test_return_mean" in train(again).metrics
    other = [word.replace("embed_dim=6", "embed_dim=5") for word in again]
    with pytest.raises(
        OmgError, match=r"am_args=\{'embed_dim': 6\} there, \{'embed_dim': 5\} here"
    ):
        train(other)
