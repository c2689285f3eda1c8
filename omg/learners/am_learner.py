"""`am_learner`: trains only the opponent model. With `omg_am` it pre-trains the subgoal prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.learners.base import Learner, Metrics, Progress, load_optimiser
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, OmgError

# States per update on which the decoding accuracy is measured.
SAMPLED = 256
ACCURACY = "prior_accuracy"


def check_accuracy(found: float, config: Config, where: str = "The prior") -> None:
    """Refuse a prior that decodes too little, whether just trained or loaded."""
    if found < config.prior_min_accuracy:
        raise OmgError(
            f"{where} decodes only {found:.1%} of the others' places "
            f"(prior_min_accuracy={config.prior_min_accuracy}): it has collapsed or was trained "
            f"too shortly. Lower prior_kl_weight={config.prior_kl_weight:g} or raise t_max of its "
            "pre-training."
        )


class PriorLearner(Learner):
    """Fits the prior VAE to the states of the frozen players' games, each seen from the seat the
    learning agent would have."""

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        if not isinstance(mac, MultiModuleMAC) or not isinstance(mac.model, SubgoalModel):
            raise OmgError(
                "learner=am_learner pre-trains am_model=omg_am in mac=multi_module_mac. Set both, "
                "or use --config=iql_omg."
            )
        self._config, self._team, self._model, self._spec = config, mac, mac.model, spec
        self._optimiser = FastAdam(self._model.vae.parameters(), lr=config.am_lr)
        self._generator = torch.Generator().manual_seed(config.seed)
        self._tolerance = 0.5 * mac.rows.state_scale if "int" in spec.state_dtype else 0.05

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        rows = self._team.rows.stored(batch, packing)
        encoded = self._model.source(rows.state, rows.seats)
        terms = self._model.vae.loss(encoded, self._config.prior_kl_weight, self._generator)
        self._optimiser.zero_grad()
        terms["am_loss"].backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        some = slice(None, None, max(1, len(encoded) // SAMPLED))
        accuracy = self.decoding_accuracy(encoded[some], rows.seats[some])
        return {**{k: v.detach() for k, v in terms.items()}, ACCURACY: accuracy}

    @torch.no_grad()
    def decoding_accuracy(self, encoded: Tensor, seats: Tensor) -> Tensor:
        """Share of states whose other players are decoded from the mean subgoal exactly (to half
        a cell where features are whole numbers, to 0.05 otherwise)."""
        mean, _ = self._model.vae.encode(encoded)
        decoded = self._model.vae.decode(mean)
        if self._spec.agent_features:
            source = self._model.source
            decoded, encoded = source.places(decoded, seats), source.places(encoded, seats)
        close = (decoded - encoded).abs() < self._tolerance
        return close.flatten(1).all(1).to(torch.float32).mean()

    def examine(self, sample: Callable[[], EpisodeBatch | None]) -> dict[str, float]:
        """The decoding accuracy of the finished prior; 0 if it has learned from nothing."""
        batch = sample()
        if batch is None:
            return {ACCURACY: 0.0}
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        rows = self._team.rows.stored(batch, packing)
        encoded = self._model.source(rows.state, rows.seats)
        return {ACCURACY: float(self.decoding_accuracy(encoded, rows.seats))}

    def verdict(self, found: Mapping[str, float]) -> None:
        """Refuse a prior that forgot what it should encode."""
        check_accuracy(found[ACCURACY], self._config)

    def networks(self) -> Mapping[str, nn.Module]:
        return {k: v for k, v in self._team.networks().items() if k.endswith("/vae")}

    def optimiser_state(self) -> dict[str, Any]:
        return self._optimiser.state_dict()

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        load_optimiser(self._optimiser, state)

    def state_dict(self) -> dict[str, Any]:
        return {
            "vae": self._model.vae.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._model.vae.load_state_dict(state["vae"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._generator.set_state(state["generator"])
