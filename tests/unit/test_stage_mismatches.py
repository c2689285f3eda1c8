"""What one stage made must fit the next: prior, opponents of a team, pool members, checkpoints and
continued runs of other settings are refused in one sentence that names both sides and the remedy.

| made with other | prior | team's others | pool members | checkpoint_path | resume |
|---|---|---|---|---|---|
| `obs_is_state` | refused | fed as trained | fed as trained | refused | refused |
| meaning of observations | refused | refused | refused | refused | refused (`env_args`) |
| shapes | refused | refused | refused | refused | refused (`env_args`) |
| environment | refused | refused | refused | refused | refused |
| algorithm | refused | - | - | refused | refused |
| subgoals' sizes and source | refused | as trained | as trained | refused | refused |

Adding members that do not fit each other to one pool: test_pool.py. Others that play as trained
beside an agent of other settings: test_mixed_teams.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from omg.cli.train import train
from omg.config.loader import load_command_line
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.envs.registry import make_batched
from omg.envs.vector import SerialVectorEnv
from omg.opponents.players import StackedGroup
from omg.opponents.pool import OpponentPool
from omg.storage.files import load_tensors
from omg.storage.models import check_meta
from omg.storage.sums import write_sums
from omg.types import OmgError
from tests.unit.single_copy import SingleCopyEnv

from .test_mixed_teams import CPU, KEY, SMALL, TASK, collect, make_rollout, unrolled

SUBGOALS = ["--config=iql_omg", "--subgoal_dim=7", "--am_hidden_dim=36", "--prior_min_accuracy=0"]
SHORT = [*SMALL, "--t_max=40", "--test_nepisode=1"]
RELATIVE = "--env_args.relative_obs=True"
TEAM = [
    *("--config=2iql1iql_am", "--multi_algs", "--train_alg=iql_am", "--mac=multi_module_mac"),
    "--learner=q_learner_4am",
]


class Stages:
    """A folder in which every stage has left something, all with the same settings."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pool = root / "pool"
        OpponentPool.create(self.pool).add_script("nearest_food")
        self.iql = self.run("--config=iql", "--run_name=iql")
        self.state = self.run("--config=iql", "--run_name=state", "--obs_is_state")
        self.qmix = self.run("--config=qmix", "--run_name=qmix")
        self.prior = self.run(*self.omg, "--learner=am_learner", "--run_name=prior")
        self.agent = self.run(*self.omg, f"--init_param_path={self.prior}", "--run_name=agent")

    @property
    def omg(self) -> list[str]:
        return [*SUBGOALS, f"--opponent_pool={self.pool}"]

    def run(self, *words: str) -> Path:
        common = [*SHORT, f"--local_results_path={self.root}"]
        return Path(train([*common, *words, *TASK]).folder)

    def refused(self, *words: str) -> str:
        """What is said instead of running; nothing new is left behind."""
        before = set(self.root.rglob("*"))
        with pytest.raises(OmgError) as caught:
            self.run(*words)
        assert caught.value.exit_code == 2
        text = str(caught.value)
        assert "\n" not in text
        assert set(self.root.rglob("*")) == before
        return text


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("stages"))


SETTINGS = [
    ("--obs_is_state", "obs_is_state=False there, True here", "obs_is_state=False"),
    ("--subgoal_dim=9", "subgoal_dim=7 there, 9 here", "subgoal_dim=7"),
    ("--am_hidden_dim=40", "am_hidden_dim=36 there, 40 here", "am_hidden_dim=36"),
    ("--subgoal_source=opponents", "subgoal_source=state there, opponents", "subgoal_source=state"),
    ("--scale_inputs=False", "scale_inputs=True there, False here", "scale_inputs=True"),
]
GAMES = [
    (RELATIVE, "relative_obs=False there, relative_obs=True here"),
    ("--env_args.sight=2", "sight=all there, sight=2 here"),
    ("--env_args.max_num_food=3", "obs_dim=15 there, 18 here; state_dim=15 there, 18 here"),
]


# --- prior -> agent, checkpoint_path -----------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("word", "told", "remedy"), SETTINGS)
@pytest.mark.parametrize("stage", ["prior", "agent"])
def test_other_settings_are_named_with_the_checkpoint_and_the_remedy(
    stages: Stages, stage: str, word: str, told: str, remedy: str
) -> None:
    made: Path = getattr(stages, stage)
    key = "init_param_path" if stage == "prior" else "checkpoint_path"
    text = stages.refused(*stages.omg, f"--{key}={made}", word)
    assert text.startswith(f"{made}/models/")
    assert f"does not fit this run: {told}" in text
    assert f"Run with the settings it was trained with ({remedy}), or load another." in text


