"""The contract of a learner: what it can train, and what all of them share (targets, optimisers,
saving)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from omg.components.action_selectors import ActionSelector, Multinomial
from omg.components.episodes import EpisodeBatch
from omg.config.schema import Config
from omg.controllers import CONTROLLERS
from omg.controllers.base import Controller
from omg.controllers.team import TeamMAC
from omg.learners.reward_unit import RewardUnit
from omg.modules.kernels.given import GivenLoss
from omg.modules.kernels.optimiser import FastAdam, FastRMSprop, clipped_step
from omg.types import EnvSpec, OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Actions are discrete everywhere, and every network may be recurrent or not."""

    on_policy: bool = False  # learns once from every episode, all played by the present policy
    outputs: Literal["q", "pi_logits", "any"] = "any"
    reward: Literal["team", "any"] = "any"  # any: as common_reward says
    models: bool = True  # whether the policy may have an opponent model (mac=multi_module_mac)
    mixers: Literal["none", "optional", "required"] = "none"
    critics: tuple[str, ...] = ()  # critics it can learn; empty: it has none
    shares_trunk: bool = False  # whether its critic may share the policy's layers (share_trunk)


def one_learns(config: Config) -> bool:
    """Whether one agent learns among frozen others, who come from a team string or a pool."""
    return CONTROLLERS[config.mac].models and bool(config.multi_algs or config.opponent_pool)


def check_supported(config: Config, able: Capabilities, spec: EnvSpec | None = None) -> None:
    """Refuse a configuration that its learner cannot train; where the environment is known, also
    for what that is like."""
    learner = f"learner={config.learner}"
    if not able.models and CONTROLLERS[config.mac].models:
        raise OmgError(f"{learner} does not train mac={config.mac}. Set mac=basic_mac.")
    if able.outputs not in ("any", config.agent_output_type):
        wanted = "values" if able.outputs == "q" else "a policy's logits"
        raise OmgError(
            f"{learner} needs {wanted}, not agent_output_type={config.agent_output_type}. "
            f"Set agent_output_type={able.outputs}."
        )
    by_rewards = config.subgoal_mode == "event" and spec is not None and not spec.event_actions
    if config.standardise_rewards and by_rewards:
        raise OmgError(
            "subgoal_mode=event finds events of this game by rewards as they are. Set "
            "standardise_rewards=false, or another subgoal_mode."
        )
    _check_parts(config, able, learner)
    _check_others(config)
    if spec is None or spec.n_agents > 1:
        _check_reward(config, able, learner)
    if able.on_policy:
        _check_on_policy(config, learner)


def _check_parts(config: Config, able: Capabilities, learner: str) -> None:
    if config.mixer is not None and (able.mixers == "none" or one_learns(config)):
        alone = " of one agent" if able.mixers != "none" else ""
        raise OmgError(f"{learner}{alone} uses no mixer, and mixer={config.mixer}. Set mixer=null.")
    if config.mixer is None and able.mixers == "required":
        raise OmgError(f"{learner} needs a mixer. Take the one of its algs/*.yaml.")
    if able.critics and config.critic is None:
        raise OmgError(f"{learner} needs a critic. Set critic={' or '.join(able.critics)}.")
    if able.critics and config.critic not in able.critics and ":" not in str(config.critic):
        raise OmgError(
            f"{learner} does not learn critic={config.critic}. "
            f"Set critic={' or '.join(able.critics)}."
        )
    if config.share_trunk and not able.shares_trunk:
        raise OmgError(
            f"{learner} has no critic that could share the policy's layers. Set share_trunk=false."
        )
    if config.critic is not None and not able.critics:
        raise OmgError(f"{learner} has no critic, and critic={config.critic}. Set critic=null.")


def _check_others(config: Config) -> None:
    """A whole team has nobody to model and, unless one role learns, nobody to draw."""
    if CONTROLLERS[config.mac].models:
        return
    given = {
        "opponent_pool": bool(config.opponent_pool) and not config.learning_role,
        "am_model": config.am_model != "none_am",
        "am_present": config.am_present,
    }
    for key, is_set in given.items():
        if is_set:
            raise OmgError(
                f"mac={config.mac} trains a whole team and has no use for {key}="
                f"{getattr(config, key)}. Leave it out, or choose an algorithm that models the "
                "others (omg algorithms)."
            )


def _check_reward(config: Config, able: Capabilities, learner: str) -> None:
    if config.common_reward:
        return
    if config.mixer is not None:
        raise OmgError(
            f"mixer={config.mixer} learns one value of the team. Set common_reward=true."
        )
    if able.reward == "team":
        raise OmgError(f"{learner} learns one value of the team. Set common_reward=true.")


