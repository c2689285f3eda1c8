"""Ways to damage a file. Each takes the file, the folder around it and a random stream."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import yaml

Damage: TypeAlias = Callable[[Path, Path, Random], None]
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**30, 1e308, "", "x", "x" * 5000, "\x1b[31m", "../../x", "~nobody"),
    *([], {}, [[]], {"a": 1}, [1, 2], "nan", "os:system", "trap:Env", "2024-01-01", "日本", [None]),
)


# --- any file ------------------------------------------------------------------------------------


def cut_off(path: Path, folder: Path, rng: Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(1, max(2, len(content)))])


def emptied(path: Path, folder: Path, rng: Random) -> None:
    path.write_bytes(b"")


def bit_flipped(path: Path, folder: Path, rng: Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


def block_zeroed(path: Path, folder: Path, rng: Random) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    if bytes(content) == path.read_bytes():  # there were zeros before
        content[0] ^= 255
    path.write_bytes(bytes(content))


def random_bytes(path: Path, folder: Path, rng: Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice([1, 100, 5000])))


def lengthened(path: Path, folder: Path, rng: Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(64))


def of_another_run(path: Path, folder: Path, rng: Random) -> None:
    """The file of the same name of another run, algorithm, seed or step."""
    names = [p for p in sorted(folder.rglob(path.name)) if p.is_file() and p != path]
    others = [p for p in names if p.read_bytes() != path.read_bytes()]
    shutil.copyfile(rng.choice(others or [folder / "trap.py"]), path)


def of_another_kind(path: Path, folder: Path, rng: Random) -> None:
    kinds = {p.suffix: p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()}
    kinds.pop(path.suffix, None)
    shutil.copyfile(kinds[rng.choice(sorted(kinds))], path)


def missing(path: Path, folder: Path, rng: Random) -> None:
    path.unlink()


def a_folder(path: Path, folder: Path, rng: Random) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path, folder: Path, rng: Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def dangling(path: Path, folder: Path, rng: Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def unreadable(path: Path, folder: Path, rng: Random) -> None:
    path.chmod(0)


ANY: tuple[Damage, ...] = (
    *(cut_off, emptied, bit_flipped, block_zeroed, random_bytes, lengthened, of_another_run),
    *(of_another_kind, missing, a_folder, a_loop, dangling, unreadable),
)


# --- texts ---------------------------------------------------------------------------------------


def _places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Any = ()
    if isinstance(content, dict):
        inner = content.items()
    elif isinstance(content, list):
        inner = enumerate(content)
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def _changed(content: Any, place: tuple[Any, ...], value: Any, *, remove: bool = False) -> Any:
    if not place:
        return value
    node = content
    for key in place[:-1]:
        node = node[key]
    if remove:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return content


def _text(path: Path, content: Any) -> str:
    if path.suffix == ".yaml":
        return str(yaml.safe_dump(content))
    return json.dumps(content)


def _read(path: Path, rng: Random) -> tuple[Any, list[str], int]:
    """The content; of a file of lines, that of one of them, all lines and its number."""
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        number = rng.randrange(len(lines))
        return json.loads(lines[number]), lines, number
    return yaml.safe_load(path.read_text()), [], 0


def _write(path: Path, text: str, lines: list[str], number: int) -> None:
    if lines:
        lines[number] = text
        text = "\n".join(lines)
    path.write_text(text + "\n")


def odd_value(path: Path, folder: Path, rng: Random) -> None:
    """One value somewhere inside becomes something else."""
    content, lines, number = _read(path, rng)
    place = rng.choice(_places(content))
    _write(path, _text(path, _changed(content, place, rng.choice(ODD))), lines, number)


def key_removed(path: Path, folder: Path, rng: Random) -> None:
    content, lines, number = _read(path, rng)
    places = [place for place in _places(content) if place]
    _write(path, _text(path, _changed(content, rng.choice(places), 0, remove=True)), lines, number)


def key_added(path: Path, folder: Path, rng: Random) -> None:
    content, lines, number = _read(path, rng)
    maps = [p for p in _places(content) if not p or p[-1] in ("env_args", "policy", "shapes")]
    key = rng.choice(["no_such_key", "lr", "", "__class__", "x" * 3000, "\x1b[31m"])
    _write(path, _text(path, _changed(content, (*rng.choice(maps), key), 1)), lines, number)


def odd_text(path: Path, folder: Path, rng: Random) -> None:
    """Texts that parsers stumble over."""
    texts = (
        *("[" * 100_000, '{"a":' * 5_000, "9" * 6000, '{"format": ' + "9" * 6000 + "}", "null"),
        *("NaN", '{"t_env": NaN, "x": Infinity}', "[1, 2]", '"text"', "{}", "\ufeff{}", "\0" * 50),
        *("a: &a [*a]", "a: 2024-01-01", "!!python/object/apply:os.system ['touch sprung']", "- 1"),
    )
    path.write_text(rng.choice(texts))


def not_utf8(path: Path, folder: Path, rng: Random) -> None:
    content = path.read_bytes()
    at = rng.randrange(len(content))
    path.write_bytes(content[:at] + b"\xff\xfe" + content[at:])


def hostile(path: Path, folder: Path, rng: Random) -> None:
    """Names code that would run if anybody imported or called it."""
    content, lines, number = _read(path, rng)
    parts = ("env", "policy_model", "mac", "learner", "mixer", "am_model", "runner", "critic")
    named = rng.choice(["trap:Env", "trap:Agent", "trap", "os:system", "subprocess:call"])
    places = [place for place in _places(content) if place and place[-1] in parts]
    adapters = ("gymnasium", "pettingzoo", "pymarl", "gymma")
    envs = [place for place in places if place[-1] == "env"]
    if envs and rng.random() < 0.4:
        place = rng.choice(envs)
        content = _changed(content, place, rng.choice(adapters))
        args = {"key": "trap:Env", "module": "trap", "command": "touch sprung"}
        content = _changed(content, (*place[:-1], "env_args"), args)
    elif places:
        content = _changed(content, rng.choice(places), named)
    else:
        content = _changed(content, rng.choice(_places(content)), named)
    _write(path, _text(path, content), lines, number)


TEXT: tuple[Damage, ...] = (
    *(odd_value, odd_value, key_removed, key_added, odd_text, not_utf8, hostile, hostile),
)


# --- weights and states --------------------------------------------------------------------------


class _Code:
    """Runs code when it is unpickled."""

    def __init__(self, trap: str) -> None:
        self.trap = trap

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.trap, "w")


def pickled_code(path: Path, folder: Path, rng: Random) -> None:
    import torch

    code = _Code(str(folder.parent / "sprung"))
    if rng.random() < 0.5:
        path.write_bytes(pickle.dumps({"weight": code}))
    else:
        torch.save({"weight": code}, path)


def other_content(path: Path, folder: Path, rng: Random) -> None:
    """A good file of weights, with other things in it."""
    import torch

    content = torch.load(path, weights_only=True)
    keys = sorted(content, key=str)
    key = rng.choice(keys)
    values = (None, 3, "x", [], {}, torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64), [1, 2])
    changed = (
        *({}, [1], 3, "x", torch.zeros(2), {k: content[k] for k in keys if k != key}),
        *({**content, "more": torch.zeros(1)}, {**content, key: rng.choice(values)}),
        *({**content, key: rng.choice(values)}, {1: 2}),
    )
    torch.save(rng.choice(changed), path)


def not_finite(path: Path, folder: Path, rng: Random) -> None:
    """Numbers become NaN or infinite."""
    import torch

    value = rng.choice([float("nan"), float("inf")])

    def spoil(content: Any) -> Any:
        if isinstance(content, torch.Tensor) and content.is_floating_point():
            return torch.full_like(content, value)
        if isinstance(content, dict):
            return {key: spoil(inner) for key, inner in content.items()}
        return content

    torch.save(spoil(torch.load(path, weights_only=True)), path)


WEIGHTS: tuple[Damage, ...] = (pickled_code, other_content, other_content, not_finite, bit_flipped)
# Whoever reads weights after this without a word has accepted damaged weights.
NEVER_ACCEPTED = (
    *(cut_off, emptied, bit_flipped, block_zeroed, random_bytes, lengthened, of_another_run),
    *(of_another_kind, pickled_code, not_finite, a_folder, a_loop, dangling),
)


def sum_again(path: Path) -> None:
    """Note the damaged file's sum as if it had been saved like that."""
    import hashlib

    for folder in path.parents[:2]:
        noted = folder / "sha256.json"
        if noted.is_file() and path.is_file():
            content = json.loads(noted.read_text())
            name = os.path.relpath(path, folder)
            content["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
            noted.write_text(json.dumps(content))
