"""Critics: values of whole episodes' slots, for policy-gradient learners."""

from omg.config.schema import Config
from omg.modules.critics.base import Critic
from omg.registry import PartRegistry
from omg.types import EnvSpec

CRITICS: PartRegistry[Critic] = PartRegistry(
    "critic",
    {
        "coma": "omg.modules.critics.coma:ComaCritic",
        "ac": "omg.modules.critics.value:OwnCritic",
        "cv": "omg.modules.critics.value:CentralCritic",
    },
    base=Critic,
    given=("config", "spec", "input_dim", "feature_dim"),
    args_key="critic_args",
)


def build_critic(config: Config, spec: EnvSpec, *, input_dim: int, feature_dim: int = 0) -> Critic:
    """The configured critic of the seats in `spec` with fresh weights."""
    return CRITICS.build(
        str(config.critic),
        config.critic_args,
        config=config,
        spec=spec,
        input_dim=input_dim,
        feature_dim=feature_dim,
    )


__all__ = ["CRITICS", "Critic", "build_critic"]
