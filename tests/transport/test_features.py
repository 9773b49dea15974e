"""A client and a service of different versions."""

import pytest
from kvtransfer.client import Client
from kvtransfer.errors import FeatureMissing

from transport.blocking import Connect
from transport.running import RunningServer


def test_what_an_older_service_does_not_have_is_refused_by_name(connect: Connect) -> None:
    with RunningServer(drain_grace=0.0, features=["leap"]) as server, connect(server.target) as client:
        with pytest.raises(FeatureMissing, match=r"the service, version \d.*, does not have 'dive', 'swim'; this"):
            client.require("dive", "leap", "swim")
        with pytest.raises(FeatureMissing) as refused:
            client.require("dive")
    assert refused.value.features == ("dive",)
    assert set(refused.value.metadata) == {"service_version", "client_version"}


def test_what_a_newer_service_has_besides_is_no_matter(connect: Connect) -> None:
    with RunningServer(drain_grace=0.0, features=["leap", "dive"]) as server, connect(server.target) as client:
        client.require("leap")
        client.require()
        assert list(client.get_server_info().features) == ["leap", "dive"]


def test_the_first_release_has_none(client: Client, server: RunningServer) -> None:
    assert list(client.get_server_info().features) == []
