"""Networks against slow, independent versions of themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from omg.config.loader import load_command_line
from omg.learners.base import Progress, Targets
from omg.modules.agents import AGENTS
from omg.modules.agents.networks import ActionHead
from omg.modules.kernels.branches import Branches
from omg.modules.kernels.gru import GRUCore
from omg.modules.mixers import MIXERS

from .small_learners import unroll_equal

sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)


def new_agent(name="rnn", *, input_dim=4, n_actions=3, hidden_dim=5, dueling=False):
    given = {
        "input_dim": input_dim,
        "n_actions": n_actions,
        "hidden_dim": hidden_dim,
        "mlp_hidden_dims": (7, hidden_dim),
        "dueling": dueling,
        "n_agents": 3,
    }
    agent = AGENTS.build(name, {}, **given)
    return agent.double()


def follow_halfway(target, source):
    """Take over half of the weights, as target networks do."""
    config = load_command_line(["--config=qmix", "--target_update_tau=0.5"]).config
    before = [weight.detach().clone() for weight in target.parameters()]
    targets = Targets(config, (target, source))
    with torch.no_grad():
        for weight, old in zip(target.parameters(), before, strict=True):
            weight.copy_(old)  # a new `Targets` begins with a copy of all weights
    targets.follow(Progress(0, 0, 0))
    for weight, old, new in zip(target.parameters(), before, source.parameters(), strict=True):
        torch.testing.assert_close(weight, 0.5 * old + 0.5 * new)


def step_by_step(agent, inputs, carry, seats):
    outputs = []
    for step in inputs:
        out, carry = agent.step(step, carry, seats)
        outputs.append(out)
    return torch.stack(outputs)


def gradients(outputs, weights, leaves):
    return torch.autograd.grad((outputs * weights).sum(), leaves, allow_unused=True)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(AGENTS))
@given(steps=sizes, rows=sizes, inputs=sizes, actions=sizes, dueling=st.booleans(), seed=seeds)
def test_unrolling_equals_stepping_in_values_and_gradients(
    name, steps, rows, inputs, actions, dueling, seed
):
    torch.manual_seed(seed)
    agent = new_agent(name, input_dim=inputs, n_actions=actions, dueling=dueling)
    sequence = torch.randn(steps, rows, inputs, dtype=torch.float64, requires_grad=True)
    carry = torch.randn(rows, agent.carry_dim, dtype=torch.float64, requires_grad=True)
    seats = torch.randint(3, (rows,))  # only networks with weights per seat use them
    fast, slow = (
        unroll_equal(agent, sequence, carry, seats),
        step_by_step(agent, sequence, carry, seats),
    )
    assert fast.shape == (steps, rows, actions)
    torch.testing.assert_close(fast, slow)
    weights = torch.randn_like(fast)
    leaves = [sequence, *agent.parameters(), *([carry] if agent.carry_dim else [])]
    for quick, reference in zip(
        gradients(fast, weights, leaves), gradients(slow, weights, leaves), strict=True
    ):
        torch.testing.assert_close(quick, reference)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_network_can_be_called_and_exported(name):
    torch.manual_seed(0)
    agent = new_agent(name, input_dim=7, n_actions=3, dueling=True)
    inputs = torch.randn(6, 7, dtype=torch.float64)
    carry, seats = torch.randn(6, agent.carry_dim, dtype=torch.float64), torch.arange(6) % 3
    with torch.no_grad():
        expected = agent.step(inputs, carry, seats)
        found = agent(inputs, carry, seats)
        calls = [found]
        if not agent.individual:  # these sort rows by seat: `omg export` writes them another way
            exported = torch.export.export(agent, (inputs, carry, seats)).module()
            calls.append(exported(inputs, carry, seats))
    for outputs in calls:
        for mine, theirs in zip(outputs, expected, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("hidden_dim", [5, 64], ids=["torch", "kernel"])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("name", sorted(AGENTS))
def test_variants_equal_one_step_for_each(name, dueling, hidden_dim, grad):
    torch.manual_seed(0)
    agent = new_agent(name, input_dim=7, hidden_dim=hidden_dim, dueling=dueling).float()
    inputs, features = torch.randn(13, 4), torch.randn(13, 5, 3)
    carry, seats = torch.randn(13, agent.carry_dim), torch.arange(13) % 3
    with torch.set_grad_enabled(grad):
        found = agent.variants(inputs, features, carry, seats)
    assert found.requires_grad == grad
    assert found.shape == (13, 5, 3)
    for kind in range(5):
        each = torch.cat([inputs, features[:, kind]], -1)
        expected, _ = agent.step(each, carry, seats)
        torch.testing.assert_close(found[:, kind], expected, atol=1e-5, rtol=1e-5)
    branches = Branches(
        inputs=inputs,
        hidden=carry,
        products=None,
        seats=seats,
        table=torch.randn(6, 3),
        at=torch.randint(0, 13, (8,)),
        before=torch.randint(-1, 13, (8,)),
        places=torch.randint(0, 6, (8, 5)),
    )
    at, before = branches.at, branches.before
    starts = torch.where((before < 0).unsqueeze(1), 0.0, carry[before])
    with torch.set_grad_enabled(grad):
        from_table = agent.branches(branches)
        each = branches.table[branches.places]
        direct = agent.variants(inputs[at], each, starts, seats[at])
    torch.testing.assert_close(from_table, direct, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dueling", [False, True])
def test_a_step_without_gradient_follows_every_change_of_the_weights(dueling):
    torch.manual_seed(0)
    agent, other = (new_agent(hidden_dim=64, dueling=dueling).float() for _ in range(2))
    inputs, carry = torch.randn(6, 4), torch.randn(6, 64)

    def change_by(optimiser):
        unroll_equal(agent, inputs.unsqueeze(0), carry).square().sum().backward()
        optimiser.step()

    changes = [
        lambda: None,
        lambda: change_by(torch.optim.Adam(agent.parameters(), lr=0.1)),
        lambda: change_by(torch.optim.RMSprop(agent.parameters(), lr=0.1, foreach=False)),
        lambda: agent.load_state_dict(other.state_dict()),
        lambda: follow_halfway(agent, new_agent(hidden_dim=64, dueling=dueling).float()),
        lambda: agent.to(torch.float64).to(torch.float32),
        lambda: agent.load_state_dict(new_agent(hidden_dim=64, dueling=dueling).state_dict()),
    ]
    for change in changes:
        change()
        slow = agent.step(inputs, carry)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                fast = agent.step(inputs, carry)
            assert not fast[0].requires_grad
            for mine, theirs in zip(fast, slow, strict=True):
                torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_an_agent_made_in_inference_mode_acts_and_may_change():
    agent = new_agent(hidden_dim=64).float()
    inputs, carry = torch.randn(3, 4), torch.randn(3, 64)
    for _ in range(2):
        hidden = agent.rnn(torch.relu(agent.fc1(inputs)), carry)
        expected = agent.fc2(hidden), hidden
        for mine, theirs in zip(agent.step(inputs, carry), expected, strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
        agent.fc1.weight.mul_(2)


def test_the_rnn_remembers_and_the_mlp_does_not():
    torch.manual_seed(0)
    for name, remembers in (("rnn", True), ("mlp", False)):
        agent = new_agent(name)
        sequence = torch.randn(3, 2, 4, dtype=torch.float64)
        changed = sequence.clone()
        changed[0] += 1.0
        carry = torch.zeros(2, agent.carry_dim, dtype=torch.float64)
        before, after = (
            unroll_equal(agent, sequence, carry)[-1],
            unroll_equal(agent, changed, carry)[-1],
        )
        assert torch.equal(before, after) != remembers


@given(rows=sizes, inputs=sizes, hidden=sizes, seed=seeds)
def test_the_gru_core_is_a_gru_cell_with_the_same_weights(rows, inputs, hidden, seed):
    torch.manual_seed(seed)
    core, cell = GRUCore(inputs, hidden), nn.GRUCell(inputs, hidden)
    cell.load_state_dict(core.state_dict())
    assert [*core.state_dict()] == [*cell.state_dict()]
    x, h = torch.randn(rows, inputs), torch.randn(rows, hidden)
    torch.testing.assert_close(core(x, h), cell(x, h))
    torch.testing.assert_close(core.unroll_packed(x, torch.tensor([rows]), h), cell(x, h))


def test_the_gru_core_starts_within_pytorchs_bounds():
    torch.manual_seed(0)
    for parameter in GRUCore(64, 16).parameters():
        assert parameter.abs().max() <= 0.25
        assert parameter.std().item() == pytest.approx(0.25 / 3**0.5, rel=0.2)


PYMARL_AGENT = {
    "fc1.weight": (5, 4),
    "fc1.bias": (5,),
    "rnn.weight_ih": (15, 5),
    "rnn.weight_hh": (15, 5),
    "rnn.bias_ih": (15,),
    "rnn.bias_hh": (15,),
    "fc2.weight": (3, 5),
    "fc2.bias": (3,),
}


def shapes(module):
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def test_the_rnn_agents_parameters_are_pymarls():
    assert shapes(new_agent()) == PYMARL_AGENT


def test_a_dueling_agent_adds_a_value_head_to_pymarls_parameters():
    dueling = shapes(new_agent(dueling=True))
    assert dueling == PYMARL_AGENT | {"fc2.value.weight": (1, 5), "fc2.value.bias": (1,)}


class PyMARLAgent(nn.Module):
    """PyMARL's RNNAgent: the same three layers, made of torch's own modules."""

    def __init__(self):
        super().__init__()
        self.fc1, self.rnn, self.fc2 = nn.Linear(4, 5), nn.GRUCell(5, 5), nn.Linear(5, 3)

    def forward(self, inputs, hidden):
        h = self.rnn(nn.functional.relu(self.fc1(inputs)), hidden)
        return self.fc2(h), h


def test_pymarls_agent_loads_and_computes_the_same():
    torch.manual_seed(0)
    original, agent = PyMARLAgent().double(), new_agent()
    agent.load_state_dict(original.state_dict())
    inputs, hidden = torch.randn(6, 4).double(), torch.randn(6, 5).double()
    torch.testing.assert_close(agent.step(inputs, hidden), original(inputs, hidden))


@given(rows=sizes, hidden=sizes, actions=sizes, seed=seeds)
def test_dueling_values_average_to_the_state_value(rows, hidden, actions, seed):
    torch.manual_seed(seed)
    head = ActionHead(hidden, actions, dueling=True)
    features = torch.randn(2, rows, hidden)
    q, value = head(features), head.value(features)
    torch.testing.assert_close(q.mean(-1, keepdim=True), value)
    advantage = features @ head.weight.T + head.bias
    expected = value + advantage - advantage.sum(-1, keepdim=True) / actions
    torch.testing.assert_close(q, expected, atol=1e-5, rtol=0)
    weights, leaves = torch.randn_like(q), [*head.parameters()]
    for found, slow in zip(
        gradients(q, weights, leaves), gradients(expected, weights, leaves), strict=True
    ):
        torch.testing.assert_close(found, slow, atol=1e-4, rtol=0)


@given(batch=sizes, steps=sizes, agents=sizes, seed=seeds)
def test_vdn_is_the_sum_over_agents(batch, steps, agents, seed):
    torch.manual_seed(seed)
    mixer = MIXERS["vdn"]()
    values = torch.randn(batch, steps, agents)
    mixed = mixer(values, torch.randn(batch, steps, 3))
    torch.testing.assert_close(mixed, sum(values[..., n : n + 1] for n in range(agents)))
    assert not [*mixer.parameters()]


def new_qmix(*, agents=3, state=4, layers=2, embed=5):
    mixer = MIXERS["qmix"](
        n_agents=agents, state_dim=state, embed_dim=embed, hypernet_layers=layers, hypernet_embed=6
    )
    return mixer.double()


layers_of_hypernet = st.sampled_from([1, 2])


@given(batch=sizes, agents=sizes, state=sizes, layers=layers_of_hypernet, seed=seeds)
def test_qmix_never_falls_when_an_agents_value_rises(batch, agents, state, layers, seed):
    torch.manual_seed(seed)
    mixer = new_qmix(agents=agents, state=state, layers=layers)
    values = (3 * torch.randn(batch, agents)).double().requires_grad_()
    states = 3 * torch.randn(batch, state).double()
    mixed = mixer(values, states)
    (slopes,) = torch.autograd.grad(mixed.sum(), values)
    assert (slopes >= 0).all()
    assert (slopes > 0).any()
    with torch.no_grad():
        for n in range(agents):
            raised = values.clone()
            raised[:, n] += torch.rand(batch)
            assert (mixer(raised, states) >= mixed - 1e-9).all()


@torch.no_grad()
def slow_qmix(mixer, values, states):
    """QMIX's equations, one sample after the other, with matrix products as in PyMARL."""
    totals = []
    for q, s in zip(values, states, strict=True):
        w_1 = mixer.hyper_w_1(s).abs().view(1, mixer.n_agents, mixer.embed_dim)
        b_1 = mixer.hyper_b_1(s).view(1, 1, mixer.embed_dim)
        hidden = nn.functional.elu(torch.bmm(q.view(1, 1, -1), w_1) + b_1)
        w_final = mixer.hyper_w_final(s).abs().view(1, mixer.embed_dim, 1)
        totals.append(torch.bmm(hidden, w_final).view(1) + mixer.V(s))
    return torch.stack(totals)


