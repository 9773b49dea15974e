"""The bug that the protocol exists to prevent: one rank's cleanup must never hide success from the others."""

from kvtransfer import KVPoll
from kvtransfer import v1 as pb

from tests.e2e.server import Running
from tests.e2e.workers import Setup, engines
from tests.waiting import wait_for


def test_late_ranks_see_success(server: Running, stub) -> None:  # type: ignore[no-untyped-def]
    ranks = range(3)
    setups = [
        Setup(server.target, engine, role, tp_size=3, tp_rank=rank, seed=10 * rank)
        for engine, role in (("p-late", "prefill"), ("d-late", "decode"))
        for rank in ranks
    ]
    with engines(*setups) as workers:
        senders, receivers = workers[:3], workers[3:]
        room = 42
        for rank in ranks:
            receivers[rank].call("receiver", room, "p-late")
            receivers[rank].call("offer", room, 40, {"kv": [rank, 10 + rank, 20 + rank]}, slots={"aux": rank})
            senders[rank].call("sender", room, 40)
            senders[rank].call("send", room, {"kv": [5, 6, 7]}, slots={"aux": 1}, last=True)
        receivers[0].wait_poll(room, KVPoll.SUCCESS)
        wait_for(lambda: poll(stub, room).poll, lambda verdict: verdict == pb.KV_POLL_SUCCESS)
        receivers[0].call("close_room", room)
        (released,) = receivers[0].wait_released()
        assert released.pages == {"kv": [0, 10, 20]}
        first = "d-late/dp0/pp0/tp0"
        wait_for(lambda: by_name(poll(stub, room))[first].released, bool)

        # Only now do the others look for the first time, each by its own view and over the wire.
        for rank in (1, 2):
            assert receivers[rank].call("poll", room) is KVPoll.SUCCESS
            assert receivers[rank].call("room_poll", room) is KVPoll.SUCCESS
            seen = by_name(poll(stub, room))[f"d-late/dp0/pp0/tp{rank}"]
            assert (seen.poll, seen.released) == (pb.KV_POLL_SUCCESS, False)
            sent = senders[rank].original()
            found = receivers[rank].call("snapshot")
            for array, source in zip(found[0], sent[0], strict=True):
                assert (array[[rank, 10 + rank, 20 + rank]] == source[[5, 6, 7]]).all()
        for worker in (*senders, *receivers[1:]):
            worker.call("close_room", room)
            worker.wait_released()
        assert poll(stub, room).poll == pb.KV_POLL_SUCCESS  # readable until it is forgotten
        wait_for(server.sizes, lambda sizes: sizes.rooms == 0)


def poll(stub, room: int) -> pb.Transfer:  # type: ignore[no-untyped-def]
    answer = stub.Poll(pb.PollRequest(rooms=[room]), timeout=5)
    return answer.transfers[0] if answer.transfers else pb.Transfer()


def by_name(transfer: pb.Transfer) -> dict[str, pb.Participant]:
    return {participant.worker.worker_id: participant for participant in transfer.participants}