def _check_on_policy(config: Config, learner: str) -> None:
    if config.collect_ahead:
        raise OmgError(
            f"{learner} learns only from what its present policy played, and "
            f"collect_ahead={config.collect_ahead} plays with older weights. Set collect_ahead=0."
        )
    if config.updates_per_episode != 1:
        raise OmgError(
            f"{learner} learns once from every episode, so updates_per_episode="
            f"{config.updates_per_episode:g} has no meaning. Leave it at 1."
        )
    if config.action_selector == "epsilon_greedy":
        raise OmgError(
            f"{learner} samples its policy, and action_selector=epsilon_greedy does not. Set "
            "action_selector=multinomial (with a share of random actions) or soft_policies."
        )


# Scalars as tensors: nobody waits for the device until they are logged.
Metrics: TypeAlias = Mapping[str, Tensor]
Optimisers: TypeAlias = torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    env_steps: int
    episodes: int
    updates: int


class Learner(ABC):
    """Trains the networks of a controller.

    Its `__init__` may name: config, spec, mac, device; and settings of its own, given by
    `learner_args`."""

    # What it can train; checked against the configuration before it is built.
    able: ClassVar[Capabilities] = Capabilities(mixers="optional")
    # True: it learns from the games of frozen players alone, who take every seat.
    gathers: ClassVar[bool] = False
    # The unit in which rewards are learned from (standardise_rewards); None: as they are.
    reward_unit: RewardUnit | None = None

    @classmethod
    def check(cls, config: Config) -> None:
        """Refuse a configuration that it cannot train, before anything is built."""
        check_supported(config, cls.able)

    @abstractmethod
    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        """One update on a batch of episodes; on-policy, a batch of the present policy's play that
        is seen only once (and may be gone through several times in here)."""

    def update(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        """`train`, with rewards in their unit."""
        if self.reward_unit is not None:
            batch = self.reward_unit.standardised(batch)
        return self.train(batch, progress)

    def receive(self, episodes: EpisodeBatch) -> None:  # noqa: B027 - optional
        """Every episode of the run, once, when it has ended; updates are made by `train`."""

    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]:
        """Networks to save, by the name of their file: agent -> agent.th."""

    @abstractmethod
    def optimisers(self) -> Optimisers:
        """What opt.th holds: one optimiser, or several by name."""

    def saved(self) -> dict[str, Any]:
        """Everything a continuation needs, by name: networks, optimisers, random generators and
        whatever has a `state_dict`, in mappings as deep as you like. Declared here once; saving
        and loading follow from it."""
        return {"networks": self.networks(), "optimiser": self.optimisers()}

    def weights(self) -> Mapping[str, nn.Module]:
        """As `networks`, and the unit of rewards: values mean nothing without it."""
        return {**self.networks(), **self._unit()}

    def _unit(self) -> dict[str, nn.Module]:
        return {} if self.reward_unit is None else {"rewards": self.reward_unit}

    def state_dict(self) -> dict[str, Any]:
        """The state of all that `saved` names."""
        state: dict[str, Any] = state_of({**self.saved(), **self._unit()})
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The opposite of `state_dict`."""
        restore({**self.saved(), **self._unit()}, state)

    def optimiser_state(self) -> dict[str, Any]:
        """The content of opt.th."""
        state: dict[str, Any] = state_of(self.optimisers())
        return state

    def load_optimiser_state(self, state: Mapping[str, Any]) -> None:
        """Moments from an opt.th; learning rates stay those of the configuration."""
        load_optimisers(self.optimisers(), state)

    def team(self) -> tuple[Mapping[str, nn.Module], Mapping[str, Any]] | None:
        """Networks that only play in a training and what they depend on, where checkpoint_path
        means those; None: it means what is trained."""
        return None

    def start(self, meta: Mapping[str, Any]) -> Mapping[str, str]:
        """Called once before a training from scratch, with what the run writes beside its
        weights: load what it begins with (a prior). What is to be shown, by name."""
        return {}

    def after_load(self) -> None:  # noqa: B027 - optional
        """Called when network weights were replaced from outside (targets follow them)."""

    def examine(self, sample: Callable[[], EpisodeBatch | None]) -> dict[str, float]:
        """Called once at the end of training; `sample` draws stored episodes (None: too few).
        What is found is written into meta.json."""
        return {}

    def verdict(self, found: Mapping[str, float]) -> None:  # noqa: B027 - optional
        """Called when everything is saved, with what `examine` found; may refuse the result."""


class Targets:
    """Networks that follow others slowly: every target_update_interval episodes they take over
    the weights, or, with target_update_tau, a share of them after every update."""

    def __init__(self, config: Config, *pairs: tuple[nn.Module | None, nn.Module | None]) -> None:
        """Pairs of a target and what it follows; what does not exist is None."""
        self._config = config
        self._pairs = [(old, new) for old, new in pairs if old is not None and new is not None]
        self._last_episode = 0
        self.copy()

    def copy(self) -> None:
        """Take over all weights at once."""
        self._blend(1.0)

    def follow(self, progress: Progress) -> None:
        """Called after every update."""
        due = progress.episodes - self._last_episode >= self._config.target_update_interval
        share = self._config.target_update_tau or float(due)
        if share:
            self._blend(share)
            self._last_episode = progress.episodes

    @torch.no_grad()
    def _blend(self, share: float) -> None:
        """target ← (1 - share) target + share source."""
        for target, source in self._pairs:
            for old, new in zip(target.parameters(), source.parameters(), strict=True):
                old.lerp_(new, share)

    def state_dict(self) -> int:
        """The episode of the last update; the weights are saved as networks."""
        return self._last_episode

    def load_state_dict(self, state: int) -> None:
        self._last_episode = int(state)


def team_mac(config: Config, mac: Controller, able: Capabilities | None = None) -> TeamMAC:
    """The controller as the kind that learners train; another is refused."""
    if not isinstance(mac, TeamMAC):
        raise OmgError(
            f"learner={config.learner} does not train mac={config.mac}. Set mac=basic_mac or "
            "multi_module_mac, or derive yours from omg.controllers.team.TeamMAC."
        )
    if able is not None and not able.models and mac.model is not None:
        raise OmgError(
            f"learner={config.learner} does not train mac={config.mac}, whose policy has an "
            "opponent model. Set mac=basic_mac."
        )
    return mac


def team_spec(spec: EnvSpec, mac: Controller) -> EnvSpec:
    """The spec restricted to the learning seats."""
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
    config: Config,
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    lr: float | None = None,
) -> torch.optim.Optimizer:
    """RMSprop with PyMARL's settings, or Adam; at the configured rate unless another is given, or
    in groups of parameters with rates of their own."""
    shared: dict[str, Any] = {
        "lr": config.lr if lr is None else lr,
        "eps": config.optim_eps,
        "foreach": True,
    }
    if config.optimizer == "adam":
        return FastAdam(parameters, **shared)
    return FastRMSprop(parameters, alpha=config.optim_alpha, **shared)


def set_rates(optimisers: Optimisers, share: float) -> None:
    """Every learning rate at this share of the one its optimiser was made with."""
    each = optimisers.values() if isinstance(optimisers, Mapping) else [optimisers]
    for optimiser in each:
        for group in optimiser.param_groups:
            group["lr"] = share * group.setdefault("initial_lr", group["lr"])


def descend(
    loss: Tensor | GivenLoss,
    optimiser: torch.optim.Optimizer,
    parameters: Sequence[nn.Parameter],
    config: Config,
) -> Tensor:
    """One clipped step; the norm of the gradient before clipping."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
    loss.backward()
    return clipped_step(optimiser, parameters, config.grad_norm_clip)


