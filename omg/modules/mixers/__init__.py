"""Mixers: the agents' chosen values to the value of the team."""

from omg.modules.mixers.base import Mixer
from omg.registry import Registry

MIXERS: Registry[type[Mixer]] = Registry(
    "mixer",
    {
        "vdn": "omg.modules.mixers.vdn:VDNMixer",
        "qmix": "omg.modules.mixers.qmix:QMixer",
        "qtran_base": "omg.modules.mixers.qtran:QtranBase",
    },
    base=Mixer,
)

__all__ = ["MIXERS", "Mixer"]
