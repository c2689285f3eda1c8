"""Multi-agent controllers (PyMARL's `mac`): observations to actions for every seat of a team."""

from omg.controllers.base import Acted, Controller
from omg.registry import Registry

CONTROLLERS: Registry[type[Controller]] = Registry(
    "mac",
    {
        "basic_mac": "omg.controllers.team:BasicMAC",
        "multi_module_mac": "omg.controllers.team:MultiModuleMAC",
    },
    base=Controller,
)

__all__ = ["CONTROLLERS", "Acted", "Controller"]
