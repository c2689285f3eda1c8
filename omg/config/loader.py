"""default.yaml → envs/<env>.yaml → algs/<alg>.yaml → command line, merged recursively."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from omg.config.abroad import ADVICE, meant
from omg.config.arguments import Arguments, parse_arguments, wants_team
from omg.config.schema import ALIASES, NOT_TAKEN, Config
from omg.config.shipped import CONFIG_DIR as CONFIG_DIR
from omg.config.shipped import available as available
from omg.config.team import read_team
from omg.registry import expected, nearest, trust
from omg.types import OmgError

# Limits of a configuration file, far beyond any that is meant.
MOST_BYTES, MOST_VALUES, DEEPEST = 1_000_000, 20_000, 20
DEFAULT_ORIGIN = "config/default.yaml"
# A section of an algorithm's file: settings for single environments.
FOR_ENV = "for_env"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The merged configuration and where each (dotted) value came from."""

    config: Config
    origins: Mapping[str, str]

    def rows(self) -> list[tuple[str, Any, str]]:
        """(dotted key, value, origin) of every value; passwords are masked."""
        values = self.config.as_dict()
        values["mongo_url"] = masked(self.config.mongo_url)
        return [(k, v, masked(self.origins.get(k, "?"))) for k, v in leaves(values)]


def masked(url: str) -> str:
    """A URL with its password hidden."""
    return re.sub(r"(//[^:/@]*):.*@", r"\1:***@", url)


