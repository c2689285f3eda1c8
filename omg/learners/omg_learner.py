"""`omg_learner`: Q-learning of the learning agent together with the subgoal inference (CVAE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import SEAT, learning_agent_part
from omg.components.schedules import DecayThenFlat
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.functional.subgoals import (
    max_over_available,
    mean_over_available,
    select_subgoal,
)
from omg.functional.td import gather_actions, next_action_values, td_targets
from omg.learners.base import Metrics, Progress, load_optimiser
from omg.learners.q_learner import QLearner
from omg.modules.agents import AgentNetwork
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, OmgError


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
    mac_name = "multi_module_mac"
    learns_one_seat = True

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        assert isinstance(mac, MultiModuleMAC)
        if not isinstance(mac.model, SubgoalModel):
            raise OmgError(
                f"learner=omg_learner needs am_model=omg_am, not {config.am_model}. "
                "Use --config=iql_omg."
            )
        self._team, self._model = mac, mac.model
        self._model.vae.requires_grad_(False)
        self._model_optimiser = torch.optim.Adam(
            self._model.inference_parameters(), lr=config.am_lr
        )
        self._mix = DecayThenFlat(
            start=config.subgoal_epsilon_start,
            finish=config.subgoal_epsilon_finish,
            time_length=config.subgoal_epsilon_anneal_time,
        )
        self._generator = torch.Generator().manual_seed(config.seed)
        self._value = mean_over_available if config.subgoal_value == "mean" else max_over_available

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        part, seats = learning_agent_part(batch)
        packing = Packing.of(part.filled, part.raw("terminated"))
        rows = self._team.rows.stored(batch, packing)
        plain = self._policy.build_inputs(part, packing, seats)
        update = _Update(part, packing, rows, plain)
        now = packing.now

        mean, log_var, condition = self._model.posterior(rows, packing)
        inferred = self._model.inferred(mean, log_var, self._generator)
        epsilon = self._mix(progress.env_steps)
        # With ĝ at every step, what is learned from is what the candidates start from.
        played = self._unroll(update, inferred.detach()) if epsilon == 0.0 else None
        with torch.no_grad():
            encoded = self._model.source(rows.state, rows.seats)
            prior_mean, prior_log_var = self._model.vae.encode(encoded)
            prior = self._model.draw(prior_mean, prior_log_var, self._generator)
            chosen, steps_ahead = self.select(update, inferred.detach(), prior, played)

        terms = self._model.loss(
            rows.take(now),
            (_at(mean, now), _at(log_var, now), _at(condition, now)),
            _at(inferred, now),
            (_at(prior_mean, chosen), _at(prior_log_var, chosen)),
            self._config.am_kl_weight,
        )
        self._model_optimiser.zero_grad()
        terms["am_loss"].backward()  # type: ignore[no-untyped-call]
        self._model_optimiser.step()

        subgoal = inferred.detach().clone()
        take_prior = torch.rand(len(now), generator=self._generator).to(mean.device) <= epsilon
        if epsilon > 0:
            subgoal[now] = torch.where(take_prior.unsqueeze(1), prior[chosen], subgoal[now])
        metrics = self._descend(*self.subgoal_targets(update, subgoal, played), progress)
        shares = {
            f"subgoal_k{k + 1}": (steps_ahead == k).to(torch.float32).mean()
            for k in range(self._config.subgoal_horizon)
        }
        return {
            **metrics,
            **shares,
            **{name: term.detach() for name, term in terms.items()},
            "am_posterior_std": torch.exp(0.5 * log_var.detach()).mean(),
            "am_active_dims": self._active_dims(mean.detach()),
            "subgoal_epsilon": torch.tensor(epsilon),
        }

    @staticmethod
    def _active_dims(mean: Tensor) -> Tensor:
        """Share of subgoal dimensions whose mean really varies: near zero is a collapse."""
        variance = (mean - mean.mean(0)).square().mean(0)
        return (variance > 0.01).to(torch.float32).mean()

    @staticmethod
    def _step(
        network: AgentNetwork, inputs_R1I: Tensor, hidden_RH: Tensor, seats_R: Tensor
    ) -> Tensor:
        outputs, _ = network.step(inputs_R1I.squeeze(1), hidden_RH, seats_R)
        return outputs

    def _fed(self, update: _Update, slots: Tensor, subgoal: Tensor) -> Tensor:
        """Inputs at some slots with the features of given subgoals, [K, 1, I]."""
        feature = self._model.features(subgoal, update.rows.take(slots))
        return torch.cat([update.plain[slots], feature.unsqueeze(1)], -1)

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
        packing, config = update.packing, self._config
        slots, exists = packing.future(packing.now, config.subgoal_horizon)
        by_value = config.subgoal_mode in ("optimistic", "conservative")
        ahead = select_subgoal(
            self._candidate_values(update, inferred, prior, slots, played) if by_value else exists,
            exists,
            mode=config.subgoal_mode,
            fixed_k=config.subgoal_fixed_k,
            generator=self._generator,
        )
        return slots.gather(1, ahead.unsqueeze(1)).squeeze(1), ahead

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
        repeated, chosen = now.repeat_interleave(horizon), slots.flatten()
        decoded = self._model.decoded(prior)
        features = self._model.features(
            _at(prior, chosen),
            update.rows.take(repeated),
            None if decoded is None else _at(decoded, chosen),
        )
        q = network.variants(
            _at(update.plain, now).squeeze(1),
            features.view(len(now), horizon, -1),
            before,
            update.rows.seats[now],
        )
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
        return {"policy": super().optimiser_state(), "am": self._model_optimiser.state_dict()}

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        super().load_optimiser_state(state["policy"])
        load_optimiser(self._model_optimiser, state["am"])

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "am": self._model_optimiser.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._model_optimiser.load_state_dict(state["am"])
        self._generator.set_state(state["generator"])
