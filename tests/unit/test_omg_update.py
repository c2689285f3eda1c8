"""An OMG update shares work between its parts; sharing it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from omg.learners.base import Progress
from omg.learners.omg_learner import OMGLearner
from omg.opponents.pool import OpponentPool

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout


@pytest.mark.parametrize("env_steps", [0, 10**6], ids=["mixed", "annealed"])
@pytest.mark.parametrize("policy", ["rnn", "mlp", "idv_rnn"])
def test_an_update_equals_one_that_unrolls_anew_for_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, env_steps: int
) -> None:
    OpponentPool.create(tmp_path / "pool").add_script("nearest_food")
    words = [*SMALL, "--config=iql_omg", f"--policy_model={policy}", "--am_hidden_dim=32"]
    words += [f"--opponent_pool={tmp_path / 'pool'}", *TASK]
    weights: list[dict[str, torch.Tensor]] = []
    unrolled = []
    for anew in (False, True):
        rollout = make_rollout(words)
        mac: Any = rollout.mac
        learner = OMGLearner(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)
        calls = []
        unroll, targets, select = learner._unroll, learner.subgoal_targets, learner.select
        monkeypatch.setattr(learner, "_unroll", lambda *a, c=calls, u=unroll: c.append(1) or u(*a))
        if anew:
            monkeypatch.setattr(learner, "subgoal_targets", lambda u, s, played, t=targets: t(u, s))
            monkeypatch.setattr(learner, "select", lambda u, i, p, played, s=select: s(u, i, p))
        batch = max((f.episodes for f in collect(rollout, 30)), key=len)
        for update in range(3):
            learner.train(batch, Progress(env_steps, update, update))
        weights.append(mac.policy.network.state_dict())
        unrolled.append(len(calls))
    assert unrolled[0] < unrolled[1] or env_steps == 0
    for key, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][key], atol=1e-5, rtol=1e-4)
