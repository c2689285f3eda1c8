"""`omg pool`: opponents to train with and to be tested against."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from omg.cli.commands import FREE_FORM, Commands
from omg.cli.console import console, say, show
from omg.evaluation.words import SIDES

if TYPE_CHECKING:
    from omg.config.schema import Config
    from omg.evaluation.disagreement import Disagreement
    from omg.opponents.pool import OpponentPool, PoolMember, Split

pool_app = Commands("Opponent pools.")

POOL = typer.Argument(help="the pool's folder")
SPLITS = cast("tuple[Split, ...]", tuple(SIDES))


@pool_app.command("add")
def pool_add(
    pool: Path = typer.Argument(help="the pool's folder; made if it does not exist"),
    runs: list[Path] = typer.Argument(None, help="folders of runs; all are added or none"),
    steps: str = typer.Option(
        "final", help="early, middle, final, newest, best or a step; several with commas"
    ),
    script: str = typer.Option("", help="add a scripted player instead of runs"),
    env: str = typer.Option(
        "", help="the script's environment or its --env-config; empty: the pool's, else the first"
    ),
    noise: float = typer.Option(0.0, help="the script's probability of a random action"),
    split: str = typer.Option(
        "", help="seen, validation or unseen; empty: the run's side, else seen"
    ),
    name: str = typer.Option("", help="call the run by another name than its folder's"),
) -> None:
    """Add checkpoints of runs, or a scripted player."""
    from omg.opponents.pool import OpponentPool
    from omg.types import OmgError

    if env and not script:
        raise OmgError("--env says whose script is meant. Runs know theirs: leave it out.")
    if bool(runs) == bool(script):
        raise OmgError("Give the folders of runs, or --script=<name>, and not both.")
    side = _side(split)
    env = env and _environment(env)
    opened = OpponentPool.open_or_new(pool)
    if script:
        added: Sequence[PoolMember] = [
            opened.add_script(script, noise=noise, split=side, env=env or None)
        ]
    else:
        added = opened.add_runs(runs, steps=steps, split=side, name=name or None)
    for member in added:
        say(f"Added {member.id} ({member.algorithm}, {member.skill}, {SIDES[member.split]})")
    say(_summary(opened))


def _environment(name: str) -> str:
    """The environment of a configuration (battle_both: battle); else the name as it is."""
    from omg.config.arguments import Arguments
    from omg.config.loader import available, load

    return load(Arguments(env=name)).config.env if name in available("envs") else name


@pool_app.command("list")
def pool_list(
    pool: Path = POOL,
    split: str = typer.Option("", help="seen, validation or unseen; empty: all"),
) -> None:
    """The members of a pool."""
    from omg.opponents.pool import OpponentPool

    opened = OpponentPool.open(pool)
    columns = ("id", "algorithm", "run", "seed", "skill", "steps", "reward", "role", "side")
    show(*columns, rows=map(_row, opened.members(_side(split))))
    say(_summary(opened))


def _side(word: str) -> Split | None:
    """A side by either of its names; the pool refuses any other word."""
    names = {told: split for split, told in SIDES.items()}
    return cast("Split | None", names.get(word, word) or None)


def _row(member: PoolMember) -> Sequence[str]:
    return (
        *(member.id, member.algorithm, member.run),
        "-" if member.seed is None else str(member.seed),
        member.skill,
        "-" if member.env_steps is None else f"{member.env_steps:,}",
        {None: "-", True: "common", False: "own"}[member.common_reward],
        ", ".join(member.roles) or "any",
        SIDES[member.split],
    )


@pool_app.command("show")
def pool_show(
    pool: Path = POOL, member: str = typer.Argument(help="the member's id, see omg pool list")
) -> None:
    """All that is recorded of a member; its weights are read and checked."""
    from dataclasses import asdict

    from omg.opponents.pool import OpponentPool

    opened = OpponentPool.open(pool)
    found = opened.member(member)
    typer.echo(json.dumps(asdict(found), indent=2))
    if found.kind == "checkpoint":
        size = sum(tensor.numel() for tensor in opened.check_weights(found).values())
        say(f"{opened.folder(found)}: intact, {size:,} parameters")


@pool_app.command("split")
def pool_split(
    pool: Path = POOL,
    heldout: str = typer.Option(help="a fraction, or runs and ids separated by commas"),
    validation: str = typer.Option("0", help="the same for the side that tuning is judged by"),
    by: str = typer.Option("run", help="run: no run lies on two sides; member: one by one"),
    seed: int = typer.Option(0, help="of the draw, where a fraction is given"),
) -> None:
    """Hold members out: they stay unseen in training. All members are assigned again."""
    from omg.opponents.pool import OpponentPool

    opened = OpponentPool.open(pool)
    opened.split(
        _fraction_or_names(heldout),
        validation=_fraction_or_names(validation),
        by=cast(Any, by),
        seed=seed,
    )
    runs = {side: dict.fromkeys(m.run for m in opened.members(side)) for side in SPLITS}
    shown = [side for side in SPLITS if runs[side] or side != "validation"]
    width = max(len(SIDES[side]) for side in shown) + 2
    for side in shown:
        say(f"{SIDES[side]:{width}}{', '.join(runs[side]) or '-'}")
    say(_summary(opened))


@pool_app.command("compare", context_settings=FREE_FORM)
def pool_compare(
    context: typer.Context,
    pool: Path = POOL,
    env_config: str = typer.Option(
        "", "--env-config", "--env_config", help="the game; empty: that of the pool's checkpoints"
    ),
    episodes: int = typer.Option(32, help="that each member plays"),
    beside: str = typer.Option(
        "", help="the member in the other seats; empty: each beside copies of itself"
    ),
    seed: int = typer.Option(0, help="of the games"),
    out: str = typer.Option("", help="folder of the CSV files; empty: <pool>/compare"),
) -> None:
    """On which share of the same states two members act differently.

    Keys of the game may follow: omg pool compare <pool> … with env_args.key=…
    """
    from omg.evaluation.disagreement import compare_pool, write_disagreement
    from omg.opponents.pool import OpponentPool
    from omg.types import user_path

    opened = OpponentPool.open(pool)
    config = _game_of(opened, env_config, context.args)
    found = compare_pool(opened, config, episodes=episodes, beside=beside, seed=seed)
    files = write_disagreement(found, user_path(out or opened.path / "compare"))
    _print_disagreement(found)
    say(f"Wrote {' and '.join(map(str, files))}")


def _game_of(pool: OpponentPool, env_config: str, words: Sequence[str]) -> Config:
    """The configuration whose game members are compared in."""
    from omg.config.arguments import parse_arguments
    from omg.config.loader import load
    from omg.types import OmgError

    known = pool.members()
    if not known:
        raise OmgError(f"{pool.path} has no members. Add some with 'omg pool add'.")
    told = next((member.env_args for member in known if member.env_args), None)
    taken = [f"--env_args.{key}={value!r}" for key, value in (told or {}).items()]
    chosen = [f"--env-config={env_config or known[0].env}", *([] if env_config else taken)]
    return load(parse_arguments([*chosen, *words])).config


SHARE = len("│ 0.123 ")  # the width of a column of the matrix


def _print_disagreement(found: Disagreement) -> None:
    shares, names = found.shares(), [member.id for member in found.members]
    numbered = [f"{name} ({i})" for i, name in enumerate(names, 1)]
    block = max(1, (console().width - max(map(len, numbered)) - len("│  │")) // SHARE)
    for start in range(0, len(names), block):
        heads = [str(i + 1) for i in range(len(names))[start : start + block]]
        rows = [
            [name, *(_share(value) for value in row[start : start + block])]
            for name, row in zip(numbered, shares, strict=True)
        ]
        show("share of decisions", *heads, rows=rows)
    nearest = found.nearest()
    strange = [n for n in nearest if n.split != "train"]
    if not strange:
        say("All members are on the training side: there is nothing to hold against it.")
        return
    show(
        *("not trained with", "side", "share", "nearest training member"),
        rows=[[n.member, SIDES[n.split], _share(n.disagreement), n.nearest] for n in strange],
    )
    for split in dict.fromkeys(n.split for n in nearest):
        side = [n.disagreement for n in nearest if n.split == split]
        mean = sum(side) / len(side)
        other = "other " * (split == "train")
        say(f"{SIDES[split]}: {_share(mean)} on average from the nearest {other}training member")


def _share(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"


def _fraction_or_names(text: str) -> float | list[str]:
    try:
        return float(text)
    except ValueError:
        return [name.strip() for name in text.split(",") if name.strip()]


def _summary(pool: OpponentPool) -> str:
    lines = [f"{pool.path}: {pool.counted()}"]
    runs = [{m.run for m in pool.members(side)} for side in SPLITS]
    several = sorted({run for i, side in enumerate(runs) for run in side & set().union(*runs[:i])})
    if several:
        lines.append(
            f"On several sides: {', '.join(several)}. Not all unseen members are unseen runs."
        )
    games = {json.dumps(m.env_args, sort_keys=True) for m in pool.members() if m.env_args}
    if len(games) > 1:
        lines.append(f"Trained with different env_args: {' and '.join(sorted(games))}.")
    return "\n".join(lines)
