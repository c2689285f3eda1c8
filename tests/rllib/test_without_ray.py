"""The integration where Ray is missing."""

from __future__ import annotations

import sys

import pytest

import omg.integrations.rllib as integration
from omg.types import OmgError


def test_ray_is_installed_for_these_tests() -> None:
    pytest.importorskip("ray", reason="tests/rllib need the extra: pip install 'omg-marl[rllib]'")


@pytest.mark.parametrize("name", integration.__all__)
def test_without_ray_every_name_tells_which_extra_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, module)
    for module in [m for m in sys.modules if m.startswith("omg.integrations.rllib.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OmgError, match=r"omg-marl\[rllib\]"):
        getattr(integration, name)


def test_importing_the_package_does_not_import_ray() -> None:
    assert "ppo_config" in integration.__all__
    with pytest.raises(AttributeError, match="no attribute"):
        integration.sac_config  # noqa: B018
