"""MOA's buffers and updates: what is learned from, by whom, and that it is continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from omg.components.trajectories import SeatOrder
from omg.learners.base import restore, state_of
from omg.learners.moa_buffer import MoaBuffer, MoaRows
from omg.learners.moa_training import MoaTraining, PairTraining, mini_batches
from omg.learners.model_training import Lesson
from omg.modules.opponent_models.moa import MoaModel
from omg.modules.opponent_models.moa_nets import PairNet
from omg.storage.files import load_tensors
from omg.types import OmgError

from .small_learners import stored
from .walkers import SPEC, config_of, episodes, random_walks, team

PAIRS = [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
FIELDS = ("obs", "action", "time", "target", "avail", "valid")


def training_of(*words: str, one: bool = False) -> MoaTraining:
    config = config_of(*words)
    return MoaTraining(config=config, mac=team(config, one=one), on_policy=False)


def give(training: MoaTraining, walks: list[Any], seats: list[int] | None = None) -> Lesson:
    mac = training._mac
    played = mac.trajectories(episodes(mac, walks, seats))
    training.receive(played)
    return Lesson(played)


def pair_rows(rows: MoaRows, pair: int) -> dict[str, Tensor]:
    chosen = rows.take((rows.pair == pair).nonzero(as_tuple=True)[0])
    return {name: getattr(chosen, name) for name in FIELDS}


def own_of(walk: dict[str, np.ndarray], me: int, other: int) -> dict[str, np.ndarray]:
    """What one player could note of another in an episode, moment by moment."""
    steps = len(walk["actions"]) - 1
    ends = np.flatnonzero(walk["reached"][:, other] >= 0)
    goal = walk["reached"][ends[0], other] if len(ends) else -1
    times = np.arange(steps)
    target = np.where(times <= (ends[0] if len(ends) else -1), goal, -1)
    return {
        "obs": walk["obs"][:steps, other],
        "action": walk["actions"][:steps, other],
        "time": times,
        "target": target,
        "avail": walk["avail_actions"][:steps, other],
        "valid": walk["alive"][:steps, other] & walk["alive"][:steps, me] & (target >= 0),
    }


def in_order(parts: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows as a sorted list, to compare what came in another order."""
    columns = [np.asarray(parts[name]).reshape(len(parts["time"]), -1) for name in FIELDS]
    return sorted(map(tuple, np.concatenate([c.astype(np.float64) for c in columns], 1)))


@pytest.mark.parametrize("seats", [None, [2, 0, 1, 2, 2]])
def test_the_buffer_holds_the_episodes_own_data_field_by_field(seats: list[int] | None) -> None:
    """Of unequal lengths, with players that leave early; of every seat, or of one that learns."""
    walks = random_walks(5)
    assert len({len(walk["actions"]) for walk in walks}) > 1
    training = training_of(one=seats is not None)
    give(training, walks, seats)
    rows = training.pairs.buffer.rows
    assert rows is not None
    for pair, (me, other) in enumerate(PAIRS):
        met = [walk for n, walk in enumerate(walks) if seats is None or seats[n] == me]
        wanted = [own_of(walk, me, other) for walk in met]
        found = in_order(pair_rows(rows, pair))
        if not wanted:
            assert not found
            continue
        joined = {name: np.concatenate([part[name] for part in wanted]) for name in FIELDS}
        assert found == in_order(joined)
    assert not rows.valid.all()


def test_an_episode_as_a_plain_dictionary_gives_the_same_rows() -> None:
    walk = random_walks(1)[0]
    training = training_of()
    give(training, [walk])
    buffer = MoaBuffer(SPEC, n_pairs=6)
    steps = len(walk["actions"]) - 1
    buffer.insert(
        {
            "obs": walk["obs"][:steps],
            "actions": walk["actions"][:steps],
            "rewards": walk["reward"][:steps],
            "dones": walk["terminated"][:steps],
            "avail_actions": walk["avail_actions"][:steps],
            "alive": walk["alive"][:steps],
            "reached": walk["reached"][:steps],
            "truncated": not walk["terminated"][:steps].any(),
        }
    )
    mine, theirs = training.pairs.buffer.rows, buffer.rows
    assert mine is not None
    assert theirs is not None
    for name in ("pair", *FIELDS):
        assert torch.equal(getattr(mine, name), getattr(theirs, name)), name


@pytest.mark.parametrize("stays", [True, False])
def test_who_is_done_in_a_dictionary_is_absent_from_then_on(stays: bool) -> None:
    """Whether a player's flag is set with its last step only or from then on."""
    obs, actions = np.zeros((4, 3, 9), np.float32), np.zeros((4, 3), np.int64)
    ends = np.array([[0, 1, 0], [0, stays, 0], [1, stays, 0], [stays, stays, 1]], np.bool_)
    buffer = MoaBuffer(SPEC, n_pairs=6, goals=False)
    buffer.insert({"obs": obs, "actions": actions, "dones": ends})
    rows = buffer.rows
    assert rows is not None
    last = (2, 0, 3)  # the step with which each player ends
    for pair, (me, other) in enumerate(PAIRS):
        valid = pair_rows(rows, pair)["valid"].tolist()
        assert valid == [t <= min(last[me], last[other]) for t in range(4)]


