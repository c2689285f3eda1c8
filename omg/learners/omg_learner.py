"""`omg_learner`: Q-learning of the learning agent together with the subgoal inference (CVAE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import SEAT, learning_agent_part
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.functional.subgoals import (
    max_over_available,
    mean_over_available,
)
from omg.functional.td import gather_actions, next_action_values, td_targets
from omg.learners.base import Metrics, Progress
from omg.learners.capabilities import Capabilities
from omg.learners.q_learner import QLearner
from omg.learners.subgoal_training import SubgoalTraining
from omg.modules.agents import AgentNetwork
from omg.modules.opponent_models import ModelRows
from omg.types import EnvSpec


@dataclass(frozen=True, slots=True)
class _Update:
    """What one update works on: the learning agent's part of a batch, packed."""

    part: EpisodeBatch
    packing: Packing
    rows: ModelRows
    plain: Tensor  # [P, 1, I - F], inputs without the subgoal's features

    @property
    def seats(self) -> Tensor:
        """Where the agent sat in each episode, [B, 1]."""
        seats: Tensor = self.part[SEAT]
        return seats.unsqueeze(1)


@dataclass(frozen=True, slots=True)
class _Played:
    """Whole episodes through the policy's network with some subgoal at every slot."""

    inputs: Tensor  # [P, 1, I]
    q: Tensor  # [P, 1, A]
    hidden: Tensor  # [P, 1, H], behind every slot


def _at(values: Tensor, slots: Tensor) -> Tensor:
    """values[slots], forwards and backwards in half the time."""
    return values.index_select(0, slots)


