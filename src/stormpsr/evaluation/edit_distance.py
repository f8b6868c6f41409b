"""The weighted Damerau-Levenshtein distance between two sequences of step ids."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def damerau_levenshtein(
    source: Sequence[Hashable],
    target: Sequence[Hashable],
    *,
    insert: float = 1.0,
    delete: float = 1.0,
    substitute: float = 2.0,
    transpose: float = 1.0,
) -> float:
    """The least cost of turning one sequence into the other.

    This is the unrestricted distance (Lowrance and Wagner, 1975): two neighbours that were swapped may be edited
    further, so a swap also counts across items that were deleted or inserted between the two. Any hashable items will
    do; the published programs map ids to ASCII characters and stop at 95 of them.
    """
    n, m = len(source), len(target)
    # cost[i][j]: the first i items of source into the first j of target
    cost = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):
        cost[i][0] = i * delete
    for j in range(1, m + 1):
        cost[0][j] = j * insert
    last_row: dict[Hashable, int] = {}  # item -> the last row (1-based) of source, above the current one, that holds it
    for i in range(1, n + 1):
        last_column = 0  # the last column of this row so far where the items were equal
        for j in range(1, m + 1):
            same = source[i - 1] == target[j - 1]
            best = min(
                cost[i - 1][j] + delete,
                cost[i][j - 1] + insert,
                cost[i - 1][j - 1] + (0.0 if same else substitute),
            )
            row, column = last_row.get(target[j - 1], 0), last_column
            if row and column:
                between = (i - row - 1) * delete + (j - column - 1) * insert
                best = min(best, cost[row - 1][column - 1] + between + transpose)
            cost[i][j] = best
            if same:
                last_column = j
        last_row[source[i - 1]] = i
    return cost[n][m]
