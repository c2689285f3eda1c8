"""What an environment is like: sizes, seats, arguments, pictures, scripted players."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from omg.catalogue.choice import Choice
from omg.catalogue.listing import quiet
from omg.envs.contract import BatchedEnv
from omg.envs.registry import environment_class, make_batched
from omg.opponents.scripts import scripted_envs, scripted_game
from omg.types import EnvSpec, OmgError

# Environments whose games take a render_mode.
RENDERED = ("gymnasium", "pettingzoo")
# The arguments of native environments, with their defaults.
ARGUMENTS = {
    "foraging": ("omg.envs.foraging.args", "ForagingArgs"),
    "spread": ("omg.envs.spread", "SpreadArgs"),
    "predator_prey": ("omg.envs.predator_prey", "PredatorPreyArgs"),
}
# drawn: whole episodes by the environment; saved: by the game itself; frames: step by step.
Showing: TypeAlias = Literal["drawn", "saved", "frames", "text"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A field of env_args."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class ScriptedPlayer:
    """A script that an environment has."""

    name: str
    role: str  # empty: any
    about: str


@dataclass(frozen=True, slots=True)
class Description:
    """All that can be said of an environment without training on it."""

    choice: Choice
    spec: EnvSpec
    exact_snapshots: bool
    showing: Showing
    reason: str  # why there are no pictures
    arguments: tuple[Argument, ...]
    scripts: tuple[ScriptedPlayer, ...]


def describe(choice: Choice) -> Description:
    """Make one copy and look at it."""
    env = open_env(choice)
    try:
        showing, reason = showing_of(env)
        return Description(
            choice,
            env.spec,
            env.exact_snapshots,
            showing,
            reason,
            tuple(_arguments(choice)),
            tuple(scripted_players(choice.env)),
        )
    finally:
        env.close()


def open_env(choice: Choice, *, pictures: bool = True) -> BatchedEnv:
    """One copy; a foreign game is asked for pictures if it takes a render_mode."""
    args = choice.args
    with quiet():
        if pictures and choice.env in RENDERED and "render_mode" not in args:
            try:
                wanted = {**args, "render_mode": "rgb_array"}
                return make_batched(choice.env, wanted, n_copies=1)
            except OmgError:  # it takes none; other faults show again below
                pass
        return make_batched(choice.env, args, n_copies=1)


def showing_of(env: BatchedEnv) -> tuple[Showing, str]:
    """How episodes of an environment can be shown, and why not in pictures. It is reset."""
    if hasattr(env, "draw_episode"):
        return "drawn", ""
    if getattr(env, "games_save_replays", False):
        return "saved", ""
    env.reset(0)
    try:
        with quiet():
            picture = env.render(0)
    except RuntimeError as error:  # it has none
        return "text", str(error)
    except AttributeError as error:
        if error.name == "render":
            return "text", f"{env.spec.name} has no method render()."
        return "text", f"drawing failed ({error})."
    except Exception as error:  # a window that cannot be opened, a missing package …
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return "text", f"drawing failed ({first}). A game that opens a window needs a display."
    if not (isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3):
        return "text", f"{env.spec.name} gives no RGB picture."
    return "frames", ""


def scripted_players(env: str) -> Iterator[ScriptedPlayer]:
    """The scripts an environment has; none for most."""
    if env not in scripted_envs():
        return
    game = scripted_game(env)
    for name, kind in game.SCRIPTS.items():
        yield ScriptedPlayer(name, kind.role or "", kind.about)


def _arguments(choice: Choice) -> Iterator[Argument]:
    prefix = "env_args."
    for path, value, origin in choice.loaded.rows():
        if path.startswith(prefix):
            yield Argument(path.removeprefix(prefix), value, origin)
    given = choice.args
    for name, (value, origin) in _defaults(choice).items():
        if name not in given:
            yield Argument(name, value, origin)


def _defaults(choice: Choice) -> dict[str, tuple[Any, str]]:
    """Values of the arguments that nobody gave."""
    if choice.env in ARGUMENTS:
        return _native_defaults(choice)
    kind = environment_class(choice.env)
    if isinstance(kind, type) and issubclass(kind, BatchedEnv):
        return {}
    return {
        name: (parameter.default, f"default of {kind.__name__}")
        for name, parameter in _parameters(kind).items()
        if parameter.default is not parameter.empty
    }


def _parameters(kind: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return {}


def _native_defaults(choice: Choice) -> dict[str, tuple[Any, str]]:
    module_name, class_name = ARGUMENTS[choice.env]
    module = importlib.import_module(module_name)
    model = getattr(module, class_name).parse(choice.args)
    found = {
        name: (getattr(model, name), f"default of {choice.env}")
        for name in type(model).model_fields
    }
    key = choice.args.get("key")
    if key is not None and hasattr(module, "parse_key"):
        parts = module.parse_key(key)
        found |= {name: (value, f"env_args.key={key}") for name, value in parts.items()}
    return found


def seat_ranges(seats: Sequence[int]) -> str:
    """Seats in words: 0–2, 4."""
    runs: list[list[int]] = []
    for seat in seats:
        if runs and seat == runs[-1][-1] + 1:
            runs[-1].append(seat)
        else:
            runs.append([seat])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def seat_groups(spec: EnvSpec) -> list[tuple[str, tuple[int, ...], int]]:
    """Role (empty: none), seats, true width of the observation: seats alike are together."""
    groups: dict[tuple[str, int], list[int]] = {}
    for seat in range(spec.n_agents):
        role = spec.roles[seat] if spec.roles else ""
        width = spec.obs_dims[seat] if spec.obs_dims else spec.obs_dim
        groups.setdefault((role, width), []).append(seat)
    return [(role, tuple(seats), width) for (role, width), seats in groups.items()]