def test_a_dictionary_with_subgoals_gives_them_as_targets() -> None:
    walk = random_walks(1)[0]
    buffer = MoaBuffer(SPEC, n_pairs=6, goals=False)
    steps = len(walk["actions"]) - 1
    subgoal = np.random.default_rng(0).normal(size=(steps, 4)).astype(np.float32)
    given = {"obs": walk["obs"], "actions": walk["actions"][:steps], "subgoal": subgoal, "seat": 1}
    buffer.insert(given)
    rows = buffer.rows
    assert rows is not None
    assert sorted(set(rows.pair.tolist())) == [2, 3]
    for pair in (2, 3):
        assert torch.equal(pair_rows(rows, pair)["target"], torch.from_numpy(subgoal))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": None}, "needs actions"),
        ({"dones": np.zeros(4, np.bool_)}, "part of an episode"),
        ({"dones": np.array([0, 1, 0, 1], np.bool_)}, "several"),
        ({"obs": np.zeros((2, 3, 9), np.float32)}, "4 actions and 2 of obs"),
        ({"actions": np.zeros((0, 3))}, "no step"),
    ],
)
def test_a_dictionary_that_is_no_whole_episode_is_refused(
    change: dict[str, Any], said: str
) -> None:
    given = {"obs": np.zeros((4, 3, 9), np.float32), "actions": np.zeros((4, 3)), **change}
    with pytest.raises(OmgError, match=said):
        MoaBuffer(SPEC, n_pairs=6).insert({k: v for k, v in given.items() if v is not None})


def test_an_update_empties_what_it_learned_from_and_leaves_the_rest() -> None:
    training = training_of("--moa_min_size=15", one=True)
    lesson = give(training, random_walks(6), [0, 0, 0, 0, 0, 1])
    before = training.pairs.buffer.sizes().tolist()
    assert min(before[:2]) >= 15 > max(before[2:4]) > 0
    metrics = training.finish(lesson)
    assert {"moa_loss", "moa_accuracy"} == set(metrics)
    assert training.pairs.buffer.sizes().tolist() == [0, 0, *before[2:4], 0, 0]
    assert training.finish(lesson) == {}  # too little is left


