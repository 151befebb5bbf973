"""ACQUIRE ... VIA ... SESSION: locks that last as long as a session, and losses that are told."""

import pytest
import redis

from support.cluster import slot_of
from support.commands import Lock, details_of, stats
from support.crowd import send_all
from support.files import AOF, FILES
from support.server import free_port, wait_until
from support.session import Session
from support.turn import Bare, in_one_turn, sleep_then
from support.waiting import A_DAY, let_turn, queue_up

TIMEOUT_S = 60
SLACK_S = 5  # so long the machine may let nobody work while time goes by


def lost(token, why, key="lock"):
    return ["lost", key, token, why]


def is_free(lock):
    return lambda: lock.info() is None


def keep_alive(session, clock, seconds):
    """So much time goes by, with heartbeats in between."""
    while seconds > 0:
        clock.advance(min(seconds, TIMEOUT_S / 2))
        seconds -= TIMEOUT_S / 2
        assert session.has_no_events()
        clock.advance(TIMEOUT_S / 3)
        session.read()


# -- as long as the session -----------------------------------------------------------------------


def test_a_hold_lasts_as_long_as_its_session(session, lock, clock):
    fence = session.hold("me")
    keep_alive(session, clock, 10 * TIMEOUT_S)
    assert lock.info()["fence"] == fence
    clock.advance(TIMEOUT_S)
    assert lock.info() is None
    assert lock.client.dbsize() == 0


def test_a_hold_ends_with_end(session, lock):
    session.hold("me")
    session.end()
    wait_until(is_free(lock), "the lock to end")
    counted = stats(lock.client)
    assert (counted["session_holds"], counted["session_releases"]) == (0, 1)


@pytest.mark.parametrize("options, others", [
    ((), 0), (("SHARED",), 0), (("SHARED",), 2), (("GRACE", 5_000), 0), (("PX", 600_000), 0),
], ids=str)
def test_no_command_sees_a_hold_after_the_end_of_its_session(session, lock, options, others):
    """Its token, too, gets the lock anew."""
    first = session.hold("me", *options)
    mode = ["SHARED"] * ("SHARED" in options)
    for i in range(others):
        lock.acquire(f"other {i}", 60_000, "SHARED")
    one, shown, extended, released, fence = in_one_turn(
        lock.client, ("DLOCK.SESSION", session.name, "END"), ("DLOCK.INFO", "lock"),
        ("DLOCK.EXTEND", "lock", "me", "PX", 60_000), ("DLOCK.RELEASE", "lock", "me"),
        ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000, *mode))
    let_turn(session.server)
    assert (one, extended, released) == (1, 0, 0) and fence > first
    assert (len(details_of(shown)["holders"]) if shown else 0) == others
    assert lock.release("me") == 1


def test_shared_holds_end_with_their_session_and_leave_those_of_others(session, other, lock):
    for owner, token in (session, "one"), (session, "two"), (other, "three"):
        owner.hold(token, "SHARED")
    session.end()
    wait_until(lambda: stats(lock.client)["holders"] == 1, "two to end")
    assert lock.info()["token"] == b"three"
    other.end()
    let_turn(session.server)
    assert lock.acquire("you") > 0


@pytest.mark.parametrize("options, end", [
    ((), Session.end), (("GRACE", 0), Session.go_away)], ids=["END", "grace"])
def test_the_lock_of_an_ended_session_is_handed_on(server, session, other, lock, options, end):
    session.hold("me", *options)
    [first] = queue_up(server, ["first"])
    other.wait("second")
    end(session)
    assert first.answer() > 0
    lock.release("first")
    assert other.event()[:3] == ["granted", "lock", "second"]


def test_what_is_left_of_a_hold_is_what_is_left_of_its_session(session, lock, clock):
    session.hold("me")
    assert (TIMEOUT_S - SLACK_S) * 1000 < lock.ttl() <= TIMEOUT_S * 1000
    clock.advance(20)
    assert (TIMEOUT_S - 20 - SLACK_S) * 1000 < lock.ttl() <= (TIMEOUT_S - 20) * 1000
    session.send()
    assert not session.is_answered()
    assert (TIMEOUT_S - SLACK_S) * 1000 < lock.ttl() <= TIMEOUT_S * 1000