@pytest.mark.parametrize(("word", "told"), GAMES)
@pytest.mark.parametrize("stage", ["prior", "agent"])
def test_another_game_is_told_with_the_arguments_it_had(
    stages: Stages, stage: str, word: str, told: str
) -> None:
    made: Path = getattr(stages, stage)
    key = "init_param_path" if stage == "prior" else "checkpoint_path"
    text = stages.refused(*stages.omg, f"--{key}={made}", word)
    assert text.startswith(f"{made}/models/")
    assert told in text
    assert "It was trained with env_args={'key': 'Foraging-6x6-3p-2f-v3'" in text


def test_hidden_agent_levels_are_another_meaning_where_the_widths_agree(stages: Stages) -> None:
    # Three players without levels and three foods are as wide as with levels and two foods.
    hidden = ["--env_args.observe_agent_levels=False", "--env_args.max_num_food=3"]
    text = stages.refused("--config=iql", f"--checkpoint_path={stages.iql}", *hidden)
    assert "observe_agent_levels=True there, observe_agent_levels=False here" in text
    assert "obs_dim" not in text


@pytest.mark.long
def test_a_prior_of_other_levels_is_used_and_noted(
    stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*stages.omg, f"--init_param_path={stages.prior}", "--env_args.max_player_level=3"]
    stages.run(*words, "--quiet=False", "--run_name=noted")
    assert "the prior was trained with env_args={'key'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--config=qmix"], ["iql/models/", "mixer.th does not exist", "agent.th of iql"]),
        (["--config=iql_idv"], ["policy_model=rnn there, idv_rnn here"]),
        (["--config=iql_am"], ["was trained as iql with mac=basic_mac", "--config=iql,"]),
        (["--config=iql", "--policy_model=mlp"], ["policy_model=rnn there, mlp here"]),
        (["--config=iql", "--dueling"], ["dueling=False there, True here"]),
    ],
)
def test_a_checkpoint_of_another_algorithm_is_explained(
    stages: Stages, words: list[str], told: list[str]
) -> None:
    pool = [f"--opponent_pool={stages.pool}"] if words == ["--config=iql_am"] else []
    text = stages.refused(*words, f"--checkpoint_path={stages.iql}", *pool)
    assert all(part in text for part in told), text


def test_an_optimiser_of_another_algorithm_is_explained(stages: Stages) -> None:
    text = stages.refused("--config=iql", f"--checkpoint_path={stages.qmix}")
    assert "opt.th was written by qmix and does not fit optimizer=adam of iql" in text


def test_a_prior_is_no_agent_and_a_team_is_no_prior(stages: Stages) -> None:
    text = stages.refused(*stages.omg, f"--checkpoint_path={stages.prior}")
    assert "iql_omg/agent.th does not exist" in text
    assert "iql_omg/vae.th of iql_omg (learner=am_learner)" in text
    text = stages.refused(*stages.omg, f"--init_param_path={stages.iql}")
    assert f"init_param_path={stages.iql} holds no prior" in text
    assert "--config=iql_omg --learner=am_learner" in text


def test_a_prior_serves_another_policy_and_one_of_several_is_not_guessed(stages: Stages) -> None:
    mlp = [word.replace("iql_omg", "d3qn_omg") for word in stages.omg]
    run = stages.run(*mlp, f"--init_param_path={stages.prior}", "--run_name=other")
    first = load_tensors(stages.prior / "models/last/iql_omg/vae.th")
    kept = load_tensors(run / "models/last/d3qn_omg/vae.th")
    assert all(torch.equal(first[key], kept[key]) for key in first)
    two = stages.root / "two"
    for name in ("a", "b"):
        shutil.copytree(stages.prior / "models/last/iql_omg", two / name)
    assert "holds no prior" in stages.refused(*mlp, f"--init_param_path={two}")


@pytest.mark.parametrize("feature", ["decoded", "both"])
def test_an_agent_fed_another_part_of_its_subgoals_is_explained(
    stages: Stages, feature: str
) -> None:
    text = stages.refused(
        *stages.omg, f"--checkpoint_path={stages.agent}", f"--subgoal_feature={feature}"
    )
    assert f"subgoal_feature=latent there, {feature} here" in text
    assert "input_dim" not in text


