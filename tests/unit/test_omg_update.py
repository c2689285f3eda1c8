"""An OMG update shares work between its parts and seats; sharing it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from omg.components.trajectories import Trajectories, seats_part
from omg.learners.base import Progress
from omg.learners.ppo_learner import OMGPPOLearner
from omg.learners.q_learner import OMGLearner, Update
from omg.opponents.pool import OpponentPool

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout


@pytest.mark.long
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
    unroll = Update.unroll
    for anew in (False, True):
        rollout = make_rollout(words)
        mac: Any = rollout.mac
        learner = OMGLearner(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)
        calls: list[Any] = []
        states = mac.policy.unroll_states
        monkeypatch.setattr(
            mac.policy, "unroll_states", lambda *a, c=calls, s=states: c.append(a) or s(*a)
        )
        if anew:
            monkeypatch.setattr(Update, "unroll", lambda u, feature, keep=False: unroll(u, feature))
        batch = max((f.episodes for f in collect(rollout, 30)), key=len)
        for update in range(3):
            learner.train(batch, Progress(env_steps, update, update))
        weights.append(mac.policy.network.state_dict())
        unrolled.append(len(calls))
    # With ĝ at every step, what is learned from is what the candidates start from.
    shared = 3 if env_steps and policy != "mlp" else 0
    assert unrolled[1] - unrolled[0] == shared
    for key, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][key], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("alg", "policy", "words"),
    [
        ("iql_omg", "rnn", ("--subgoal_target=same", "--subgoal_feature=both")),
        ("iql_omg", "idv_rnn", ("--subgoal_target=same", "--subgoal_feature=latent")),
        ("iql_omg", "mlp", ("--subgoal_target=next", "--subgoal_feature=decoded")),
        ("ppo_omg", "rnn", ("--critic=ac", "--subgoal_feature=both")),
        ("ppo_omg", "mlp", ("--critic=cv", "--subgoal_feature=latent")),
    ],
)
@torch.no_grad()
def test_where_every_seat_learns_each_is_taught_what_it_would_be_alone(
    alg: str, policy: str, words: tuple[str, ...]
) -> None:
    small = ["--am_hidden_dim=32", "--subgoal_dim=8", "--subgoal_horizon=3", "--subgoal_fixed_k=2"]
    small += [f"--config={alg}", f"--policy_model={policy}", "--subgoal_posterior=mean"]
    rollout = make_rollout([*SMALL, *small, *words, *TASK])
    mac: Any = rollout.mac
    kind = OMGLearner if alg == "iql_omg" else OMGPPOLearner
    learner: Any = kind(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)
    batch = max((f.episodes for f in collect(rollout, 30)), key=len)

    def taught(played: Trajectories) -> tuple[Any, list[torch.Tensor]]:
        """The lesson, and all of it that has a value for every learning seat, [..., n, F]."""
        update, annealed = Update(mac.policy, played), Progress(10**7, 0, 0)
        if kind is OMGPPOLearner:
            lesson = learner._model.prepare(
                played, annealed, lambda asked: learner._alternatives(played, asked)
            )
            return lesson, [lesson.feature]
        lesson = learner._model.prepare(
            played, annealed, lambda asked: learner._values(update, asked)
        )
        targets = learner.targets(update, update.unroll(lesson.feature), lesson).unsqueeze(-1)
        return lesson, [lesson.feature, targets, *([] if lesson.ahead is None else [lesson.ahead])]

    together, values = taught(mac.trajectories(batch))
    for seat in range(3):
        alone, expected = taught(Trajectories.of(batch, *seats_part(batch, [seat])))
        for all_seats, own in zip(values, expected, strict=True):
            torch.testing.assert_close(all_seats[:, [seat]], own, atol=1e-5, rtol=1e-4)
        assert torch.equal(together.steps_ahead.view(-1, 3)[:, seat], alone.steps_ahead)
        assert torch.equal(together.chosen.view(-1, 3)[:, seat], 3 * alone.chosen + seat)
