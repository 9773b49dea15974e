"""What a worker's session is told: the newest state, kept until its cleanup, told again on each new stream."""

from domain.plane import START, Plane, destination
from kvservice.domain.news import compose
from kvservice.domain.outbox import News
from kvservice.domain.policy import Policy
from kvservice.domain.types import FailureReason, Join, PeerNews, Poll, ReleaseState, Role, RoomState


def opened(tp: int = 1, policy: Policy | None = None) -> Plane:
    """Every worker has a session and has heard of its peers."""
    plane = Plane(tp, policy)
    for worker in (*plane.p, *plane.d):
        plane.open_session(worker)
        plane.hear(worker)
    plane.woken.clear()
    return plane


def told(news: News) -> list[tuple[int, Poll, Poll | None]]:
    return [(update.room, update.poll, update.own_poll) for update in news.updates]


def test_a_sender_hears_of_its_offer_with_the_update_and_both_are_woken() -> None:
    plane = opened()
    plane.prefill(7)
    receiver = plane.decode(7)
    assert {"p/dp0/pp0/tp0", "d/dp0/pp0/tp0"} <= set(plane.woken)
    news = plane.hear(plane.p[0])
    assert told(news) == [(7, Poll.WAITING_FOR_INPUT, Poll.WAITING_FOR_INPUT)]
    assert news.updates[0].confirmed
    [(room, [offer])] = news.offers
    assert (room, offer.receivers, offer.destination) == (
        7,
        ((plane.d[0].peer, receiver.join_id),),
        destination(20, [3, 9]),
    )


def test_a_receiver_hears_of_its_senders_and_of_their_completions() -> None:
    plane = opened()
    receiver = plane.decode(7)
    assert plane.hear(plane.d[0]).updates[0].senders == ()
    sender = plane.prefill(7)
    assert plane.hear(plane.d[0]).updates[0].senders == (plane.p[0].peer,)
    done = plane.completion(sender, receiver)
    plane.say(plane.p[0], sender, Poll.SUCCESS, 0.0, [done])
    assert plane.hear(plane.d[0]).completions == [done]


def test_nothing_is_told_twice_and_another_workers_bytes_not_at_all() -> None:
    plane = opened()
    senders, _ = plane.moving(7)
    plane.hear(plane.d[0])
    plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 1.0, moved=100)
    news = plane.hear(plane.d[0])
    assert (news.updates, news.completions, news.offers) == ([], [], [])


def test_a_new_stream_is_told_everything_again() -> None:
    plane = opened()
    senders, receivers = plane.moving(7)
    done = plane.completion(senders[0], receivers[0])
    plane.say(plane.p[0], senders[0], Poll.SUCCESS, 0.0, [done])
    for worker in (plane.p[0], plane.d[0]):
        plane.hear(worker)
        plane.open_session(worker)
    again = plane.hear(plane.d[0])
    assert told(again) == [(7, Poll.TRANSFERRING, Poll.TRANSFERRING)]
    assert again.completions == [done]
    assert [(change.kind, change.peer) for change in again.peers] == [(PeerNews.READY, plane.p[0].peer)]
    assert [room for room, _ in plane.hear(plane.p[0]).offers] == [7]


def test_after_its_cleanup_a_worker_hears_no_more_of_a_room() -> None:
    plane = opened()
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    plane.clean(plane.p[0], senders[0])
    plane.hear(plane.p[0])
    plane.clean(plane.d[0], receivers[0])
    plane.open_session(plane.p[0])
    assert plane.hear(plane.p[0]).updates == []


def test_who_joins_an_aborted_room_is_told_that_it_failed() -> None:
    plane = opened()
    plane.abort(7, "", 0.0)
    plane.decode(7)
    assert told(plane.hear(plane.d[0])) == [(7, Poll.FAILED, Poll.FAILED)]
    plane.open_session(plane.d[0])
    assert told(plane.hear(plane.d[0])) == [(7, Poll.FAILED, Poll.FAILED)]