@given(batch=sizes, steps=sizes, agents=sizes, state=sizes, layers=layers_of_hypernet, seed=seeds)
def test_qmix_equals_its_equations_sample_by_sample(batch, steps, agents, state, layers, seed):
    torch.manual_seed(seed)
    mixer = new_qmix(agents=agents, state=state, layers=layers)
    values = torch.randn(batch, steps, agents).double()
    states = torch.randn(batch, steps, state).double()
    mixed = mixer(values, states)
    assert mixed.shape == (batch, steps, 1)
    slow = slow_qmix(mixer, values.flatten(0, 1), states.flatten(0, 1))
    torch.testing.assert_close(mixed.flatten(0, 1), slow)


def linear(name, out, width):
    return {f"{name}.weight": (out, width), f"{name}.bias": (out,)}


SHARED_QMIX_SHAPES = linear("hyper_b_1", 5, 4) | linear("V.0", 5, 4) | linear("V.2", 1, 5)


def test_qmix_with_two_hypernet_layers_has_pymarls_parameters():
    assert shapes(new_qmix(layers=2)) == (
        linear("hyper_w_1.0", 6, 4)
        | linear("hyper_w_1.2", 15, 6)
        | linear("hyper_w_final.0", 6, 4)
        | linear("hyper_w_final.2", 5, 6)
        | SHARED_QMIX_SHAPES
    )


def test_qmix_with_one_hypernet_layer_has_pymarls_parameters():
    assert shapes(new_qmix(layers=1)) == (
        linear("hyper_w_1", 15, 4) | linear("hyper_w_final", 5, 4) | SHARED_QMIX_SHAPES
    )
