"""Agent networks: inputs to values or logits. One interface, recurrent or not."""

from omg.modules.agents.networks import AgentNetwork
from omg.registry import PartRegistry

AGENTS: PartRegistry[AgentNetwork] = PartRegistry(
    "policy_model",
    {
        "rnn": "omg.modules.agents.networks:RNNAgent",
        "mlp": "omg.modules.agents.networks:MLPAgent",
        "idv_rnn": "omg.modules.agents.networks:IndividualRNNAgent",
    },
    base=AgentNetwork,
    given=(
        *("input_dim", "n_actions", "hidden_dim", "mlp_hidden_dims", "dueling", "n_agents"),
        "config",
    ),
    args_key="agent_args",
)

__all__ = ["AGENTS", "AgentNetwork"]