def reference(net: PairNet, rows: MoaRows, batches: list[Tensor], lr: float) -> PairNet:
    """The note's update by hand: one model, one Adam, one mini-batch after the other."""
    adam = torch.optim.Adam(net.parameters(), lr=lr)
    for index in batches:
        goal = torch.nn.functional.one_hot(rows.target[index], 2).float()
        time = rows.time[index] / SPEC.episode_limit
        chances = net(rows.obs[index].float(), time, goal, rows.avail[index])
        action = torch.nn.functional.one_hot(rows.action[index], 3)
        loss = -(action * (chances + 1e-30).log()).sum(1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return net


def test_all_pairs_at_once_learn_as_each_would_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an optimiser each, also where they have unequally many mini-batches."""
    training = training_of("--moa_batch_size=16", "--moa_update_time=3", one=True)
    lesson = give(training, random_walks(7), [0, 0, 0, 0, 1, 1, 2])
    model = training._mac.model
    assert isinstance(model, MoaModel)
    starts = [{k: v.clone() for k, v in net.state_dict().items()} for net in model.nets.nets]
    seen: list[list[tuple[int, Tensor]]] = []
    taken: list[MoaRows] = []
    take = MoaBuffer.take

    def noted_take(buffer: MoaBuffer, pairs: Tensor) -> MoaRows:
        taken.append(take(buffer, pairs))
        return taken[-1]

    step = PairTraining._step

    def noted_step(own: PairTraining, pairs: Any, inputs: Any, rows: Any, batch: Any) -> Any:
        seen.append([(p, batch.rows[k][batch.there[k]]) for k, p in enumerate(pairs)])
        return step(own, pairs, inputs, rows, batch)

    monkeypatch.setattr(MoaBuffer, "take", noted_take)
    monkeypatch.setattr(PairTraining, "_step", noted_step)
    training.finish(lesson)
    for pair, start in enumerate(starts):
        batches = [index for parts in seen for p, index in parts if p == pair]
        twin = PairNet(SPEC.obs_dim, 2, 32, 3)
        twin.load_state_dict(start)
        twin = reference(twin, taken[0], batches, lr=0.01)
        for name, value in model.nets.members([pair])[0].state_dict().items():
            torch.testing.assert_close(value, twin.state_dict()[name], atol=1e-5, rtol=1e-4)
        moments = training.optimisers()[training.pairs.names[pair]].state
        assert {int(state["step"]) for state in moments.values()} == {len(batches)}
    assert len({len([1 for parts in seen for p, _ in parts if p == pair]) for pair in range(6)}) > 1


def test_an_update_of_some_pairs_leaves_the_others_as_they_are() -> None:
    training = training_of(one=True)
    model = training._mac.model
    assert isinstance(model, MoaModel)
    before = [{k: v.clone() for k, v in n.state_dict().items()} for n in model.nets.nets]
    training.finish(give(training, random_walks(2), [1, 1]))
    for pair, (me, _) in enumerate(PAIRS):
        now = model.nets.members([pair])[0].state_dict()
        same = all(torch.equal(before[pair][k], now[k]) for k in now)
        assert same == (me != 1)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 99))
def test_a_pass_shows_every_row_once_to_its_own_pair(
    counts: list[int], size: int, seed: int
) -> None:
    counts[0] += 1
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    generator = torch.Generator().manual_seed(seed)
    shown: dict[int, list[int]] = {pair: [] for pair in range(len(counts))}
    for batch in mini_batches(owner, len(counts), size, generator):
        for place, pair in enumerate(batch.pairs):
            rows = batch.rows[place][batch.there[place]].tolist()
            assert 0 < len(rows) <= size
            shown[pair] += rows
    for pair, rows in shown.items():
        assert sorted(rows) == (owner == pair).nonzero().flatten().tolist()


def test_the_buffer_survives_a_resume_exactly() -> None:
    old, new = training_of(one=True), training_of(one=True)
    give(old, random_walks(4), [0, 1, 2, 0])
    restore(new.saved(), stored(state_of(old.saved())))
    mine, theirs = old.pairs.buffer.rows, new.pairs.buffer.rows
    assert mine is not None
    assert theirs is not None
    for name in ("pair", *FIELDS):
        assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
        assert getattr(mine, name).dtype == getattr(theirs, name).dtype
    assert torch.equal(old._reached.events, new._reached.events)
    for each in (old, new):
        each._mac.model.nets.load_state_dict(old._mac.model.nets.state_dict())
    more = random_walks(2, seed=9)
    results = [each.finish(give(each, more, [1, 2])) for each in (old, new)]
    assert float(results[0]["moa_loss"]) == float(results[1]["moa_loss"])


def test_a_model_without_goals_learns_from_those_who_reach_nothing_too() -> None:
    walks = random_walks(3)
    for walk in walks:
        walk["reached"][:] = -1
    blind, told = training_of("--moa_goal=none"), training_of()
    assert {"moa_loss"} < set(blind.finish(give(blind, walks)))
    assert told.finish(give(told, walks)) == {}


def test_what_nobody_can_learn_from_does_not_pile_up() -> None:
    """Of players that never reach a goal, e.g. free riders in Snowdrift."""
    training = training_of("--moa_min_size=100000")
    walks = random_walks(3)
    walks[0]["reached"][:] = -1
    lesson = give(training, walks)
    usable = int(training.pairs.buffer.sizes().sum())
    assert len(training.pairs.buffer) > usable > 0
    assert training.finish(lesson) == {}
    assert len(training.pairs.buffer) == usable
    for walk in walks:
        walk["reached"][:] = -1
    training.finish(give(training, walks))
    assert len(training.pairs.buffer) == usable


def test_a_folder_of_models_is_loaded_before_and_saved_after_every_update(tmp_path: Path) -> None:
    """As in the note; the next update goes on from the file, whoever wrote it."""
    folder = tmp_path / "moa"
    first = training_of(f"--moa_save_dir={folder}", one=True)
    first.finish(give(first, random_walks(2), [0, 0]))
    names = {path.name for path in folder.iterdir()}
    assert names == {"player_1_to_2.pth", "player_1_to_3.pth"}
    model = first._mac.model
    assert isinstance(model, MoaModel)
    left = model.nets.members([0])[0].state_dict()
    assert all(
        torch.equal(v, left[k]) for k, v in load_tensors(folder / "player_1_to_2.pth").items()
    )
    second = training_of(f"--moa_save_dir={folder}", "--moa_lr=1e-12", one=True)
    other = second._mac.model
    assert isinstance(other, MoaModel)
    with torch.no_grad():
        other.nets.members([0])[0].fc1.weight.zero_()
    second.finish(give(second, random_walks(2), [0, 0]))
    torch.testing.assert_close(other.nets.members([0])[0].fc1.weight, left["fc1.weight"])


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    torch.save({"fc1.weight": torch.zeros(2, 2)}, tmp_path / "player_1_to_2.pth")
    training = training_of(f"--moa_save_dir={tmp_path}", one=True)
    with pytest.raises(OmgError, match="player_1_to_2"):
        training.finish(give(training, random_walks(2), [0, 0]))


def test_the_order_of_pairs_is_that_of_the_others() -> None:
    order = SeatOrder(SPEC).others_of.tolist()
    assert [(me, other) for me in range(3) for other in order[me]] == PAIRS
