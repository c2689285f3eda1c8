"""The original command line: `--config=… --env-config=… --key=value --flag with a.b=c`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omg.types import OmgError


@dataclass(frozen=True, slots=True)
class Update:
    """One `path = value` from the command line, and the word it came from."""

    path: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """What stands on a command line, not yet merged with any file."""

    alg: str | None = None
    env: str | None = None
    updates: tuple[Update, ...] = ()
    files: tuple[str, ...] = field(default=())


def parse_value(text: str) -> Any:
    """A Python literal where it is one, else the text itself (Sacred's rule)."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _option(word: str) -> tuple[str, str | None]:
    key, equals, text = word[2:].partition("=")
    return key.replace("-", "_"), text if equals else None


def _update(key: str, value: Any, origin: str) -> Update:
    if not all(part.strip() for part in key.split(".")):
        raise OmgError(f"'{origin}' has no key before '='. Write key=value or a.b=value.")
    return Update(key, value, origin)


def parse_arguments(words: Sequence[str]) -> Arguments:
    """Read the words in any order; `--key=value` may also stand behind `with`."""
    names: dict[str, str] = {}
    updates: list[Update] = []
    files: list[str] = []
    after_with = False
    for word in words:
        if word == "with":
            after_with = True
        elif word.startswith("--") and len(word) > 2:
            key, text = _option(word)
            if key in ("config", "env_config"):
                option = "--" + key.replace("_", "-")
                if not text:
                    raise OmgError(f"'{word}' names nothing. Write {option}=<name>.")
                if names.get(key, text) != text:
                    raise OmgError(
                        f"{option} is given twice ('{names[key]}' and '{text}'). Keep one of them."
                    )
                names[key] = text
            else:
                value = True if text is None else parse_value(text.strip())
                updates.append(_update(key, value, word))
        elif after_with and "=" in word:
            key, _, text = word.partition("=")
            updates.append(_update(key.strip(), parse_value(text.strip()), f"with {word}"))
        elif after_with:
            if word.strip():
                files.append(word)
        elif "=" in word:
            raise OmgError(f"'{word}' stands alone. Write '--{word}' or 'with {word}'.")
        else:
            raise OmgError(
                f"'{word}' is not understood. Write --config=<alg> --env-config=<env> "
                "[--key=value …] [--flag] [with a.b=c …]."
            )
    return Arguments(names.get("config"), names.get("env_config"), tuple(updates), tuple(files))
