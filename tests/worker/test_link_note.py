import logging

import pytest
from kvtransfer.actions import LinkStats
from kvtransfer.peers import link_note


@pytest.mark.parametrize(
    ("transport", "bytes_s", "level"),
    [
        ("cma", 6.3e9, logging.INFO),
        ("network", 20e9, logging.INFO),
        ("network", 1.1e9, logging.WARNING),
        ("tcp", 1.7e9, logging.WARNING),
        ("device", 150e9, logging.INFO),
        ("device", 1.2e9, logging.WARNING),
    ],
)
def test_it_tells_transport_and_bandwidth_and_warns_of_what_could_be_faster(
    transport: str, bytes_s: float, level: int
) -> None:
    found, text = link_note("decode/dp0/pp0/tp0", LinkStats(transport, bytes_s, {}))
    assert found == level
    assert text.startswith(f"writes to decode/dp0/pp0/tp0 go over {transport}, {bytes_s / 1e9:.1f} GB/s")
    assert ("faster" in text) == (level == logging.WARNING)