def test_a_hold_goes_on_while_its_session_is_away(session, lock, clock):
    fence = session.hold("me")
    session.go_away()
    clock.advance(TIMEOUT_S - SLACK_S)
    assert lock.info()["fence"] == fence
    assert session.come_back() == []
    clock.advance(TIMEOUT_S - SLACK_S)
    assert lock.info()["fence"] == fence


@pytest.mark.parametrize("options", [
    (), ("SHARED",), ("GRACE", 5_000), ("PX", 10 * TIMEOUT_S * 1000)], ids=str)
def test_a_session_keeps_its_holds_until_it_ends(server, session, lock, options):
    """The server was busy past the time of the session, and reads a command for the lock before the
    heartbeat."""
    fence = session.hold("me", *options)
    assert sleep_then(server, TIMEOUT_S + 1, "DLOCK.ACQUIRE lock other PX 60000",
                      f"DLOCK.SESSION {session.name} PX {session.timeout_ms}") == [b"$-1", b"*2"]
    assert (session.come_back(), lock.info()["fence"]) == ([], fence)


@pytest.mark.parametrize("options", [("PX", 1000), ("GRACE", 1000)], ids=str)
def test_a_limit_or_grace_ends_a_hold_whose_session_is_about_to_end(server, session, options):
    session.hold("me", *options)
    if "GRACE" in options:
        session.go_away()
    assert sleep_then(server, TIMEOUT_S + 1, "DLOCK.ACQUIRE lock other PX 60000")[0][:1] == b":"


def test_a_hold_that_is_about_to_end_is_shown_with_a_short_rest(server, session):
    session.hold("me")
    script = ("local function find(words, name) "
              "for i = 1, #words, 2 do if words[i].ok == name then return words[i + 1] end end end "
              "return find(find(redis.call('DLOCK.INFO', 'lock'), 'holders')[1], 'ttl')")
    [shown] = sleep_then(server, TIMEOUT_S + 1, f'EVAL "{script}" 0')
    assert 0 < int(shown[1:]) <= 10


def test_without_session_the_lease_alone_counts(session, lock):
    session.acquire("me", "PX", 60_000)
    session.end()
    let_turn(session.server)
    assert lock.info()["token"] == b"me"
    assert stats(lock.client)["session_holds"] == 0


def test_a_hold_without_a_lease_cannot_be_extended(session, lock, clock):
    session.hold("me")
    with pytest.raises(redis.ResponseError, match="no lease of its own"):
        lock.extend("me")
    assert lock.extend("you") == 0


def test_a_released_hold_is_no_loss(session, lock):
    session.hold("me")
    assert lock.release("me") == 1
    assert stats(lock.client)["session_holds"] == 0
    assert session.has_no_events()


AGAIN = {
    "as before": lambda session, lock, fence: session.hold("me"),
    "without a session": lambda session, lock, fence: lock.acquire("me", 2 * TIMEOUT_S * 1000),
    "without SESSION": lambda session, lock, fence: lock.acquire(
        "me", 2 * TIMEOUT_S * 1000, "VIA", session.name),
    "for a larger fence": lambda session, lock, fence: session.acquire(
        "me", "SESSION", "FENCE", fence + 60_000_000) - 60_000_000,
}


@pytest.mark.parametrize("ask", AGAIN.values(), ids=AGAIN.keys())
def test_a_token_that_asks_again_keeps_its_hold(session, lock, clock, ask):
    """A late or repeated command never shortens anything."""
    fence = session.hold("me")
    assert ask(session, lock, fence) == fence
    assert stats(lock.client)["session_holds"] == 1
    fence = lock.info()["fence"]
    keep_alive(session, clock, 5 * TIMEOUT_S)
    assert lock.info()["fence"] == fence


def test_a_lock_becomes_a_hold_when_its_holder_asks_so(session, lock, clock):
    fence = lock.acquire("me", 30_000)
    assert session.hold("me") == fence
    keep_alive(session, clock, 5 * TIMEOUT_S)
    assert lock.info()["fence"] == fence
    session.end()
    wait_until(is_free(lock), "the lock to end")


def test_a_hold_moves_to_another_session(session, other, lock):
    fence = session.hold("me")
    assert other.hold("me") == fence
    session.end()
    let_turn(session.server)
    assert lock.info()["fence"] == fence
    other.end()
    wait_until(is_free(lock), "the lock to end")


