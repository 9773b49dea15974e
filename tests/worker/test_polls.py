"""What people see of a poll."""

from kvtransfer import KVPoll


def test_a_poll_is_printed_by_its_name() -> None:
    assert f"{KVPoll.SUCCESS} {KVPoll.FAILED!s}" == "SUCCESS FAILED"
