"""Commands that people are shown do what they are shown to do."""

import json
import re
import shlex
from contextlib import ExitStack

import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from transport.command import Command
from transport.worker import destination, new_join, pair

from grpcurl.page import Block, Comparison, blocks
from grpcurl.terminals import ROOT, SecondTerminal, need_grpcurl, typed

PAGE = ROOT / "docs" / "grpcurl.md"
PORT = "50051"


@pytest.fixture(autouse=True)
def _grpcurl() -> None:
    need_grpcurl()


def test_the_page_shows_what_comes() -> None:
    page = blocks(PAGE)
    flags = shlex.split(_block("kvservice ", page).replace("\\\n", ""))[1:]
    flags[flags.index(PORT)] = "0"
    comparison, defined = Comparison(), ""
    with Command(*flags) as service, ExitStack() as second:
        terminal: SecondTerminal | None = None
        for block in page:
            if block.commands.startswith(("kvservice ", "go install ")):
                continue
            commands = _at(service.target, comparison.as_came(block.commands))
            if block.second_terminal:
                if commands:
                    terminal = second.enter_context(SecondTerminal(commands))
                assert terminal is not None
                assert block.shown is not None
                came = terminal.printed(block.shown.count("\n"))
            else:
                came = typed(defined + commands)
            if block.shown is None:
                assert came == "", f"line {block.line}: what has no output on the page printed some"
                defined += commands
            else:
                _compare(comparison, block, came)


def test_the_page_installs_the_grpcurl_that_it_was_tested_with() -> None:
    [shown] = re.findall(r"grpcurl@(\S+)", PAGE.read_text())
    assert f".grpcurl-{shown}\n" in (ROOT / "Makefile").read_text()


def test_the_readme_lists_engines_and_how_far_each_rank_is() -> None:
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("grpcurl ")]
    engines, transfers = (command for command in commands if "/List" in command)
    with Command("--port", "0") as service, Client(service.target) as client:
        for sender, receiver in pair(client, tp=2):
            sender.join(new_join(7))
            receiver.join(new_join(7, peer_engine_id="p", destination=destination(20, [3, 9])))
        listed = json.loads(typed(_at(service.target, engines)))["engines"]
        assert {engine["engine_id"]: len(engine["workers"]) for engine in listed} == {"d": 2, "p": 2}
        [transfer] = json.loads(typed(_at(service.target, transfers)))["transfers"]
        polls = {one["worker"]["worker_id"]: one["poll"] for one in transfer["participants"]}
        waiting = pb.KVPoll.Name(pb.KV_POLL_WAITING_FOR_INPUT)
        assert polls == {f"{engine}/dp0/pp0/tp{rank}": waiting for engine in "dp" for rank in range(2)}


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ('"poll": "A"', '"poll": "B"'),
        ("1795976718606759\n", "1795976718606759\n1795976718606760\n"),
        ("1795976718606759 1795976718606759", "1795976718606759 1795976718606760"),
        ("1795976718606759 1795976718606760", "1795976718606759 1795976718606759"),
    ],
)
def test_what_is_not_as_shown_is_noticed(shown: str, came: str) -> None:
    with pytest.raises(AssertionError):
        Comparison().compare(shown, came)


def test_what_differs_from_run_to_run_may() -> None:
    comparison = Comparison()
    comparison.compare(
        '"epoch": "1795976718606759", "version": "0.1.0", "update_time": "2026-11-29T18:25:18.977Z"',
        '"epoch": "1795976718600001", "version": "0.2.0", "update_time": "2026-11-30T09:00:00Z"',
    )
    assert comparison.as_came("P0=1795976718606759") == "P0=1795976718600001"


def _compare(comparison: Comparison, block: Block, came: str) -> None:
    assert block.shown is not None
    try:
        comparison.compare(block.shown, came)
    except AssertionError as error:
        error.add_note(f"{PAGE.name}, line {block.line}: {block.commands}printed\n{came}")
        raise


def _block(beginning: str, page: list[Block]) -> str:
    return next(block.commands for block in page if block.commands.startswith(beginning))


def _at(target: str, commands: str) -> str:
    return commands.replace(f"localhost:{PORT}", target.replace("127.0.0.1", "localhost"))