def test_a_hold_moves_from_a_session_to_a_connection(server, session, lock):
    fence = session.hold("me")
    holder = server.connect()
    assert Lock(holder).acquire("me", 600_000, "SESSION") == fence
    assert lock.ttl() > TIMEOUT_S * 1000
    session.end()
    let_turn(server)
    assert lock.info()["fence"] == fence
    holder.connection_pool.disconnect()
    wait_until(is_free(lock), "the lock to end")


# -- PX as a limit --------------------------------------------------------------------------------


@pytest.mark.parametrize("px_s", [10, 300])
def test_a_hold_with_a_lease_ends_with_whichever_is_first(session, lock, clock, px_s):
    session.hold("me", "PX", px_s * 1000)
    keep_alive(session, clock, min(px_s, TIMEOUT_S) / 2)
    left = lock.ttl()
    assert 0 < left <= min(px_s, TIMEOUT_S) * 1000 if left is not None else px_s == 10
    clock.advance(min(px_s, TIMEOUT_S))
    assert lock.info() is None


@pytest.mark.parametrize("extension_s", [0, 50])
def test_the_lease_of_a_hold_that_ends_is_a_loss(session, lock, clock, extension_s):
    """It can be extended."""
    fence = session.hold("me", "PX", 10_000)
    if extension_s:
        assert lock.extend("me", extension_s * 1000) == 1
        clock.advance(extension_s - 10)
        assert lock.info()["fence"] == fence
    clock.advance(10)
    assert session.event() == lost("me", "expired")
    assert stats(lock.client)["expired"] == 1


def test_an_extension_never_shortens_the_lease_of_a_hold(session, lock, clock):
    fence = session.hold("me", "PX", 50_000)
    assert lock.extend("me", 1_000) == 1
    assert session.hold("me", "PX", 1_000) == fence
    clock.advance(40)
    assert lock.info()["fence"] == fence


@pytest.mark.parametrize("before", [("PX", 50_000), ("SESSION",)], ids=str)
def test_a_limit_does_not_shorten_what_the_holder_had(session, other, lock, clock, before):
    fence = other.acquire("me", *before)
    assert session.hold("me", "PX", 1_000) == fence
    clock.advance(40)
    assert lock.info()["fence"] == fence


def test_asking_again_without_a_lease_takes_the_limit_away(session, lock, clock):
    fence = session.hold("me", "PX", 10_000)
    session.hold("me")
    keep_alive(session, clock, 3 * TIMEOUT_S)
    assert lock.info()["fence"] == fence


# -- GRACE ----------------------------------------------------------------------------------------


GRACES = {
    # the options, how long before the absence, how long it lasts, whether the hold ends then
    "grace 0 ends a hold at once": (("GRACE", 0), 0, 0, True),
    "a hold ends so long after the absence began": (("GRACE", 10_000), 30, 10, True),
    "a session that is back in time keeps its hold": (("GRACE", 10_000), 0, 5, False),
    "grace does not outlast the session": (("GRACE", 30_000), TIMEOUT_S - 10, 10, True),
    "grace does not outlast the lease": (("PX", 10_000, "GRACE", 30_000), 0, 10, True),
    "an extension does not outlast grace": (("PX", 10_000, "GRACE", 7_000, "EXTEND"), 0, 7, True),
    "an extension while the session is away counts":
        (("PX", 10_000, "GRACE", 50_000, "EXTEND"), 0, 30, False),
    "grace can be taken back": (("GRACE", 0, "AGAIN"), 0, TIMEOUT_S - SLACK_S, False),
}


@pytest.mark.parametrize("options, before_s, away_s, ends", GRACES.values(), ids=GRACES.keys())
def test_grace(session, lock, clock, options, before_s, away_s, ends):
    """EXTEND: while the session is away. AGAIN: the holder asks again, without GRACE."""
    words = [word for word in options if word not in ("EXTEND", "AGAIN")]
    fence = session.hold("me", *words)
    if "AGAIN" in options:
        assert session.hold("me") == fence
    clock.advance(before_s)
    session.go_away()
    if "EXTEND" in options:
        assert lock.extend("me", 40_000) == 1
    if away_s > SLACK_S:
        clock.advance(away_s - SLACK_S)
        assert lock.info()["fence"] == fence, "too early"
    clock.advance(min(away_s, SLACK_S))
    assert (lock.info() is None) == ends
    if before_s + away_s < TIMEOUT_S:
        assert session.come_back() == [lost("me", "expired")] * ends


