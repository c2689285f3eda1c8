"""`am_present` beyond the policy: the critic sees it, pools and older checkpoints are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from omg.components.learning_agent import learning_agent_part
from omg.learners.ppo_learner_4am import LearningAgentPPOLearner
from omg.opponents.pool import OpponentPool
from omg.storage.models import check_meta
from omg.types import OmgError

from .test_liam import features, played, pool, team_of, words  # noqa: F401 - pool is a fixture
from .test_mixed_teams import CPU, make_rollout
from .test_pool import make_team_run
from .test_storage import META, save


def test_the_critic_of_the_agents_view_sees_the_present_too(pool: Path) -> None:  # noqa: F811
    control = team_of(make_rollout(words(pool, "--am_model=control_am")))
    ppo = ["--config=ppo", "--am_present=True"]
    plain = [word for word in words(pool) if word != "--config=iql_am"]
    rollout = make_rollout([*ppo, *plain])
    team = team_of(rollout)
    learner = LearningAgentPPOLearner(
        config=team._config, spec=rollout.env.spec, mac=team, device=CPU
    )
    batch, packing = played(rollout)
    part, seats = learning_agent_part(batch)
    inputs = learner.values.critic.inputs(part, packing, seats).squeeze(1)
    assert torch.equal(inputs[:, -6:], features(control, batch, packing))
    assert torch.equal(inputs, team.policy.build_inputs(part, packing, seats).squeeze(1))


def test_a_policy_that_is_fed_the_present_cannot_be_a_member(tmp_path: Path) -> None:
    run = make_team_run(tmp_path, "run", am_model="none_am")
    (path,) = run.glob("models/*/meta.json")
    meta = json.loads(path.read_text())
    meta["policy"]["am_present"] = True
    path.write_text(json.dumps(meta))
    with pytest.raises(OmgError, match="am_present=true"):
        OpponentPool.open_or_new(tmp_path / "pool").add_run(run)


def test_weights_from_before_the_setting_existed_count_as_trained_without(tmp_path: Path) -> None:
    save(tmp_path / "5")
    old = {**META, "policy": {**META["policy"], "am_present": False}}
    check_meta(tmp_path / "5", old)
    new = {**META, "policy": {**META["policy"], "am_present": True}}
    with pytest.raises(OmgError, match="am_present"):
        check_meta(tmp_path / "5", new)
