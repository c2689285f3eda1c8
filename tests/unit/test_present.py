"""`am_present` beyond the policy: critics, members of pools and older checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from omg.cli.train import train
from omg.components.trajectories import SEAT
from omg.learners.base import Progress
from omg.learners.ppo_learner import PPOLearner
from omg.opponents.pool import OpponentPool
from omg.storage.models import check_meta, load_networks
from omg.types import OmgError

from .test_liam import features, played, pool, team_of, words  # noqa: F401 - pool is a fixture
from .test_mixed_teams import CPU, collect, make_rollout
from .test_storage import META, save


def test_the_critic_of_the_agents_view_sees_the_present_too(pool: Path) -> None:  # noqa: F811
    control = team_of(make_rollout(words(pool, "--am_model=control_am")))
    ppo = ["--config=ppo", "--am_present=True"]
    plain = [word for word in words(pool) if word != "--config=iql_am"]
    rollout = make_rollout([*ppo, *plain])
    team, episodes = team_of(rollout), played(rollout)
    learner = PPOLearner(config=team._config, spec=rollout.env.spec, mac=team, device=CPU)
    inputs = learner.experience(episodes, Progress(0, 0, 0))[0].critic_inputs
    assert torch.equal(inputs[:, 0, -6:], features(control, episodes))
    assert torch.equal(inputs, team.policy.inputs.packed(episodes))


@pytest.mark.long
@pytest.mark.parametrize("model", ["none_am", "liam_am"])
def test_a_member_that_is_fed_the_present_plays_as_it_did_when_it_learned(
    pool: Path,  # noqa: F811
    tmp_path: Path,
    model: str,
) -> None:
    given = (f"--am_model={model}", "--am_present=True")
    train(words(pool, *given, f"--local_results_path={tmp_path}", "--run_name=run"))
    OpponentPool.create(tmp_path / "pool").add_run(tmp_path / "run")
    agent = team_of(make_rollout(words(pool, *given)))
    load_networks(tmp_path / "run" / "models" / "last", agent.networks())
    rollout = make_rollout(words(tmp_path / "pool", "--am_model=none_am"))
    met = set()
    for finished in collect(rollout, 40):
        episodes = finished.episodes
        for seat in range(3):
            seen = episodes.copy()
            seen.raw(SEAT)[:] = seat
            own = agent.trajectories(seen)
            with torch.no_grad():
                inputs = agent.policy.inputs.packed(own, features(agent, own).unsqueeze(1))
                q = agent.policy.unroll(inputs, own)[own.packing.now]
            best = q.masked_fill(~own.now("avail_actions"), -torch.inf).argmax(-1)
            member = (episodes[SEAT] != seat)[own.packing.episode[own.packing.now]]
            assert torch.equal(best[member], own.now("actions")[member])
            met |= {seat} if bool(member.any()) else set()
    assert met == {0, 1, 2}


def test_weights_from_before_the_setting_existed_count_as_trained_without(tmp_path: Path) -> None:
    save(tmp_path / "5")
    old = {**META, "policy": {**META["policy"], "am_present": False}}
    check_meta(tmp_path / "5", old)
    new = {**META, "policy": {**META["policy"], "am_present": True}}
    with pytest.raises(OmgError, match="am_present"):
        check_meta(tmp_path / "5", new)