def test_a_session_that_is_back_keeps_its_hold_for_as_long_as_it_lives(session, lock, clock):
    fence = session.hold("me", "GRACE", 10_000)
    session.go_away()
    assert (10 - SLACK_S) * 1000 < lock.ttl() <= 10_000
    clock.advance(10 - SLACK_S)
    assert session.come_back() == []
    clock.advance(TIMEOUT_S - SLACK_S)
    assert lock.info()["fence"] == fence


def test_a_grace_period_begins_again_with_every_absence(server, session, lock, clock):
    session.hold("me", "GRACE", 20_000)
    lock.client.execute_command("DLOCK.ACQUIRE", "other", "me", "PX", 22_000)
    session.go_away()
    clock.advance(20 - SLACK_S)
    client = server.client()  # by which it is back for a moment: in the turn in which it ends
    in_one_turn(client, ("DLOCK.SESSION", session.name, "PX", session.timeout_ms),
                ("CLIENT", "KILL", "ID", client.client_id(), "SKIPME", "no"))
    clock.advance(10)
    assert (lock.info()["token"], lock.client.exists("other")) == (b"me", 0)
    clock.advance(11)
    assert lock.info() is None


def test_a_grace_period_counts_soon_after_the_start_of_the_server(start_server):
    server = start_server()
    session, lock = Session(server), Lock(server.client())
    session.hold("me", "GRACE", 5_000)
    session.go_away()
    assert lock.ttl() <= 5_000
    server.clock.advance(6)
    assert lock.client.exists("lock") == 0


def test_a_session_back_in_the_turn_in_which_it_went_keeps_its_holds_with_grace_0(
        server, session, lock):
    """The end of the old connection may be noticed first."""
    fence = session.hold("me", "GRACE", 0)
    in_one_turn(lock.client, ("CLIENT", "KILL", "ID", session.id),
                ("DLOCK.SESSION", session.name, "PX", 60_000))
    let_turn(server)
    assert lock.info()["fence"] == fence


def test_a_session_that_moves_to_another_connection_is_not_away(session, lock):
    fence = session.hold("me", "GRACE", 0)
    older = session.connection
    session.connect()
    assert session.call() == (session.born, [])
    session.send()
    older.disconnect()
    assert not session.is_answered()
    assert lock.info()["fence"] == fence


def test_a_hold_with_grace_needs_a_session_that_is_present(session, lock):
    session.go_away()
    with pytest.raises(redis.ResponseError, match="^NOSESSION the session is away"):
        session.hold("me", "GRACE", 0)
    assert lock.info() is None


def test_a_waiter_with_grace_gets_a_hold_with_grace(session, lock):
    lock.acquire("me")
    assert session.acquire("you", "SESSION", "GRACE", 0, "WAIT", A_DAY) == "QUEUED"
    lock.release("me")
    assert session.event()[:3] == ["granted", "lock", "you"]
    session.go_away()
    assert lock.info() is None


@pytest.mark.parametrize("options", [("GRACE", 0), ("GRACE", 5_000)], ids=str)
def test_shared_holds_with_grace_end_one_by_one(session, other, lock, clock, options):
    session.hold("one", "SHARED", *options)
    session.hold("two", "SHARED")
    other.hold("three", "SHARED")
    session.go_away()
    clock.advance(6)
    details = details_of(lock.client.execute_command("DLOCK.INFO", "lock"))
    assert {holder["token"] for holder in details["holders"]} == {b"two", b"three"}


# -- losses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end, why", [
    (lambda c: c.delete("lock"), "deleted"),
    (lambda c: c.unlink("lock"), "deleted"),
    (lambda c: c.pexpire("lock", 0), "deleted"),
    (lambda c: c.rename("lock", "else"), "deleted"),
    (lambda c: c.move("lock", 3), "deleted"),
    (lambda c: c.set("lock", "theirs"), "overwritten"),
    (lambda c: in_one_turn(c, ("SET", "x", 1), ("RENAME", "x", "lock")), "overwritten"),
], ids=["del", "unlink", "pexpire", "rename", "move", "set", "renamed over"])
@pytest.mark.parametrize("options", [(), ("SHARED",), ("GRACE", 0), ("PX", 30_000)], ids=str)
def test_a_loss_is_told_with_its_reason(session, lock, options, end, why):
    session.hold("me", *options)
    end(lock.client)
    assert session.event() == lost("me", why)
    assert stats(lock.client)["session_holds"] == 0


