"""`q_learner`: Q-learning on whole episodes, independent or through a mixer (VDN, QMIX)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.basic import BasicMAC
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.functional.td import gather_actions, next_action_values, td_targets
from omg.learners.base import (
    Learner,
    Metrics,
    Progress,
    blend,
    descend,
    load_optimiser,
    make_optimiser,
    target_share,
    team_spec,
    trained_mac,
)
from omg.learners.capabilities import Capabilities, check_supported
from omg.modules.mixers import MIXERS, Mixer
from omg.modules.mixers.qtran import QtranBase
from omg.types import EnvSpec, OmgError


class QLearner(Learner):
    """Minimises (Q(τ_t, a_t) - [r_t + γ (1-d_t) max_a Q'(τ_{t+1}, a)])², mean over transitions."""

    trains: type[BasicMAC] | type[MultiModuleMAC] = BasicMAC
    able = Capabilities(outputs="q", macs=("basic_mac",), mixers="optional")

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        check_supported(config, spec, self.able)
        self._config = config
        self._mac = trained_mac(config, mac, self.trains, self.able)
        self._policy = self._mac.policy
        self._target_network = self._policy.new_network()
        team = team_spec(spec, self._mac)
        self.mixer = self._new_mixer(config, team, device)
        self._target_mixer = self._new_mixer(config, team, device)
        self._parameters = [*self._policy.network.parameters()]
        if self.mixer is not None:
            self._parameters += self.mixer.parameters()
        self._optimiser = make_optimiser(config, self._parameters)
        self._last_target_episode = 0
        self._state_scale = spec.state_scale if config.scale_inputs else 1.0
        self.after_load()

    def _new_mixer(self, config: Config, spec: EnvSpec, device: torch.device) -> Mixer | None:
        if config.mixer is None:
            return None
        kind = MIXERS[config.mixer]
        if issubclass(kind, QtranBase):
            raise OmgError(
                f"learner={config.learner} does not learn the joint value of mixer={config.mixer}. "
                "Set learner=qtran_learner, or take --config=qtran."
            )
        return kind(
            n_agents=spec.n_agents,
            state_dim=spec.state_dim,
            embed_dim=config.mixing_embed_dim,
            hypernet_layers=config.hypernet_layers,
            hypernet_embed=config.hypernet_embed,
        ).to(device)

    def _mixed(self, mixer: Mixer | None, values_KN: Tensor, state_KS: Tensor) -> Tensor:
        if mixer is None:
            return values_KN
        mixed: Tensor = mixer(values_KN, state_KS)
        return mixed

    def targets(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        inputs: Tensor,
        online_q: Tensor,
        seats: Tensor | None = None,
    ) -> Tensor:
        """r_t + γ (1 - d_t) V'(τ_{t+1}) of all K transitions at once, [K, N or 1]."""
        with torch.no_grad():
            target_q = self._policy.unroll(inputs, packing, self._target_network, seats)
            next_values = next_action_values(
                online_q.detach().index_select(0, packing.next),
                target_q.index_select(0, packing.next),
                packing.take(batch.raw("avail_actions"), packing.next),
                double=self._config.double_q,
            )
            next_state = self._state(batch, packing, packing.next)
            return td_targets(
                packing.take(batch["reward"], packing.now),
                packing.take(batch.raw("terminated"), packing.now),
                self._mixed(self._target_mixer, next_values, next_state),
                gamma=self._config.gamma,
            )

    def _own_part(self, batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor | None]:
        """What is learned from, and the seats in it ([B, n]; None: all seats in order)."""
        return self._mac.own_part(batch) if isinstance(self._mac, BasicMAC) else (batch, None)

    def _feature(self, batch: EpisodeBatch, packing: Packing) -> Tensor | None:
        """What an opponent model adds to the inputs, [P, n, F]; None without one."""
        return None

    def _train_model(self, batch: EpisodeBatch, packing: Packing) -> Metrics:
        """What else learns from the batch behind the values: an opponent model."""
        return {}

    def _state(self, batch: EpisodeBatch, packing: Packing, slots: Tensor) -> Tensor:
        return packing.take(batch.raw("state"), slots).to(torch.float32) * self._state_scale

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        whole = batch
        batch, seats = self._own_part(whole)
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        feature = self._feature(whole, packing)
        inputs = self._policy.build_inputs(batch, packing, seats, feature)
        q = self._policy.unroll(inputs, packing, seats=seats)
        taken = packing.take(batch.raw("actions"), packing.now).long()
        state = self._state(batch, packing, packing.now)
        chosen = self._mixed(
            self.mixer, gather_actions(q.index_select(0, packing.now), taken), state
        )
        targets = self.targets(batch, packing, inputs, q, seats)
        metrics = self._descend(chosen, targets, progress)
        return {**metrics, **self._train_model(whole, packing)}

    def _descend(self, taken: Tensor, targets: Tensor, progress: Progress) -> Metrics:
        """One gradient step on the mean square error of the taken actions' values."""
        td_error = taken - targets
        loss = td_error.square().mean()
        return {
            "loss": loss.detach(),
            "grad_norm": self._minimise(loss, progress),
            "td_error_abs": td_error.detach().abs().mean(),
            "q_taken_mean": taken.detach().mean(),
            "target_mean": targets.mean(),
        }

    def _minimise(self, loss: Tensor, progress: Progress) -> Tensor:
        """Descend a loss; the norm of its gradient before clipping."""
        grad_norm = descend(loss, self._optimiser, self._parameters, self._config)
        self._update_targets(progress)
        return grad_norm

    def _update_targets(self, progress: Progress) -> None:
        share = target_share(self._config, progress.episodes, self._last_target_episode)
        if share:
            self._blend(share)
            self._last_target_episode = progress.episodes

    def _blend(self, tau: float) -> None:
        blend(self._target_network, self._policy.network, tau)
        if self.mixer is not None and self._target_mixer is not None:
            blend(self._target_mixer, self.mixer, tau)

    def after_load(self) -> None:
        self._blend(1.0)

    def networks(self) -> Mapping[str, nn.Module]:
        mixer = {} if self.mixer is None else {"mixer": self.mixer}
        return {**self._mac.networks(), **mixer}

    def optimiser_state(self) -> dict[str, Any]:
        return self._optimiser.state_dict()

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        load_optimiser(self._optimiser, state)

    def state_dict(self) -> dict[str, Any]:
        networks = {**self.networks(), **self._target_networks()}
        return {
            "networks": {name: network.state_dict() for name, network in networks.items()},
            "optimiser": self._optimiser.state_dict(),
            "last_target_episode": self._last_target_episode,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, network in {**self.networks(), **self._target_networks()}.items():
            network.load_state_dict(state["networks"][name])
        self._optimiser.load_state_dict(state["optimiser"])
        self._last_target_episode = int(state["last_target_episode"])

    def _target_networks(self) -> dict[str, nn.Module]:
        mixer = {} if self._target_mixer is None else {"target_mixer": self._target_mixer}
        return {"target_agent": self._target_network, **mixer}