def leaves(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything inside."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class _Repeated(yaml.MarkedYAMLError):
    """A key that stands twice in a mapping."""


class _Loader(yaml.SafeLoader):
    """Plain values only; a key that stands twice is an error; dates and times are texts (YAML reads
    1:3 as the number 63)."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = next((key for key, count in keys.items() if count > 1 and key != "<<"), None)
        if twice is not None:
            raise _Repeated(problem=f"'{twice}' stands twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def _without_times(tag: str, pattern: re.Pattern[str]) -> re.Pattern[str]:
    """What counts as a number, without those to the base of 60."""
    if tag not in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
        return pattern
    return re.compile(f"(?!.*:)(?:{pattern.pattern})", re.VERBOSE)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _without_times(tag, pattern))
        for tag, pattern in found
        if tag != "tag:yaml.org,2002:timestamp"
    ]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _check_size(content: Any, shown: str) -> None:
    """Refuse what aliases blow up, or let contain itself."""
    waiting, seen = [(content, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST or seen > MOST_VALUES:
            raise OmgError(
                f"{shown} is nested deeper than {DEEPEST} levels or has more than {MOST_VALUES:,} "
                "values. Write 'key: value' lines without aliases."
            )
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            waiting += [(part, depth + 1) for part in inner]


def read_yaml(path: Path, shown: str) -> dict[str, Any]:
    """A YAML mapping, by the safe loader; anything else is a sentence."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OmgError(f"{shown} is larger than {MOST_BYTES:,} bytes. Give a configuration.")
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a safe one
        _check_size(content, shown)
    except OSError as error:
        raise OmgError(f"{shown} cannot be read: {error.strerror}. Check the path.") from error
    except RecursionError as error:
        raise OmgError(f"{shown} is nested too deeply. Write 'key: value' lines.") from error
    except (yaml.YAMLError, ValueError) as error:
        first = str(error).splitlines()
        where = next((line.strip() for line in first if "line" in line), first[0])
        what = f"{error.problem}, " if isinstance(error, _Repeated) else ""
        raise OmgError(
            f"{shown} is not valid YAML ({what}{where[:200]}). Mend it there."
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise OmgError(f"{shown} holds a {type(content).__name__}. Write 'key: value' lines.")
    return content


def _named_file(kind: str, name: str, option: str) -> tuple[Path, str]:
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise OmgError(
                f"{option}={name}: there is no such file. Check the path, or name one of those "
                f"that exist: {', '.join(available(kind))}."
            )
        return path, name
    path = CONFIG_DIR / kind / f"{name}.yaml"
    if "/" in name or not path.is_file():
        names = available(kind)
        raise OmgError(
            f"{option}={name}: there is no such configuration{nearest(name, names) or '.'} "
            f"Those that exist: {', '.join(names)}; or give a path ending in .yaml."
        )
    return path, f"config/{kind}/{name}.yaml"


def _dotted(parts: Sequence[Any]) -> str:
    return ".".join(str(part) for part in parts)


class _Merge:
    """Nested values with the origin of each leaf."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

    def add(self, content: Mapping[str, Any], origin: str) -> None:
        for key, value in content.items():
            self.put(str(key), value, origin)

    def put(self, path: str, value: Any, origin: str) -> None:
        """Set one dotted path; a mapping merges into what is there, anything else replaces it."""
        head, *rest = path.split(".")
        self._put([ALIASES.get(head, head), *rest], value, origin)

    def _put(self, parts: list[Any], value: Any, origin: str) -> None:
        node = self.values
        for depth, part in enumerate(parts[:-1]):
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                above = _dotted(parts[: depth + 1])
                raise OmgError(
                    f"{origin}: '{above}' holds one value. It has no '{_dotted(parts)}' inside."
                )
            node = inner
        path = _dotted(parts)
        if isinstance(value, Mapping):
            if not isinstance(node.get(parts[-1]), dict):
                node[parts[-1]] = {}
                self.origins[path] = origin
            for key, inner in value.items():
                self._put([*parts, key], inner, origin)
            return
        node[parts[-1]] = value
        for known in [k for k in self.origins if k.startswith(path + ".")]:
            del self.origins[known]
        for depth in range(1, len(parts)):  # no longer empty, so their values tell
            self.origins.pop(_dotted(parts[:depth]), None)
        self.origins[path] = origin

    def origin_of(self, path: str) -> str:
        inner = [o for k, o in self.origins.items() if k.startswith(path + ".")]
        return self.origins.get(path) or (inner[-1] if inner else "?")


def _expected(kind: str, key: str, message: str) -> str:
    if kind == "string_pattern_mismatch":
        return str(Config.model_fields[key].description)
    return expected(kind, message)


def _short(text: str) -> str:
    """Text for a message: of moderate length, and without escape sequences."""
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= 120 else f"{text[:100]}…"


def _explain(error: ValidationError, merge: _Merge, source: str) -> OmgError:
    sentences: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        location = problem["loc"]
        key = str(location[0]) if location else ""
        # Behind the key, pydantic names list positions and the members of a union.
        path = _dotted([key, *(part for part in location[1:] if isinstance(part, int))])
        origin = merge.origin_of(key)
        if path in sentences and path:
            continue
        if problem["type"] == "extra_forbidden" and key in NOT_TAKEN:
            sentences[path] = (
                f"'{key}' (from {_short(origin)}) is a key of PyMARL that is not used here. "
                f"{NOT_TAKEN[key]}, and leave '{key}' out."
            )
        elif problem["type"] == "extra_forbidden" and (advice := ADVICE.get(key.lower())):
            sentences[path] = f"'{key}' (from {_short(origin)}) is no key here. {advice}."
        elif problem["type"] == "extra_forbidden":
            known = [*Config.model_fields, *ALIASES]
            hint = meant(key) or nearest(key, known) or ". 'omg config show' lists all."
            sentences[path] = f"Unknown key '{_short(key)}' (from {_short(origin)}){hint}"
        elif problem["type"] == "missing":
            sentences[path] = f"Key '{path}' has no value. Add it to {source}."
        elif not key:
            sentences[path] = str(problem["msg"]).removeprefix("Value error, ") + "."
        else:
            expected = _expected(problem["type"], key, str(problem["msg"]))
            sentences[path] = (
                f"{path}={_short(repr(problem['input']))} (from {_short(origin)}) is not possible. "
                f"Expected: {expected}."
            )
    return OmgError("\n".join(sentences.values()))


def _build(merge: _Merge, source: str) -> LoadedConfig:
    try:
        config = Config.model_validate(merge.values)
    except ValidationError as error:
        raise _explain(error, merge, source) from error
    return LoadedConfig(config, dict(merge.origins))


def load(arguments: Arguments) -> LoadedConfig:
    """Merge the files and the command line, later ones winning, and check the result."""
    merge = merged_files(arguments)
    _add_files(merge, arguments)
    for update in arguments.updates:
        merge.put(update.path, update.value, update.origin)
    _trust_named(merge.values)
    return _build(merge, DEFAULT_ORIGIN)


def merged_files(arguments: Arguments) -> _Merge:
    """What --config and --env-config stand for, before the command line's own keys."""
    merge = _Merge()
    merge.add(read_yaml(CONFIG_DIR / "default.yaml", DEFAULT_ORIGIN), DEFAULT_ORIGIN)
    if arguments.env is not None:
        path, origin = _named_file("envs", arguments.env, "--env-config")
        merge.add(read_yaml(path, origin), origin)
    if wants_team(arguments):
        _add_team(merge, arguments)
    elif arguments.alg is not None:
        merge.add(*_algorithm(merge, arguments, arguments.alg))
    return merge


def _algorithm(
    merge: _Merge, arguments: Arguments, name: str, option: str = "--config"
) -> tuple[dict[str, Any], str]:
    """An algorithm's file and what it is called. Its section `for_env` holds settings for single
    environments; those of the one that is played come on top of the others."""
    path, origin = _named_file("algs", name, option)
    content = read_yaml(path, origin)
    sections = content.pop(FOR_ENV, None) or {}
    known = available("envs")
    for env, section in sections.items() if isinstance(sections, dict) else [(sections, None)]:
        if not isinstance(section, dict):
            raise OmgError(
                f"{origin}: {FOR_ENV} holds {env!r} without settings. Write '{FOR_ENV}: {{<env>: "
                "{key: value}}'."
            )
        if env not in known and ":" not in str(env):
            hint = nearest(str(env), known) or f". Those that exist: {', '.join(known)}."
            raise OmgError(f"{origin}: {FOR_ENV} names no environment: '{env}'{hint}")
    named = [_file(file).get("env") for file in arguments.files] if sections else []
    named += [update.value for update in arguments.updates if update.path == "env"]
    played = [env for env in (merge.values["env"], content.get("env"), *named) if env][-1]
    whole = _Merge()
    whole.add(content, origin)
    whole.add(sections.get(played, {}), origin)
    return whole.values, origin


def _trust_named(values: Any) -> None:
    """Code that the user names may be imported; what a saved file names may not."""
    inner = values.values() if isinstance(values, Mapping) else values
    for value in inner:
        if isinstance(value, str) and re.match(r"[\w.]+:[\w-]", value):
            trust(value)
        elif isinstance(value, Mapping | list):
            _trust_named(value)


def _add_files(merge: _Merge, arguments: Arguments) -> None:
    for name in arguments.files:
        merge.add(_file(name), name)


def _file(name: str) -> dict[str, Any]:
    """A file that stands after `with`."""
    if not name.endswith((".yaml", ".yml", ".json")):
        raise OmgError(f"'with {name}' is neither key=value nor a .yaml or .json file.")
    return read_yaml(Path(name), name)


def _add_team(merge: _Merge, arguments: Arguments) -> None:
    """The learning algorithm's YAML as the configuration, the others' under their own names."""
    seats, learns = read_team(arguments, available("algs"))
    merge.add(*_algorithm(merge, arguments, learns, "--train_alg"))
    merge.put("team", arguments.alg, f"--config={arguments.alg}")
    merge.put("train_alg", learns, f"--config={arguments.alg}")
    for name in dict.fromkeys(seats):
        if name != learns:
            content, origin = _algorithm(merge, arguments, name)
            merge.put(f"team_algs.{name}", content, origin)


def load_command_line(words: Sequence[str]) -> LoadedConfig:
    """The configuration that a command line (without the program's name) stands for."""
    return load(parse_arguments(words))


def shipped_defaults() -> dict[str, Any]:
    """Every key with its default."""
    return read_yaml(CONFIG_DIR / "default.yaml", DEFAULT_ORIGIN)


def load_saved(path: Path, arguments: Arguments) -> LoadedConfig:
    """A run's own `config.yaml` with the command line's keys on top. Keys that did not exist when
    it was made have their defaults, which mean what was done before."""
    saved = read_yaml(path, str(path))
    new = {key: value for key, value in shipped_defaults().items() if key not in saved}
    merge = _Merge()
    merge.add(new, DEFAULT_ORIGIN)
    merge.add(saved, str(path))
    _add_files(merge, arguments)
    for update in arguments.updates:
        merge.put(update.path, update.value, update.origin)
    _trust_named([update.value for update in arguments.updates])
    return _build(merge, str(path))


def without_secrets(config: Config) -> dict[str, Any]:
    """The configuration as it may be written down: a URL with a password is left out."""
    values = config.as_dict()
    if masked(config.mongo_url) != config.mongo_url:
        values["mongo_url"] = ""
    return values


def dump(config: Config) -> str:
    """The configuration as YAML; `load_saved` reads it back unchanged."""
    return yaml.safe_dump(without_secrets(config), sort_keys=False, allow_unicode=True)
