"""What is wanted against what is seen."""

from benchmarks.check import Line, verdicts


def test_a_missed_figure_is_counted_and_told_apart() -> None:
    report = verdicts(
        [
            Line("rooms", "p50 / floor", 2.4, at_most=2.5),
            Line("transfer", "room / raw", 0.9, at_least=0.95),
            Line("idle", "bytes a room", 9000.0),
        ]
    )
    assert report.missed == 1
    table = [line.split("  ") for line in report.to_text().splitlines()]
    told = {words[0].strip(): [word.strip() for word in words if word.strip()] for words in table}
    assert told["rooms"] == ["rooms", "p50 / floor", "at most 2.5", "2.40", "met"]
    assert told["transfer"] == ["transfer", "room / raw", "at least 0.95", "0.90", "MISSED"]
    assert told["idle"] == ["idle", "bytes a room", "-", "9000.00"]


def test_a_figure_on_its_bound_is_met() -> None:
    assert verdicts([Line("a", "b", 0.3, at_most=0.3), Line("a", "c", 0.95, at_least=0.95)]).missed == 0
