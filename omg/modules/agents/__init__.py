"""Agent networks: inputs to values or logits. One interface, recurrent or not."""

from omg.modules.agents.base import AgentNetwork
from omg.registry import PartRegistry

AGENTS: PartRegistry[AgentNetwork] = PartRegistry(
    "policy_model",
    {
        "rnn": "omg.modules.agents.rnn:RNNAgent",
        "mlp": "omg.modules.agents.mlp:MLPAgent",
        "idv_rnn": "omg.modules.agents.idv_rnn:IndividualRNNAgent",
    },
    base=AgentNetwork,
    given=(
        *("input_dim", "n_actions", "hidden_dim", "mlp_hidden_dims", "dueling", "n_agents"),
        "config",
    ),
    args_key="agent_args",
)

__all__ = ["AGENTS", "AgentNetwork"]
