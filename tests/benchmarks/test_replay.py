"""A few requests, served by real workers."""

import xml.etree.ElementTree as ET

import pytest

from benchmarks import replay


def test_requests_are_served_phase_after_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    served, samples = replay.replay(prompts=20, tokens=64, output_tokens=4, rate=40.0)
    assert len(served) == 20
    for one in served:
        assert one.request.arrives_at < one.prefilled.began < one.prefilled.computed
        # Pages that were handed over beforehand do not leave before their chunk is computed.
        assert one.prefilled.computed < one.decoded.arrived < one.decoded.first_token < one.decoded.last_token
        assert one.decoded.tokens == 4
    rows = {row["phase"]: row for row in replay.summary(served).rows}
    assert rows["end to end"]["p50_ms"] > rows["time to first token"]["p50_ms"] > rows["prefill"]["p50_ms"]
    assert ET.fromstring(replay.draw(served, samples)).tag.endswith("svg")
