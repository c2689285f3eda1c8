"""Multi-agent controllers (PyMARL's `mac`): observations to actions, batches to values."""

from omg.controllers.base import Acted, Carry, Controller, StepView
from omg.registry import Registry

CONTROLLERS: Registry[type[Controller]] = Registry(
    "mac",
    {
        "basic_mac": "omg.controllers.basic:BasicMAC",
        "multi_module_mac": "omg.controllers.multi_module:MultiModuleMAC",
    },
    base=Controller,
)

__all__ = ["CONTROLLERS", "Acted", "Carry", "Controller", "StepView"]
