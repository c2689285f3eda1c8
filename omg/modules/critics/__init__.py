"""Critics: values of whole episodes' slots, for policy-gradient learners."""

from omg.modules.critics.base import Critic
from omg.registry import Registry

CRITICS: Registry[type[Critic]] = Registry(
    "critic",
    {
        "coma": "omg.modules.critics.coma:ComaCritic",
        "ac": "omg.modules.critics.value:OwnCritic",
        "cv": "omg.modules.critics.value:CentralCritic",
    },
    base=Critic,
)

__all__ = ["CRITICS", "Critic"]