def test_a_forgotten_room_leaves_nothing_in_the_outbox() -> None:
    plane = opened(policy=Policy(retention=1))
    plane.abort(7, "", 0.0)
    plane.decode(7)
    plane.hear(plane.d[0])
    plane.expire(1.0)
    assert plane.d[0].outbox is not None
    assert plane.d[0].outbox.told_update == {}


def test_a_release_is_told_when_the_last_sender_is_proven_over() -> None:
    plane = opened()
    senders, receivers = plane.moving(7)
    release = plane.clean(plane.d[0], receivers[0])
    assert (release.state, release.waiting_for) == (ReleaseState.WAITING, ("p/dp0/pp0/tp0",))
    plane.clean(plane.p[0], senders[0])
    assert [one.state for one in plane.hear(plane.d[0]).releases] == [ReleaseState.FREE]


def test_a_release_that_waits_is_told_again_on_a_new_stream() -> None:
    plane = opened()
    _, receivers = plane.moving(7)
    plane.clean(plane.d[0], receivers[0])
    plane.open_session(plane.d[0])
    assert [one.state for one in plane.hear(plane.d[0]).releases] == [ReleaseState.WAITING]


def test_peers_hear_when_engines_are_complete_drain_and_go() -> None:
    plane = opened(tp=2)
    plane.renew(plane.p[0], True, 1.0)
    assert [(c.kind, c.peer) for c in plane.hear(plane.d[0]).peers] == [(PeerNews.DRAINING, plane.p[0].peer)]
    assert plane.hear(plane.d[1]).peers == []  # no link
    plane.renew(plane.p[0], False, 2.0)
    assert [c.kind for c in plane.hear(plane.d[0]).peers] == [PeerNews.READY]
    plane.deregister(plane.p[0].ref, True, 3.0)
    assert [(c.kind, c.engine_id) for c in plane.hear(plane.d[0]).peers] == [(PeerNews.GONE, "p")]
    newcomer = plane.enter("p", Role.PREFILL, 0, 2, now=4.0)
    assert [(c.kind, c.peer) for c in plane.hear(plane.d[0]).peers] == [(PeerNews.READY, newcomer.peer)]


def test_a_peer_that_goes_is_told_of_though_its_engine_was_incomplete_or_nobody_listened() -> None:
    plane = opened(tp=2)
    plane.deregister(plane.p[1].ref, True, 1.0)
    plane.deregister(plane.p[0].ref, True, 2.0)
    gone = [(PeerNews.GONE, plane.p[rank].peer) for rank in (1, 0)]
    assert [(c.kind, c.peer) for c in plane.hear(plane.d[0]).peers] == gone
    plane.session_broken(plane.d[0], plane.d[0].session, 3.0)
    plane.open_session(plane.d[0])
    assert [(c.kind, c.peer) for c in plane.hear(plane.d[0]).peers] == gone


def test_a_peer_that_drains_is_announced_as_draining() -> None:
    plane = opened(tp=2)
    plane.renew(plane.p[0], True, 1.0)
    plane.hear(plane.d[0])
    plane.deregister(plane.d[1].ref, True, 2.0)
    plane.enter("d", Role.DECODE, 1, 2, now=3.0)
    assert [(c.kind, c.peer) for c in plane.hear(plane.d[0]).peers] == [(PeerNews.DRAINING, plane.p[0].peer)]


def test_a_broken_session_has_a_grace_before_its_rooms_are_asked_to_end() -> None:
    plane = Plane()
    plane.moving(7)
    token = plane.open_session(plane.p[0])
    plane.session_broken(plane.p[0], token, 1.0)
    plane.expire(3.9)
    assert plane.rooms[7].failure is None
    plane.expire(4.0)
    assert plane.failed(7).reason is FailureReason.SESSION_LOST
    assert plane.failed(7).worker_id == "p/dp0/pp0/tp0"


def test_a_session_that_comes_back_in_time_loses_nothing() -> None:
    plane = Plane()
    plane.moving(7)
    token = plane.open_session(plane.p[0])
    plane.session_broken(plane.p[0], token, 1.0)
    plane.open_session(plane.p[0])
    plane.expire(10.0)
    assert plane.rooms[7].failure is None


