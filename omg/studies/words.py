"""Nested settings to the words of a command line, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments, parse_value
from omg.config.loader import read_yaml
from omg.config.schema import ALIASES


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings merged recursively, later ones winning; names of other code bases become ours."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            _merge(result, ALIASES.get(key, key), value)
    return result


def _merge(into: dict[str, Any], key: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        into[key] = value
        return
    inner = dict(into[key]) if isinstance(into.get(key), Mapping) else {}
    for inner_key, inner_value in value.items():
        _merge(inner, inner_key, inner_value)
    into[key] = inner


def settings_of(arguments: Arguments) -> dict[str, Any]:
    """The keys of a command line as nested settings."""
    layers: list[Mapping[str, Any]] = [read_yaml(Path(name), name) for name in arguments.files]
    for update in arguments.updates:
        value: Any = update.value
        for part in reversed(update.path.split(".")):
            value = {part: value}
        layers.append(value)
    return merged(*layers)


def to_words(settings: Mapping[str, Any]) -> list[str]:
    """`--key=value` for every value; `omg train` reads exactly these settings from them."""
    return [f"--{key}={_text(value)}" for key, value in _leaves(settings)]


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        simple = isinstance(value, Mapping) and value and all(map(_is_simple, value))
        if simple:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_simple(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _text(value: Any) -> str:
    """As it is where a command line gives it back unchanged, else quoted as in Python."""
    if isinstance(value, str):
        return value if parse_value(value.strip()) == value else repr(value)
    return repr(value)
