"""`qtran_learner`: QTRAN-base (Son et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.functional.packing import Packing
from omg.functional.td import UNAVAILABLE, gather_actions, td_targets
from omg.learners.base import Metrics, Progress
from omg.learners.capabilities import Capabilities
from omg.learners.q_learner import QLearner
from omg.modules.mixers import MIXERS
from omg.modules.mixers.qtran import QtranBase
from omg.types import EnvSpec, OmgError


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


class QtranLearner(QLearner):
    """Minimises L_td + opt_loss · L_opt + nopt_min_loss · L_nopt, means over transitions, with
    Q'_jt = Σ_n Q_n + V(s) and ā the agents' greedy joint action. Q_jt is fixed in the last two."""

    able = Capabilities(outputs="q", reward="team", macs=("basic_mac",), mixers="required")
    mixer: QtranBase
    _target_mixer: QtranBase

    def _new_mixer(self, config: Config, spec: EnvSpec, device: torch.device) -> QtranBase:
        kind = MIXERS[str(config.mixer)]
        if not issubclass(kind, QtranBase):
            raise OmgError(
                f"learner={config.learner} learns the joint value of mixer=qtran_base, and "
                f"mixer={config.mixer} has none. Set mixer=qtran_base, or learner=q_learner."
            )
        return kind(
            n_agents=spec.n_agents,
            state_dim=spec.state_dim,
            embed_dim=config.mixing_embed_dim,
            n_actions=spec.n_actions,
            feature_dim=self._policy.network.carry_dim or self._policy.inputs.dim,
            arch=config.qtran_arch,
        ).to(device)

    @staticmethod
    def _remembered(inputs: Tensor, hidden: Tensor) -> Tensor:
        """What the joint value sees of the agents, [P, N, F]: their hidden states, or their inputs
        where the network keeps none."""
        return hidden if hidden.shape[-1] else inputs

    def targets(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        inputs: Tensor,
        online_q: Tensor,
        seats: Tensor | None = None,
    ) -> Tensor:
        """r_t + γ (1 - d_t) Q'_jt(s_{t+1}, ā_{t+1}) with target networks, [K, 1]. The agents that
        choose ā are the online ones with double_q."""
        following = packing.next
        with torch.no_grad():
            q, hidden = self._policy.unroll_states(inputs, packing, self._target_network, seats)
            choosing = online_q if self._config.double_q else q
            avail = packing.take(batch.raw("avail_actions"), following)
            next_values = self._target_mixer.joint(
                self._state(batch, packing, following),
                self._remembered(inputs, hidden)[following],
                _greedy(choosing[following], avail),
            )
            return td_targets(
                packing.take(batch["reward"], packing.now),
                packing.take(batch.raw("terminated"), packing.now),
                next_values,
                gamma=self._config.gamma,
            )

    def errors(self, batch: EpisodeBatch) -> QtranErrors:
        """What is squared, of all K transitions at once."""
        batch, seats = self._own_part(batch)
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        now = packing.now
        inputs = self._policy.build_inputs(batch, packing, seats)
        q, hidden = self._policy.unroll_states(inputs, packing, seats=seats)
        features = self._remembered(inputs, hidden)[now]
        state = self._state(batch, packing, now)
        actions = packing.take(batch["actions"], now)
        greedy = _greedy(q[now], packing.take(batch.raw("avail_actions"), now))
        taken = self.mixer.joint(state, features, actions)
        with torch.no_grad():
            best = self.mixer.joint(state, features, greedy)
        targets = self.targets(batch, packing, inputs, q, seats)
        short = self.mixer(gather_actions(q[now], actions), state) - taken.detach()
        return QtranErrors(
            td=taken - targets,
            opt=self.mixer(gather_actions(q[now], greedy), state) - best,
            nopt=short.clamp(max=0),
            taken=taken,
            targets=targets,
        )

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
            "grad_norm": self._minimise(loss, progress),
            "td_error_abs": errors.td.detach().abs().mean(),
            "q_taken_mean": errors.taken.detach().mean(),
            "target_mean": errors.targets.mean(),
        }