def test_the_end_of_a_replaced_stream_is_no_break() -> None:
    plane = Plane()
    plane.moving(7)
    older = plane.open_session(plane.p[0])
    plane.open_session(plane.p[0])
    plane.session_broken(plane.p[0], older, 1.0)
    plane.expire(10.0)
    assert plane.rooms[7].failure is None


def test_a_join_of_a_former_life_is_told_to_have_failed_and_proves_nothing() -> None:
    plane = opened()
    stranger = RoomState(7, 99, Poll.TRANSFERRING)
    survivor = plane.enter("e", Role.DECODE, birth_epoch=START - 1, rooms=(stranger,))
    plane.open_session(survivor)
    [update] = plane.hear(survivor).updates
    assert (update.room, update.join_id, update.poll) == (7, 99, Poll.FAILED)
    assert update.failure is not None
    assert update.failure.reason is FailureReason.SERVICE_RESTARTED
    plane.session_broken(survivor, survivor.session, 0.0)
    plane.open_session(survivor)
    assert plane.hear(survivor).updates == [update]
    assert plane.clean(survivor, Join(7, 99)).state is ReleaseState.UNKNOWN


def test_a_listed_join_that_never_arrived_is_awaited() -> None:
    plane = opened()
    again = plane.again(plane.d[0], now=1.0, rooms=(RoomState(7, 99, Poll.BOOTSTRAPPING),))
    plane.open_session(again)
    assert not plane.hear(again).updates
    plane.join(again, Join(7, 99, "p"), 1.0)
    assert plane.poll(7) is Poll.BOOTSTRAPPING


def test_a_listed_room_goes_on_under_the_new_epoch() -> None:
    plane = opened()
    senders, receivers = plane.moving(7)
    again = plane.again(plane.p[0], now=1.0, rooms=(RoomState(7, senders[0].join_id, Poll.TRANSFERRING),))
    plane.open_session(plane.caller(again.ref, 1.0))
    [update] = plane.hear(again).updates
    assert (update.poll, update.confirmed) == (Poll.TRANSFERRING, True)
    plane.say(again, senders[0], Poll.SUCCESS, 1.0, [plane.completion(senders[0], receivers[0])])
    assert plane.own_poll(7, again) is Poll.SUCCESS


def test_a_listed_success_that_was_never_reported_counts() -> None:
    plane = opened()
    senders, receivers = plane.moving(7)
    held = plane.completion(senders[0], receivers[0])
    state = RoomState(7, receivers[0].join_id, Poll.SUCCESS, completions=(held,))
    plane.again(plane.d[0], now=1.0, rooms=(state,))
    assert plane.poll(7) is Poll.SUCCESS


def test_a_message_is_bounded_and_the_rest_follows() -> None:
    plane = opened()
    for room in range(1, 1201):
        plane.decode(room, pages=(room % 60, 61))
    assert plane.d[0].outbox is not None
    counts = []
    while plane.d[0].outbox.pending:
        counts.append(len(compose(plane.d[0], plane.d[0].outbox, plane.rooms).updates))
    assert counts == [1000, 200]


def test_a_repeat_after_cleanup_does_not_bring_the_room_back_to_the_worker() -> None:
    plane = opened(tp=2)
    _, receivers = plane.moving(7)
    plane.clean(plane.d[0], receivers[0])
    plane.join(plane.d[0], receivers[0], 1.0)
    assert 7 not in plane.d[0].instance.joins


def test_polls_of_a_room_are_the_same_for_everybody_who_hears_of_it() -> None:
    plane = opened(tp=2)
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    for worker in (*plane.p, *plane.d):
        assert plane.hear(worker).updates[-1].poll is Poll.SUCCESS


def test_a_cleanup_of_another_join_touches_nothing() -> None:
    plane = opened()
    join = plane.decode(7)
    item = join._replace(join_id=99)
    assert plane.clean(plane.d[0], item).state is ReleaseState.FREE  # of that join, which never was
    assert not plane.rooms[7].participants[plane.d[0].ref.worker_id].released
    assert plane.rooms[7].failure is None
