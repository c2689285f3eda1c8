"""The subgoal inference's part of an update, the same for every policy learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from omg.components.schedules import DecayThenFlat
from omg.config.schema import Config
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.functional.subgoals import select_subgoal
from omg.learners.base import Metrics, load_optimiser
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import OmgError

# Candidate slots [K, H] to the values V(s_t, g_k) of all transitions.
Values: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Inference:
    """ĝ and ḡ of every packed slot. ĝ and its posterior have gradients."""

    rows: ModelRows
    packing: Packing
    mean: Tensor  # [P, G]
    log_var: Tensor  # [P, G]
    condition: Tensor
    inferred: Tensor  # [P, G], ĝ
    prior_mean: Tensor  # [P, G], of the slot's own state
    prior_log_var: Tensor
    prior: Tensor  # [P, G], ḡ of the slot's own state


class SubgoalTraining:
    """Selects the subgoal of every transition among the next H states by a learner's values, and
    pulls the inference towards the frozen prior's encoding of it."""

    def __init__(self, config: Config, team: MultiModuleMAC) -> None:
        if not isinstance(team.model, SubgoalModel):
            raise OmgError(
                f"learner={config.learner} needs am_model=omg_am, not {config.am_model}. "
                "Use --config=iql_omg."
            )
        self._config, self.model = config, team.model
        self.model.vae.requires_grad_(False)
        self._optimiser = FastAdam(self.model.inference_parameters(), lr=config.am_lr)
        self._generator = torch.Generator().manual_seed(config.seed)
        self._mix = DecayThenFlat(
            start=config.subgoal_epsilon_start,
            finish=config.subgoal_epsilon_finish,
            time_length=config.subgoal_epsilon_anneal_time,
        )

    def epsilon(self, env_steps: int) -> float:
        """The share of transitions that learn with ḡ instead of ĝ."""
        return self._mix(env_steps)

    def infer(self, rows: ModelRows, packing: Packing) -> Inference:
        """What acting would have inferred at every slot, and the prior of every slot's state."""
        mean, log_var, condition = self.model.posterior(rows, packing)
        inferred = self.model.inferred(mean, log_var, self._generator)
        with torch.no_grad():
            encoded = self.model.source(rows.state, rows.seats)
            prior_mean, prior_log_var = self.model.vae.encode(encoded)
            prior = self.model.draw(prior_mean, prior_log_var, self._generator)
        return Inference(
            rows, packing, mean, log_var, condition, inferred, prior_mean, prior_log_var, prior
        )

    def select(self, packing: Packing, values: Values) -> tuple[Tensor, Tensor]:
        """The slot whose state is the subgoal of every transition, and how many steps ahead it
        lies (0-based). `values` is asked only where the mode goes by value."""
        config = self._config
        slots, exists = packing.future(packing.now, config.subgoal_horizon)
        by_value = config.subgoal_mode in ("optimistic", "conservative")
        ahead = select_subgoal(
            values(slots) if by_value else exists,
            exists,
            mode=config.subgoal_mode,
            fixed_k=config.subgoal_fixed_k,
            generator=self._generator,
        )
        return slots.gather(1, ahead.unsqueeze(1)).squeeze(1), ahead

    def learn(self, found: Inference, chosen: Tensor, steps_ahead: Tensor) -> Metrics:
        """One gradient step of the inference towards the prior of the chosen slots."""
        now = found.packing.now
        terms = self.model.loss(
            found.rows.take(now),
            (_at(found.mean, now), _at(found.log_var, now), _at(found.condition, now)),
            _at(found.inferred, now),
            (_at(found.prior_mean, chosen), _at(found.prior_log_var, chosen)),
            self._config.am_kl_weight,
        )
        self._optimiser.zero_grad()
        terms["am_loss"].backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        shares = {
            f"subgoal_k{k + 1}": (steps_ahead == k).to(torch.float32).mean()
            for k in range(self._config.subgoal_horizon)
        }
        return {
            **shares,
            **{name: term.detach() for name, term in terms.items()},
            "am_posterior_std": torch.exp(0.5 * found.log_var.detach()).mean(),
            "am_active_dims": _active_dims(found.mean.detach()),
        }

    def mixed(self, found: Inference, chosen: Tensor, epsilon: float) -> Tensor:
        """ĝ at every slot, with ḡ of the chosen state in a share ε of the transitions, [P, G]."""
        now = found.packing.now
        subgoal = found.inferred.detach().clone()
        draws = torch.rand(len(now), generator=self._generator).to(subgoal.device)
        if epsilon > 0:
            take_prior = (draws <= epsilon).unsqueeze(1)
            subgoal[now] = torch.where(take_prior, found.prior[chosen], subgoal[now])
        return subgoal

    def optimiser_state(self) -> dict[str, Any]:
        return self._optimiser.state_dict()

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        load_optimiser(self._optimiser, state)

    def state_dict(self) -> dict[str, Any]:
        return {"am": self._optimiser.state_dict(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._optimiser.load_state_dict(state["am"])
        self._generator.set_state(state["generator"])


def _at(values: Tensor, slots: Tensor) -> Tensor:
    """values[slots], forwards and backwards in half the time."""
    return values.index_select(0, slots)


def _active_dims(mean: Tensor) -> Tensor:
    """Share of subgoal dimensions whose mean really varies: near zero is a collapse."""
    variance = (mean - mean.mean(0)).square().mean(0)
    return (variance > 0.01).to(torch.float32).mean()
