"""`qtran_learner`: QTRAN-base (Son et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch
from omg.functional import UNAVAILABLE, gather_actions
from omg.learners.base import Capabilities, Metrics, Progress
from omg.learners.leaving import acting, of_acting
from omg.learners.model_training import Lesson
from omg.learners.q_learner import QLearner, Unrolled, Update
from omg.modules.mixers import QtranBase


@dataclass(frozen=True, slots=True)
class QtranErrors:
    """What the three losses square, [K, 1] each, and what the first is made of."""

    td: Tensor  # Q_jt(a) - y: the joint value is the value of the game
    opt: Tensor  # Q'_jt(ā) - Q_jt(ā): both agree at the agents' own choice
    nopt: Tensor  # min(0, Q'_jt(a) - Q_jt(a)): the sum nowhere lies below the joint value
    taken: Tensor  # Q_jt(a)
    targets: Tensor  # y

    def losses(self) -> dict[str, Tensor]:
        return {
            "td_loss": self.td.square().mean(),
            "opt_loss": self.opt.square().mean(),
            "nopt_loss": self.nopt.square().mean(),
        }


def _greedy(q: Tensor, avail: Tensor) -> Tensor:
    """Every agent's best available action."""
    return q.detach().masked_fill(~avail, UNAVAILABLE).argmax(-1)


def _remembered(inputs: Tensor, hidden: Tensor) -> Tensor:
    """What the joint value sees of the agents, [P, N, F]: their hidden states, or their inputs
    where the network keeps none."""
    return hidden if hidden.shape[-1] else inputs


class QtranLearner(QLearner):
    """Minimises L_td + opt_loss · L_opt + nopt_min_loss · L_nopt, means over transitions, with
    Q'_jt = Σ_n Q_n + V(s) and ā the agents' greedy joint action. Q_jt is fixed in the last two."""

    able = Capabilities(outputs="q", reward="team", models=False, mixers="required")
    joint_values = True
    mixer: QtranBase
    _target_mixer: QtranBase

    @torch.no_grad()
    def targets(self, update: Update, online: Unrolled, lesson: Lesson) -> Tensor:
        """r_t + γ (1 - d_t) Q'_jt(s_{t+1}, ā_{t+1}) with target networks (q_lambda: λ-returns of
        it), [K, 1]. The agents that choose ā are the online ones with double_q."""
        played, following = update.played, update.played.packing.next
        q, hidden, _ = self._policy.unroll_states(online.inputs, played, self._target_network)
        choosing = online.q if self._config.double_q else q
        next_values = self._target_mixer.joint(
            played.next("state") * self._state_scale,
            _remembered(online.inputs, hidden)[following],
            _greedy(choosing[following], played.next("avail_actions")),
            None if played.alive is None else played.alive[following],
        )
        return self._returns(played, next_values)

    def errors(self, batch: EpisodeBatch) -> QtranErrors:
        """What is squared, of all K transitions at once."""
        update = Update(self._policy, self._mac.trajectories(batch))
        played, now = update.played, update.played.packing.now
        online = update.unroll(None)
        q, features = online.q[now], _remembered(online.inputs, online.hidden)[now]
        state = played.now("state") * self._state_scale
        actions = played.now("actions")
        greedy = _greedy(q, played.now("avail_actions"))
        alive = None if played.alive is None else played.alive[now]
        taken = self.mixer.joint(state, features, actions, alive)
        with torch.no_grad():
            best = self.mixer.joint(state, features, greedy, alive)
        targets = self.targets(update, online, Lesson(played))
        short = self._mixed(self.mixer, gather_actions(q, actions), played.now("state"), alive)
        agreed = self._mixed(self.mixer, gather_actions(q, greedy), played.now("state"), alive)
        found = {
            "td": taken - targets,
            "opt": agreed - best,
            "nopt": (short - taken.detach()).clamp(max=0),
            "taken": taken,
            "targets": targets,
        }
        acted = acting(played, team=True)
        return QtranErrors(**{name: of_acting(part, acted) for name, part in found.items()})

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        errors = self.errors(batch)
        losses = errors.losses()
        loss = (
            losses["td_loss"]
            + self._config.opt_loss * losses["opt_loss"]
            + self._config.nopt_min_loss * losses["nopt_loss"]
        )
        return {
            "loss": loss.detach(),
            **{name: value.detach() for name, value in losses.items()},
            "grad_norm": self.minimise(loss, progress),
            "td_error_abs": errors.td.detach().abs().mean(),
            "q_taken_mean": errors.taken.detach().mean(),
            "target_mean": errors.targets.mean(),
        }
