"""Which environment a user means, and what it is like."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from omg.catalogue.listing import adapter_of, entries, quiet
from omg.config.arguments import Arguments, Update, parse_arguments
from omg.config.loader import LoadedConfig, available, load, load_saved
from omg.config.schema import Config
from omg.envs.adapters.packages import PACKAGES
from omg.envs.contract import BatchedEnv
from omg.envs.registry import ENVS, environment_class, make_batched
from omg.opponents.scripts import scripted_envs, scripted_game
from omg.registry import import_path_of, nearest, trust
from omg.types import EnvSpec, OmgError


@dataclass(frozen=True, slots=True)
class Choice:
    """An environment with its arguments, and where each of them came from."""

    name: str  # as the user wrote it
    env_config: str  # empty: none
    loaded: LoadedConfig
    given: tuple[Update, ...]  # what was said beside the name

    @property
    def config(self) -> Config:
        return self.loaded.config

    @property
    def env(self) -> str:
        return self.config.env

    @property
    def args(self) -> dict[str, Any]:
        """A copy of its env_args."""
        return dict(self.config.as_dict()["env_args"])

    def train_command(self, spec: EnvSpec) -> str:
        """What to type to train on it. Roles with rewards of their own do not make one team."""
        team = spec.shared_reward or (self.config.common_reward and not spec.roles)
        what = f"--env-config={self.env_config}" if self.env_config else f"--env={self.env}"
        words = ["omg", "train", f"--config={'qmix' if team else 'iql'}", what]
        settings = [f"{update.path}={update.value}" for update in self.given]
        if self.config.common_reward and not team:
            settings.append("common_reward=false")
        return " ".join(map(shlex.quote, [*words, *(["with", *settings] if settings else [])]))


def split_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name among the words of a command line (empty: none), and the other words."""
    for at, word in enumerate(words):
        if word == "with":
            break
        if not word.startswith("--"):
            return word, [*words[:at], *words[at + 1 :]]
    return "", list(words)


def make_env(name: str | type, n_copies: int = 1, **env_args: Any) -> BatchedEnv:
    """Copies of an environment that are stepped together. `name` as for `omg envs info`: a shipped
    configuration, package.module:Class (or the class itself), or package:id of a foreign game."""
    given = tuple(Update(f"env_args.{key}", value, key) for key, value in env_args.items())
    choice = _chosen(import_path_of(name), given)
    return make_batched(choice.env, choice.args, n_copies=n_copies)


def choose(name: str, words: Sequence[str] = ()) -> Choice:
    """What a name stands for: a configuration, a registered environment, a class by import path,
    or a game `package:id` of a known package. `words` are key=value of its env_args."""
    return _chosen(name, env_updates(words))


def _chosen(name: str, given: tuple[Update, ...]) -> Choice:
    if ":" in name:
        trust(name)
    env_config, extra = name, []
    if ":" in name and name.partition(":")[0].partition(".")[0] in (*PACKAGES, "pettingzoo"):
        env_config = _adapter_of_key(name)
        given = (Update("env_args.key", name, name), *given)
    elif ":" in name or name.endswith(".py"):
        environment_class(name)
        env_config, extra = "", [Update("env", name, name)]
    elif name in list(ENVS) and name not in available("envs"):
        env_config = next((e.env_config for e in entries() if e.env == name), "")
        extra = [] if env_config else [Update("env", name, name)]
    elif not name.endswith((".yaml", ".yml")) and name not in available("envs"):
        raise OmgError(_unknown(name))
    loaded = load(Arguments(env=env_config or None, updates=(*extra, *given)))
    return Choice(name, env_config, loaded, given)


def choose_of_run(folder: Path, words: Sequence[str] = ()) -> Choice:
    """The environment that a run was trained on, with env_args of one's own on top."""
    given = env_updates(words)
    loaded = load_saved(folder / "config.yaml", Arguments(updates=given))
    return Choice(loaded.config.env, "", loaded, given)


def _adapter_of_key(key: str) -> str:
    package = key.partition(":")[0].partition(".")[0]
    return "pettingzoo" if package == "pettingzoo" else adapter_of(package)


def _unknown(name: str) -> str:
    known = [*available("envs"), *ENVS]
    return (
        f"There is no environment called '{name}'{nearest(name, known) or '.'} Choose one of: "
        f"{', '.join(dict.fromkeys(sorted(known)))}; or name your own as package.module:Class."
    )


def env_updates(words: Sequence[str]) -> tuple[Update, ...]:
    """`[--key=value …] [with key=value …]` as env_args; anything else is refused."""
    arguments = parse_arguments(words)
    option = "config" if arguments.alg else "env-config" if arguments.env else ""
    if option:
        raise OmgError(
            f"--{option} is for 'omg train'. Name the environment alone, e.g. foraging, and its "
            "env_args behind it: with key=value."
        )
    if arguments.files:
        raise OmgError(
            f"'with {arguments.files[0]}' is no key=value. Write with key=value …, or name a .yaml "
            "file as the environment."
        )
    return tuple(
        Update(f"env_args.{update.path.removeprefix('env_args.')}", update.value, update.origin)
        for update in arguments.updates
        if not update.origin.startswith("--debug")
    )


# Environments whose games take a render_mode.
RENDERED = ("gymnasium", "pettingzoo")
# The arguments of native environments, with their defaults.
ARGUMENTS = {
    "foraging": ("omg.envs.foraging.args", "ForagingArgs"),
    "spread": ("omg.envs.spread", "SpreadArgs"),
    "predator_prey": ("omg.envs.predator_prey", "PredatorPreyArgs"),
    "snowdrift": ("omg.envs.goal_grid.snowdrift", "SnowdriftArgs"),
    "stag_hunt": ("omg.envs.goal_grid.stag_hunt", "StagHuntArgs"),
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
