"""Multi-agent controllers (PyMARL's `mac`): observations to actions for every seat of a team."""

from omg.controllers.base import Acted, Controller
from omg.registry import PartRegistry

CONTROLLERS: PartRegistry[Controller] = PartRegistry(
    "mac",
    {
        "basic_mac": "omg.controllers.team:BasicMAC",
        "multi_module_mac": "omg.controllers.team:MultiModuleMAC",
    },
    base=Controller,
    given=("config", "spec", "device", "gathering", "lineup"),
)

__all__ = ["CONTROLLERS", "Acted", "Controller"]