def test_init_param_path_is_the_name_in_errors_about_it(stages: Stages, tmp_path: Path) -> None:
    for words in ([*stages.omg], TEAM):
        text = stages.refused(*words, f"--init_param_path={tmp_path / 'nowhere'}")
        assert f"init_param_path={tmp_path / 'nowhere'}" in text
        (tmp_path / "empty" / "iql").mkdir(parents=True, exist_ok=True)
        text = stages.refused(*words, f"--init_param_path={tmp_path / 'empty'}")
        assert f"init_param_path={tmp_path / 'empty'}" in text
        assert "checkpoint_path" not in text
    text = stages.refused(*TEAM, f"--init_param_path={tmp_path}")
    assert f"init_param_path={tmp_path} has no folder 'iql'" in text
    assert "2iql1iql_am needs the weights of iql" in text


def test_a_scale_that_follows_from_obs_is_state_is_not_held_against_the_environment(
    tmp_path: Path,
) -> None:
    """Observations and states may have different scales."""
    meta = {"env": "x", "shapes": {}, "policy": {"obs_is_state": False, "scale": 0.5}}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(OmgError) as caught:
        check_meta(tmp_path, {**meta, "policy": {"obs_is_state": True, "scale": 0.25}})
    assert "this run: obs_is_state=False there, True here. Run with" in str(caught.value)
    with pytest.raises(
        OmgError, match=r"scale=0\.5 there, 0\.25 here\. It was trained with env_args"
    ):
        check_meta(tmp_path, {**meta, "policy": {"obs_is_state": False, "scale": 0.25}})


# --- opponents ---------------------------------------------------------------------------------


def test_a_teams_others_that_saw_something_else_are_refused(stages: Stages) -> None:
    text = stages.refused(*TEAM, f"--init_param_path={stages.root}", RELATIVE)
    assert text.startswith(f"{stages.iql}/models/")
    assert "relative_obs=False there, relative_obs=True here" in text
    assert "Use the env_args it was trained with" in text


def test_pool_members_that_saw_something_else_are_refused(stages: Stages, tmp_path: Path) -> None:
    OpponentPool.create(tmp_path / "pool").add_run(stages.iql)
    text = stages.refused("--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}", RELATIVE)
    assert text.startswith(f"{tmp_path / 'pool'}: member iql-40 ")
    assert "relative_obs=False there, relative_obs=True here" in text


def edited(run: Path, to: Path, **changes: Any) -> Path:
    """A copy of a run whose meta.json says something else; None: does not say it."""
    shutil.copytree(run, to)
    for path in to.glob("models/*/meta.json"):
        meta = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in meta.items() if v is not None}))
        write_sums(path.parent)
    return to


def test_opponents_of_another_environment_are_refused(stages: Stages, tmp_path: Path) -> None:
    run = edited(stages.iql, tmp_path / "iql", env="matrix")
    text = stages.refused(*TEAM, f"--init_param_path={tmp_path}")
    assert f"{run}/models/40 plays env=matrix, this run uses env=foraging" in text
    OpponentPool.create(tmp_path / "pool").add_run(run)
    text = stages.refused("--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}")
    assert "member iql-40 plays env=matrix" in text
    text = stages.refused("--config=iql", f"--checkpoint_path={run}")
    assert f"{run}/models/40 was trained on env=matrix" in text


@pytest.mark.long
def test_files_that_do_not_tell_what_their_observations_mean_are_taken(
    stages: Stages, tmp_path: Path
) -> None:
    policy = json.loads((stages.iql / "models" / "last" / "meta.json").read_text())["policy"]
    assert policy.pop("obs_format") == "sight=all, observe_agent_levels=True, relative_obs=False"
    run = edited(stages.iql, tmp_path / "iql", policy=policy)
    stages.run("--config=iql", f"--checkpoint_path={run}", RELATIVE)
    stages.run(*TEAM, f"--init_param_path={tmp_path}", RELATIVE)
    OpponentPool.create(tmp_path / "pool").add_run(run)
    stages.run("--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}", RELATIVE)


def test_who_sees_the_state_does_not_mind_what_observations_mean(
    stages: Stages, tmp_path: Path
) -> None:
    policy = json.loads((stages.state / "models" / "last" / "meta.json").read_text())["policy"]
    assert "obs_format" not in policy
    stages.run("--config=iql", "--obs_is_state", f"--checkpoint_path={stages.state}", RELATIVE)
    OpponentPool.create(tmp_path / "pool").add_run(stages.state)
    stages.run("--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}", RELATIVE)


