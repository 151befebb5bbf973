"""Several names by a session: ACQUIREALL ... VIA. A request has one wait and one event; its holds
are those of its names."""

import pytest
import redis

from support.commands import Lock, Locks, details_of, line_at, stats, tokens_at
from support.server import wait_until
from support.turn import in_one_turn
from support.waiting import assert_nobody_waits, let_turn, queue_up

BOTH = ["a", "b"]


# -- waits ----------------------------------------------------------------------------------------


def test_free_locks_are_granted_at_once(session, both):
    fence = session.acquire("me", "PX", 60_000, "WAIT", 1000, key=BOTH)
    assert fence > 0 and both.holders() == {"a": ["me"], "b": ["me"]}
    assert session.has_no_events()


def test_a_request_has_one_event_with_its_first_name(session, both, at):
    both.acquire("holder")
    session.wait("me", key=["b", "a"])
    assert stats(both.client)["session_waiters"] == 1
    both.release("holder")
    [[kind, key, token, fence, _]] = session.events()
    assert (kind, key, token) == ("granted", "b", "me")
    assert [at(key).info()["fence"] for key in "ab"] == [fence] * 2
    assert session.has_no_events()
    assert_nobody_waits(both.client)


@pytest.mark.parametrize("end, why", [
    (lambda both, clock: clock.advance(6), "timeout"),
    (lambda both, clock: both.release("me"), "released"),
    (lambda both, clock: Lock(both.client, "a").release("me"), "released"),
    (lambda both, clock: in_one_turn(both.client, ("DEL", "a"), ("RPUSH", "a", "x")), "WRONGTYPE"),
    (lambda both, clock: in_one_turn(both.client, ("DEL", "b"), ("RPUSH", "b", "x")), "WRONGTYPE"),
], ids=["timeout", "releaseall", "release", "type of a", "type of b"])
def test_a_wait_that_ends_has_one_event(session, both, clock, end, why):
    both.acquire("holder", 600_000)
    session.wait("me", key=["b", "a"], wait_ms=5_000)
    end(both, clock)
    clock.advance(1)
    kind, key, token, told = session.event()
    assert (kind, key, token) == ("ended", "b", "me") and told.startswith(why)
    assert session.has_no_events()
    assert_nobody_waits(both.client)


def test_waiters_of_both_kinds_stand_in_one_order(server, session, both):
    both.acquire("holder")
    [first] = queue_up(server, ["first"], keys=BOTH)
    session.wait("second", key=["b", "a"])
    [third] = queue_up(server, ["third"], keys=BOTH)
    assert line_at(both.client, "a") == line_at(both.client, "b") == ["first", "second", "third"]
    both.release("holder")
    assert first.answer() > 0
    both.release("first")
    assert session.event()[:3] == ["granted", "b", "second"]
    both.release("second")
    assert third.answer() > 0


def test_the_same_token_keeps_its_places(session, both):
    both.acquire("holder")
    session.wait("me", key=BOTH)
    session.wait("you", key=BOTH)
    session.wait("me", key=["b", "a"])
    assert line_at(both.client, "a") == line_at(both.client, "b") == ["me", "you"]
    assert stats(both.client)["session_waiters"] == 2
    both.release("holder")
    assert session.event()[:3] == ["granted", "b", "me"]


def test_a_wait_works_in_a_transaction_and_in_a_script(session, both):
    both.acquire("holder")
    words = ["DLOCK.ACQUIREALL", "2", "a", "b", "me", "PX", "60000", "WAIT", "60000", "VIA",
             session.name]
    assert in_one_turn(both.client, words) == [b"QUEUED"]
    assert both.client.eval("return redis.call(unpack(ARGV))", 0, *words) == b"QUEUED"
    assert stats(both.client)["session_waiters"] == 1


def test_a_session_that_is_away_is_passed_over_in_all_queues(server, session, both, at):
    at("b").acquire("y")
    session.wait("away", key=["a", "b", "c"])
    waiting = [queue_up(server, [f"on {key}"], key=key)[0] for key in "abc"]
    session.go_away()
    assert waiting[0].answer() > 0 and waiting[2].answer() > 0
    at("b").release("y")
    assert waiting[1].answer() > 0
    assert stats(both.client)["waiters"] == 3


def assert_lines(both, *tokens):
    assert line_at(both.client, "a") == line_at(both.client, "b") == list(tokens)


def test_a_session_that_comes_back_has_its_places_in_all_queues(server, session, both):
    """Also of what it asked for while it was away."""
    both.acquire("holder")
    session.wait("first", key=BOTH)
    [second] = queue_up(server, ["second"], keys=BOTH)
    session.go_away()
    session.wait("third", key=BOTH)
    assert_lines(both, "second")
    assert stats(both.client)["waiters"] == 6
    assert session.come_back() == []
    let_turn(server)
    assert_lines(both, "first", "second", "third")
    both.release("holder")
    [granted] = session.read()[1]
    assert granted[:3] == ["granted", "a", "first"]
    assert not second.is_answered()


