"""Opponent modelling in multi-agent reinforcement learning.

    import omg

    run = omg.train("qmix", "foraging", t_max=50_000)
    agent = run.agent()
    env = run.make_env()

The names below are the Python API (docs/python.md). Importing `omg` is cheap: what a name stands
for, and torch with it, is imported when the name is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omg.catalogue.choice import make_env as make_env
    from omg.evaluation.crossplay_table import Crossplay as Crossplay
    from omg.evaluation.evaluate import crossplay as crossplay
    from omg.evaluation.evaluate import evaluate as evaluate
    from omg.experiment.agent import Agent as Agent
    from omg.experiment.agent import load_agent as load
    from omg.experiment.saved import SavedRun as Run
    from omg.experiment.session import train as train
    from omg.opponents.pool import OpponentPool as Pool
    from omg.types import OmgError as OmgError

# Threads that wait for each other sleep instead of spinning: beside other processes, spinning made
# training on two threads several times slower than on one (docs/performance.md). torch's OpenMP
# reads this when it is loaded, so it is said here, before; a user's own setting stays.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
    os.environ["OMP_WAIT_POLICY"] = "passive"

_WHERE = {
    "Agent": "omg.experiment.agent:Agent",
    "Crossplay": "omg.evaluation.crossplay_table:Crossplay",
    "OmgError": "omg.types:OmgError",
    "Pool": "omg.opponents.pool:OpponentPool",
    "Run": "omg.experiment.saved:SavedRun",
    "crossplay": "omg.evaluation.evaluate:crossplay",
    "evaluate": "omg.evaluation.evaluate:evaluate",
    "load": "omg.experiment.agent:load_agent",
    "make_env": "omg.catalogue.choice:make_env",
    "train": "omg.experiment.session:train",
}

__all__ = [
    "Agent",
    "Crossplay",
    "OmgError",
    "Pool",
    "Run",
    "crossplay",
    "evaluate",
    "load",
    "make_env",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'omg' has no attribute '{name}'")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
