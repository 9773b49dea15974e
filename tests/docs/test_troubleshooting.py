"""docs/troubleshooting.md quotes what is really printed."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest
from kvtransfer import Client
from kvtransfer.errors import ServiceUnavailable

from kvservice.config import Config
from tests.docs.quoted import PAGE, in_go, in_python, messages, quotations

GRPC = "failed to connect to all addresses"
NIXL = "NIXL_ERR_BACKEND"
OTHERS = {GRPC, NIXL}
"""Said by libraries, and provoked below."""


@pytest.fixture(scope="module")
def said() -> set[str]:
    return messages()


@pytest.mark.parametrize("quotation", sorted(set(quotations()) - OTHERS))
def test_a_quotation_is_in_the_sources(quotation: str, said: set[str]) -> None:
    assert any(quotation.removesuffix(".") in message for message in said)


def test_every_flag_that_the_page_names_there_is(said: set[str]) -> None:
    settings = {f"--{item.name.replace('_', '-')}" for item in dataclasses.fields(Config)}
    known = settings | {"--profile", "--help"}  # of Compose and of argparse
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    assert named - known <= said | {flag for text in said for flag in text.split()}


def test_there_are_as_many_as_there_seem() -> None:
    assert len(quotations()) > 60
    assert set(quotations()) >= OTHERS


def test_a_reworded_message_would_be_noticed() -> None:
    source = 'raise Gone(f"room {room} ended " f"a while ago in {x:g} s")'
    assert "room ... ended a while ago in ... s" in set(in_python(source))
    assert not any("while ago" in message for message in in_python('"""Ended a while ago."""'))
    assert "not registered (attempt ...): ..." in set(in_python('log.warning("not registered (attempt %d): %s", a, b)'))
    assert "a long ... text" in set(in_go('slog.Warn("a long %w "+\n\t"text", "x", y)'))


def test_grpc_says_it_where_nobody_listens() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ServiceUnavailable, match=GRPC):
        client.get_server_info()


@pytest.mark.parametrize("wrong", [{"UCX_TLS": "cma"}, {"UCX_NET_DEVICES": "nowhere"}])
def test_nixl_says_it_where_ucx_has_nothing_to_talk_by(wrong: dict[str, str]) -> None:
    make = "from kvtransfer.nixl_agent import NixlAgent; NixlAgent('a', ())"
    ended = subprocess.run(
        [sys.executable, "-c", make], env=os.environ | wrong, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 1
    assert NIXL in ended.stderr.splitlines()[-1]
