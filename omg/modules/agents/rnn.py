"""PyMARL's recurrent agent: fc1, GRU, fc2."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omg.modules.agents.base import ActionHead, AgentNetwork
from omg.modules.kernels.gru import GRUCore
from omg.modules.kernels.stacked import StackedKernel, stacked_kernel


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
        kernel = self._kernel(features_REF)
        if kernel is None:
            return super().variants(inputs_RI, features_REF, carry, seats)
        own = nn.functional.linear(features_REF, self.fc1.weight[:, inputs_RI.shape[-1] :])
        return self._variants(kernel, inputs_RI, own, carry)

    def variants_of(
        self,
        inputs_RI: Tensor,
        table_PF: Tensor,
        places_RE: Tensor,
        carry: Tensor,
        seats: Tensor | None = None,
    ) -> Tensor:
        kernel = self._kernel(table_PF)
        if kernel is None:
            return super().variants_of(inputs_RI, table_PF, places_RE, carry, seats)
        each = nn.functional.linear(table_PF, self.fc1.weight[:, inputs_RI.shape[-1] :])
        own = each.index_select(0, places_RE.flatten()).view(*places_RE.shape, -1)
        return self._variants(kernel, inputs_RI, own, carry)

    def _variants(
        self, kernel: StackedKernel, inputs_RI: Tensor, own_REH: Tensor, carry: Tensor
    ) -> Tensor:
        """Outputs where the features' part of fc1 is known."""
        weight = self.fc1.weight[:, : inputs_RI.shape[-1]]
        shared = nn.functional.linear(inputs_RI, weight, self.fc1.bias)
        product = nn.functional.linear(carry, self.rnn.weight_hh)
        packed = self._packed_weights(kernel)
        return kernel.variants(packed, shared, own_REH, product, carry, self.fc2.out_features)

    def _kernel(self, inputs: Tensor) -> StackedKernel | None:
        """The compiled kernel, where no gradient is wanted and it takes such inputs."""
        kernel = None if torch.is_grad_enabled() or not len(inputs) else stacked_kernel()[0]
        return kernel if kernel is not None and kernel.fits(inputs, self.carry_dim) else None

    def _packed_weights(self, kernel: StackedKernel) -> Tensor:
        """The weights as the kernel reads them, packed anew after every change."""
        weights = self._weights()
        state = [(value.data_ptr(), value._version) for value in weights.values()]
        if self._packed is None or self._packed[0] != state:
            with torch.inference_mode(False), torch.no_grad():
                self._packed = (
                    state,
                    kernel.pack(
                        {
                            key: (value.mT if value.ndim == 2 else value).unsqueeze(0)
                            for key, value in weights.items()
                        }
                    ),
                )
        return self._packed[1]

    def _weights(self) -> dict[str, Tensor]:
        rnn, value = self.rnn, self.fc2.value
        named = {
            "fc1.weight": self.fc1.weight,
            "fc1.bias": self.fc1.bias,
            "rnn.weight_ih": rnn.weight_ih,
            "rnn.weight_hh": rnn.weight_hh,
            "rnn.bias_ih": rnn.bias_ih,
            "rnn.bias_hh": rnn.bias_hh,
            "fc2.weight": self.fc2.weight,
            "fc2.bias": self.fc2.bias,
        }
        if value is None:
            return named
        return {**named, "fc2.value.weight": value.weight, "fc2.value.bias": value.bias}

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden = self.rnn.unroll_packed(torch.relu(self.fc1(inputs_PI)), sizes, carry)
        return self.fc2(hidden), hidden
