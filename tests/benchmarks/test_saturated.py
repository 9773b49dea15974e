"""A real service, kept busy for a moment."""

from benchmarks import saturated


def test_rooms_of_two_ranks_a_side_are_served() -> None:
    (row,) = saturated.measure([2], rounds=2).rows
    assert row["rooms"] == 2 * 6 * saturated.LANES * saturated.BATCH
    assert row["rooms_per_s"].low > 10
    assert row["cpu_ms"].median > 0