@pytest.mark.parametrize("flush", [("FLUSHALL",), ("FLUSHDB", "ASYNC")], ids=str)
@pytest.mark.parametrize("options, token", [((), ""), (("SHARED",), "me")], ids=str)
def test_a_flush_is_a_loss(session, lock, flush, options, token):
    """Of an exclusive lock nothing is left that knows the token."""
    session.hold("me", *options)
    lock.client.execute_command(*flush)
    assert session.event() == lost(token, "flushed")
    assert stats(lock.client)["session_holds"] == 0


@pytest.mark.parametrize("is_away", [False, True], ids=["parked", "away"])
def test_a_loss_wakes_the_parked_heartbeat_or_waits_for_the_session(session, lock, is_away):
    session.hold("me")
    session.go_away() if is_away else session.park()
    lock.client.delete("lock")
    let_turn(session.server)
    events = session.come_back() if is_away else session.read()[1]
    assert events == [lost("me", "deleted")]


def test_the_holders_of_an_evicted_lock_are_told_so(session, other, lock):
    session.hold("one", "SHARED")
    other.hold("two", "SHARED")
    lock.client.config_set("maxmemory-policy", "allkeys-random")
    lock.client.config_set("maxmemory", 1)
    wait_until(lambda: not lock.client.exists("lock"), "the eviction")
    lock.client.config_set("maxmemory", 0)
    assert session.event() == lost("one", "evicted")
    assert other.event() == lost("two", "evicted")


def test_every_holder_of_a_deleted_lock_is_told_and_the_next_one_gets_it(session, other, lock):
    session.hold("one", "SHARED")
    session.hold("two", "SHARED")
    other.hold("three", "SHARED")
    other.wait("four")
    lock.client.delete("lock")
    assert sorted(session.events()) == [lost("one", "deleted"), lost("two", "deleted")]
    granted, told = sorted(other.events())
    assert told == lost("three", "deleted") and granted[:3] == ["granted", "lock", "four"]


def test_a_lock_that_is_no_hold_is_lost_without_a_word(session, lock):
    session.acquire("me", "PX", 60_000)
    lock.client.delete("lock")
    assert session.has_no_events()


def test_a_lock_that_an_operator_lets_expire_is_lost_soon(session, lock, clock):
    session.hold("me")
    session.wait("other")
    lock.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    lock.client.pexpire("lock", 1000)
    clock.step(2)
    clock.advance(0.3)
    lock.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    assert sorted(event[0] for event in session.events()) == ["granted", "lost"]


def lose(session, lock, token):
    session.hold(token)
    lock.client.delete("lock")


def wait_in_vain(session, lock, token):
    lock.acquire("holder")
    session.wait(token)
    assert lock.release(token) == 0


@pytest.mark.parametrize("happen", [lose, wait_in_vain])
def test_a_client_that_acknowledges_nothing_cannot_have_more_and_more_events(
        session, lock, happen):
    lock.client.config_set("dlock.max-events", 2)
    for token in "one", "two":
        happen(session, lock, token)
        let_turn(session.server)
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events of this session"):
        happen(session, lock, "three")
    assert session.acquire("three", "PX", 1000, key="other") > 0, "which can have no event"
    assert len(session.events()) == 2
    assert session.has_no_events()
    happen(session, lock, "three")


def test_a_full_mailbox_refuses_nothing_to_others(session, other, lock):
    """Also if its events tell of watches."""
    lock.client.config_set("dlock.max-events", 2)
    for key in "one", "two", "three":
        session.watch(key)
    wait_until(lambda: stats(lock.client)["events_unacknowledged"] == 3, "all to be told")
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events of this session"):
        session.hold("me")
    other.hold("me")
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events of this session"):
        session.wait("you")
    other.wait("you")


def test_a_hold_follows_its_lock_through_swapdb(server, session, lock, clock):
    fence = session.hold("me")
    lock.client.swapdb(0, 3)
    there = Lock(server.client(db=3))
    keep_alive(session, clock, 3 * TIMEOUT_S)
    assert there.info()["fence"] == fence
    there.client.delete("lock")
    assert session.event() == lost("me", "deleted")


