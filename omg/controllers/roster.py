"""The frozen players beside the learning agent: who they are, and how all of them act at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.config.team import check_team_size, parse_team
from omg.controllers.base import StepView
from omg.controllers.inputs import InputBuilder, InputSettings
from omg.controllers.policy import Policy
from omg.modules.agents import AGENTS, AgentNetwork
from omg.modules.agents.stacked import StackedAgents
from omg.opponents.pool import OpponentPool, PoolMember, draw_lineups
from omg.opponents.scripts import scripted_game
from omg.storage.files import read_json
from omg.storage.models import (
    META,
    OBS_FORMAT,
    find_model_folder,
    load_networks,
    other_meaning,
)
from omg.types import BoolArray, EnvSpec, IntArray, OmgError

# What a policy says of itself that changes neither its network nor how its inputs are built; nor
# do the settings of opponent models (am_…), which frozen players do not have.
NOT_OF_A_GROUP = frozenset(["agent_output_type", "temperature", "roles", OBS_FORMAT])


@dataclass(frozen=True, slots=True)
class SeatRows:
    """What R seats see, gathered from any copies."""

    obs: Tensor  # [R, O]
    state: Tensor  # [R, S]
    avail: Tensor  # [R, A]
    last_actions: Tensor  # [R]
    seats: Tensor  # [R]


class OpponentGroup(ABC):
    """Members that act in one call."""

    @abstractmethod
    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        """Zeros [copies, seats, width]; an episode begins with zeros."""

    @abstractmethod
    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Actions [R] and the next carry [R, width] of rows played by `members` [R]."""

    def targets(self, rows: SeatRows, members: Tensor, carry: Tensor) -> Tensor | None:
        """Where R rows are heading to, as features of a player [R, W]; None: nobody knows."""
        return None


class CheckpointGroup(OpponentGroup):
    """Trained policies of one architecture with the input settings they were trained with."""

    def __init__(
        self,
        networks: Sequence[AgentNetwork],
        inputs: InputBuilder,
        *,
        epsilon: float,
        device: torch.device,
        temperatures: Sequence[float] = (),
    ) -> None:
        """Members with a temperature above 0 have logits and sample softmax(logits / temperature);
        the others have values and take the best."""
        try:
            self.stacked = StackedAgents.from_networks(list(networks)).to(device)
        except ValueError as error:
            kind = type(networks[0]).__name__
            raise OmgError(
                f"{kind} cannot be a frozen player: {error}. Train the others with a shipped "
                "policy_model."
            ) from error
        self._inputs, self._epsilon, self._device = inputs, epsilon, device
        self._heat = torch.tensor(list(temperatures)) if any(temperatures) else None

    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        return torch.zeros(*lead, self.stacked.carry_dim, device=self._device)

    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        view = StepView(
            obs=rows.obs.unsqueeze(1),
            state=rows.state,
            avail=rows.avail,
            last_actions=rows.last_actions.unsqueeze(1),
        )
        inputs = self._inputs.step(view, rows.seats.unsqueeze(1)).squeeze(1)
        seats = rows.seats.to(self._device)
        outputs, carry = self.stacked.step_rows(inputs, members.to(self._device), carry, seats)
        avail = rows.avail.cpu()
        outputs = outputs.cpu()
        if self._heat is not None:  # Gumbel: the largest of logit - t log E has softmax's odds
            race = torch.empty_like(outputs).exponential_(generator=generator).log_()
            outputs = outputs - self._heat[members].unsqueeze(1) * race
        best = outputs.masked_fill(~avail, -torch.inf).argmax(-1)
        if self._epsilon == 0.0:
            return best, carry
        keys = torch.rand(avail.shape, generator=generator).masked_fill(~avail, -1.0)
        explore = torch.rand(best.shape, generator=generator) < self._epsilon
        return torch.where(explore, keys.argmax(-1), best), carry


