"""`make demo` as a user runs it: that it is right, that it notices when it is not, and that it cleans up."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from examples.pd_llm.routers import ROUTERS
from tests.demo.programs import descendants, end, running, start, wait_for_descendants, wait_until_ended

pytestmark = pytest.mark.usefixtures("model_weights")


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the demo; its exit status and its JSON."""
    process = start("demo", "--json", *arguments)
    try:
        out, err = process.communicate(timeout=240)
    finally:
        end(process)
    assert out, err
    return process.returncode, json.loads(out)


def wrong(report: dict[str, Any]) -> set[str]:
    return {name for name, check in report["checks"].items() if not check["ok"]}


def test_at_tp_3_every_answer_is_right() -> None:
    status, report = run("--tp", "3", "--prompts", "3")
    assert (status, report["ok"], wrong(report)) == (0, True, set())
    assert len(report["requests"]) == 3
    assert report["requests"][0]["answer"] == "\nthat has been passed down to me by my great-grandmother. "
    assert len(set(report["pids"].values())) == 8  # kvservice, 2 engines of 3 ranks, the router
    assert len(set(report["agents"].values())) == 6
    assert [pair["from"] for pair in report["pairs"]] == ["prefill-tp0", "prefill-tp1", "prefill-tp2"]
    assert len({pair["moved_bytes"] for pair in report["pairs"]}) == 1
    for request in report["requests"]:
        assert len(request["polls"]) == 6
        assert all(polls[-1] == "SUCCESS" for polls in request["polls"].values())


def test_the_router_in_go_gives_the_same_answers() -> None:
    if shutil.which("go") is None and not Path("/usr/local/go/bin/go").exists():
        pytest.skip("there is no Go toolchain")
    answers = {}
    for router in ROUTERS:
        status, report = run("--router", router, "--prompts", "3", "--new-tokens", "3")
        assert (status, wrong(report)) == (0, set())
        answers[router] = [request["answer"] for request in report["requests"]]
    assert len(answers["go"]) == 3
    assert answers["go"] == answers["python"]


@pytest.mark.parametrize(
    ("damage", "pages", "parts"),
    [
        ("reverse-pages", range(8), "60 of 60 parts"),
        ("skip-last-value-page", [7], "1 of 60 parts differ, first v of layer 29"),
    ],
)
def test_damage_in_one_rank_of_three_is_found_and_named(damage: str, pages: list[int], parts: str) -> None:
    """The second prompt has 8 pages."""
    status, report = run("--tp", "3", "--prompts", "2", "--new-tokens", "2", "--break", damage)
    assert status == 1
    assert [event["rank"] for event in report["damage"]] == ["decode-tp2"] * 2
    room = report["requests"][1]["room"]
    assert any(event["room"] == room and event["changed"] for event in report["damage"])
    faults = report["checks"]["pages_equal_on_both_sides"]["faults"]
    assert len([fault for fault in faults if f"room {room}" in fault]) == len(pages)
    for page in pages:
        wanted = f"room {room}, rank 2, group kv, page {page} of 8"
        assert any(fault.startswith(wanted) and parts in fault for fault in faults)
    assert not any("rank 0" in fault or "rank 1" in fault for fault in faults)
    assert not report["checks"]["logits_equal_reference"]["ok"]


def test_without_the_mover_nothing_is_answered() -> None:
    status, report = run("--prompts", "2", "--new-tokens", "2", "--break", "no-mover")
    assert status == 1
    assert all("aux slot is not this room's" in request["error"] for request in report["requests"])
    assert {"every_request_answered", "pages_equal_on_both_sides", "slots_equal_on_both_sides"} <= wrong(report)
    room = report["requests"][1]["room"]
    faults = report["checks"]["pages_equal_on_both_sides"]["faults"]
    assert any(fault.startswith(f"room {room}, rank 0, group kv, page 7 of 8") for fault in faults)


def test_ctrl_c_ends_every_process() -> None:
    process = start("demo")
    try:
        children = wait_for_descendants(process.pid, 3)  # kvservice and the engines, which have not served yet
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert err == "demo: interrupted; every process has ended\n"
        wait_until_ended(children)
    finally:
        end(process)


def test_ctrl_c_in_the_middle_of_a_request_ends_every_process() -> None:
    process = start("demo", "--model", "random", "--new-tokens", "2000")
    try:
        assert process.stdout
        assert any(line.startswith("asking") for line in process.stdout)
        children = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (1, "demo: interrupted; every process has ended\n")
        wait_until_ended(children)
    finally:
        end(process)


def test_a_random_model_is_right_too() -> None:
    status, report = run("--model", "random", "--prompts", "3", "--new-tokens", "4")
    assert (status, report["ok"], wrong(report)) == (0, True, set())
    assert all(len(request["output_ids"]) == 4 for request in report["requests"])


def test_a_rank_that_dies_ends_everything_and_is_named() -> None:
    process = start("demo")
    try:
        assert process.stdout
        assert any(line.startswith("asking") for line in process.stdout)
        children = descendants(process.pid)
        os.kill(running("decode", children), signal.SIGKILL)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert err.startswith("demo: decode-tp0 was killed by SIGKILL. The end of its log:\n")
        assert "listening on http://" in err
        wait_until_ended(children)
    finally:
        end(process)
