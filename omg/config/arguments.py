"""The original command line: `--config=… --env-config=… --key=value --flag with a.b=c`, and
Sacred's own commands and flags, which stand beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from omg.registry import nearest
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


SPACED = ("--config", "--env-config", "--env_config")  # a space may stand before their value


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
    """Read the words in any order; `--key=value` may also stand after `with`. `--config` and
    `--env-config` may be followed by a space instead of `=`."""
    names: dict[str, str] = {}
    updates: list[Update] = []
    files: list[str] = []
    after_with = False
    waiting, before = iter(words), ""
    for word in waiting:
        if word == "with":
            after_with = True
        elif word.startswith("--") and len(word) > 2:
            key, text = _option(word)
            if key in ("config", "env_config"):
                option = "--" + key.replace("_", "-")
                if text is None:
                    text = next(waiting, "")
                if not text or text == "with" or text.startswith("-"):
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
        elif before.startswith("--") and "=" not in before and before not in SPACED:
            raise OmgError(f"'{before} {word}': a value follows '='. Write {before}={word}.")
        else:
            close = nearest(word, SACRED_COMMANDS) or "."
            raise OmgError(
                f"'{word}' is not understood{close} Write --config=<alg> --env-config=<env> "
                "[--key=value …] [--flag] [with a.b=c …]."
            )
        before = word
    return Arguments(names.get("config"), names.get("env_config"), tuple(updates), tuple(files))


def wants_team(arguments: Arguments) -> bool:
    """Whether --config is a team string."""
    asked = [update.value for update in arguments.updates if update.path == "multi_algs"]
    return bool(asked) and str(asked[-1]).lower() == "true"


class SacredFlag(NamedTuple):
    """One of Sacred's flags: `-F VALUE`, `--file_storage=VALUE`."""

    short: str
    long: str
    valued: bool
    about: str
    refused: str = ""


NO_QUEUE = "Nothing here takes runs from a queue"
SACRED_FLAGS = (
    SacredFlag("h", "help", False, "print the usage and exit"),
    SacredFlag("d", "debug", False, "our key debug: show where an error arose"),
    SacredFlag("D", "pdb", False, "open the debugger pdb where a run failed"),
    SacredFlag("l", "loglevel", True, "log messages from this level on: DEBUG, INFO … or 0 to 50"),
    SacredFlag("c", "comment", True, "a comment for Sacred's record"),
    SacredFlag("b", "beat-interval", True, "seconds between two writes of Sacred's record"),
    SacredFlag("u", "unobserved", False, "no record: our key use_sacred=False"),
    SacredFlag("q", "queue", False, "", f"{NO_QUEUE}. Leave it out to train now"),
    SacredFlag("P", "priority", True, "", f"{NO_QUEUE}, so a run has no priority. Leave it out"),
    SacredFlag(
        *("f", "force", False, ""),
        "It silences Sacred's warnings about odd settings, and here those are errors. Leave it out",
    ),
    SacredFlag("e", "enforce_clean", False, "refuse to train where omg's sources were changed"),
    SacredFlag("p", "print-config", False, "print the configuration first"),
    SacredFlag("i", "id", True, "the id of Sacred's record"),
    SacredFlag("n", "name", True, "the name in Sacred's record; --name is our key name as well"),
    SacredFlag("C", "capture", True, "how printed output is recorded: no, sys or fd"),
    SacredFlag(
        "F", "file_storage", True, "where Sacred's record lies, instead of <results>/sacred"
    ),
    SacredFlag("m", "mongo_db", True, "a MongoDB as well: [host:port:]db_name[.collection]"),
    SacredFlag("s", "sql", True, "an SQL database as well, e.g. sqlite:///runs.db"),
    SacredFlag("S", "s3", True, "an S3 bucket as well: s3://bucket/path"),
    SacredFlag("t", "tiny_db", True, "a TinyDB as well: its folder"),
)
# The name of a run's own command is PyMARL's.
SACRED_COMMANDS = {
    "print_config": "print the configuration; what the command line changed is coloured",
    "print_dependencies": "print the packages and the sources that a run records",
    "save_config": "write the configuration to config.json (with config_filename=… elsewhere)",
    "print_named_configs": "print the names that --config and --env-config take",
    "my_main": "train (the default)",
    "help": "print the usage",
}


@dataclass(frozen=True, slots=True)
class SacredWords:
    """What a command line says to Sacred: a command, and flags by their long names."""

    command: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)


def split_sacred(words: Sequence[str]) -> tuple[SacredWords, list[str]]:
    """Sacred's own words, and all others in their order. `--name` and `debug` are keys as well,
    and `unobserved` is use_sacred=False."""
    waiting, rest = iter(words), []
    commands: list[str] = []
    flags: dict[str, str] = {}
    after_with = False
    for word in waiting:
        found = list(_flags_of(word, waiting))
        for flag, text in found:
            if flag.refused:
                raise OmgError(f"'{word}' ({flag.long}) makes no sense here. {flag.refused}.")
            flags[flag.long] = text
            if word.startswith("--name"):
                rest.append(f"--name={text}")
        if not found:
            after_with |= word == "with"
            (commands if word in SACRED_COMMANDS and not after_with else rest).append(word)
    if len(commands) > 1 and commands[0] != "help":
        raise OmgError(f"{' and '.join(commands)} are two commands of Sacred. Keep one of them.")
    rest += ["--debug"] * ("debug" in flags) + ["--use_sacred=False"] * ("unobserved" in flags)
    return SacredWords(commands[0] if commands else "", flags), rest


def _flags_of(word: str, after: Iterator[str]) -> Iterator[tuple[SacredFlag, str]]:
    """The flags that a word holds, with their values; nothing where it is no word of Sacred's."""
    if word.startswith("--"):
        key, equals, text = word[2:].partition("=")
        named = {flag.long.replace("-", "_"): flag for flag in SACRED_FLAGS}
        flag = named.get(key.replace("-", "_"))
        if flag is None or (flag.long == "debug" and equals):
            return
        if equals and not flag.valued:
            raise OmgError(f"'{word}': --{flag.long} takes no value. Write --{flag.long}.")
        yield flag, text if equals else _value(flag, word, after)
        return
    shorts = {flag.short: flag for flag in SACRED_FLAGS}
    letters = word[1:] if word.startswith("-") else ""
    for place, letter in enumerate(letters, start=1):
        if (flag := shorts.get(letter)) is None:
            if place > 1:
                raise OmgError(f"'{word}': Sacred has no flag -{letter}. See --help.")
            return
        inside = letters[place:] if flag.valued else ""
        yield flag, inside or _value(flag, word, after)
        if flag.valued:
            return


def _value(flag: SacredFlag, word: str, after: Iterator[str]) -> str:
    if not flag.valued:
        return ""
    value = next(after, None)
    if value is None or value == "with":
        raise OmgError(f"'{word}' names nothing. Write --{flag.long}=<value>.")
    return value