@pytest.mark.parametrize("is_asked_for", [False, True], ids=["by coming back", "by a request"])
def test_free_locks_go_to_a_session_that_was_away(session, both, is_asked_for):
    both.acquire("holder")
    session.wait("me", key=BOTH)
    session.go_away()
    both.release("holder")
    assert both.holders() == {"a": [], "b": []}
    if is_asked_for:
        assert both.acquire("me") > 0
    events = session.come_back()
    assert [event[:3] for event in events] == [["granted", "a", "me"]] * (not is_asked_for)
    assert both.holders() == {"a": ["me"], "b": ["me"]}
    assert_nobody_waits(both.client)


def test_a_grant_that_was_never_written_is_taken_back_everywhere(server, session, other, both):
    """The session goes away in the turn of the grant."""
    both.acquire("holder")
    session.wait("me", key=BOTH)
    other.wait("you", key=["b", "a"])
    in_one_turn(both.client, ("DLOCK.RELEASEALL", 2, "a", "b", "holder"),
                ("CLIENT", "KILL", "ID", session.id))
    let_turn(server)
    assert other.event()[:3] == ["granted", "b", "you"]
    assert both.holders() == {"a": ["you"], "b": ["you"]}
    assert session.come_back() == []
    assert line_at(both.client, "a") == line_at(both.client, "b") == ["me"]
    both.release("you")
    assert session.read()[1][0][:3] == ["granted", "a", "me"]


def test_a_grant_of_which_a_part_is_gone_is_not_taken_back(server, session, both):
    """It would wait for all and hold a part. Its client is told of the grant, and of the loss."""
    both.acquire("holder")
    assert session.acquire("me", "SESSION", "WAIT", 60_000, key=BOTH) == "QUEUED"
    in_one_turn(both.client, ("DLOCK.RELEASEALL", 2, "a", "b", "holder"), ("DEL", "a"),
                ("CLIENT", "KILL", "ID", session.id))
    let_turn(server)
    assert both.holders() == {"a": [], "b": ["me"]}
    assert_nobody_waits(both.client)
    told = session.come_back()
    assert [event[:3] for event in told] == [["granted", "a", "me"], ["lost", "a", "me"]]


def test_a_session_that_ends_leaves_all_queues(server, session, both, at):
    at("b").acquire("y")
    session.wait("me", key=BOTH)
    [on_a] = queue_up(server, ["on a"], key="a")
    session.end()
    assert on_a.answer() > 0
    let_turn(server)
    assert_nobody_waits(both.client)


# -- holds ----------------------------------------------------------------------------------------


def test_a_hold_that_is_lost_is_told_by_its_own_name(session, both):
    session.hold("me", key=BOTH)
    both.client.delete("b")
    assert session.event() == ["lost", "b", "me", "deleted"]
    assert both.holders() == {"a": ["me"], "b": []}


def end_by_end(session):
    session.end()
    let_turn(session.server)


def end_by_grace(session):
    session.go_away()
    session.server.clock.advance(6)


@pytest.mark.parametrize("is_awaited", [False, True], ids=["granted at once", "after a wait"])
@pytest.mark.parametrize("options, end", [((), end_by_end), (("GRACE", 5_000), end_by_grace)])
def test_holds_end_with_their_session(session, both, options, end, is_awaited):
    if is_awaited:
        both.acquire("holder")
        assert session.acquire("me", "WAIT", 60_000, "SESSION", *options, key=BOTH) == "QUEUED"
        both.release("holder")
        assert session.event()[:3] == ["granted", "a", "me"]
    else:
        session.hold("me", *options, key=BOTH)
    assert stats(both.client)["session_holds"] == 2
    end(session)
    assert both.holders() == {"a": [], "b": []}


def test_the_mailbox_is_bounded(session, both):
    both.client.config_set("dlock.max-waiters-in-all", 1)
    both.acquire("holder")
    with pytest.raises(redis.ResponseError, match="^QUEUEFULL"):
        session.acquire("me", "PX", 1000, "WAIT", 1000, key=BOTH)
    assert tokens_at(both.client, "a") == ["holder"]


def test_info_shows_the_session_of_a_request(session, both, at):
    both.acquire("holder")
    session.wait("me", key=BOTH)
    for key in BOTH:
        [waiter] = at(key).queue()
        assert (waiter["via"].decode(), waiter["names"]) == (session.name[:8], 2)


# -- many -----------------------------------------------------------------------------------------


def test_a_long_run_of_shared_waiters_is_served_in_portions(client, session):
    keys = [f"lock:{i}" for i in range(64)]
    many = Locks(client, *keys)
    many.acquire("holder")
    asked = client.pipeline(transaction=False)
    for i in range(200):
        asked.execute_command("DLOCK.ACQUIREALL", 64, *keys, f"reader:{i}", "PX", 600_000, "SHARED",
                              "WAIT", 600_000, "VIA", session.name)
    assert set(asked.execute()) == {b"QUEUED"}

    step = client.pipeline(transaction=True)
    step.execute_command("DLOCK.RELEASEALL", 64, *keys, "holder")
    step.execute_command("DLOCK.INFO", "lock:63")
    released, info = step.execute()
    assert released == 64
    assert 0 < len(details_of(info)["holders"]) < 200
    wait_until(lambda: stats(client)["waiters"] == 0, "all to be served")
    assert {len(holders) for holders in many.holders().values()} == {200}
