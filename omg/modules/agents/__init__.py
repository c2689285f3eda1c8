"""Agent networks: inputs to values or logits. One interface, recurrent or not."""

from omg.modules.agents.networks import AgentNetwork
from omg.registry import Registry

AGENTS: Registry[type[AgentNetwork]] = Registry(
    "policy_model",
    {
        "rnn": "omg.modules.agents.networks:RNNAgent",
        "mlp": "omg.modules.agents.networks:MLPAgent",
        "idv_rnn": "omg.modules.agents.networks:IndividualRNNAgent",
    },
    base=AgentNetwork,
)

__all__ = ["AGENTS", "AgentNetwork"]
