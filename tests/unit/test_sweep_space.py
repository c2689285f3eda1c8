"""Search spaces: what is read, what is refused, and what is drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omg.studies.sweep.space import (
    Dimension,
    combinations,
    corners,
    draws,
    is_space,
    read_dimension,
    read_word,
)
from omg.types import OmgError


@pytest.mark.parametrize(
    ("word", "kind", "values"),
    [
        ("lr=grid:0.0005,0.001", "grid", (0.0005, 0.001)),
        ("--lr=choice:1e-4,1e-3", "choice", (1e-4, 1e-3)),
        ("mixer=grid:qmix,vdn", "grid", ("qmix", "vdn")),
        ("env_args.key=grid:a-b-v3", "grid", ("a-b-v3",)),
        ("x=grid:[1,2],[3]", "grid", ([1, 2], [3])),
        ("double_q=grid:True,False", "grid", (True, False)),
        ("lr=loguniform:1e-4,1e-2", "loguniform", (1e-4, 1e-2)),
        ("rnn_hidden_dim=randint:16,64", "randint", (16, 64)),
    ],
)
def test_a_word_names_a_key_a_kind_and_values(word: str, kind: str, values: tuple) -> None:
    found = read_word(word)
    assert (found.kind, found.values) == (kind, values)
    assert found.key == word.removeprefix("--").partition("=")[0]


@pytest.mark.parametrize("word", ["--lr=0.1", "lr=0.1", "with", "--env=my_module:MyEnv", "--debug"])
def test_fixed_settings_are_no_spaces(word: str) -> None:
    assert not is_space(word)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lr=gird:1,2", "did you mean 'grid'"),
        ("lr=grid:", "is empty"),
        ("lr=grid:1,,2", "is empty"),
        ("lr=grid:1,1", "1 twice"),
        ("lr=uniform:2,1", "lower end first"),
        ("lr=uniform:1", "two numbers"),
        ("lr=uniform:a,b", "two numbers"),
        ("lr=loguniform:0,1", "no logarithm"),
        ("n=randint:1.5,2", "two whole numbers"),
        ("n=randint:True,2", "two whole numbers"),
        ("=grid:1", "no key"),
    ],
)
def test_what_is_no_space_is_said_in_a_sentence(word: str, said: str) -> None:
    with pytest.raises(OmgError, match=said):
        read_word(word)


def test_a_file_may_write_a_space_as_a_mapping_a_list_or_a_word() -> None:
    expected = Dimension("lr", "grid", (0.1, 0.2))
    for content in ({"grid": [0.1, 0.2]}, [0.1, 0.2], "grid:0.1,0.2"):
        assert read_dimension("lr", content) == expected
    assert read_dimension("lr", {"loguniform": ["1e-4", "1e-2"]}).values == (1e-4, 1e-2)
    with pytest.raises(OmgError, match="not a search space"):
        read_dimension("lr", 0.1)


def test_all_combinations_are_those_of_a_slow_loop() -> None:
    a, b = Dimension("a", "grid", (1, 2)), Dimension("b", "choice", ("x", "y", "z"))
    assert combinations([a, b]) == [{"a": i, "b": j} for i in (1, 2) for j in ("x", "y", "z")]


def test_draws_from_lists_are_all_different_and_end_when_all_are_drawn() -> None:
    dimensions = [Dimension("a", "choice", (1, 2)), Dimension("b", "choice", (3, 4, 5))]
    found = draws(dimensions, 20, np.random.default_rng(0))
    assert len(found) == 6
    assert sorted(map(str, found)) == sorted(map(str, combinations(dimensions)))


@given(st.integers(1, 30), st.integers(0, 5))
def test_the_first_draws_do_not_depend_on_how_many_follow(count: int, seed: int) -> None:
    dimensions = [Dimension("lr", "loguniform", (1e-4, 1e-2)), Dimension("n", "randint", (1, 9))]
    few = draws(dimensions, count, np.random.default_rng(seed))
    many = draws(dimensions, count + 7, np.random.default_rng(seed))
    assert many[: len(few)] == few


@given(st.floats(0, 1, exclude_max=True))
def test_a_draw_lies_in_its_range(share: float) -> None:
    assert 1e-4 <= Dimension("x", "loguniform", (1e-4, 1e-2)).at(share) <= 1e-2
    assert 0.25 <= Dimension("x", "uniform", (0.25, 0.75)).at(share) <= 0.75
    assert Dimension("x", "randint", (2, 4)).at(share) in (2, 3, 4)
    assert Dimension("x", "lograndint", (2, 64)).at(share) in range(2, 65)


def test_draws_are_even_on_the_scale_of_their_kind() -> None:
    shares = (np.arange(1000) + 0.5) / 1000
    logs = [math.log10(Dimension("x", "loguniform", (1e-4, 1e-2)).at(s)) for s in shares]
    assert np.mean(logs) == pytest.approx(-3, abs=1e-2)
    whole = [Dimension("x", "randint", (1, 4)).at(s) for s in shares]
    assert [whole.count(n) for n in (1, 2, 3, 4)] == [250] * 4


def test_corners_hold_every_listed_value_and_both_ends_of_ranges() -> None:
    found = corners([Dimension("a", "grid", (1, 2, 3)), Dimension("b", "uniform", (0.0, 1.0))])
    assert {one["a"] for one in found} == {1, 2, 3}
    assert {one["b"] for one in found} == {0.0, 1.0}
