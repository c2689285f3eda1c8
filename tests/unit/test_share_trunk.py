"""share_trunk: the policy's GRU also feeds the critic, and one step learns both."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from omg.config.loader import load_command_line
from omg.learners import LEARNERS
from omg.learners.base import Progress
from omg.modules.critics import TrunkCritic
from omg.modules.device import use_kernels
from omg.types import OmgError

from .test_ppo import learned, make, some_episodes

START = Progress(0, 0, 0)
WORDS = ("--share_trunk=true", "--rnn_hidden_dim=32", "--ppo_minibatches=2", "--ppo_epochs=2")


def gradients(*words: str) -> dict[str, Tensor]:
    """Of one step."""
    _, mac, learner = make(*WORDS, "--ppo_epochs=1", "--ppo_minibatches=1", *words)
    learned(learner, some_episodes(2))
    parts = mac.policy.network, learner.values
    named = {name: p for part in parts for name, p in part.named_parameters()}
    return {name: p.grad.clone() for name, p in named.items() if p.grad is not None}


@pytest.mark.parametrize("words", [(), ("--value_clip=0.1",), ("--dueling=true",)])
def test_the_kernel_and_torch_give_one_gradient(words: tuple[str, ...]) -> None:
    ours = gradients(*words)
    use_kernels(False)
    try:
        theirs = gradients(*words)
    finally:
        use_kernels(True)
    assert ours.keys() == theirs.keys()
    for name, grad in ours.items():
        torch.testing.assert_close(grad, theirs[name], atol=1e-5, rtol=1e-3)
    assert ours["critic.head.weight"].abs().sum() > 0


def test_the_critics_loss_shapes_the_trunk_by_its_weight() -> None:
    """Without advantages and entropy only the critic moves the GRU."""
    still = ("--entropy_coef=0", "--standardise_advantages=False", "--gae_lambda=0")
    _, mac, learner = make(*WORDS, *still, "--ppo_epochs=1", "--ppo_minibatches=1")
    experience, _ = learner.experience(mac.trajectories(some_episodes(2)), START)
    part = next(learner._minibatches(experience))
    part.numbers[1].zero_()  # no advantages
    loss, _, error = learner.losses.both(part, START)
    assert float(error) > 0
    loss.backward()
    trunk = mac.policy.network.rnn.weight_hh.grad  # type: ignore[union-attr]
    assert trunk is not None
    assert trunk.abs().sum() > 0
    head = mac.policy.network.fc2.weight.grad  # type: ignore[union-attr]
    assert head is not None
    assert head.abs().max() < 1e-7


def test_one_optimiser_learns_both_at_their_own_rates_and_is_saved() -> None:
    config, _, learner = make(*WORDS, "--lr=0.01", "--critic_lr=0.02")
    assert isinstance(learner.values.critic, TrunkCritic)
    batch = some_episodes(2)
    first = learned(learner, batch)
    assert "critic_grad_norm" not in first
    optimisers = learner.optimisers()
    assert isinstance(optimisers, dict)
    assert set(optimisers) == {"policy"}
    assert [group["lr"] for group in optimisers["policy"].param_groups] == [0.01, 0.02]
    _, _, again = make(*WORDS, "--lr=0.01", "--critic_lr=0.02")
    again.load_state_dict(deepcopy(learner.state_dict()))
    one, other = learned(learner, batch), learned(again, batch)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name])
    assert config.share_trunk


def test_values_are_learned_through_the_shared_trunk() -> None:
    _, _, learner = make(*WORDS, "--critic_lr=0.01", "--lr=0.01", "--ppo_epochs=5")
    batch = some_episodes(2, count=8)
    before = learned(learner, batch)["value_loss"]
    for _ in range(15):
        after = learned(learner, batch)["value_loss"]
    assert float(after) < 0.5 * float(before)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--config=ippo", "--critic=cv"), "critic=cv"),
        (("--config=ippo", "--policy_model=mlp"), "policy_model=mlp"),
        (("--config=qmix",), "no critic that could share"),
        (("--config=coma",), "no critic that could share"),
        (("--config=ppo_omg", "--policy_model=rnn"), "values of alternatives"),
    ],
)
def test_what_cannot_share_says_so_before_anything_is_built(
    words: tuple[str, ...], sentence: str
) -> None:
    config = load_command_line([*words, "--env-config=foraging", "--share_trunk=true"]).config
    with pytest.raises(OmgError, match=sentence) as caught:
        LEARNERS[config.learner].check(config)
    assert "share_trunk=false" in str(caught.value)
