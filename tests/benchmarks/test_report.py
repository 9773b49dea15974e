import json

from benchmarks.report import Column, Report, Spread, percentile


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.low, spread.median, spread.high, spread.count) == (2.0, 3.0, 4.0, 5)
    assert spread.text(1) == "3.0 (2.0-4.0)"


def test_the_99th_percentile_of_a_hundred_and_one_values() -> None:
    assert percentile(map(float, range(101)), 99) == 99.0


def a_report() -> Report:
    columns = (Column("shape", "shape"), Column("speed", "GB/s", 1))
    report = Report("transfer", {"cores": 2, "kernel": "6.1"}, columns, ("speed: what it says.",))
    report.rows.append({"shape": "small", "speed": Spread(1.25, 1.0, 1.5, 9), "bytes": 42})
    return report


def test_the_table_shows_the_machine_each_column_and_the_notes() -> None:
    assert [line.rstrip() for line in a_report().to_text().splitlines()] == [
        "cores 2, kernel 6.1",
        "",
        "shape  GB/s",
        "-----  -------------",
        "small  1.2 (1.0-1.5)",
        "",
        "speed: what it says.",
    ]


def test_the_json_has_every_figure_unrounded() -> None:
    told = json.loads(a_report().to_json())
    assert told["machine"]["cores"] == 2
    assert told["rows"] == [
        {"shape": "small", "speed": {"median": 1.25, "low": 1.0, "high": 1.5, "count": 9}, "bytes": 42}
    ]
