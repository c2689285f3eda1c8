"""From the keys `am_model` and `am_args` to an opponent model that can be saved."""

from __future__ import annotations

from omg.config.schema import Config
from omg.modules.opponent_models import OPPONENT_MODELS, OpponentModel
from omg.modules.opponent_models.base import MemorylessModel
from omg.types import EnvSpec, OmgError


def build_model(config: Config, spec: EnvSpec) -> OpponentModel:
    """The configured model with fresh weights. Arguments it does not take, and weights that it
    would not save, are refused."""
    model = OPPONENT_MODELS.build(
        config.am_model,
        config.am_args,
        spec=spec,
        own_dim=spec.state_dim if config.obs_is_state else spec.obs_dim,
        config=config,
    )
    if not isinstance(getattr(model, "feature_dim", None), int):
        raise OmgError(
            f"am_model={config.am_model} has no feature_dim. Set the width of its features in "
            "__init__."
        )
    _check_files(model, config.am_model)
    _check_loss(model, config.am_model)
    return model


def check_options(config: Config) -> None:
    """Options of one shipped model, given to another, would be ignored."""
    of = {"am_history": ("base_am", False), "am_feature": ("liam_am", "latent")}
    for key, (model, default) in of.items():
        if config.am_model == model or getattr(config, key) == default:
            continue
        if config.am_model in OPPONENT_MODELS:
            raise OmgError(
                f"{key}={getattr(config, key)} is an option of am_model={model}, not of "
                f"{config.am_model}. Leave it out."
            )


def _check_loss(model: OpponentModel, name: str) -> None:
    if not isinstance(model, MemorylessModel) or type(model).loss is not MemorylessModel.loss:
        return
    if any(weights.requires_grad for weights in model.parameters()):
        raise OmgError(
            f"am_model={name} has weights and no loss to train them by. Define loss(rows), or keep "
            "what is not trained in buffers (register_buffer)."
        )


def _check_files(model: OpponentModel, name: str) -> None:
    files = model.files()
    if "agent" in files:
        raise OmgError(
            f"am_model={name} wants to save a file called 'agent', which is the policy's. "
            "Choose another name in files()."
        )
    saved = {id(p) for part in files.values() for p in part.parameters()}
    lost = [key for key, weights in model.named_parameters() if id(weights) not in saved]
    if lost:
        raise OmgError(
            f"am_model={name} would not save {', '.join(lost)}. Return the networks to save from "
            'files(), e.g. {"my_model": self}.'
        )