class ScriptGroup(OpponentGroup):
    """Scripted players; few kinds, many rows each."""

    def __init__(
        self, members: Sequence[PoolMember], env: str, env_args: Mapping[str, Any]
    ) -> None:
        self._game = scripted_game(env)
        self._board = self._game.board_of(env_args)
        scripts = [member.script for member in members if member.script is not None]
        self._scripts = [self._game.make_script(s.name, noise=s.noise) for s in scripts]
        self._width = max(script.memory_dim for script in self._scripts)

    def initial_carry(self, lead: tuple[int, int]) -> Tensor:
        return torch.zeros(*lead, self._width, dtype=torch.int64)

    def act(
        self, rows: SeatRows, members: Tensor, carry: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        seed = int(torch.randint(2**62, (), generator=generator))
        rng = np.random.default_rng(seed)
        actions, memory = self._game.act_together(
            self._scripts,
            members.numpy(),
            rows.state.cpu().numpy(),
            rows.seats.numpy(),
            rows.avail.cpu().numpy(),
            carry.numpy(),
            rng,
            **self._board,
        )
        return torch.from_numpy(actions), torch.from_numpy(memory)

    def targets(self, rows: SeatRows, members: Tensor, carry: Tensor) -> Tensor:
        found = self._game.headings(
            self._scripts,
            members.numpy(),
            rows.state.cpu().numpy(),
            rows.seats.numpy(),
            carry.numpy(),
            **self._board,
        )
        return torch.from_numpy(found)


@dataclass(frozen=True)
class Roster:
    """All members, which group each belongs to, and who sits where in an episode."""

    names: tuple[str, ...]
    groups: tuple[OpponentGroup, ...]
    group_of: IntArray  # [M]
    local_of: IntArray  # [M], number within the group
    n_agents: int
    seat: int  # of the learning agent before shifting, counted among those of its role
    team: IntArray | None = None  # [N], member per seat, -1 for the learning one
    pool: tuple[PoolMember, ...] = ()
    mode: Literal["homologue", "mixed"] = "mixed"
    roles: tuple[str, ...] = ()  # of the seats; empty: all alike
    role: str = ""  # of who learns

    @cached_property
    def own_seats(self) -> IntArray:
        """The seats that who learns may take."""
        seats = [n for n in range(self.n_agents) if not self.roles or self.roles[n] == self.role]
        return np.array(seats, np.int64)

    @cached_property
    def _able(self) -> dict[str, IntArray]:
        """Members by the role they play."""
        return {
            role: np.array([i for i, m in enumerate(self.pool) if role in (m.roles or self.roles)])
            for role in dict.fromkeys(self.roles)
        } or {"": np.arange(len(self.pool))}

    def draw(self, free_EN: BoolArray, rng: np.random.Generator) -> IntArray:
        """Members of a pool for the free seats [E, N] of new episodes, as many of each role in
        every episode; -1 elsewhere."""
        members = np.full(free_EN.shape, -1, np.int64)
        for role, able in self._able.items():
            seats = np.flatnonzero(np.array(self.roles) == role) if self.roles else slice(None)
            free = free_EN[:, seats]
            count = int(free[0].sum())
            if not count:
                continue
            if not len(able):
                raise OmgError(
                    f"The pool has no member that plays the role '{role}', which has {count} free "
                    f"seat{'s'[: count != 1]}. Add some with 'omg pool add'."
                )
            players = [self.pool[i] for i in able]
            drawn = draw_lineups(players, len(free), count, rng, mode=self.mode)
            block = np.full(free.shape, -1, np.int64)
            block[free] = able[drawn].reshape(-1)
            members[:, seats] = block
        return members

    def line_up(self, shift: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Learning seats [E] and members [E, N] (-1 there) of new episodes."""
        own, agents = self.own_seats, np.arange(self.n_agents)
        seats = own[(self.seat + shift) % len(own)]
        if self.team is not None:
            order = np.tile(agents, (len(shift), 1))
            order[:, own] = own[(np.arange(len(own)) - shift[:, None]) % len(own)]
            return seats, self.team[order]
        return seats, self.draw(agents != seats[:, None], rng)

    def fill(self, seats: IntArray, members: IntArray, rng: np.random.Generator) -> IntArray:
        """The same line-ups with the learning seat given to a member, too: games of the frozen
        players alone, to gather the states they visit."""
        filled: IntArray = members.copy()
        able = self._able[self.role] if self.pool else np.arange(len(self.names))
        if not len(able):
            raise OmgError(
                f"The pool has no member that plays the role '{self.role}' in place of the "
                "learning agent. Add some with 'omg pool add'."
            )
        filled[np.arange(len(seats)), seats] = able[rng.integers(0, len(able), len(seats))]
        return filled


def _settings(policy: dict[str, Any]) -> InputSettings:
    return InputSettings(
        obs_is_state=policy["obs_is_state"],
        obs_last_action=policy["obs_last_action"],
        obs_agent_id=policy["obs_agent_id"],
        scale=policy["scale"],
    )


def _network(policy: dict[str, Any], spec: EnvSpec) -> AgentNetwork:
    return AGENTS[policy["policy_model"]](
        input_dim=policy["input_dim"],
        n_actions=spec.n_actions,
        hidden_dim=policy["rnn_hidden_dim"],
        mlp_hidden_dims=policy["mlp_hidden_dims"],
        dueling=policy["dueling"],
        n_agents=spec.n_agents,
    )


def _policy_of(config: Config, spec: EnvSpec, device: torch.device) -> dict[str, Any]:
    """What a policy of this configuration is fed and made of."""
    return Policy(config=config, spec=spec, device=device).describe()


def build_roster(config: Config, spec: EnvSpec, device: torch.device) -> Roster:
    """The frozen players that a configuration names: a team string's others, or a pool's."""
    if config.opponent_pool and config.multi_algs:
        raise OmgError(
            "The others come from a team string (--multi_algs) or from opponent_pool, not both. "
            "Leave out one of them."
        )
    if config.opponent_pool:
        pool = OpponentPool.open(Path(config.opponent_pool).expanduser())
        return pool_roster(config, spec, device, pool, pool.members(split="train"))
    if config.multi_algs:
        return _team_roster(config, spec, device)
    raise OmgError(
        "mac=multi_module_mac needs the other players. Give a team (--config=1iql1iql_omg "
        "--multi_algs --init_param_path=…) or opponent_pool=<folder>."
    )


def _team_roster(config: Config, spec: EnvSpec, device: torch.device) -> Roster:
    seats = parse_team(config.team, [config.train_alg, *config.team_algs])
    check_team_size(config.team, seats, spec.n_agents)
    names = tuple(config.team_algs)
    if not config.init_param_path:
        raise OmgError(
            f"The team {config.team} needs the weights of {', '.join(names)}. Give "
            "init_param_path=<folder> that holds <alg>/agent.th for each."
        )
    networks, policies = [], []
    for name in names:
        own = Config.model_validate({**config.as_dict(), **config.team_algs[name]})
        folder = _team_folder(config, name)
        policy = _policy_of(own, spec, device)
        if (folder / META).is_file():
            meta = read_json(folder / META)
            _check_env(str(folder), str(meta.get("env", config.env)), config)
            policy |= meta.get("policy", {})
            _check_fits(str(folder), policy, spec)
        network = _network(policy, spec)
        load_networks(folder, {"agent": network})
        networks.append(network)
        policies.append(policy)
    groups, group_of, local_of = _group(config, spec, device, networks, policies)
    team = np.array([names.index(s) if s in names else -1 for s in seats], np.int64)
    seat = seats.index(config.train_alg)
    role = spec.roles[seat] if spec.roles else ""
    if config.learning_role not in ("", role):
        raise OmgError(
            f"learning_role={config.learning_role}, but {config.train_alg} of the team "
            f"{config.team} sits in seat {seat}, which is a {role or 'seat without a role'}. "
            "Order the team by the seats, or leave learning_role out."
        )
    return Roster(
        names=names,
        groups=groups,
        group_of=group_of,
        local_of=local_of,
        n_agents=spec.n_agents,
        seat=spec.seats_of(role).index(seat),
        team=team,
        roles=spec.roles,
        role=role,
    )


def _team_folder(config: Config, name: str) -> Path:
    """Where the weights of a team's frozen algorithm lie."""
    root = Path(config.init_param_path).expanduser()
    if not (root / name).is_dir():
        raise OmgError(
            f"init_param_path={config.init_param_path} has no folder '{name}', and the team "
            f"{config.team} needs the weights of {name}. Put its run, or its agent.th, there."
        )
    return find_model_folder(str(root / name), 0, key="init_param_path")


def pool_roster(
    config: Config,
    spec: EnvSpec,
    device: torch.device,
    pool: OpponentPool,
    members: Sequence[PoolMember],
) -> Roster:
    """Members of a pool as players."""
    if not members:
        raise OmgError(f"{pool.path} has no member to draw. Add some with 'omg pool add'.")
    trained = [m for m in members if m.kind == "checkpoint"]
    scripted = [m for m in members if m.kind == "scripted"]
    networks, policies = [], []
    for member in trained:
        policy = dict(member.policy or {})
        who = f"{pool.path}: member {member.id}"
        _check_env(who, member.env, config)
        _check_fits(who, policy, spec)
        network = _network(policy, spec)
        network.load_state_dict(pool.load_state(member))
        networks.append(network)
        policies.append(policy)
    groups, group_of, local_of = _group(config, spec, device, networks, policies)
    if scripted:
        for member in scripted:
            _check_env(f"{pool.path}: member {member.id}", member.env, config)
        groups = (*groups, ScriptGroup(scripted, config.env, dict(config.env_args)))
        group_of = np.append(group_of, np.full(len(scripted), len(groups) - 1))
        local_of = np.append(local_of, np.arange(len(scripted)))
    ordered = (*trained, *scripted)
    role = learning_role(config, spec)
    own, seat = spec.seats_of(role), config.agent_shift % spec.n_agents
    return Roster(
        names=tuple(m.id for m in ordered),
        groups=groups,
        group_of=group_of,
        local_of=local_of,
        n_agents=spec.n_agents,
        seat=own.index(seat) if seat in own else seat % len(own),
        pool=ordered,
        mode=config.lineup_mode,
        roles=spec.roles,
        role=role,
    )


def learning_role(config: Config, spec: EnvSpec) -> str:
    """The role of who learns: the one named, or that of the seat `agent_shift`; empty where seats
    have none."""
    if not config.learning_role:
        return spec.roles[config.agent_shift % spec.n_agents] if spec.roles else ""
    if config.learning_role not in spec.roles:
        known = ", ".join(dict.fromkeys(spec.roles)) or "none: all seats are alike"
        raise OmgError(
            f"learning_role={config.learning_role} is no role of {spec.name}. Its roles: {known}."
        )
    return config.learning_role


def _check_env(who: str, env: str, config: Config) -> None:
    if env != config.env:
        raise OmgError(
            f"{who} plays env={env}, this run uses env={config.env}. Use opponents of "
            "the same environment."
        )


def _check_fits(who: str, policy: dict[str, Any], spec: EnvSpec) -> None:
    """What a member was trained to see must be what this environment gives it."""
    needed = ("input_dim", "policy_model", "obs_is_state", "obs_last_action", "obs_agent_id")
    missing = [key for key in needed if key not in policy]
    if missing:
        raise OmgError(f"{who} does not say its {', '.join(missing)}. Save it again.")
    width = spec.state_dim if policy["obs_is_state"] else spec.obs_dim
    width += spec.n_actions if policy["obs_last_action"] else 0
    width += spec.n_agents if policy["obs_agent_id"] else 0
    if width != policy["input_dim"]:
        raise OmgError(
            f"{who} was trained with inputs of width {policy['input_dim']} "
            f"(obs_is_state={policy['obs_is_state']}), this environment gives {width}. "
            "Use the environment it was trained on."
        )
    meaning = policy.get(OBS_FORMAT, spec.obs_format)
    if meaning != spec.obs_format and not policy["obs_is_state"]:
        raise OmgError(
            f"{who} does not fit this environment: {other_meaning(meaning, spec.obs_format)}. "
            "Use the env_args it was trained with, or other opponents."
        )
    seats = policy.get("n_agents", spec.n_agents)
    if seats != spec.n_agents:
        raise OmgError(
            f"{who} has weights for {seats} seats, this environment has {spec.n_agents}. "
            "Use the environment it was trained on."
        )


def _temperature(policy: Mapping[str, Any]) -> float:
    """Of the sampling of a member with logits; 0 for one with values."""
    if policy.get("agent_output_type") != "pi_logits":
        return 0.0
    return float(policy.get("temperature", 1.0))


def _group(
    config: Config,
    spec: EnvSpec,
    device: torch.device,
    networks: Sequence[AgentNetwork],
    policies: Sequence[dict[str, Any]],
) -> tuple[tuple[OpponentGroup, ...], IntArray, IntArray]:
    """Members of equal architecture and input settings share a group."""
    kinds: dict[str, list[int]] = {}
    for number, policy in enumerate(policies):
        keys = sorted(k for k in policy if k not in NOT_OF_A_GROUP and not k.startswith("am_"))
        kinds.setdefault(repr([(key, policy[key]) for key in keys]), []).append(number)
    group_of = np.zeros(len(networks), np.int64)
    local_of = np.zeros(len(networks), np.int64)
    groups: list[OpponentGroup] = []
    for rows in kinds.values():
        group_of[rows], local_of[rows] = len(groups), np.arange(len(rows))
        inputs = InputBuilder(spec, _settings(policies[rows[0]]), device=device)
        chosen = [networks[row] for row in rows]
        groups.append(
            CheckpointGroup(
                chosen,
                inputs,
                epsilon=config.opponent_epsilon,
                device=device,
                temperatures=[_temperature(policies[row]) for row in rows],
            )
        )
    return tuple(groups), group_of, local_of


def frozen_modules(roster: Roster) -> list[nn.Module]:
    """The members' networks, e.g. to see that training leaves them alone."""
    return [group.stacked for group in roster.groups if isinstance(group, CheckpointGroup)]
