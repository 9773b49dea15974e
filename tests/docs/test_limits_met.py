"""Bounds of docs/limits.md that no constant has: up to each all is well, one more is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import InvalidField
from transport.running import RunningServer
from transport.worker import Worker, layout, new_join, registration

from docs.limits import rows


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with RunningServer(drain_grace=0.0) as server, Client(server.target) as connected:
        yield connected


def _renamed(**names: str) -> pb.Layout:
    changed = layout()
    changed.groups[0].name = names.get("group", "kv")
    changed.groups[0].parts[0].dtype = names.get("dtype", "float16")
    return changed


REGISTRATIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "`engine_id`, of a-z, 0-9 and `-`": lambda size: {"engine_id": "e" * size},
    "`endpoint`": lambda size: {"endpoint": "e" * size},
    "`user_agent`": lambda size: {"user_agent": "u" * size},
    "`labels`": lambda size: {"labels": {str(one): "" for one in range(size)}},
    "key of a label": lambda size: {"labels": {"k" * size: ""}},
    "value of a label": lambda size: {"labels": {"k": "v" * size}},
    "`layout.model`": lambda size: {"layout": layout(model="m" * size)},
    "name of a group or a part, of letters, digits, `_`, `.` and `-`": lambda size: {
        "layout": _renamed(group="g" * size)
    },
    "`dtype`, of a-z, 0-9 and `_`": lambda size: {"layout": _renamed(dtype="d" * size)},
    "`page_tokens` of a group": lambda size: {"layout": layout(page_tokens=size)},
}
JOINS: dict[str, Callable[[int], dict[str, Any]]] = {
    "`join.request_id`": lambda size: {"request_id": "r" * size},
    "`join.traceparent`": lambda size: {"traceparent": "t" * size},
}
TEXTS = {cells[0]: int(cells[1]) for cells in rows("Bounds of the service that are no settings") if len(cells) == 3}


def test_every_bound_of_a_text_is_tried() -> None:
    assert list(TEXTS) == [*REGISTRATIONS, *JOINS]


@pytest.mark.parametrize("field", REGISTRATIONS)
def test_a_registration_up_to_the_bound_and_no_further(client: Client, field: str) -> None:
    def register(size: int) -> None:
        said = {"engine_id": f"e{list(REGISTRATIONS).index(field)}", "role": pb.ROLE_PREFILL} | REGISTRATIONS[field](
            size
        )
        client.register_worker(registration(**said))

    register(TEXTS[field])
    with pytest.raises(InvalidField):
        register(TEXTS[field] + 1)


@pytest.mark.parametrize("field", JOINS)
def test_a_join_up_to_the_bound_and_no_further(client: Client, field: str) -> None:
    worker = Worker(client, "joins", pb.ROLE_PREFILL)
    room = 7 + list(JOINS).index(field)
    worker.join(new_join(room, **JOINS[field](TEXTS[field])))
    with pytest.raises(InvalidField) as refused:
        worker.join(new_join(room, **JOINS[field](TEXTS[field] + 1)))
    assert f"`{refused.value.field}`" == field
