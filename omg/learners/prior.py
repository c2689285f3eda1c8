"""The subgoal prior: `am_learner`, which pre-trains it, and finding and loading one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch
from omg.config.schema import Config, marked
from omg.controllers import CONTROLLERS, Controller
from omg.learners.base import Learner, Metrics, Optimisers, Progress, team_mac
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models import OPPONENT_MODELS
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.storage.models import check_meta, find_model_folder, load_networks
from omg.types import EnvSpec, OmgError, user_path

ACCURACY = "prior_accuracy"  # in meta.json
FILE = "vae.th"
# Settings that a prior does not depend on.
POLICY_ONLY = ("input_dim", *marked(weights=True, prior=False))


def check_accuracy(found: float, config: Config, where: str = "The prior") -> None:
    """Refuse a prior that decodes too little, whether just trained or loaded."""
    if found < config.prior_min_accuracy:
        raise OmgError(
            f"{where} decodes only {found:.1%} of the others' places "
            f"(prior_min_accuracy={config.prior_min_accuracy}): it has collapsed or was trained "
            f"too shortly. Lower prior_kl_weight={config.prior_kl_weight:g} or raise t_max of its "
            "pre-training."
        )


def find_prior(config: Config) -> Path:
    """The vae.th that init_param_path names: a folder with <alg>/vae.th, a run made by am_learner,
    or a folder of runs that holds one called like the algorithm."""
    name = config.train_alg or config.name
    if not config.init_param_path:
        raise OmgError(
            f"{config.name} needs a pre-trained prior. Give init_param_path=<folder with "
            f"{name}/{FILE}>, made by --learner=am_learner."
        )
    root = user_path(config.init_param_path)
    if (root / name / FILE).is_file():
        folder = root
    else:
        named = str(root / name if (root / name).is_dir() else root)
        folder = find_model_folder(named, 0, key="init_param_path", holding=f"{name}/{FILE}")
    made = sorted(folder.glob(f"*/{FILE}"))
    weights = folder / name / FILE
    if not weights.is_file() and len(made) == 1:  # of another algorithm: its policy is not used
        weights = made[0]
    if not weights.is_file():
        raise OmgError(
            f"init_param_path={config.init_param_path} holds no prior ({folder / name}/{FILE} "
            f"does not exist). Pre-train one with --config={config.team or name} "
            "--learner=am_learner, or give another folder."
        )
    return weights


def load_prior(config: Config, meta: Mapping[str, Any], model: SubgoalModel) -> dict[str, str]:
    """Load the prior's weights if they fit what this run would be saved with; what to show."""
    weights = find_prior(config)
    folder = weights.parent.parent
    found = check_meta(folder, meta, without=POLICY_ONLY)
    check_accuracy(float(found.get(ACCURACY, 1.0)), config, f"The prior in {folder}")
    load_networks(folder, {f"{weights.parent.name}/vae": model.vae})
    shown = {"prior": str(weights)}
    if found.get("env_args", meta["env_args"]) != meta["env_args"]:
        shown["note"] = f"the prior was trained with env_args={found['env_args']}"
    return shown


# States per update on which the decoding accuracy is measured.
SAMPLED = 256


class PriorLearner(Learner):
    """Fits the prior VAE to the states of the frozen players' games, each seen from the seat the
    learning agent would have; of a whole team's own games where there are no frozen players."""

    gathers = True

    @classmethod
    def check(cls, config: Config) -> None:
        """Mixer, critic and the like are for the learner that will use the prior."""
        kind = OPPONENT_MODELS[config.am_model]
        if not (CONTROLLERS[config.mac].models and issubclass(kind, SubgoalModel)):
            raise OmgError(
                "learner=am_learner pre-trains am_model=omg_am in mac=multi_module_mac. Set both, "
                "or use --config=iql_omg."
            )

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        self._mac = team_mac(config, mac)
        assert isinstance(self._mac.model, SubgoalModel)
        self._config, self._model = config, self._mac.model
        self._decodes_places = bool(spec.agent_features)
        self._optimiser = FastAdam(self._model.vae.parameters(), lr=config.am_lr)
        self._generator = torch.Generator().manual_seed(config.seed)

    def _encoded(self, batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
        """What a subgoal encodes of every row, and the rows' seats."""
        rows = self._mac.policy.rows.stored(self._mac.trajectories(batch))
        return self._model.source(rows.state, rows.seats), rows.seats

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        encoded, seats = self._encoded(batch)
        terms = self._model.vae.loss(encoded, self._config.prior_kl_weight, self._generator)
        self._optimiser.zero_grad()
        terms["am_loss"].backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        some = slice(None, None, max(1, len(encoded) // SAMPLED))
        accuracy = self.decoding_accuracy(encoded[some], seats[some])
        return {**{k: v.detach() for k, v in terms.items()}, ACCURACY: accuracy}

    @torch.no_grad()
    def decoding_accuracy(self, encoded: Tensor, seats: Tensor) -> Tensor:
        """Share of states whose other players are decoded from the mean subgoal exactly (to half
        a cell, see `SubgoalModel.cell`)."""
        mean, _ = self._model.vae.encode(encoded)
        decoded = self._model.vae.decode(mean)
        if self._decodes_places:
            source = self._model.source
            decoded, encoded = source.places(decoded, seats), source.places(encoded, seats)
        close = (decoded - encoded).abs() < 0.5 * self._model.cell
        return close.flatten(1).all(1).to(torch.float32).mean()

    def examine(self, sample: Callable[[], EpisodeBatch | None]) -> dict[str, float]:
        """The decoding accuracy of the finished prior; 0 if it has learned from nothing."""
        batch = sample()
        if batch is None:
            return {ACCURACY: 0.0}
        return {ACCURACY: float(self.decoding_accuracy(*self._encoded(batch)))}

    def verdict(self, found: Mapping[str, float]) -> None:
        """Refuse a prior that forgot what it should encode."""
        check_accuracy(found[ACCURACY], self._config)

    def networks(self) -> Mapping[str, nn.Module]:
        return {self._mac.file_name("vae"): self._model.vae}

    def optimisers(self) -> Optimisers:
        return self._optimiser

    def saved(self) -> dict[str, Any]:
        return {
            "vae": self._model.vae,
            "optimiser": self._optimiser,
            "generator": self._generator,
        }
