"""`q_learner`: Q-learning on whole episodes, independent or through a mixer (VDN, QMIX).

`q_learner_4am` is the same learner, called so where the policy has an opponent model, and
`omg_learner` where that model infers subgoals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.functional import (
    gather_actions,
    max_over_available,
    mean_over_available,
    next_action_values,
    td_lambda_targets,
    td_targets,
)
from omg.learners.base import (
    Capabilities,
    Metrics,
    Optimisers,
    Progress,
    Targets,
    descend,
    make_optimiser,
    team_spec,
)
from omg.learners.leaving import acting, of_acting, outcomes, without_absent
from omg.learners.model_training import Alternatives, Lesson, PolicyLearner
from omg.modules.agents import AgentNetwork
from omg.modules.agents.networks import RNNAgent
from omg.modules.kernels.branches import Branches
from omg.modules.kernels.given import GivenLoss
from omg.modules.kernels.qmix import TDLoss, Transitions
from omg.modules.mixers import MIXERS, Mixer, QMixer
from omg.policies.policy import Policy, States
from omg.types import EnvSpec, OmgError


def build_mixer(config: Config, spec: EnvSpec, *, feature_dim: int = 0) -> Mixer | None:
    """The configured mixer of the seats in `spec` with fresh weights; None without one."""
    if config.mixer is None:
        return None
    return MIXERS.build(
        config.mixer,
        config.mixer_args,
        n_agents=spec.n_agents,
        n_actions=spec.n_actions,
        state_dim=spec.state_dim,
        feature_dim=feature_dim,
        embed_dim=config.mixing_embed_dim,
        hypernet_layers=config.hypernet_layers,
        hypernet_embed=config.hypernet_embed,
        arch=config.qtran_arch,
        config=config,
    )


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Whole episodes through the policy's network."""

    inputs: Tensor  # [P, n, I]
    q: Tensor  # [P, n, A]
    hidden: Tensor  # [P, n, H], after every slot
    products: Tensor | None = None  # see `Branches`


class Update:
    """The policy's network over the episodes of one update, with whatever features it is fed."""

    def __init__(self, policy: Policy, played: Trajectories, *, branching: bool = False) -> None:
        """`branching`: single steps will be made from the states of its passes."""
        self.played, self._policy, self._branching = played, policy, branching
        self._kept: tuple[Tensor, Unrolled] | None = None
        self._fed: tuple[Tensor | None, Tensor] | None = None

    @cached_property
    def plain(self) -> Tensor:
        """Inputs without a feature, [P, n, I - F]."""
        return self._policy.inputs.packed(self.played)

    def unroll(self, feature: Tensor | None, *, keep: bool = False) -> Unrolled:
        """With features [P, n, F]; `keep` the result for when they are asked for again."""
        if self._kept is not None and feature is not None and self._kept[0].is_set_to(feature):
            return self._kept[1]
        inputs = self.fed(feature)
        states = self._policy.unroll_states(inputs, self.played, None, self._branching)
        found = Unrolled(inputs, *states)
        if keep and feature is not None:
            self._kept = (feature, found)
        return found

    def fed(self, feature: Tensor | None) -> Tensor:
        """The network's inputs, [P, n, I]."""
        if self._fed is not None and self._fed[0] is feature:
            return self._fed[1]
        if "plain" in self.__dict__ and feature is not None:
            inputs = torch.cat([self.plain, feature], -1)
        else:
            inputs = self._policy.inputs.packed(self.played, feature)
        self._fed = (feature, inputs)
        return inputs


