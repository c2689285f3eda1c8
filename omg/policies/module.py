"""A policy as one torch module with a `forward`, for `torch.export` and ONNX."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from omg.modules.agents.networks import AgentNetwork, IndividualRNNAgent
from omg.policies.inputs import StepView
from omg.policies.policy import Policy
from omg.types import EnvSpec


class Port(NamedTuple):
    """An input or output of a policy: its axes after the games, and what it is."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    about: str


class PolicyModule(nn.Module):
    """One greedy step of a policy in all seats of B games. `forward` takes the tensors of `inputs`
    by position, each with the games as its first axis, and returns those of `outputs`. What a
    policy remembers is handed in and out as `carry`, zeros at the start of a game."""

    def __init__(self, policy: Policy, spec: EnvSpec) -> None:
        super().__init__()
        model = policy.model
        self.parts = nn.ModuleDict({"network": policy.network})
        if model is not None:
            self.parts["opponent_model"] = model
        self._policy, self._spec = policy, spec
        self._own = policy.network.carry_dim
        self._carry_dim = self._own + policy.model_carry_dim
        self.inputs = self._inputs()
        self.outputs = self._outputs()

    def _inputs(self) -> tuple[Port, ...]:
        spec, policy, model = self._spec, self._policy, self._policy.model
        settings, present = policy.inputs.settings, policy.config.am_present
        seats, actions = spec.n_agents, spec.n_actions
        models = model is not None and model.feature_dim > 0
        ports = [
            Port("obs", (seats, spec.obs_dim), torch.float32, "what every seat observes"),
            Port("state", (spec.state_dim,), torch.float32, "the state of the game"),
            Port("avail", (seats, actions), torch.bool, "which actions are available"),
            Port("last_actions", (seats,), torch.int64, "what everybody did; -1: nothing yet"),
            Port("alive", (seats,), torch.bool, "who still acts"),
            Port("carry", (seats, self._carry_dim), torch.float32, "its memory; zeros at first"),
        ]
        reads_state = model is not None and models and model.reads_state
        wanted = {
            "obs": not settings.obs_is_state or (model is not None and model.needs_others),
            "state": settings.obs_is_state or present or reads_state,
            "avail": True,
            "last_actions": settings.obs_last_action or models,
            "alive": spec.leavers and (models or present),
            "carry": self._carry_dim > 0,
        }
        return tuple(port for port in ports if wanted[port.name])

    def _outputs(self) -> tuple[Port, ...]:
        seats, actions = self._spec.n_agents, self._spec.n_actions
        logits = self._policy.config.agent_output_type == "pi_logits"
        found = (
            Port("actions", (seats,), torch.int64, "the best available action of every seat"),
            Port(
                "logits" if logits else "values",
                (seats, actions),
                torch.float32,
                "of all actions, unavailable ones too",
            ),
        )
        shape = (seats, self._carry_dim)
        carry = Port("next_carry", shape, torch.float32, "the carry of the next step")
        return (*found, carry) if self._carry_dim else found

    def example(self, games: int) -> tuple[Tensor, ...]:
        """Inputs of the right shapes: the start of games in which nothing is seen."""
        start = {"avail": 1, "alive": 1, "last_actions": -1}
        return tuple(
            torch.full((games, *port.shape), start.get(port.name, 0), dtype=port.dtype)
            for port in self.inputs
        )

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        known = dict(zip((port.name for port in self.inputs), given, strict=True))
        view, carry = self._view(known), known.get("carry")
        games = view.avail.shape[0]
        seats = torch.arange(self._spec.n_agents, device=view.avail.device).expand(games, -1)
        policy, feature, carries = self._policy, None, []
        if policy.model is not None:
            remembered = self._part(carry, view, slice(self._own, None)).flatten(1)
            generator = cast(torch.Generator, None)  # nothing is drawn: see `export.exportable`
            feature, inferred = policy.infer(view, seats, remembered, generator)
            carries.append(inferred.carry.view(games, self._spec.n_agents, -1))
        inputs = policy.inputs.step(view, None, feature)
        outputs, hidden = self._step(inputs, self._part(carry, view, slice(self._own)))
        best = outputs.masked_fill(~view.avail, -torch.inf).argmax(-1)
        if not self._carry_dim:
            return best, outputs
        return best, outputs, torch.cat([hidden, *carries], -1)

    def _view(self, known: dict[str, Tensor]) -> StepView:
        """What is not among the inputs is not read, so zeros stand for it."""
        avail, spec = known["avail"], self._spec
        games, place = avail.shape[0], avail.device
        nothing = torch.zeros(games, spec.n_agents, dtype=torch.int64, device=place)
        unseen = torch.zeros(games, spec.n_agents, spec.obs_dim, device=place)
        return StepView(
            obs=known.get("obs", unseen),
            state=known.get("state", torch.zeros(games, spec.state_dim, device=place)),
            avail=avail,
            last_actions=known.get("last_actions", nothing),
            alive=known.get("alive"),
        )

    @staticmethod
    def _part(carry: Tensor | None, view: StepView, columns: slice) -> Tensor:
        if carry is None:
            return view.obs.new_zeros(*view.avail.shape[:2], 0)
        return carry[..., columns]

    def _step(self, inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The network for all rows; one with weights per seat, seat by seat."""
        network = self._policy.network
        if isinstance(network, IndividualRNNAgent):
            found = [
                cast(AgentNetwork, agent).step(inputs[:, seat], hidden[:, seat])
                for seat, agent in enumerate(network.agents)
            ]
            return torch.stack([out for out, _ in found], 1), torch.stack([c for _, c in found], 1)
        games, seats = inputs.shape[:2]
        rows = None
        if network.individual:
            rows = torch.arange(seats, device=inputs.device).expand(games, -1).reshape(-1)
        outputs, carry = network.step(inputs.flatten(0, 1), hidden.flatten(0, 1), rows)
        return outputs.view(games, seats, -1), carry.view(games, seats, -1)
