"""JaxMARL's SMAX through the contract's checks; needs the extra `smax`."""

from __future__ import annotations

from functools import partial

import pytest

from omg.envs.check import check_batched_env
from omg.envs.registry import make_batched
from omg.types import OmgError

pytestmark = pytest.mark.long


def test_smax_keeps_the_contract() -> None:
    pytest.importorskip("jaxmarl")
    from omg.envs.adapters.smax import SmaxEnv

    args = {"map_name": "3m", "max_steps": 20}
    for result in check_batched_env(partial(SmaxEnv, args=args), steps=45):
        assert result.ok, f"{result.name}: {result.detail}"


def test_an_unknown_map_is_answered_with_the_nearest() -> None:
    pytest.importorskip("jaxmarl")
    with pytest.raises(OmgError, match="did you mean '3s5z'"):
        make_batched("smax", {"map_name": "3s5"}, n_copies=1)


def test_a_mode_of_attack_that_smax_would_take_for_another_is_refused() -> None:
    pytest.importorskip("jaxmarl")
    with pytest.raises(OmgError, match=r"'attack_mode' is 'weakest'.*'closest' or 'random'"):
        make_batched("smax", {"attack_mode": "weakest"}, n_copies=1)


def test_without_the_package_the_extra_is_named() -> None:
    try:
        import jaxmarl  # noqa: F401
    except ImportError:
        with pytest.raises(OmgError, match=r"omg-marl\[smax\]"):
            make_batched("smax", {}, n_copies=1)
    else:
        pytest.skip("the package is installed")
