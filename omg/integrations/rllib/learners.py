"""RLlib's learners of PPO and DQN, with opponent models that learn from the same episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core import COMPONENT_OPTIMIZER
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import nn

from omg.components.episodes import EpisodeBatch
from omg.integrations.rllib.episodes import EpisodeAssembler, keep_truncations
from omg.integrations.rllib.model_updates import ModelUpdates
from omg.integrations.rllib.modules import INPUTS, OmgModule, OmgPPOModule
from omg.integrations.rllib.settings import KEY
from omg.types import OmgError

MODEL = "opponent_model."  # the prefix of its weights in a module


class CollectEpisodes(ConnectorV2):
    """Hands every batch of episodes to the learner before RLlib changes them."""

    def __init__(self, learner: OmgLearner) -> None:
        super().__init__()
        self._learner = learner

    def __call__(self, *, batch: Any, episodes: Sequence[Any], **kwargs: Any) -> Any:
        self._learner.collect(episodes)
        return batch


class AddInputs(ConnectorV2):
    """Makes what the policies are fed once for all epochs and for the advantages."""

    def __call__(self, *, rl_module: Any, batch: Any, **kwargs: Any) -> Any:
        for name, part in batch.items():
            module = rl_module[name].unwrapped()
            inputs = module.inputs(part[Columns.OBS]) if isinstance(module, OmgPPOModule) else None
            if inputs is not None:
                part[INPUTS] = inputs
        return batch


class OmgLearner(TorchLearner):
    """Stands before RLlib's learner in a class's bases. The policy's own loss is RLlib's; the
    opponent models make their updates after it, so that what a policy was fed while it acted and
    while it learned came from the same weights."""

    def build(self) -> None:
        """Also the opponent models' training, and the way in for episodes."""
        super().build()
        if self.config.num_learners > 1:
            raise OmgError(
                f"num_learners={self.config.num_learners}, and opponent models are trained in one "
                "learner. Set num_learners=0 or 1."
            )
        self._new: list[EpisodeBatch] = []
        self._assembler: EpisodeAssembler | None = None
        self._unstarted: OmgError | None = None
        self.models: dict[str, ModelUpdates] = {}
        for name, module in self.module.items():
            inner = module.unwrapped()
            if not isinstance(inner, OmgModule):
                continue
            self._assembler = self._assembler or EpisodeAssembler(inner.layout)
            if self._learns(name, inner):
                self.models[name] = ModelUpdates(inner)
        self._begin()
        self._learner_connector.prepend(CollectEpisodes(self))

    def _learns(self, name: str, module: OmgModule) -> bool:
        """Whether a policy that learns has a model with weights."""
        model, wanted = module.policy.model, self.config.policies_to_train
        if model is None or not any(p.requires_grad for p in model.parameters()):
            return False
        return wanted is None or bool(wanted(name, None) if callable(wanted) else name in wanted)

    def _begin(self) -> None:
        """What cannot be loaded is an error when it is needed: not after a restore."""
        try:
            for model in self.models.values():
                model.start()
        except OmgError as error:
            self._unstarted = error

    def get_parameters(self, module: Any) -> list[nn.Parameter]:
        """The policy's; its opponent model has an optimiser of its own."""
        return [
            weights
            for name, weights in module.named_parameters()
            if weights.requires_grad and MODEL not in f"{name}."
        ]

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """A module that only plays needs none."""
        if self.get_parameters(self.module[module_id]):
            super().configure_optimizers_for_module(module_id=module_id, config=config)

    def collect(self, episodes: Sequence[Any]) -> None:
        """Whole episodes, from what PPO's runners or DQN's buffer delivered."""
        played = [e for e in episodes if isinstance(e, MultiAgentEpisode)]
        for episode in played:
            keep_truncations(episode)
        if self._assembler is not None and self.models:
            self._new += self._assembler.add(played)
        for episode in episodes:
            if not isinstance(episode, MultiAgentEpisode):
                self._new += episode.custom_data.pop(KEY, [])

    def after_gradient_based_update(self, *, timesteps: Mapping[str, Any]) -> None:
        """Now the opponent models learn."""
        super().after_gradient_based_update(timesteps=timesteps)
        if self._unstarted is not None:
            raise self._unstarted
        steps = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME) or 0)
        for name, model in self.models.items():
            found = model.learn(self._new, steps)
            for key, value in found.items():
                self.metrics.log_value((name, key), value, window=1)
            counts = {"am_episodes": model.episodes, "am_updates": model.updates}
            for key, count in counts.items():
                self.metrics.log_value((name, key), count, reduce="max")
        self._new = []

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Also what RLlib leaves out: `more_state` and the opponent models'. Not where only weights
        are asked for, as before every play: their buffers would travel to all runners."""
        state: dict[str, Any] = super().get_state(
            components, not_components=not_components, **kwargs
        )
        if not self._check_component(KEY, components, not_components):
            return state
        models = {name: model.state_dict() for name, model in self.models.items()}
        state[KEY] = {"models": models, **self.more_state()}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The opposite of `get_state`; a state without the opponent models' part is refused, one
        of weights alone is not."""
        super().set_state(state)
        if KEY not in state:
            if self.models and COMPONENT_OPTIMIZER in state:
                raise OmgError(
                    f"The learner's state has nothing of the opponent models of "
                    f"{', '.join(self.models)}. Restore a checkpoint of ppo_config or dqn_config, "
                    "or weights alone."
                )
            return
        told = state[KEY]
        if told["models"].keys() != self.models.keys():
            raise OmgError(
                f"The checkpoint has opponent models of {', '.join(told['models']) or 'nobody'}, "
                f"this algorithm of {', '.join(self.models) or 'nobody'}. Restore it with the "
                "settings it was made with (Algorithm.from_checkpoint)."
            )
        for name, model in self.models.items():
            model.load_state_dict(told["models"][name])
        self._unstarted = None
        self.load_more_state(told)

    def more_state(self) -> dict[str, Any]:
        """What RLlib's learner does not restore."""
        return {}

    def load_more_state(self, told: Mapping[str, Any]) -> None:
        """The opposite of `more_state`."""


class OmgPPOLearner(OmgLearner, PPOTorchLearner):
    """PPO; the coefficients of its KL term are restored, too."""

    def build(self) -> None:
        super().build()
        self._learner_connector.insert_before(GeneralAdvantageEstimation, AddInputs())

    def more_state(self) -> dict[str, Any]:
        coefficients = self.curr_kl_coeffs_per_module
        return {"kl": {name: float(coefficients[name]) for name, _ in self.module.items()}}

    def load_more_state(self, told: Mapping[str, Any]) -> None:
        for name, value in told["kl"].items():
            self.curr_kl_coeffs_per_module[name].data.fill_(value)


class OmgDQNLearner(OmgLearner, DQNTorchLearner):
    """DQN; when its targets were last updated is restored, too."""

    def more_state(self) -> dict[str, Any]:
        return {"targets": dict(self.last_update_ts_by_mid)}

    def load_more_state(self, told: Mapping[str, Any]) -> None:
        self.last_update_ts_by_mid.update(told["targets"])
