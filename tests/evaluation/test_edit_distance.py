"""The weighted Damerau-Levenshtein distance: the costs one by one, and a slow second opinion."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.evaluation.edit_distance import damerau_levenshtein


@pytest.mark.parametrize(
    ("source", "target", "cost"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "abxc", 1),  # insert x
        ("abc", "ac", 1),  # delete b
        ("abc", "axc", 2),  # substitute
        ("abc", "bac", 1),  # transpose
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "cba", 3),  # delete b, transpose a and c, insert b
        ("ab", "bxa", 2),  # transpose, then insert between the two
        ("axb", "ba", 2),  # delete between the two, then transpose
        ("abcd", "badc", 2),  # two transpositions
    ],
)
def test_the_least_cost_can_be_worked_out_by_hand(source: str, target: str, cost: float) -> None:
    assert damerau_levenshtein(source, target) == cost


def test_each_weight_counts() -> None:
    assert damerau_levenshtein("a", "", delete=5) == 5
    assert damerau_levenshtein("", "a", insert=5) == 5
    assert damerau_levenshtein("a", "b", substitute=1.5) == 1.5
    assert damerau_levenshtein("ab", "ba", transpose=0.25) == 0.25


def test_items_may_be_anything_hashable_and_as_many_as_there_are() -> None:
    assert damerau_levenshtein(range(1000, 1200), [*range(1000, 1200)]) == 0
    assert damerau_levenshtein([("a", 1), 300], [300, ("a", 1)]) == 1


def cheapest_path(source: str, target: str) -> float:
    """The least cost by trying every single edit of the whole word, cheapest first (Dijkstra)."""
    letters = sorted(set(source + target))
    queue, done = [(0.0, source)], set[str]()
    while True:
        cost, word = heapq.heappop(queue)
        if word == target:
            return cost
        if word in done:
            continue
        done.add(word)
        for i in range(len(word)):
            heapq.heappush(queue, (cost + 1, word[:i] + word[i + 1 :]))
            heapq.heappush(queue, (cost + 1, word[:i] + word[i + 1 : i + 2] + word[i] + word[i + 2 :]))
        if len(word) <= max(len(source), len(target)):
            for i in range(len(word) + 1):
                for letter in letters:
                    heapq.heappush(queue, (cost + 1, word[:i] + letter + word[i:]))


short_words = st.text("abcd", max_size=4)


@given(short_words, short_words)
def test_no_chain_of_edits_is_cheaper(source: str, target: str) -> None:
    # a substitution costs as much as a deletion and an insertion, so the search may leave it out
    assert damerau_levenshtein(source, target) == cheapest_path(source, target)


@given(st.text("abcde", max_size=12), st.text("abcde", max_size=12))
def test_it_is_symmetric_and_zero_only_for_equal_sequences(a: str, b: str) -> None:
    assert damerau_levenshtein(a, b) == damerau_levenshtein(b, a)
    assert (damerau_levenshtein(a, b) == 0) == (a == b)
