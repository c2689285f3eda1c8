"""Who plays: random actions, scripted players, or what a run has trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.catalogue import Choice, scripted_players
from omg.config.schema import Config
from omg.controllers import Acted, Controller
from omg.experiment.trained import load_players, read_run
from omg.modules.device import choose_device
from omg.opponents.players import PlayerGroup, Players, ScriptGroup, SeatRows
from omg.opponents.pool_members import ScriptSpec
from omg.policies.inputs import Carry, StepView
from omg.registry import nearest
from omg.types import EnvSpec, IntArray, OmgError, user_path

RANDOM = "random"
CPU = torch.device("cpu")
# Environments that are another one for every env_args.key.
KEYED = ("gymnasium", "pettingzoo", "pymarl")


@dataclass(frozen=True, slots=True)
class Cast:
    """A team that plays. `seats` says who sits where; empty: drawn for every episode."""

    mac: Controller
    seats: tuple[str, ...] = ()
    note: str = ""
    device: torch.device = CPU
    greedy: bool = True
    env_steps: int = 0


def is_run(policy: str) -> bool:
    """Whether a policy names the folder of a run."""
    return (user_path(policy) / "config.yaml").is_file()


def players_of(
    policy: str, choice: Choice, spec: EnvSpec, *, episodes: int = 0, seed: int = 0
) -> Cast:
    """Who `--policy` names: random, scripts (several with commas), or a run's folder. `episodes`
    and `seed` are recorded where a run plays among held-out members of a pool."""
    if policy == RANDOM:
        players = Players([RANDOM], [(RandomGroup(), [0])], spec.n_agents)
        seats = np.zeros(spec.n_agents, np.int64)
        return Cast(FixedTeam(players, seats), (RANDOM,) * spec.n_agents)
    names = [name.strip() for name in policy.split(",")]
    known = {script.name: script.role for script in scripted_players(choice.env)}
    if all(name in known for name in names):
        return _scripted(names, known, choice, spec)
    if is_run(policy):
        return _trained(user_path(policy), choice, spec, episodes, seed)
    raise _unknown(policy, names, list(known), choice)


def _unknown(policy: str, names: Sequence[str], known: Sequence[str], choice: Choice) -> OmgError:
    if user_path(policy).exists():
        return OmgError(
            f"--policy={policy} is not the folder of a run (no config.yaml in it). Give the folder "
            "under results that holds config.yaml and models."
        )
    wrong = next(name for name in names if name not in known)
    scripts = f"a script ({', '.join(known)})" if known else f"no script: {choice.env} has none"
    return OmgError(
        f"--policy={policy}: there is no '{wrong}'{nearest(wrong, [RANDOM, *known]) or '.'} Give "
        f"{RANDOM}, the folder of a run, or {scripts}."
    )


class FixedTeam(Controller):
    """Players that learn nothing, one in every seat."""

    def __init__(self, players: Players, members_N: IntArray) -> None:
        self._players, self._members = players, members_N

    def networks(self) -> Mapping[str, nn.Module]:
        return {}

    def describe(self) -> dict[str, Any]:
        return {}

    def initial_carry(self, n_copies: int) -> Carry:
        return self._players.initial_carry(n_copies)

    def begin_episodes(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        seated = np.tile(self._members, (len(copies), 1))
        self._players.seat(carry, torch.from_numpy(copies), seated)
        return {}

    def act(
        self,
        view: StepView,
        carry: Carry,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Acted:
        actions = torch.zeros(view.last_actions.shape, dtype=torch.int64)
        carry = dict(carry)
        self._players.act(view, carry, actions, generator)
        return Acted(actions, carry)


class RandomGroup(PlayerGroup):
    """Takes any available action."""

    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        return torch.zeros(*lead, 0)

    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        keys = torch.rand(rows.avail.shape, generator=generator)
        return keys.masked_fill(~rows.avail.cpu(), -1.0).argmax(-1), carry


def _scripted(
    names: Sequence[str], known: Mapping[str, str], choice: Choice, spec: EnvSpec
) -> Cast:
    """Scripts in the seats of their roles, several of one role in turn. A role that none of them
    plays is given the first script it has."""
    seated: list[str] = []
    for role in dict.fromkeys(spec.roles or ("",)):
        fitting = [name for name in names if known[name] in ("", role)]
        fitting = fitting or [name for name, plays in known.items() if plays == role][:1]
        for turn, seat in enumerate(spec.seats_of(role)):
            seated += [""] * (seat + 1 - len(seated))
            seated[seat] = fitting[turn % len(fitting)] if fitting else RANDOM
    for name in names:
        if name not in seated:
            roles = ", ".join(dict.fromkeys(spec.roles)) or "none"
            raise OmgError(
                f"--policy={','.join(names)}: there is no seat for '{name}', which plays "
                f"{known[name] or 'any role'} (roles here: {roles}). Name no more scripts than "
                "there are seats of their role."
            )
    playing = list(dict.fromkeys(seated))
    group = ScriptGroup([ScriptSpec(name) for name in playing], choice.env, choice.args)
    scripts = Players(playing, [(group, range(len(playing)))], spec.n_agents)
    rows = np.array([playing.index(name) for name in seated], np.int64)
    return Cast(FixedTeam(scripts, rows), tuple(seated))


def _trained(folder: Path, choice: Choice, spec: EnvSpec, episodes: int, seed: int) -> Cast:
    """A run's players with its newest weights, after the checks of `--evaluate`."""
    run = read_run(folder, "newest")
    _check_same_game(folder, run.config, choice)
    args = choice.args
    config = Config.model_validate({**run.config.as_dict(), "env_args": args})
    device = choose_device(config)
    try:
        how = {"seed": seed, "greedy": config.test_greedy, "env_args": dict(args)}
        mac = load_players(run, spec, device, config=config, episodes=episodes, options=how)
    except OmgError as error:
        own = " Without the environment's name the run's own is played."
        raise OmgError(f"{error}{own if choice.env_config else ''}") from error
    trained_with = run.meta.get("env_args", args)
    return Cast(
        mac,
        seats=() if mac.players() else (config.name,) * spec.n_agents,
        note=f"trained with env_args={trained_with}" if trained_with != args else "",
        device=device,
        greedy=config.test_greedy,
        env_steps=int(run.meta.get("env_steps", config.epsilon_anneal_time)),
    )


def _check_same_game(folder: Path, saved: Config, choice: Choice) -> None:
    there, here = saved.env, choice.env
    if there == here and here in KEYED:
        there, here = (
            f"{env} with env_args.key={args.get('key')}"
            for env, args in (
                (there, saved.env_args),
                (here, choice.args),
            )
        )
    if there != here:
        raise OmgError(
            f"{folder} was trained on env={there}, not {here}. Name that environment, or leave the "
            "name out to play the run's own."
        )