# -- replicas and files ---------------------------------------------------------------------------


@pytest.mark.parametrize("options, lease", [
    ((), b"60000"), (("PX", 10_000), b"10000"), (("PX", 600_000), b"60000"),
    (("GRACE", 0), b"60000"),
], ids=str)
def test_a_hold_is_replicated_with_a_lease_of_the_timeout_at_most(session, stream, options, lease):
    fence = session.hold("me", *options)
    assert stream.take() == [[b"dlock.apply", b"lock", b"me", str(fence).encode(), lease]]


def test_the_end_of_a_session_is_replicated_as_releases(session, lock, stream):
    session.hold("me")
    stream.take()
    session.end()
    wait_until(is_free(lock), "the lock to end")
    assert stream.take() == [[b"dlock.release", b"lock", b"me"]]


def test_heartbeats_are_not_replicated_and_a_hold_costs_no_command(session, stream, clock):
    for i in range(1000):
        session.hold("me", key=f"lock:{i}")
    stream.take()
    before = session.commands.info("commandstats")
    keep_alive(session, clock, 2 * TIMEOUT_S)
    used = {name for name, now in session.commands.info("commandstats").items()
            if now["calls"] > before.get(name, {"calls": 0})["calls"]}
    assert {name for name in used if "dlock" in name} == {"cmdstat_dlock.session"}
    assert stream.take() == []


def test_an_extended_hold_is_replicated_with_the_longer_lease(session, lock, stream):
    """After a failover it must last at least that long, or the timeout of the session."""
    fence = session.hold("me", "PX", 10_000)
    for lease_ms, told in (40_000, b"40000"), (600_000, b"60000"), (700_000, b"60000"):
        stream.take()
        assert lock.extend("me", lease_ms) == 1
        assert stream.take() == [[b"dlock.apply", b"lock", b"me", str(fence).encode(), told]]


@FILES
def test_after_a_restart_the_client_asks_again_and_keeps_its_holds(start_server, options, prepare):
    server = start_server(*options)
    session = Session(server)
    fence = session.hold("me")
    prepare(server.observer)
    server.restart()
    lock = Lock(server.observer)
    assert (lock.info()["fence"], lock.info()["via"]) == (fence, b"")
    again = Session(server, name=session.name)
    assert again.born > session.born
    assert again.hold("me") == fence
    keep_alive(again, server.clock, 3 * TIMEOUT_S)
    assert lock.info()["fence"] == fence
    again.end()
    wait_until(is_free(lock), "the lock to end")


def test_after_a_restart_the_lease_ends_a_hold_that_nobody_asks_for(start_server):
    server = start_server(*AOF)
    Session(server).hold("me")
    server.restart()
    lock = Lock(server.observer)
    server.clock.advance(TIMEOUT_S - SLACK_S)
    assert lock.info()["token"] == b"me"
    server.clock.advance(SLACK_S)
    assert lock.info() is None


def test_after_a_promotion_the_client_asks_again_and_keeps_its_holds(server, start_follower):
    replica = start_follower(server)
    session = Session(server)
    fence = session.hold("me")
    assert server.observer.wait(1, 20_000) == 1
    replica.observer.execute_command("REPLICAOF", "NO", "ONE")
    again = Session(replica, name=session.name)
    assert again.hold("me") == fence
    keep_alive(again, replica.clock, 3 * TIMEOUT_S)
    assert Lock(replica.observer).info()["fence"] == fence


@pytest.mark.parametrize("between", [(), (("CLIENT", "KILL", "TYPE", "normal"),)],
                         ids=["", "killed"])
@pytest.mark.parametrize("options", [(), ("GRACE", 0), ("SHARED",)], ids=str)
def test_a_demotion_ends_sessions_and_no_locks(session, lock, options, between):
    """The new master has the lock; and this server too, if it becomes the master again at once."""
    fence = session.hold("me", *options)
    in_one_turn(lock.client, ("REPLICAOF", "127.0.0.1", free_port()), *between,
                ("REPLICAOF", "NO", "ONE"))
    wait_until(lambda: stats(lock.client)["session_holds"] == 0, "the session to be forgotten")
    assert lock.info()["fence"] == fence
    assert 0 < lock.ttl() <= TIMEOUT_S * 1000


