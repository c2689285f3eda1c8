"""The contract of a learner, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from omg.components.action_selectors import ActionSelector, Multinomial
from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.learners.capabilities import Capabilities
from omg.modules.kernels.optimiser import FastAdam, FastRMSprop, clip_gradients
from omg.types import EnvSpec, OmgError

M = TypeVar("M", bound=Controller)

# Scalars as tensors: nobody waits for the device until they are logged.
Metrics: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    env_steps: int
    episodes: int
    updates: int


class Learner(ABC):
    """Trains the networks of a controller."""

    # True: of every episode only the learning agent's own part is used, so that n_agents episodes
    # count as one (see `omg.training.EffectiveNumbers`).
    learns_one_seat = False
    # True: a run starts with the subgoal prior of an `am_learner` (init_param_path).
    needs_prior = False
    # What it can train; checked against the configuration before it is built.
    able: Capabilities = Capabilities(mixers="optional")

    @abstractmethod
    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None: ...

    @abstractmethod
    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        """One update on a batch of episodes; on-policy, a batch of the present policy's play that
        is seen only once (and may be gone through several times in here)."""

    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]:
        """Networks to save, by the name of their file: agent -> agent.th."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything a continuation needs: networks, targets, optimiser, counters."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def optimiser_state(self) -> dict[str, Any]:
        """The content of opt.th."""

    @abstractmethod
    def load_optimiser_state(self, state: dict[str, Any]) -> None: ...

    def examine(self, sample: Callable[[], EpisodeBatch | None]) -> dict[str, float]:
        """Called once at the end of training; `sample` draws stored episodes (None: too few).
        What is found is written into meta.json."""
        return {}

    def verdict(self, found: Mapping[str, float]) -> None:  # noqa: B027 - optional
        """Called when everything is saved, with what `examine` found; may refuse the result."""

    def after_load(self) -> None:  # noqa: B027 - optional
        """Called when network weights were replaced from outside (targets follow them)."""


def trained_mac(config: Config, mac: Controller, kind: type[M], able: Capabilities) -> M:
    """The controller as the kind a learner trains; another is refused."""
    if not isinstance(mac, kind):
        raise OmgError(
            f"learner={config.learner} does not train mac={config.mac}. Set mac={able.macs[0]}."
        )
    return mac


def team_spec(spec: EnvSpec, mac: Controller) -> EnvSpec:
    """The game as a team sees it whose episodes were narrowed to the seats that learn."""
    return spec if mac.seats is None else replace(spec, n_agents=len(mac.seats))


def sampling_selector(config: Config, selector: ActionSelector) -> Multinomial:
    """The selector of a policy that is sampled; one that gives no probabilities is refused."""
    if not isinstance(selector, Multinomial):
        raise OmgError(
            f"learner={config.learner} needs the probabilities it acted with, and action_selector="
            f"{config.action_selector} gives none. Set action_selector=multinomial or "
            "soft_policies, or derive yours from Multinomial."
        )
    return selector


def make_optimiser(
    config: Config, parameters: Iterable[nn.Parameter], lr: float | None = None
) -> torch.optim.Optimizer:
    """RMSprop with PyMARL's settings, or Adam; at the configured rate unless another is given."""
    shared: dict[str, Any] = {
        "lr": config.lr if lr is None else lr,
        "eps": config.optim_eps,
        "foreach": True,
    }
    if config.optimizer == "adam":
        return FastAdam(parameters, **shared)
    return FastRMSprop(parameters, alpha=config.optim_alpha, **shared)


def descend(
    loss: Tensor,
    optimiser: torch.optim.Optimizer,
    parameters: Sequence[nn.Parameter],
    config: Config,
) -> Tensor:
    """One clipped step; the norm of the gradient before clipping."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    norm = clip_gradients(parameters, config.grad_norm_clip)
    optimiser.step()
    return norm


def target_share(config: Config, episodes: int, last_episode: int) -> float:
    """How much of the new weights the targets take after an update: τ with soft updates; else all
    (1.0) when target_update_interval episodes have passed since `last_episode`, and nothing."""
    if config.target_update_tau > 0:
        return config.target_update_tau
    return 1.0 if episodes - last_episode >= config.target_update_interval else 0.0


def load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Moments from a saved state; learning rate and the like stay those of the configuration."""
    settings = [{k: v for k, v in g.items() if k != "params"} for g in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, own in zip(optimiser.param_groups, settings, strict=True):
        group.update(own)


@torch.no_grad()
def blend(target: nn.Module, source: nn.Module, tau: float) -> None:
    """target ← (1 - τ) target + τ source; τ = 1 copies."""
    pairs = zip(target.parameters(), source.parameters(), strict=True)
    for old, new in pairs:
        old.lerp_(new, tau)
