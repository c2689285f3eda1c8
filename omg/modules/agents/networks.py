"""Agent networks: what every one offers, PyMARL's recurrent agent, one whose seats share no
weights, and a feed-forward one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from omg.components.action_selectors import Choice
from omg.modules.kernels.acting import Shown, acting_kernel
from omg.modules.kernels.branches import Branches, branch_kernel
from omg.modules.kernels.given import GivenLoss
from omg.modules.kernels.gru import Aims, BlockLoss, GRUCore, Weights
from omg.modules.kernels.stacked import StackedKernel, stacked_kernel


class AgentNetwork(nn.Module):
    """Maps inputs to one output per action. `carry_dim` is the width of the recurrent state
    handed in and out (0 for a network that is not `recurrent`); it is never kept in the module. An
    `individual` network has separate weights for each of `n_agents` seats and must be told the
    seat of every row; the others work in any seat and ignore it.

    Its `__init__` may name: input_dim, n_actions, hidden_dim, mlp_hidden_dims, dueling, n_agents,
    config; and settings of its own, given by `agent_args`."""

    recurrent: ClassVar[bool] = True
    carry_dim: int
    individual: bool = False

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """inputs [R, I], carry [R, carry_dim], seats [R] -> outputs [R, A], carry."""

    def forward(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `step`, for what calls modules: torch.export, ONNX, hooks."""
        return self.step(inputs, carry, seats)

    def variants(
        self, inputs_RI: Tensor, features_REF: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> Tensor:
        """Outputs [R, E, A] of E alternative steps from the same carry [R, carry_dim]: inputs
        that all of them share, each followed by features of its own."""
        rows, kinds, _ = features_REF.shape
        shared = inputs_RI.unsqueeze(1).expand(rows, kinds, inputs_RI.shape[-1])
        each = torch.cat([shared, features_REF], -1).flatten(0, 1)
        chosen = None if seats is None else seats.repeat_interleave(kinds)
        outputs, _ = self.step(each, carry.repeat_interleave(kinds, 0), chosen)
        return outputs.view(rows, kinds, -1)

    def branches(self, of: Branches) -> Tensor:
        """Outputs [R, E, A] of alternative steps from the states that a pass over whole sequences
        left; those of alternatives that are not wanted are any."""
        shared, seats = (value.index_select(0, of.at) for value in (of.inputs, of.seats))
        return self.variants(shared, of.features(), of.states(), seats)

    @abstractmethod
    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Whole sequences without padding: step t has sizes[t] of the P rows, never more than
        the step before (`functional.Packing`); carry [sizes[0], carry_dim] and the seats of the
        sequences [sizes[0]] -> outputs [P, A] and the carry behind every row [P, carry_dim]."""

    def unroll_branching(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same before `branches`, and what of it saves them work (`Branches.products`)."""
        return *self.unroll_packed(inputs_PI, sizes, carry, seats), None


class ActionHead(nn.Linear):
    """Hidden features to one value per action: a plain linear layer, or with `dueling` the
    state value plus advantages centred on their mean."""

    def __init__(self, hidden_dim: int, n_actions: int, *, dueling: bool) -> None:
        super().__init__(hidden_dim, n_actions)
        self.value = nn.Linear(hidden_dim, 1) if dueling else None

    def forward(self, hidden: Tensor) -> Tensor:
        advantage = super().forward(hidden)
        if self.value is None:
            return advantage
        value: Tensor = self.value(hidden)
        return value + advantage - advantage.mean(-1, keepdim=True)

    def as_one_layer(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the linear layer that computes the same; dueling is linear, too."""
        weight, bias = self.weight, self.bias
        if self.value is None:
            return weight, bias
        centred = weight - weight.mean(0, keepdim=True), bias - bias.mean()
        return centred[0] + self.value.weight, centred[1] + self.value.bias


class RNNAgent(AgentNetwork):
    """Parameters `fc1 rnn fc2` (and `fc2.value` when dueling), shared by all agents."""

    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        hidden_dim: int,
        dueling: bool = False,
    ) -> None:
        super().__init__()
        self.carry_dim = hidden_dim
        self.fc1 = nn.Linear(input_dim, hidden_dim)
        self.rnn = GRUCore(hidden_dim, hidden_dim)
        self.fc2 = ActionHead(hidden_dim, n_actions, dueling=dueling)
        self._packed: tuple[list[tuple[int, int]], Tensor] | None = None

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        kernel = self._kernel(inputs)
        if kernel is not None:
            weights = self._packed_weights(kernel)
            return kernel.step(weights, inputs, None, carry, self.fc2.out_features)
        hidden = self.rnn(torch.relu(self.fc1(inputs)), carry)
        return self.fc2(hidden), hidden

    def variants(
        self, inputs_RI: Tensor, features_REF: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> Tensor:
        count, kinds, _ = features_REF.shape
        each, rows = torch.arange(count * kinds), torch.arange(count)
        of = Branches(
            inputs=inputs_RI,
            hidden=carry,
            products=None,
            seats=rows,
            table=features_REF.flatten(0, 1),
            at=rows,
            before=rows,
            places=each.view(count, kinds),
        )
        found = self._branches(of)
        if found is None:
            return super().variants(inputs_RI, features_REF, carry, seats)
        return found

    def branches(self, of: Branches) -> Tensor:
        found = self._branches(of)
        return super().branches(of) if found is None else found

    def _branches(self, of: Branches) -> Tensor | None:
        """By the kernel; None where a gradient is wanted, or it does not take this."""
        kernel = None if torch.is_grad_enabled() else branch_kernel()[0]
        if kernel is None or type(self).step is not RNNAgent.step:
            return None
        rnn = self.rnn
        weights = [self.fc1.weight, self.fc1.bias, rnn.weight_ih, rnn.weight_hh]
        weights += [rnn.bias_ih, rnn.bias_hh, *self.fc2.as_one_layer()]
        return kernel.outputs(of, weights) if kernel.fits(of, weights) else None

    def _kernel(self, inputs: Tensor) -> StackedKernel | None:
        """The compiled kernel, where no gradient is wanted and it takes such inputs."""
        kernel = None if torch.is_grad_enabled() or not len(inputs) else stacked_kernel()[0]
        return kernel if kernel is not None and kernel.fits(inputs, self.carry_dim) else None

    def act(
        self,
        shown: Shown,
        obs: Tensor,
        last: Tensor,
        avail: Tensor,
        seats: Tensor | None,
        carry: Tensor,
        choice: Choice,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor] | None:
        """Actions [B, n] and carry of observations [B, n, O], with all that lies between in one
        call; None where the kernel does not take this, or a subclass steps otherwise."""
        kernel, packs = acting_kernel()[0], self._kernel(obs)
        if kernel is None or packs is None or type(self).step is not RNNAgent.step:
            return None
        if not kernel.fits(obs, self.carry_dim):
            return None
        packed = self._packed_weights(packs)
        return kernel.act(packed, shown, obs, last, avail, seats, carry, choice, generator)

    def _packed_weights(self, kernel: StackedKernel) -> Tensor:
        """The weights as the kernel reads them, packed again after every change; in every call
        where changes are not counted, because they were made in inference mode."""
        weights = self._weights()
        if weights[0].is_inference():
            return self._pack(kernel)
        state = [(weight.data_ptr(), weight._version) for weight in weights]
        if self._packed is None or self._packed[0] != state:
            self._packed = (state, self._pack(kernel))
        return self._packed[1]

    def _pack(self, kernel: StackedKernel) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            core = self.rnn
            weights = [
                *(self.fc1.weight, self.fc1.bias, core.weight_ih, core.weight_hh),
                *(core.bias_ih, core.bias_hh, *self.fc2.as_one_layer()),
            ]
            return kernel.pack_one([w.contiguous() for w in weights])

    def _weights(self) -> list[Tensor]:
        """All of them; asked for in every step, so it goes around `nn.Module`'s slow look-up."""
        parts = self._modules
        head = parts["fc2"]
        layers = [parts["fc1"], parts["rnn"], head, head._modules.get("value")]  # type: ignore[union-attr]
        return [
            weight
            for layer in layers
            if layer is not None
            for weight in layer._parameters.values()
            if weight is not None
        ]

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden, outputs = self.rnn.unroll_between(
            self.fc1, self.fc2.as_one_layer(), inputs_PI, sizes, carry
        )
        return outputs, hidden

    def unroll_branching(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if type(self).unroll_packed is not RNNAgent.unroll_packed:
            return super().unroll_branching(inputs_PI, sizes, carry, seats)
        hidden, outputs, products = self.rnn.unroll_branching(
            self.fc1, self.fc2.as_one_layer(), inputs_PI, sizes, carry
        )
        return outputs, hidden, products

    def fit_packed(
        self,
        inputs_PI: Tensor,
        sizes: Tensor,
        loss: BlockLoss,
        target: tuple[nn.Module, Tensor] | None = None,
    ) -> GivenLoss | None:
        """The loss of the outputs of `unroll_packed` from zero states, with its gradients in the
        same call; `target`: a network of the same kind, whose outputs are written first, and where
        to. None where the kernel does not take this, or a subclass unrolls otherwise."""
        networks, aims = [self, *([] if target is None else [target[0]])], None
        if any(
            getattr(type(n), "unroll_packed", 0) is not RNNAgent.unroll_packed for n in networks
        ):
            return None
        if target is not None:
            assert isinstance(target[0], RNNAgent)
            aims = Aims(target[0]._between(), target[1])
        last = self.fc2.as_one_layer()
        return self.rnn.fit_between(self.fc1, last, inputs_PI, sizes, loss, aims)

    @torch.no_grad()
    def _between(self) -> Weights:
        return self.rnn.between(self.fc1, self.fc2.as_one_layer())


class WithValue(AgentNetwork):
    """An agent and one more layer on its hidden state: the outputs of both side by side, the
    layer's last, in one pass."""

    def __init__(self, agent: RNNAgent, head: nn.Linear) -> None:
        super().__init__()
        self.agent, self.head, self.carry_dim = agent, head, agent.carry_dim

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        outputs, hidden = self.agent.step(inputs, carry, seats)
        return torch.cat([outputs, self.head(hidden)], -1), hidden

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden, outputs = self.agent.rnn.unroll_between(
            self.agent.fc1, self._as_one_layer(), inputs_PI, sizes, carry
        )
        return outputs, hidden

    def fit_packed(self, inputs_PI: Tensor, sizes: Tensor, loss: BlockLoss) -> GivenLoss | None:
        """As `RNNAgent.fit_packed`."""
        last = self._as_one_layer()
        return self.agent.rnn.fit_between(self.agent.fc1, last, inputs_PI, sizes, loss)

    def _as_one_layer(self) -> tuple[Tensor, Tensor]:
        weight, bias = self.agent.fc2.as_one_layer()
        return torch.cat([weight, self.head.weight]), torch.cat([bias, self.head.bias])


class IndividualRNNAgent(AgentNetwork):
    """One `RNNAgent` per seat, parameters `agents.<seat>.fc1 …`. Every row or sequence is computed
    by the network of its seat, and only that network gets its gradient."""

    individual = True

    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        hidden_dim: int,
        dueling: bool = False,
        n_agents: int = 1,
    ) -> None:
        super().__init__()
        self.carry_dim = hidden_dim
        self.agents = nn.ModuleList(
            RNNAgent(
                input_dim=input_dim, n_actions=n_actions, hidden_dim=hidden_dim, dueling=dueling
            )
            for _ in range(n_agents)
        )

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        rows = self._rows_of(seats)
        parts = [
            agent.step(inputs[own], carry[own]) if len(own) else _nothing(agent, carry)
            for agent, own in zip(self._networks(), rows, strict=True)
        ]
        return self._joined(parts, rows)

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        sequences = self._rows_of(seats)
        steps = torch.repeat_interleave(torch.cumsum(sizes, 0) - sizes, sizes)
        rank = torch.arange(len(inputs_PI), device=inputs_PI.device) - steps.to(inputs_PI.device)
        assert seats is not None
        rows = self._rows_of(seats[rank])
        parts = [
            agent.unroll_packed(inputs_PI[own], _sizes_of(chosen, sizes), carry[chosen])
            if len(own)
            else _nothing(agent, carry)
            for agent, chosen, own in zip(self._networks(), sequences, rows, strict=True)
        ]
        return self._joined(parts, rows)

    def _networks(self) -> list[RNNAgent]:
        return [cast(RNNAgent, agent) for agent in self.agents]

    def _rows_of(self, seats: Tensor | None) -> list[Tensor]:
        """The rows of each seat, in their order."""
        if seats is None:
            raise ValueError("a network with weights per seat needs the seat of every row")
        return [(seats == seat).nonzero(as_tuple=True)[0] for seat in range(len(self.agents))]

    @staticmethod
    def _joined(parts: list[tuple[Tensor, Tensor]], rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The seats' results in the order of the rows."""
        places = torch.argsort(torch.cat(rows))
        outputs, carries = zip(*parts, strict=True)
        return torch.cat(outputs)[places], torch.cat(carries)[places]


def _nothing(agent: RNNAgent, carry: Tensor) -> tuple[Tensor, Tensor]:
    """The result of no rows, without a call: nothing of the agent gets a gradient."""
    return carry.new_zeros(0, agent.fc2.out_features), carry[:0]


def _sizes_of(sequences: Tensor, sizes: Tensor) -> Tensor:
    """How many of these sequences (ascending numbers) reach each step."""
    reached = torch.searchsorted(sequences.cpu(), sizes)
    return reached[reached > 0]


class MLPAgent(AgentNetwork):
    """ReLU layers of `mlp_hidden_dims`, then the action head; no recurrent state."""

    recurrent = False
    carry_dim = 0

    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        mlp_hidden_dims: Sequence[int],
        dueling: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = input_dim
        for size in mlp_hidden_dims:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.body = nn.Sequential(*layers)
        self.head = ActionHead(width, n_actions, dueling=dueling)

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.head(self.body(inputs)), carry

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.head(self.body(inputs_PI)), inputs_PI.new_zeros(len(inputs_PI), 0)