class OMGLearner(QLearner):
    """Per update: select a subgoal among the next H states by its value, pull the inference
    towards the prior's encoding of it, and learn Q(s, g, a) with g = ĝ or ḡ (ε-mix)."""

    trains = MultiModuleMAC
    able = Capabilities(outputs="q", macs=("multi_module_mac",))
    learns_one_seat = True
    needs_prior = True

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        assert isinstance(mac, MultiModuleMAC)
        self._team = mac
        self._subgoals = SubgoalTraining(config, mac)
        self._model = self._subgoals.model
        self._value = mean_over_available if config.subgoal_value == "mean" else max_over_available

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        part, seats = learning_agent_part(batch)
        packing = Packing.of(part.filled, part.raw("terminated"))
        rows = self._team.rows.stored(batch, packing)
        plain = self._policy.build_inputs(part, packing, seats)
        update = _Update(part, packing, rows, plain)

        found = self._subgoals.infer(rows, packing)
        inferred, prior = found.inferred.detach(), found.prior
        epsilon = self._subgoals.epsilon(progress.env_steps)
        # With ĝ at every step, what is learned from is what the candidates start from.
        played = self._unroll(update, inferred) if epsilon == 0.0 else None
        chosen, steps_ahead = self.select(update, inferred, prior, played)
        model_metrics = self._subgoals.learn(found, chosen, steps_ahead)
        subgoal = self._subgoals.mixed(found, chosen, epsilon)
        metrics = self._descend(*self.subgoal_targets(update, subgoal, played), progress)
        return {**metrics, **model_metrics, "subgoal_epsilon": torch.tensor(epsilon)}

    @staticmethod
    def _step(
        network: AgentNetwork, inputs_R1I: Tensor, hidden_RH: Tensor, seats_R: Tensor
    ) -> Tensor:
        outputs, _ = network.step(inputs_R1I.squeeze(1), hidden_RH, seats_R)
        return outputs

    def _fed(self, update: _Update, slots: Tensor, subgoal: Tensor) -> Tensor:
        """Inputs at some slots with the features of given subgoals, [K, 1, I]."""
        model = self._model
        rows = update.rows if model.feeds_subgoals else update.rows.take(slots)
        feature = model.features(subgoal, rows)
        return torch.cat([_at(update.plain, slots), feature.unsqueeze(1)], -1)

    def _unroll(self, update: _Update, subgoal: Tensor) -> _Played:
        """The policy's network over whole episodes with a subgoal [P, G] at every slot."""
        feature = self._model.features(subgoal, update.rows)
        inputs = torch.cat([update.plain, feature.unsqueeze(1)], -1)
        q, hidden = self._policy.unroll_states(inputs, update.packing, seats=update.seats)
        return _Played(inputs, q, hidden)

    def select(
        self, update: _Update, inferred: Tensor, prior: Tensor, played: _Played | None = None
    ) -> tuple[Tensor, Tensor]:
        """The slot whose state is the subgoal of every transition, and how many steps ahead it
        lies (0-based). All candidates of all steps are one batched step of the network from the
        hidden states that acting with ĝ would have had (`played`, if that is known already)."""
        with torch.no_grad():
            return self._subgoals.select(
                update.packing,
                lambda slots: self._candidate_values(update, inferred, prior, slots, played),
            )

    def _candidate_values(
        self,
        update: _Update,
        inferred: Tensor,
        prior: Tensor,
        slots: Tensor,
        played: _Played | None,
    ) -> Tensor:
        """V(s_t, g_k) of every transition and candidate slot, [K, H]."""
        packing, network = update.packing, self._policy.network
        now, horizon = packing.now, slots.shape[1]
        before = inferred.new_zeros(len(now), network.carry_dim)
        if network.carry_dim:
            hidden = (played or self._unroll(update, inferred)).hidden
            before = _at(packing.previous(hidden.squeeze(1)), now)
        shared, seats = _at(update.plain, now).squeeze(1), update.rows.seats[now]
        if self._model.feeds_subgoals:
            q = network.variants_of(shared, prior, slots, before, seats)
        else:
            repeated, chosen = now.repeat_interleave(horizon), slots.flatten()
            decoded = self._model.decoded(prior)
            features = self._model.features(
                _at(prior, chosen),
                update.rows.take(repeated),
                None if decoded is None else _at(decoded, chosen),
            )
            q = network.variants(shared, features.view(len(now), horizon, -1), before, seats)
        return self._value(q, packing.take(update.part.raw("avail_actions"), now))

    def subgoal_targets(
        self, update: _Update, subgoal: Tensor, played: _Played | None = None
    ) -> tuple[Tensor, Tensor]:
        """Q of the taken actions [K, 1] and r + γ (1-d) V'(s_{t+1}, g): with the same subgoal g_t
        one more step from the hidden state behind t, with the next one the unroll itself."""
        packing, part, config = update.packing, update.part, self._config
        now, following = packing.now, packing.next
        played = played or self._unroll(update, subgoal)
        q, hidden = played.q, played.hidden
        taken = gather_actions(_at(q, now), packing.take(part["actions"], now))
        with torch.no_grad():
            target_q, target_hidden = self._policy.unroll_states(
                played.inputs, packing, self._target_network, update.seats
            )
            if config.subgoal_target == "next":
                online_next, target_next = q[following], target_q[following]
            else:
                ahead = self._fed(update, following, _at(subgoal, now))
                at = update.rows.seats[following]
                online_next, target_next = (
                    self._step(network, ahead, _at(states, now).squeeze(1), at).unsqueeze(1)
                    for network, states in (
                        (self._policy.network, hidden),
                        (self._target_network, target_hidden),
                    )
                )
            next_values = next_action_values(
                online_next,
                target_next,
                packing.take(part.raw("avail_actions"), following),
                double=config.double_q,
            )
            targets = td_targets(
                packing.take(part["reward"], now),
                packing.take(part.raw("terminated"), now),
                next_values,
                gamma=config.gamma,
            )
        return taken, targets

    def optimiser_state(self) -> dict[str, Any]:
        return {"policy": super().optimiser_state(), "am": self._subgoals.optimiser_state()}

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        super().load_optimiser_state(state["policy"])
        self._subgoals.load_optimiser_state(state["am"])

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **self._subgoals.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._subgoals.load_state_dict(state)