def descend_model(terms: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> Metrics:
    """One step of an opponent model on its `am_loss`, without clipping; all terms, to be logged."""
    optimiser.zero_grad()
    terms["am_loss"].backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return {name: term.detach() for name, term in terms.items()}


def state_of(saved: Any) -> Any:
    """The states of everything in nested mappings."""
    if isinstance(saved, Mapping):
        return {name: state_of(part) for name, part in saved.items()}
    if isinstance(saved, torch.Generator):
        return saved.get_state()
    return saved.state_dict()


def restore(saved: Any, state: Any) -> None:
    """Give everything its state back."""
    if isinstance(saved, Mapping):
        for name, part in saved.items():
            if name not in state and isinstance(part, torch.Generator):
                continue  # older states have none; nothing drew from it then
            restore(part, state[name])
    elif isinstance(saved, torch.Generator):
        saved.set_state(state)
    elif isinstance(saved, torch.optim.Optimizer):
        load_optimisers(saved, state)
    else:
        saved.load_state_dict(state)


def load_optimisers(
    saved: torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer], state: Mapping[str, Any]
) -> None:
    """Moments from saved states; learning rate and the like stay those of the configuration."""
    if isinstance(saved, Mapping):
        for name, optimiser in saved.items():
            load_optimisers(optimiser, state[name])
        return
    settings = [{k: v for k, v in g.items() if k != "params"} for g in saved.param_groups]
    saved.load_state_dict(dict(state))
    for group, own in zip(saved.param_groups, settings, strict=True):
        group.pop("initial_lr", None)
        group.update(own)
