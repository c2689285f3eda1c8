"""Which members of a pool a run meets: the train side to learn with, the validation side in its
tests; and who completes a game that has roles. The held-out side is met by neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omg.config.schema import Config
from omg.opponents.pool import OpponentPool, PoolMember, Split
from omg.types import EnvSpec, OmgError, user_path


def training_members(config: Config, spec: EnvSpec) -> tuple[OpponentPool, tuple[PoolMember, ...]]:
    """Those a run learns with: the train side, or the named members of any side."""
    pool = OpponentPool.open(user_path(config.opponent_pool))
    if not config.opponent_members:
        return pool, pool.members("train")
    named = [named_member(pool, name) for name in config.opponent_members]
    return pool, completed(named, pool, spec)


def members_of_tests(
    config: Config, spec: EnvSpec
) -> tuple[OpponentPool, tuple[PoolMember, ...]] | None:
    """Those that a run's tests meet in place of the training ones: the validation side, where the
    pool has one. Who learns with named members is tested with them."""
    if not config.opponent_pool or config.opponent_members:
        return None
    pool = OpponentPool.open(user_path(config.opponent_pool))
    members = pool.members("validation")
    return (pool, completed(members, pool, spec)) if members else None


def named_member(pool: OpponentPool, name: str) -> PoolMember:
    """A member by its id, or by `<run>:<skill>`, which is known before the run has ended."""
    run, colon, skill = name.rpartition(":")
    found = [m for m in pool.members() if colon and (m.run, m.skill) == (run, skill)]
    if len(found) > 1:
        raise OmgError(
            f"{pool.path} has {len(found)} members of the run '{run}' at the skill '{skill}'. Give "
            f"an id instead: 'omg pool list {pool.path}' shows all."
        )
    return found[0] if found else pool.member(name)


def completed(
    members: Sequence[PoolMember], pool: OpponentPool, spec: EnvSpec
) -> tuple[PoolMember, ...]:
    """Members, and for every role that none of them plays those of their side who do, or else
    those of the training side. Who plays any role is asked only where nobody else can, and then
    for the missing roles alone."""
    everyone = pool.members()
    missing = [
        role
        for role in dict.fromkeys(spec.roles)
        if all(member.roles and role not in member.roles for member in members)
    ]
    company: dict[str, PoolMember] = {}
    for role in missing:
        named = [m for m in everyone if role in m.roles]
        for member in _of_side(named or [m for m in everyone if not m.roles], members[0].split):
            known = company.get(member.id, member)
            others = known.roles if member.id in company or member.roles else ()
            company[member.id] = replace(member, roles=tuple(dict.fromkeys((*others, role))))
    return (*members, *company.values())


def _of_side(members: Sequence[PoolMember], split: Split) -> list[PoolMember]:
    return [m for m in members if m.split == split] or [m for m in members if m.split == "train"]
