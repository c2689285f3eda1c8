"""Critics: values of whole episodes' slots, for policy-gradient learners."""

from omg.config.schema import Config
from omg.modules.critics.base import Critic
from omg.registry import Registry, build_part
from omg.types import EnvSpec

CRITICS: Registry[type[Critic]] = Registry(
    "critic",
    {
        "coma": "omg.modules.critics.coma:ComaCritic",
        "ac": "omg.modules.critics.value:OwnCritic",
        "cv": "omg.modules.critics.value:CentralCritic",
    },
    base=Critic,
)


def build_critic(config: Config, spec: EnvSpec, *, input_dim: int, feature_dim: int = 0) -> Critic:
    """The configured critic of the seats in `spec` with fresh weights."""
    return build_part(
        CRITICS[str(config.critic)],
        named=f"critic={config.critic}",
        args_key="critic_args",
        given={
            "config": config,
            "spec": spec,
            "input_dim": input_dim,
            "feature_dim": feature_dim,
        },
        args=config.critic_args,
    )


__all__ = ["CRITICS", "Critic", "build_critic"]
