"""A policy: inputs, opponent model, agent network and action selector."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from omg.components.action_selectors import SELECTORS, DecayThenFlat, Exploring
from omg.components.trajectories import Sequences
from omg.config.schema import Config
from omg.modules.agents import AGENTS, AgentNetwork
from omg.modules.agents.networks import RNNAgent
from omg.modules.opponent_models import OPPONENT_MODELS, Inferred, OpponentModel, model_name
from omg.modules.opponent_models.base import MemorylessModel, PresentOthers
from omg.policies.inputs import InputBuilder, InputSettings, ModelRowBuilder, StepView
from omg.types import EnvSpec, OmgError


class States(NamedTuple):
    """Whole episodes through a network."""

    outputs: Tensor  # [P, n, A]
    hidden: Tensor  # [P, n, H], after every slot
    products: Tensor | None  # see `Branches`; only where they were asked for


class Policy:
    """One network, used by any number of seats; a network with weights per seat is told which.
    With an opponent model, what that infers is part of the inputs."""

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        device: torch.device,
        model: OpponentModel | None = None,
        settings: InputSettings | None = None,
    ) -> None:
        """`settings`: how inputs are built, where that is not as the configuration says."""
        self.config, self._spec, self._device = config, spec, device
        self.model = None if model is None else model.to(device)
        settings = settings or InputSettings.of(config, spec)
        others = model is not None and model.needs_others
        self.rows = ModelRowBuilder(config, spec, settings, others=others)
        present = None
        if model is not None and config.am_present:
            present = PresentOthers(spec, scale=self.rows.state_scale).to(device)
        self.inputs = InputBuilder(
            spec, settings, device=device, feature_dim=self.feature_dim, present=present
        )
        self.network = self.new_network()
        self.selector = SELECTORS[config.action_selector](
            epsilon=DecayThenFlat(
                start=config.epsilon_start,
                finish=config.epsilon_finish,
                time_length=config.epsilon_anneal_time,
                decay=config.epsilon_decay,
            ),
            temperature=config.temperature,
            mask_before_softmax=config.mask_before_softmax,
        )

    @property
    def n_actions(self) -> int:
        """How many there are."""
        return self._spec.n_actions

    @property
    def feature_dim(self) -> int:
        """Width of what the opponent model adds to the inputs."""
        return 0 if self.model is None else self.model.feature_dim

    @property
    def model_carry_dim(self) -> int:
        """Width of what the opponent model remembers."""
        return 0 if self.model is None else self.model.carry_dim

    def networks(self) -> dict[str, nn.Module]:
        """What is saved of it, by the name of the file: agent -> agent.th."""
        return {"agent": self.network, **({} if self.model is None else self.model.files())}

    def new_network(self) -> AgentNetwork:
        """A network of this policy's shape with fresh weights, e.g. for targets."""
        config, spec = self.config, self._spec
        network = AGENTS.build(
            config.policy_model,
            config.agent_args,
            input_dim=self.inputs.dim,
            n_actions=spec.n_actions,
            hidden_dim=config.rnn_hidden_dim,
            mlp_hidden_dims=config.mlp_hidden_dims,
            dueling=config.dueling,
            n_agents=spec.n_agents,
            config=config,
        )
        if not isinstance(getattr(network, "carry_dim", None), int):
            raise OmgError(
                f"policy_model={config.policy_model} has no carry_dim. Set the width of what it "
                "remembers in __init__; 0 where it remembers nothing."
            )
        return network.to(self._device)

    def _row_seats(self, seats: Tensor | None, lead: int, agents: int) -> Tensor | None:
        """The seats of lead × agents rows; None for a network that works in any seat."""
        if not self.network.individual:
            return None
        if seats is None:
            if agents != self._spec.n_agents:
                raise ValueError("weights per seat need the seats that are in view")
            seats = torch.arange(agents, device=self._device).expand(lead, agents)
        return seats.reshape(-1)

    def step(
        self,
        view: StepView,
        hidden_BNH: Tensor,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs [B, n, A] and the next hidden state; `seats` [B, n] if not all are in view,
        `feature` [B, n, F] from the opponent model."""
        inputs = self.inputs.step(view, seats, feature)
        copies, agents = inputs.shape[:2]
        rows = self._row_seats(seats, copies, agents)
        outputs, hidden = self.network.step(inputs.flatten(0, 1), hidden_BNH.flatten(0, 1), rows)
        return outputs.view(copies, agents, -1), hidden.view(copies, agents, self.network.carry_dim)

    def act(
        self,
        view: StepView,
        hidden_BNH: Tensor,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Actions [B, n] on the CPU and the next hidden state; arguments as in `step`."""
        network, shown, choice = self.network, self.inputs.shown, None
        if shown is not None and feature is None and isinstance(self.selector, Exploring):
            choice = self.selector.choice(env_steps, greedy=greedy)
        if choice is not None and shown is not None and isinstance(network, RNNAgent):
            told = (view.obs, view.last_actions, view.avail, seats, hidden_BNH)
            found = network.act(shown, *told, choice, generator)
            if found is not None:
                return found
        outputs, hidden = self.step(view, hidden_BNH, seats, feature)
        return self.selector.select(
            *(outputs.cpu(), view.avail.cpu()),
            env_steps=env_steps,
            greedy=greedy,
            generator=generator,
        ), hidden

    def infer(
        self,
        view: StepView,
        seats_Bn: Tensor,
        carry: Tensor,
        generator: torch.Generator,
        *,
        foresight: Tensor | None = None,
        players_BN: Tensor | None = None,
        permute: bool = False,
    ) -> tuple[Tensor, Inferred]:
        """What the model makes of a view of all seats: features [B, n, F] for the seats that act,
        and all it inferred. `players_BN` are its numbers of who sits where. `permute` feeds each
        row what another copy inferred in its seat."""
        assert self.model is not None
        copies, agents = seats_Bn.shape
        known = self.rows.acting(view, seats_Bn, foresight, players_BN)
        inferred = self.model.infer(known, carry.view(copies * agents, -1), generator)
        feature = inferred.feature
        if permute:
            donor = torch.arange(len(known.seats))
            for seat in set(known.seats.tolist()):
                rows = (known.seats == seat).nonzero(as_tuple=True)[0].cpu()
                donor[rows] = rows.roll(1)  # alone in its seat, a copy keeps its own
            feature = self.model.exchanged(inferred, donor, known, generator)
        return feature.view(copies, agents, -1), inferred

    def unroll(
        self, inputs_PNI: Tensor, arranged: Sequences, network: AgentNetwork | None = None
    ) -> Tensor:
        """Outputs of whole episodes from zero hidden state, [P, n, A]."""
        return self.unroll_states(inputs_PNI, arranged, network)[0]

    def unroll_states(
        self,
        inputs_PNI: Tensor,
        arranged: Sequences,
        network: AgentNetwork | None = None,
        branching: bool = False,
    ) -> States:
        """The same with the states; `branching`: single steps will be made from them."""
        network = network or self.network
        slots, agents, _ = inputs_PNI.shape
        sizes = arranged.packing.sizes
        episodes = int(sizes[0])
        ranked = None if arranged.seats is None else arranged.seats_PN[:episodes]
        rows = self._row_seats(ranked, episodes, agents)
        carry = inputs_PNI.new_zeros(episodes * agents, network.carry_dim)
        unroll = network.unroll_branching if branching else network.unroll_packed
        outputs, hidden, *products = unroll(inputs_PNI.flatten(0, 1), sizes * agents, carry, rows)
        hidden = hidden.view(slots, agents, network.carry_dim)
        return States(outputs.view(slots, agents, -1), hidden, products[0] if branching else None)

    def describe(self) -> dict[str, Any]:
        """What its weights depend on, and what a frozen player needs to act with them."""
        config, spec = self.config, self._spec
        described: dict[str, Any] = {
            "policy_model": config.policy_model,
            "agent_args": dict(config.agent_args),
            "agent_output_type": config.agent_output_type,
            "rnn_hidden_dim": config.rnn_hidden_dim,
            "mlp_hidden_dims": list(config.mlp_hidden_dims),
            "dueling": config.dueling,
            "input_dim": self.inputs.dim,
            **self.inputs.settings.as_dict(),
        }
        if self.network.individual:
            described["n_agents"] = spec.n_agents
        if config.agent_output_type == "pi_logits":  # a frozen player samples them, too
            described["temperature"] = config.temperature
        if spec.obs_format and not config.obs_is_state:  # else it sees no observation
            described["obs_format"] = spec.obs_format
        if self.model is not None:
            described |= describe_model(config, self.model)
        return described


def describe_model(config: Config, model: OpponentModel) -> dict[str, Any]:
    """What an opponent model's weights depend on, and what acting with them needs."""
    return {
        "am_model": config.am_model,
        "am_hidden_dim": config.am_hidden_dim,
        "am_args": dict(config.am_args),
        "am_present": config.am_present,
        "scale_inputs": config.scale_inputs,
        **model.describe(),
    }


def build_model(config: Config, spec: EnvSpec) -> OpponentModel:
    """The configured model with fresh weights. Arguments it does not take, and weights that it
    would not save, are refused."""
    model = OPPONENT_MODELS.build(
        model_name(config),
        config.am_args,
        spec=spec,
        own_dim=spec.state_dim if config.obs_is_state else spec.obs_dim,
        config=config,
    )
    if not isinstance(getattr(model, "feature_dim", None), int):
        raise OmgError(
            f"am_model={config.am_model} has no feature_dim. Set the width of its features in "
            "__init__."
        )
    _check_files(model, config.am_model)
    _check_loss(model, config.am_model)
    return model


def check_options(config: Config) -> None:
    """Options of one shipped model, given to another, would be ignored."""
    of = {
        "am_history": ("base_am", False),
        "am_feature": ("liam_am", "latent"),
        "liam_others_actions": ("liam_am", False),
        "types_feature": ("types_am", "most_probable"),
        "types_teacher": ("types_am", False),
        "moa_goal": ("moa", "none"),
        "moa_save_dir": ("moa", ""),
    }
    for key, (model, default) in of.items():
        if config.am_model == model or getattr(config, key) == default:
            continue
        if config.am_model in OPPONENT_MODELS:
            raise OmgError(
                f"{key}={getattr(config, key)} is an option of am_model={model}, not of "
                f"{config.am_model}. Leave it out."
            )


def _check_loss(model: OpponentModel, name: str) -> None:
    if not isinstance(model, MemorylessModel) or type(model).loss is not MemorylessModel.loss:
        return
    if any(weights.requires_grad for weights in model.parameters()):
        raise OmgError(
            f"am_model={name} has weights and no loss to train them by. Define loss(rows), or keep "
            "what is not trained in buffers (register_buffer)."
        )


def _check_files(model: OpponentModel, name: str) -> None:
    files = model.files()
    if "agent" in files:
        raise OmgError(
            f"am_model={name} wants to save a file called 'agent', which is the policy's. "
            "Choose another name in files()."
        )
    saved = {id(p) for part in files.values() for p in part.parameters()}
    lost = [key for key, weights in model.named_parameters() if id(weights) not in saved]
    if lost:
        raise OmgError(
            f"am_model={name} would not save {', '.join(lost)}. Return the networks to save from "
            'files(), e.g. {"my_model": self}.'
        )