def opponents(stages: Stages, tmp_path: Path) -> Iterator[list[str]]:
    """The two ways to meet the run that was fed the state."""
    shutil.copytree(stages.state, tmp_path / "iql")
    yield [*TEAM, f"--init_param_path={tmp_path}"]
    OpponentPool.create(tmp_path / "pool").add_run(stages.state)
    yield ["--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}"]


def test_opponents_that_were_fed_the_state_are_fed_the_state_whatever_the_agent_sees(
    stages: Stages, tmp_path: Path
) -> None:
    """Their own setting travels with their weights, so a different one is no mismatch."""
    spec = make_batched("foraging", KEY, n_copies=1).spec
    config = load_command_line([*SMALL, "--config=iql", "--obs_is_state", *TASK]).config
    alone = BasicMAC(config=config, spec=spec, device=CPU)
    saved = load_tensors(stages.state / "models" / "last" / "agent.th")
    alone.policy.network.load_state_dict(saved)
    for words in opponents(stages, tmp_path):
        rollout = make_rollout([*SMALL, *words, "--obs_is_state=False", *TASK])
        checked = 0
        for finished in collect(rollout, 30):
            batch = finished.episodes
            q = unrolled(alone, batch).masked_fill(~batch["avail_actions"], -torch.inf)
            for row in range(len(batch)):
                steps = int(batch.lengths[row]) - 1
                others = batch["lineup"][row] >= 0
                best = q[row, :steps].argmax(-1)[:, others]
                assert torch.equal(best, batch["actions"][row, :steps][:, others])
                checked += steps
        assert checked > 50


def test_an_agent_that_learned_among_others_plays_as_a_member_beside_teams(
    stages: Stages, tmp_path: Path
) -> None:
    words = ["--config=iql", "--mac=multi_module_mac", "--learner=q_learner_4am", "--mixer=None"]
    words += ["--is_agent_shift", f"--opponent_pool={stages.pool}", "--run_name=learner"]
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(stages.run(*words))
    pool.add_run(stages.iql)
    rollout = make_rollout([*SMALL, "--config=iql_am", f"--opponent_pool={pool.path}", *TASK])
    assert isinstance(rollout.mac, MultiModuleMAC)
    players = rollout.mac.lineup.players
    assert players is not None
    (group,) = players.groups  # equal networks act in one call
    assert isinstance(group, StackedGroup)
    drawn = {m for f in collect(rollout, 30) for m in f.episodes["lineup"].flatten().tolist()}
    assert drawn == {-1, 0, 1}


# --- resume ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--obs_is_state", "obs_is_state=False, not True"),
        (RELATIVE, "'relative_obs': True"),
        ("--subgoal_dim=9", "subgoal_dim=7, not 9"),
        ("--subgoal_source=opponents", "subgoal_source=state, not opponents"),
        ("--am_hidden_dim=40", "am_hidden_dim=36, not 40"),
        ("--learner=am_learner", "learner=omg_learner, not am_learner"),
        (
            "--env=tests.unit.counter_game:CounterEnv",
            "env=foraging, not tests.unit.counter_game:CounterEnv",
        ),
    ],
)
def test_a_run_is_not_continued_with_other_settings(stages: Stages, word: str, told: str) -> None:
    words = [*stages.omg, f"--init_param_path={stages.prior}", "--run_name=agent", "--resume"]
    text = stages.refused(*words, word)
    assert text.startswith(f"{stages.agent} was started with ")
    assert told in text
    assert "alone has all its settings. Leave " in text


# --- what environments say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "sight=all, observe_agent_levels=True, relative_obs=False"),
        ({"sight": 5}, "sight=all, observe_agent_levels=True, relative_obs=False"),
        ({"sight": 4}, "sight=4, observe_agent_levels=True, relative_obs=False"),
        ({"observe_agent_levels": False}, "sight=all, observe_agent_levels=False"),
        ({"relative_obs": True}, "relative_obs=True"),
    ],
)
def test_foraging_says_what_its_observations_mean(args: dict[str, Any], said: str) -> None:
    spec = make_batched("foraging", {**KEY, **args}, n_copies=1).spec
    assert said in spec.obs_format


def test_games_say_it_in_their_env_info_and_may_keep_silent() -> None:
    foraging = make_batched("foraging", KEY, n_copies=1)
    again = SerialVectorEnv(factory=lambda copy: SingleCopyEnv(foraging), n_copies=1)
    assert again.spec.obs_format == foraging.spec.obs_format != ""
    assert make_batched("tests.unit.counter_game:CounterEnv", {}, n_copies=1).spec.obs_format == ""
