"""Opponent pools: a folder of policies to play with, and which of them training may meet.

`pool.json` lists the members, `members/<id>/` holds `agent.th` and `meta.json` of those with
weights. Changes are made under a lock and appear in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor, nn

from omg.opponents.lineups import LineupMode, draw_heldout, draw_lineups, part_of
from omg.opponents.pool_members import (
    MANIFEST,
    WEIGHTS,
    PoolMember,
    ScriptSpec,
    Split,
    candidates,
    check_fits,
    check_source,
    copy_member,
    member_folder,
    pool_lock,
    read_manifest,
    read_weights,
    wanted_steps,
    write_manifest,
)
from omg.opponents.scripts import env_of_script, scripted_game
from omg.registry import nearest
from omg.storage.files import writing
from omg.storage.models import file_of, load_networks
from omg.storage.sums import sha256_of
from omg.types import OmgError, user_path

__all__ = [
    "LineupMode",
    "OpponentPool",
    "PoolMember",
    "ScriptSpec",
    "Split",
    "draw_heldout",
    "draw_lineups",
]


class OpponentPool:
    """A pool's members as they were when it was opened or last changed through this object."""

    def __init__(self, path: Path, members: Sequence[PoolMember]) -> None:
        self.path = path
        self._members = tuple(members)
        self._made = True

    @classmethod
    def open(cls, path: str | Path) -> OpponentPool:
        """Read and check an existing pool."""
        folder = user_path(path)
        return cls(folder, read_manifest(folder))

    @classmethod
    def open_or_new(cls, path: str | Path) -> OpponentPool:
        """The pool that is there, or a new one whose folder is made with its first members:
        nothing is left behind if they are refused."""
        folder = user_path(path)
        if (folder / MANIFEST).exists():
            return cls.open(folder)
        _check_free(folder)
        pool = cls(folder, ())
        pool._made = False
        return pool

    @classmethod
    def create(cls, path: str | Path, *, exist_ok: bool = False) -> OpponentPool:
        """Make an empty pool; with `exist_ok`, open the one that is there."""
        folder = user_path(path)
        _check_free(folder)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with pool_lock(folder):
            if (folder / MANIFEST).exists():
                if not exist_ok:
                    raise OmgError(f"{folder} is a pool already. Open it, or choose another name.")
                return cls.open(folder)
            write_manifest(folder, ())
        return cls(folder, ())

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"omg.Pool({str(self.path)!r})"

    # --- reading ---------------------------------------------------------------------------

    def members(self, split: Split | None = None) -> tuple[PoolMember, ...]:
        """All members, or one side, in the order in which they were added."""
        if split is not None:
            _check_split(split)
        return tuple(m for m in self._members if split is None or m.split == split)

    def counted(self) -> str:
        """How many members each side has, in words."""
        said = {"train": "seen (to train with)", "validation": "validation (to tune by)"}
        said["heldout"] = "unseen (held out)"
        counts = Counter(m.split for m in self._members)
        sides = [side for side in get_args(Split) if counts[side] or side != "validation"]
        return ", ".join(f"{counts[side]} {said[side]}" for side in sides)

    def member(self, member_id: str) -> PoolMember:
        """The member of that id."""
        for candidate in self._members:
            if candidate.id == member_id:
                return candidate
        hint = nearest(member_id, [m.id for m in self._members])
        raise OmgError(f"{self.path} has no member '{member_id}'{hint or '.'}")

    def folder(self, member: PoolMember) -> Path:
        """Where a member's weights lie."""
        return member_folder(self.path, member.id)

    def check_weights(self, member: PoolMember) -> dict[str, Tensor]:
        """A checkpoint's weights, after comparing all its files to what was added."""
        if member.kind != "checkpoint":
            raise OmgError(
                f"'{member.id}' is scripted and has no weights. Make it with its script."
            )
        folder, weights = self.folder(member), Path(WEIGHTS)
        for name, added in {weights.stem: member.sha256, **member.model}.items():
            path = folder / file_of(name)
            if sha256_of(path) != added:
                raise OmgError(
                    f"{path} is damaged or was changed since it was added to the pool. Restore "
                    "it, or remove the pool and add its members again."
                )
        return read_weights(folder / weights)

    def load_weights(self, member: PoolMember, networks: Mapping[str, nn.Module]) -> None:
        """A checkpoint's weights into networks, named like its files."""
        self.check_weights(member)
        load_networks(self.folder(member), networks)

    # --- changing --------------------------------------------------------------------------

    def add_run(
        self,
        run_folder: str | Path,
        *,
        steps: str | int | Sequence[str | int] = "final",
        split: Split | None = None,
        name: str | None = None,
    ) -> tuple[PoolMember, ...]:
        """Copy checkpoints of a run: final (newest), best, early, middle, or the nearest to a
        step. Without `split` they go to the side the run is on, train if it is new."""
        return self.add_runs([run_folder], steps=steps, split=split, name=name)

    def add_runs(
        self,
        run_folders: Sequence[str | Path],
        *,
        steps: str | int | Sequence[str | int] = "final",
        split: Split | None = None,
        name: str | None = None,
    ) -> tuple[PoolMember, ...]:
        """`add_run` for several runs: all of them or, if one is refused, none."""
        if name is not None and len(run_folders) != 1:
            raise OmgError("A name can be given to one run at a time. Add the runs one by one.")
        wanted = wanted_steps(steps)
        found = [
            candidate
            for run_folder in run_folders
            for candidate in candidates(user_path(run_folder), wanted, name)
        ]
        return self._add(found, split)

    def add_script(
        self,
        name: str,
        *,
        noise: float = 0.0,
        split: Split | None = None,
        env: str | None = None,
    ) -> PoolMember:
        """Make a scripted player a member. One script's noise levels count as one run. Without
        `env` it is one of the pool's environment, or of the first that has a script so called."""
        known = env or next((m.env for m in self._members), None) or env_of_script(name)
        script = scripted_game(known).make_script(name, noise=noise)
        member = PoolMember(
            id=f"script-{name}-{noise:g}",
            kind="scripted",
            algorithm="script",
            run=f"script-{name}",
            skill=f"noise {noise:g}",
            split="train",
            seed=None,
            env_steps=None,
            common_reward=None,
            env=known,
            roles=() if script.kind.role is None else (script.kind.role,),
            script=ScriptSpec(name, float(noise)),
        )
        return self._add([(member, None)], split)[0]

    def split(
        self,
        heldout: float | Sequence[str],
        *,
        validation: float | Sequence[str] = (),
        by: Literal["run", "member"] = "run",
        seed: int = 0,
    ) -> tuple[PoolMember, ...]:
        """Assign every member to a side: fractions of all, drawn by `seed`, or the named runs and
        ids; the rest is trained with. By run, no run lies on two sides (an id stands for its
        run). Which are held out does not depend on `validation`, if they are drawn."""
        if by not in ("run", "member"):
            raise OmgError(f"by={by} is not possible. Split by run or by member.")

        def assign(members: tuple[PoolMember, ...]) -> tuple[PoolMember, ...]:
            unit = {m.id: m.run if by == "run" else m.id for m in members}
            algorithms = {unit[m.id]: m.algorithm for m in members}
            sides: dict[str, Split] = dict.fromkeys(algorithms, "train")
            wanted: tuple[tuple[Split, float | Sequence[str]], ...] = (
                ("heldout", heldout),
                ("validation", validation),
            )
            for side, asked in wanted:
                left = {u: algorithms[u] for u, taken in sides.items() if taken == "train"}
                if isinstance(asked, (int, float)):
                    share = part_of(float(asked), len(algorithms), len(left), side)
                    chosen = draw_heldout(left, share, seed=seed, side=side)
                else:
                    names = [asked] if isinstance(asked, str) else asked
                    chosen = {unit[m.id] for m in _named(members, names, self.path)}
                twice = sorted(chosen - set(left))
                if twice:
                    raise OmgError(
                        f"'{twice[0]}' is held out and named for validation. Choose one."
                    )
                sides.update(dict.fromkeys(chosen, side))
            return tuple(replace(m, split=sides[unit[m.id]]) for m in members)

        self._change(assign)
        return self._members

    def _add(
        self, found: Sequence[tuple[PoolMember, Path | None]], split: Split | None
    ) -> tuple[PoolMember, ...]:
        if split is not None:
            _check_split(split)
        added: list[PoolMember] = []
        self._check_together(found)

        def extend(members: tuple[PoolMember, ...]) -> tuple[PoolMember, ...]:
            sides = {m.run: m.split for m in members}
            new = [(replace(m, split=split or sides.get(m.run, "train")), s) for m, s in found]
            everyone = list(members)
            for member, _ in new:
                check_fits(member, everyone, self.path)
                everyone.append(member)
            for member, source in new:
                added.append(copy_member(member, source, self.path) if source else member)
            return (*members, *added)

        self._change(extend)
        return tuple(added)

    def _check_together(self, found: Sequence[tuple[PoolMember, Path | None]]) -> None:
        """Refuse what can be refused before anything is written: those that do not fit each other,
        and weights that cannot be read."""
        for number, (member, source) in enumerate(found):
            check_fits(member, [other for other, _ in found[:number]], self.path)
            if source is not None:
                check_source(source)

    def _change(self, change: Callable[[tuple[PoolMember, ...]], tuple[PoolMember, ...]]) -> None:
        """Apply a change to what is on disk now, so that nobody else's change is lost."""
        if not self._made:
            type(self).create(self.path, exist_ok=True)
            self._made = True
        with pool_lock(self.path):
            members = change(read_manifest(self.path))
            write_manifest(self.path, members)
        self._members = members


def _check_free(folder: Path) -> None:
    """A pool can be made here: there is nothing, an empty folder, or one that somebody else has
    made by now."""
    if folder.exists() and not folder.is_dir():
        raise OmgError(f"{folder} is not a folder. Choose another name for the pool.")
    others = [p.name for p in folder.iterdir() if p.name[0] != "."] if folder.exists() else []
    if others and MANIFEST not in others:
        raise OmgError(
            f"{folder} holds other files ({min(others)}) and is no pool. Choose a new or an empty "
            "folder."
        )


def _named(members: Sequence[PoolMember], names: Sequence[str], pool: Path) -> list[PoolMember]:
    known = {m.id for m in members} | {m.run for m in members}
    for name in names:
        if name not in known:
            raise OmgError(
                f"{pool} has no run or member '{name}'{nearest(name, known) or '.'} "
                f"'omg pool list {pool}' shows all."
            )
    return [m for m in members if m.id in names or m.run in names]


def _check_split(split: str) -> None:
    if split not in get_args(Split):
        raise OmgError(f"split={split} is not possible. Choose train, validation or heldout.")
