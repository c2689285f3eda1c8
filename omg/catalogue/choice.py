"""Which environment a user means by a name and some arguments."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.catalogue.listing import adapter_of, entries
from omg.config.arguments import Arguments, Update, parse_arguments
from omg.config.loader import LoadedConfig, available, load, load_saved
from omg.config.schema import Config
from omg.envs.adapters.packages import PACKAGES
from omg.envs.contract import BatchedEnv
from omg.envs.registry import ENVS, environment_class, make_batched
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
