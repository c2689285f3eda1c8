"""`omg_ppo_learner`: PPO of the learning agent together with the subgoal inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import learning_agent_part
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.learners.base import Metrics
from omg.learners.ppo_learner_4am import LearningAgentPPOLearner
from omg.learners.subgoal_training import Inference, SubgoalTraining
from omg.modules.critics import Critic
from omg.modules.critics.value import ValueCritic
from omg.types import EnvSpec, OmgError

SUBGOAL = "am_subgoal"  # the field of an episode with the ĝ that was drawn while acting


class CriticSubgoals:
    """Subgoal training whose selector asks the critic: V(s_t, g_k) of every candidate, from the
    hidden state that the play with ĝ left. Same interface as `ModelTraining`."""

    def __init__(self, config: Config, team: MultiModuleMAC, critic: Critic) -> None:
        if not isinstance(critic, ValueCritic):
            raise OmgError(
                f"learner={config.learner} asks its critic for values of alternatives, which "
                f"critic={config.critic} does not give. Derive yours from ValueCritic."
            )
        self._team, self._critic = team, critic
        self._subgoals = SubgoalTraining(config, team)
        self._drawn = config.subgoal_posterior == "sample" and not self._subgoals.model.supervised
        self._selected: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def features(self, batch: EpisodeBatch, packing: Packing) -> Tensor:
        """What the policy was fed at every slot, [P, F]; the subgoals are selected here, before
        policy and critic change."""
        rows = self._team.rows.stored(batch, packing)
        found = self._subgoals.infer(rows, packing)
        subgoal = self._acted(found, batch) if self._drawn else found.inferred
        feature = self._subgoals.model.features(subgoal, rows)
        self._selected = self.select(batch, found, feature)
        return feature

    @staticmethod
    def _acted(found: Inference, batch: EpisodeBatch) -> Tensor:
        """ĝ as it was drawn while acting; at an episode's last slot, where nobody acts, anew."""
        packing = found.packing
        last = (packing.time == packing.length - 1).unsqueeze(1)
        return torch.where(last, found.inferred, packing.pack(batch[SUBGOAL]))

    def select(
        self, batch: EpisodeBatch, found: Inference, feature: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The slot of every transition's subgoal, and how many steps ahead it lies (0-based)."""
        part, seats = learning_agent_part(batch)
        packing, critic, model = found.packing, self._critic, self._subgoals.model
        now = packing.now
        plain = critic.inputs(part, packing, seats)

        def values(slots: Tensor) -> Tensor:
            whole = torch.cat([plain, feature.unsqueeze(1)], -1)
            _, hidden = critic.unroll_states(whole, packing)
            before = packing.previous(hidden.squeeze(1))[now]
            horizon = slots.shape[1]
            repeated = now.repeat_interleave(horizon)
            rows = found.rows if model.feeds_subgoals else found.rows.take(repeated)
            each = model.features(found.prior.index_select(0, slots.flatten()), rows)
            return critic.variants(plain[now].squeeze(1), each.view(len(now), horizon, -1), before)

        return self._subgoals.select(packing, values)

    def train(self, batch: EpisodeBatch, packing: Packing) -> Metrics:
        """One step of the inference towards the prior of what `features` selected."""
        assert self._selected is not None, "features come first"
        rows = self._team.rows.stored(batch, packing)
        return self._subgoals.learn(self._subgoals.infer(rows, packing), *self._selected)

    def optimiser_state(self) -> dict[str, Any]:
        return self._subgoals.optimiser_state()

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        self._subgoals.load_optimiser_state(state)

    def state_dict(self) -> dict[str, Any]:
        return self._subgoals.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._subgoals.load_state_dict(state)


class OMGPPOLearner(LearningAgentPPOLearner):
    """OMG on PPO: policy and critic are fed ĝ, the selector's V(s, g) is the critic's. All of a
    batch was played with ĝ, so there is no share of ḡ, and V(s_{t+1}) sees the next ĝ."""

    needs_prior = True

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        fixed = {"subgoal_epsilon_start": 0.0, "subgoal_target": "next", "subgoal_value": "mean"}
        for key, value in fixed.items():
            if getattr(config, key) != value:
                raise OmgError(
                    f"learner={config.learner} learns from play with the inferred subgoals and "
                    f"takes values from its critic, so {key}={getattr(config, key)} has no "
                    f"meaning. Set {key}={value}."
                )
        if config.subgoal_posterior == "sample" and not config.store_inference:
            raise OmgError(
                f"learner={config.learner} needs the subgoals that were drawn while acting. Set "
                "store_inference=true, or subgoal_posterior=mean."
            )
        super().__init__(config=config, spec=spec, mac=mac, device=device)

    def _new_model_training(self, config: Config, team: MultiModuleMAC) -> CriticSubgoals:
        return CriticSubgoals(config, team, self.values.critic)
