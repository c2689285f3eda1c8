"""Agent networks: inputs to values or logits. One interface, recurrent or not."""

from omg.modules.agents.base import AgentNetwork
from omg.registry import Registry

AGENTS: Registry[type[AgentNetwork]] = Registry(
    "policy_model",
    {
        "rnn": "omg.modules.agents.rnn:RNNAgent",
        "mlp": "omg.modules.agents.mlp:MLPAgent",
        "idv_rnn": "omg.modules.agents.idv_rnn:IndividualRNNAgent",
    },
    base=AgentNetwork,
)

__all__ = ["AGENTS", "AgentNetwork"]
