"""OMG's subgoal prior: its pre-training by `am_learner`, and what a run asks of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.team import TeamMAC
from omg.functional import explained_variance, variance_by_kind
from omg.learners.base import Metrics, Optimisers, descend_model
from omg.learners.pretrained import POLICY_ONLY, find_weights, model_folder, without_mac
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.storage.models import check_meta, load_networks
from omg.types import EnvSpec, OmgError

log = logging.getLogger("omg.learners")

# In metrics and meta.json: how well a prior decodes the others, by the name of the measure.
MEASURES = {"cells": "prior_accuracy", "variance": "prior_explained"}
FILE = "vae.th"
# MOA's goals may be the subgoals of a prior that was made for OMG alone.
NOT_OF_THE_PRIOR = ("am_model", "moa_goal")
DECODES = {
    "cells": "decodes only {:.1%} of the others' places",
    "variance": "explains only {:.1%} of how the others' features vary",
}
REMARKED = 0.5  # a prior that decodes less is spoken of


def check_accuracy(
    found: Mapping[str, Any], config: Config, where: str = "The prior", *, loaded: bool = False
) -> None:
    """Refuse a prior that decodes too little by `prior_measure`, whether just trained or loaded."""
    # A prior that was saved before there was this measure cannot be judged by it.
    share = float(found.get(MEASURES[config.prior_measure], 1.0 if loaded else 0.0))
    if share < config.prior_min_accuracy:
        raise OmgError(
            f"{where} {DECODES[config.prior_measure].format(share)} "
            f"(prior_min_accuracy={config.prior_min_accuracy}): it has collapsed or was trained "
            f"too shortly. Lower prior_kl_weight={config.prior_kl_weight:g} or raise t_max or "
            "updates_per_episode of its pre-training."
        )


def find_prior(config: Config) -> Path:
    """The vae.th that init_param_path names (see `find_weights`)."""
    if not config.init_param_path:
        raise OmgError(
            f"{config.name} needs a pre-trained prior. Give init_param_path=<folder with "
            f"{config.train_alg or config.name}/{FILE}>, made by --learner=am_learner."
        )
    return find_weights(config, FILE, what="prior")


def load_prior(config: Config, meta: Mapping[str, Any], model: SubgoalModel) -> dict[str, str]:
    """Load the prior's weights if they fit what this run would be saved with; what to show."""
    weights = find_prior(config)
    folder, inside = model_folder(weights)
    found = check_meta(folder, without_mac(meta), without=(*POLICY_ONLY, *NOT_OF_THE_PRIOR))
    check_accuracy(found, config, f"The prior in {folder}", loaded=True)
    load_networks(folder, {f"{inside}vae": model.vae})
    shown = {"prior": str(weights)}
    if found.get("env_args", meta["env_args"]) != meta["env_args"]:
        shown["note"] = f"the prior was trained with env_args={found['env_args']}"
    return shown


# States per update on which the decoding accuracy is measured.
SAMPLED = 256


class PriorTraining:
    """Fits the prior VAE to the states of games, each seen from the seat the learning agent would
    have."""

    def __init__(self, *, config: Config, spec: EnvSpec, mac: TeamMAC, model: SubgoalModel) -> None:
        self._config, self._mac, self._model = config, mac, model
        self._decodes_places = bool(spec.agent_features)
        self._optimiser = FastAdam(model.vae.parameters(), lr=config.am_lr)
        self._generator = torch.Generator().manual_seed(config.seed)

    def _encoded(self, played: Trajectories) -> tuple[Tensor, Tensor, Tensor | None]:
        """What a subgoal encodes of every row whose seat still acts, the rows' seats, and which
        others still act."""
        rows = self._mac.policy.rows.stored(played)
        if played.alive is not None:
            rows = rows.take(played.alive.flatten().nonzero(as_tuple=True)[0])
        return self._model.source(rows.state, rows.seats), rows.seats, rows.others_alive

    def receive(self, played: Trajectories) -> None:
        """It learns from samples of the stored episodes."""

    def step(self, played: Trajectories) -> Metrics:
        """One update on a batch of episodes."""
        encoded, seats, alive = self._encoded(played)
        variance = None
        if self._config.prior_measure == "variance":
            variance = variance_by_kind(encoded, self._model.source.kinds)
        terms = self._model.vae.loss(
            encoded, self._config.prior_kl_weight, self._generator, variance
        )
        learned = descend_model(terms, self._optimiser)
        some = slice(None, None, max(1, len(encoded) // SAMPLED))
        measured = self.measured(encoded[some], seats[some], None if alive is None else alive[some])
        return {**learned, **measured}

    @torch.no_grad()
    def measured(self, encoded: Tensor, seats: Tensor, alive: Tensor | None = None) -> Metrics:
        """How well the others' features are decoded from the mean subgoal: the share of states in
        which those of all others are right at once (to half a cell, see `SubgoalModel.cell`), and
        the share of the features' variance that is explained. Others who have left do not count,
        nor do states that all of them have left."""
        mean, _ = self._model.vae.encode(encoded)
        decoded = self._model.vae.decode(mean)
        if self._decodes_places:
            source = self._model.source
            decoded, encoded = source.places(decoded, seats), source.places(encoded, seats)
        else:
            decoded, encoded, alive = decoded.unsqueeze(1), encoded.unsqueeze(1), None
        close = (decoded - encoded).abs() < 0.5 * self._model.cell
        if alive is not None and alive.any():
            close = (close | ~alive.unsqueeze(-1))[alive.any(1)]
        return {
            MEASURES["cells"]: close.flatten(1).all(1).to(torch.float32).mean(),
            MEASURES["variance"]: explained_variance(decoded, encoded, alive),
        }

    def examine(self, played: Trajectories | None) -> dict[str, float]:
        """What the finished prior decodes; 0 if it has learned from nothing."""
        if played is None:
            return dict.fromkeys(MEASURES.values(), 0.0)
        return {name: float(share) for name, share in self.measured(*self._encoded(played)).items()}

    def verdict(self, found: Mapping[str, float]) -> None:
        """Refuse a prior that forgot what it should encode; where none is, remark on it."""
        config = self._config
        check_accuracy(found, config)
        share = float(found[MEASURES[config.prior_measure]])
        if share < REMARKED:
            log.warning(
                "The prior %s: its subgoals hardly tell states apart. prior_kl_weight=%g does that "
                "on scaled features; 0.0001 keeps them apart.",
                *(DECODES[config.prior_measure].format(share), config.prior_kl_weight),
            )

    def networks(self) -> Mapping[str, nn.Module]:
        """The prior only."""
        return {"vae": self._model.vae}

    def optimisers(self) -> Optimisers:
        return self._optimiser

    def saved(self) -> dict[str, Any]:
        return {
            "vae": self._model.vae,
            "optimiser": self._optimiser,
            "generator": self._generator,
        }
