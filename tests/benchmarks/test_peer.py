"""What a person sees who asks for the peer without having it, or asks for too little."""

import argparse

import pytest

from benchmarks import peer


def test_where_the_peer_is_missing_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peer, "PYTHON", peer.PYTHON / "missing")
    with pytest.raises(SystemExit) as ended:
        peer.run(argparse.Namespace(pairs=2, rounds=2))
    assert ended.value.code == 2
    assert "bash benchmarks/peers/install.sh" in capsys.readouterr().err


def test_too_few_pairs_are_refused_by_name_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "installed", lambda: True)
    with pytest.raises(SystemExit, match="--pairs: must be at least 2, got 1"):
        peer.run(argparse.Namespace(pairs=1, rounds=2))