def test_a_replica_shows_a_hold_as_a_lease(server, session, start_follower, lock):
    replica = Lock(start_follower(server).observer)
    session.hold("me")
    assert session.commands.wait(1, 20_000) == 1  # which made the write
    info = replica.info()
    assert (info["lease"], info["via"], info["session"]) == (TIMEOUT_S * 1000, b"", 0)


def test_a_hold_whose_slot_moves_is_lost_here_and_held_there(cluster):
    node, target = cluster.nodes[:2]
    key = cluster.key_on(0)
    session = Session(node)
    fence = session.hold("me", key=key)
    cluster.move(slot_of(key), 1)
    assert session.event()[:3] == ["lost", key, "me"]
    assert Session(target, name=session.name).hold("me", key=key) == fence


# -- many -----------------------------------------------------------------------------------------

MANY = 30_000
FLUSHED = 100_000  # forgotten quickly, as nothing is stored any more


@pytest.fixture
def bare(server):
    bare = Bare(server)
    yield bare
    bare.close()


def send_many(bare, line, reply, count=MANY):
    """{}: a number."""
    replies = send_all(bare, [line.format(i) for i in range(count)])
    assert all(each.startswith(reply) for each in replies)


def hold_many(bare, session, options="SESSION", count=MANY):
    send_many(bare, f"DLOCK.ACQUIRE lock:{{}} me VIA {session.name} {options}", b":", count)


def assert_in_portions(client, clock, field, action):
    """What the action sets off takes many turns of the event loop, and others are served in each,
    until this field of INFO dlock is 0."""
    before = clock.turns
    action()
    wait_until(lambda: stats(client)[field] == 0, f"{field} to be 0", timeout=50)
    assert clock.turns - before > 8, "nobody was served until all were done"


@pytest.mark.parametrize("end", [
    lambda session, clock: session.end(), lambda session, clock: clock.advance(TIMEOUT_S, turns=0),
], ids=["end", "timeout"])
def test_the_holds_of_a_session_end_in_portions(session, client, clock, bare, end):
    hold_many(bare, session)
    assert_in_portions(client, clock, "held", lambda: end(session, clock))
    assert (client.dbsize(), stats(client)["session_holds"]) == (0, 0)


def test_holds_with_grace_end_in_portions(session, client, clock, bare):
    hold_many(bare, session, "SESSION GRACE 0")
    assert_in_portions(client, clock, "held", session.connection.disconnect)
    assert stats(client)["events_unacknowledged"] == MANY


def test_the_losses_of_a_flush_are_told_in_portions(session, client, clock, bare):
    hold_many(bare, session, count=FLUSHED)
    assert_in_portions(client, clock, "session_holds", lambda: client.flushall(asynchronous=True))
    assert stats(client)["events_unacknowledged"] == FLUSHED


def test_the_waits_of_a_session_end_in_portions(session, client, clock, bare):
    client.config_set("dlock.max-waiters", MANY)
    Lock(client).acquire("me", A_DAY)
    send_many(bare, f"DLOCK.ACQUIRE lock {{}} PX 1000 WAIT {A_DAY} VIA {session.name}", b"+QUEUED")
    before = clock.turns
    session.connection.disconnect()
    wait_until(lambda: not Lock(client).queue(1), "all to step aside", timeout=50)
    assert clock.turns - before > 5, "nobody was served until all had stepped aside"
    assert_in_portions(client, clock, "session_waiters", session.end)


def test_the_watches_of_a_session_end_in_portions(session, client, clock, bare):
    send_many(bare, f"DLOCK.WATCH lock:{{}} {session.name}", b"+OK")
    assert_in_portions(client, clock, "watches", session.end)


def test_the_end_of_a_session_with_many_holds_holds_up_no_other(session, other, lock, bare):
    """Its locks end in portions, and those of others in between."""
    hold_many(bare, other)
    session.hold("me", "GRACE", 0)
    [waiter] = queue_up(session.server, ["waiter"])
    _, _, left = in_one_turn(lock.client, ("DLOCK.SESSION", other.name, "END"),
                             ("CLIENT", "KILL", "ID", session.id), ("INFO", "dlock"))
    assert left["dlock_session_holds"] == MANY + 1
    assert waiter.answer() > 0
    assert stats(lock.client)["session_holds"] > 1000
