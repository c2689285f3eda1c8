"""Mixers: the agents' chosen values to the value of the team."""

from omg.modules.mixers.base import Mixer
from omg.registry import PartRegistry

MIXERS: PartRegistry[Mixer] = PartRegistry(
    "mixer",
    {
        "vdn": "omg.modules.mixers.vdn:VDNMixer",
        "qmix": "omg.modules.mixers.qmix:QMixer",
        "qtran_base": "omg.modules.mixers.qtran:QtranBase",
    },
    base=Mixer,
    given=(
        *("n_agents", "n_actions", "state_dim", "feature_dim", "embed_dim", "hypernet_layers"),
        *("hypernet_embed", "arch", "config"),
    ),
    args_key="mixer_args",
)

__all__ = ["MIXERS", "Mixer"]
