"""The arguments of the StarCraft II environments: SMAC's own, passed on, and two of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from omg.registry import nearest
from omg.types import OmgError

DIFFICULTIES = tuple("123456789A")
# Ours; everything else belongs to the package's class.
OWN_ARGUMENTS = ("timeout_seconds", "max_restarts")


def check_arguments(args: Mapping[str, Any], known: Collection[str], owner: str) -> dict[str, Any]:
    """Arguments for the class `owner`, in the types it needs; what it does not take is refused."""
    for name in args:
        if name not in known:
            choices = [*known, *OWN_ARGUMENTS]
            raise OmgError(
                f"{owner} has no argument '{name}'{nearest(name, choices) or '.'} "
                f"Choose among: {', '.join(choices)}."
            )
    checked = dict(args)
    if "difficulty" in checked:
        checked["difficulty"] = _difficulty(checked["difficulty"])
    if isinstance(checked.get("game_version"), int | float):
        raise OmgError(
            f"env_args.game_version={checked['game_version']} is a number (4.10 would become 4.1). "
            "Write it with three parts, e.g. 4.10.0, or in quotes."
        )
    if checked.get("replay_dir"):  # the game takes relative paths as relative to its own folder
        checked["replay_dir"] = str(Path(checked["replay_dir"]).expanduser().absolute())
    return checked


def check_own_arguments(timeout_seconds: Any, max_restarts: Any) -> tuple[float, int]:
    """Seconds until a silent game counts as hung (0: never), and restarts allowed in a row."""
    if not _is_number(timeout_seconds, int | float):
        raise OmgError(
            f"env_args.timeout_seconds={timeout_seconds!r} is not possible. Give seconds, or 0 to "
            "wait for ever."
        )
    if not _is_number(max_restarts, int):
        raise OmgError(
            f"env_args.max_restarts={max_restarts!r} is not possible. Give a whole number from 0."
        )
    return float(timeout_seconds), int(max_restarts)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and 0 <= value < float("inf")


def _difficulty(value: Any) -> str:
    """A digit on a command line is a number; SMAC wants text."""
    if str(value) not in DIFFICULTIES:
        raise OmgError(
            f"env_args.difficulty={value!r} is not possible. Choose one of "
            f"{', '.join(DIFFICULTIES)} (7 is SMAC's)."
        )
    return str(value)
