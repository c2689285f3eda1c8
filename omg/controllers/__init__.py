"""Multi-agent controllers (PyMARL's `mac`): observations to actions, batches to values."""

from omg.config.schema import Config
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


def controller_class(config: Config) -> type[Controller]:
    """The controller of a configuration: a team of one role is played beside others."""
    if config.mac == "basic_mac" and config.learning_role:
        from omg.controllers.role import RoleMAC

        return RoleMAC
    return CONTROLLERS[config.mac]


__all__ = ["CONTROLLERS", "Acted", "Carry", "Controller", "StepView", "controller_class"]