class QLearner(PolicyLearner):
    """Minimises (Q(τ_t, a_t) - [r_t + γ (1-d_t) max_a Q'(τ_{t+1}, a)])², mean over transitions."""

    able = Capabilities(outputs="q", mixers="optional")
    joint_values = False  # whether it learns the value of joint actions

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        if config.mixer is None or MIXERS[config.mixer].joint_values == cls.joint_values:
            return
        if cls.joint_values:
            raise OmgError(
                f"learner={config.learner} learns the joint value of mixer=qtran_base, and "
                f"mixer={config.mixer} has none. Set mixer=qtran_base, or learner=q_learner."
            )
        raise OmgError(
            f"learner={config.learner} does not learn the joint value of mixer={config.mixer}. "
            "Set learner=qtran_learner, or take --config=qtran."
        )

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        self._target_network = self._policy.new_network()
        width = self._policy.network.carry_dim or self._policy.inputs.dim
        mixers = [build_mixer(config, team_spec(spec, mac), feature_dim=width) for _ in range(2)]
        self.mixer, self._target_mixer = (m if m is None else m.to(device) for m in mixers)
        self._check_mixer(team_spec(spec, mac), device)
        self._parameters = [*self._policy.network.parameters()]
        if self.mixer is not None:
            self._parameters += self.mixer.parameters()
        self._optimiser = make_optimiser(config, self._parameters)
        self._targets = Targets(
            config,
            (self._target_network, self._policy.network),
            (self._target_mixer, self.mixer),
        )
        self._state_scale = spec.state_scale if config.scale_inputs else 1.0
        self._value = mean_over_available if config.subgoal_value == "mean" else max_over_available

    @torch.no_grad()
    def _check_mixer(self, spec: EnvSpec, device: torch.device) -> None:
        """A mixer whose output has another shape would be broadcast without a word."""
        if self.mixer is None or self.joint_values:
            return
        values = torch.zeros(2, spec.n_agents, device=device)
        found = self.mixer(values, values.new_zeros(2, spec.state_dim)).shape
        if found != (2, 1):
            raise OmgError(
                f"mixer={self._config.mixer} makes {tuple(found)} of the values (2, "
                f"{spec.n_agents}) and the state (2, {spec.state_dim}). Expected: (2, 1), one "
                "number per row, e.g. values.sum(-1, keepdim=True)."
            )

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        played, branching = self._mac.trajectories(batch), self._model.asks_values
        update = Update(self._policy, played, branching=branching)
        lesson = self._model.prepare(
            played, progress, lambda alternatives: self._values(update, alternatives)
        )
        loss = self._td_loss(update, lesson)
        if loss is not None:
            metrics = self._fit_in_one_call(loss, update, lesson, progress)
        else:
            online = update.unroll(lesson.feature)
            q = online.q.index_select(0, played.packing.now)
            taken = gather_actions(q, played.now("actions"))
            alive = None if played.alive is None else played.alive[played.packing.now]
            taken = self._mixed(self.mixer, taken, played.now("state"), alive)
            targets = self.targets(update, online, lesson)
            acted = acting(played, team=self.mixer is not None)
            metrics = self.fit(of_acting(taken, acted), of_acting(targets, acted), progress)
        if not self._optimiser.state:
            raise OmgError(
                f"{type(self).__name__}.fit has made no step, so nothing is learned. Let it call "
                "self.minimise(loss, progress)."
            )
        return {**metrics, **self._model.train(lesson), **self._model.finish(lesson)}

    def _td_loss(self, update: Update, lesson: Lesson) -> TDLoss | None:
        """What computes `targets`, the mixing and the loss of `fit` at once; None where no kernel
        does, or where a subclass has its own of these."""
        kind, mixer, target = type(self), self.mixer, self._target_mixer
        if (
            not (isinstance(mixer, QMixer) and isinstance(target, QMixer))
            or not (mixer.usual and target.usual)
            or lesson.ahead is not None
            or self._config.q_lambda  # the kernel looks one step ahead
            or kind.targets is not QLearner.targets
            or kind.fit is not QLearner.fit
            or kind._mixed is not QLearner._mixed
        ):
            return None
        played, packing, gamma = update.played, update.played.packing, self._config.gamma
        state = played.pack("state")
        if self._state_scale != 1.0:
            state = state * self._state_scale
        kernel = mixer.kernel(state)
        if kernel is None:
            return None
        avail = played.pack("avail_actions")
        reward, over = outcomes(played, gamma=gamma, team=True)
        counts = acting(played, team=True)
        transitions = Transitions(
            now=packing.now,
            next=packing.next,
            actions=played.now("actions"),
            reward=reward.flatten(),
            over=over.flatten(),
            state=state,
            avail=avail,
            alive=played.alive,
            counts=None if counts is None else counts.flatten(),
        )
        weights = mixer.weights(), target.weights()
        double, target_q = self._config.double_q, state.new_empty(avail.shape)
        return TDLoss(kernel, target_q, transitions, weights, gamma=gamma, double=double)

    def _fit_in_one_call(
        self, loss: TDLoss, update: Update, lesson: Lesson, progress: Progress
    ) -> Metrics:
        """As `fit`."""
        network, fast, played = self._policy.network, None, update.played
        with torch.no_grad():
            inputs = update.fed(lesson.feature)
        if isinstance(network, RNNAgent):
            sizes = played.packing.sizes * played.n_seats
            fast = loss.of_network(network, inputs.flatten(0, 1), sizes, self._target_network)
        if fast is None:
            with torch.no_grad():
                loss.target_q.copy_(self._policy.unroll(inputs, played, self._target_network))
        found = fast or loss.of_values(update.unroll(lesson.feature).q)
        norm, terms = self.minimise(found, progress), loss.terms()
        return {
            "loss": terms.loss,
            "grad_norm": norm,
            "td_error_abs": terms.error,
            "q_taken_mean": terms.taken,
            "target_mean": terms.targets,
        }

    def _mixed(
        self, mixer: Mixer | None, values_KN: Tensor, state_KS: Tensor, alive_KN: Tensor | None
    ) -> Tensor:
        if mixer is None:
            return values_KN
        mixed: Tensor = mixer(without_absent(values_KN, alive_KN), state_KS * self._state_scale)
        return mixed

    @torch.no_grad()
    def targets(self, update: Update, online: Unrolled, lesson: Lesson) -> Tensor:
        """r_t + γ (1 - d_t) V'(τ_{t+1}) of all K transitions at once, [K, n or 1]; λ-returns of
        V' where q_lambda is not 0."""
        played, following = update.played, update.played.packing.next
        network, branching = self._target_network, lesson.ahead is not None
        target = self._policy.unroll_states(online.inputs, played, network, branching)
        if lesson.ahead is None:
            online_next = online.q.index_select(0, following)
            target_next = target.outputs.index_select(0, following)
        else:
            online_next = self._step(update, self._policy.network, online, lesson.ahead)
            target_next = self._step(update, network, target, lesson.ahead)
        next_values = next_action_values(
            online_next,
            target_next,
            played.next("avail_actions"),
            double=self._config.double_q,
        )
        alive = None if played.alive is None else played.alive[following]
        values = self._mixed(self._target_mixer, next_values, played.next("state"), alive)
        return self._returns(played, values)

    def _returns(self, played: Trajectories, next_values: Tensor) -> Tensor:
        """What the values of all transitions are drawn to, from those of the states after them."""
        gamma, td_lambda = self._config.gamma, self._config.q_lambda
        reward, terminated = outcomes(played, gamma=gamma, team=self.mixer is not None)
        if not td_lambda:
            return td_targets(reward, terminated, next_values, gamma=gamma)
        return td_lambda_targets(
            *(reward, terminated, next_values, played.packing), gamma=gamma, td_lambda=td_lambda
        )

    @staticmethod
    def _step(
        update: Update, network: AgentNetwork, found: Unrolled | States, ahead: Tensor
    ) -> Tensor:
        """Outputs one step after every transition with given features there, [K, n, A]: one step
        of the network from the hidden state after the transition."""
        rows = update.played.all_rows
        branches = Branches(
            inputs=update.plain.flatten(0, 1),
            hidden=found.hidden.detach().flatten(0, 1),
            products=found.products,
            seats=update.played.seats_PN.flatten(),
            table=ahead.flatten(0, 1),
            at=rows.next,
            before=rows.now,
            places=torch.arange(len(rows.now), device=ahead.device).unsqueeze(1),
        )
        return network.branches(branches).view(*ahead.shape[:2], -1)

    @torch.no_grad()
    def _values(self, update: Update, alternatives: Alternatives) -> Tensor:
        """V(s_t, g_k) of every transition's row and alternative, [K·n, H]. All of them are one
        batched step of the network from the hidden states that the play left."""
        played, network, rows = update.played, self._policy.network, update.played.rows
        fed = alternatives.fed.view(-1, played.n_seats, alternatives.fed.shape[-1])
        plain = update.plain.flatten(0, 1)
        hidden, products = plain.new_zeros(len(plain), network.carry_dim), None
        if network.carry_dim:
            with torch.set_grad_enabled(alternatives.learned):
                found = update.unroll(fed, keep=alternatives.learned)
            hidden, products = found.hidden.detach().flatten(0, 1), found.products
        table, places = alternatives.features()
        q = network.branches(
            Branches(
                inputs=plain,
                hidden=hidden,
                products=products,
                seats=played.seats_PN.flatten(),
                table=table,
                at=rows.now,
                before=rows.earlier(rows.now),
                places=places,
            )
        )
        avail = played.pack("avail_actions").flatten(0, 1).index_select(0, rows.now)
        return self._value(q, avail.unsqueeze(1))

    def fit(self, taken: Tensor, targets: Tensor, progress: Progress) -> Metrics:
        """One gradient step on the mean square error of the taken actions' values. Both have one
        row per transition, without padding: [K, n] of n learning seats, [K, 1] with a mixer;
        where seats leave, [L, 1] of those that act."""
        td_error = taken - targets
        loss = td_error.square().mean()
        return {
            "loss": loss.detach(),
            "grad_norm": self.minimise(loss, progress),
            "td_error_abs": td_error.detach().abs().mean(),
            "q_taken_mean": taken.detach().mean(),
            "target_mean": targets.mean(),
        }

    def minimise(self, loss: Tensor | GivenLoss, progress: Progress) -> Tensor:
        """Descend a loss; the norm of its gradient before clipping."""
        grad_norm = descend(loss, self._optimiser, self._parameters, self._config)
        self._targets.follow(progress)
        return grad_norm

    def after_load(self) -> None:
        self._targets.copy()

    def networks(self) -> Mapping[str, nn.Module]:
        mixer = {} if self.mixer is None else {"mixer": self.mixer}
        return {**self._mac.networks(), **mixer}

    def optimisers(self) -> Optimisers:
        model = self._model.optimisers()
        return {"policy": self._optimiser, **model} if model else self._optimiser

    def saved(self) -> dict[str, Any]:
        targets: dict[str, nn.Module] = {"target_agent": self._target_network}
        if self._target_mixer is not None:
            targets["target_mixer"] = self._target_mixer
        return {
            "networks": {**self.networks(), **targets},
            "optimiser": self._optimiser,
            "last_target_episode": self._targets,
            **self._model.saved(),
        }


class OMGLearner(QLearner):
    """`omg_learner`: Q(s, g, a) with inferred subgoals g."""

    kind = "subgoals"
