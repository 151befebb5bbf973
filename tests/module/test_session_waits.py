"""ACQUIRE ... WAIT ... VIA: places in the queue that hang on a session, and the events that tell
what became of them."""

import pytest
import redis

from support.cluster import slot_of
from support.commands import Lock, line_at, stats, tokens_at
from support.server import free_port, wait_until
from support.session import Session
from support.turn import Bare, in_one_turn, sleep_then, sleep_then_run
from support.waiting import A_DAY, Waiting, let_turn, queue_up

TIMEOUT_S = 60
RELEASE = ("DLOCK.RELEASE", "lock", "me")


@pytest.fixture
def held(lock):
    """The lock, which "me" holds."""
    lock.acquire("me", 600_000)
    return lock


@pytest.fixture
def waiting(held, session):
    """The same, and "you" waits for it by the session."""
    session.wait("you")
    return held


@pytest.fixture
def queued(held, session, other):
    """The same, and "first" waits for it by the session, and "second" by the other one."""
    session.wait("first")
    other.wait("second")
    return held


def kill(session):
    """The command that ends its connection."""
    return "CLIENT", "KILL", "ID", session.id


def granted(events):
    """Token and fence of each, which must all be grants of the same lock."""
    assert {(kind, key) for kind, key, *_ in events} == {("granted", "lock")}
    return [(token, fence) for _, _, token, fence, _ in events]


def assert_granted(lock, events, token="you"):
    """That is the only event, and true."""
    assert granted(events) == [(token, lock.info()["fence"])]
    assert lock.info()["token"] == token.encode()


def ended(token, why, key="lock"):
    return ["ended", key, token, why]


def order(lock):
    return line_at(lock.client, lock.key)


# -- in the queue ---------------------------------------------------------------------------------


def test_a_free_lock_is_granted_at_once(session, lock):
    assert session.acquire("me", "PX", 60_000, "WAIT", 1000) == lock.info()["fence"]
    assert session.has_no_events()


def test_without_wait_a_held_lock_is_refused(session, held):
    assert session.acquire("you", "PX", 1000) is None
    assert stats(held.client)["waiters"] == 0


def test_a_waiter_costs_no_connection(session, held):
    """So waiters do not count against maxclients, as dlock_max_blocked does."""
    held.client.config_set("maxclients", 20)
    session.park()
    before = held.client.info("clients")
    for i in range(100):
        session.wait(f"token:{i}")
    after = held.client.info("clients")
    assert [after[name] for name in ("connected_clients", "blocked_clients")] == [
        before[name] for name in ("connected_clients", "blocked_clients")]
    assert (stats(held.client)["session_waiters"], held.info()["waiters"]) == (100, 100)


def test_the_grant_comes_to_the_parked_heartbeat(session, waiting):
    session.park()
    waiting.release("me")
    assert session.is_answered()
    assert_granted(waiting, session.read()[1])
    assert stats(waiting.client)["session_waiters"] == 0


def test_the_lease_of_a_waiter_begins_with_the_grant(session, held, clock):
    session.wait("you", lease_ms=10_000)
    clock.advance(30)
    held.release("me")
    assert 5_000 < held.ttl() <= 10_000


@pytest.mark.parametrize("end", [
    lambda lock, clock: lock.release("me"), lambda lock, clock: lock.client.delete("lock"),
    lambda lock, clock: lock.client.flushall(), lambda lock, clock: clock.advance(601),
    lambda lock, clock: lock.client.rename("lock", "else"),
    lambda lock, clock: lock.client.swapdb(0, 3),
    lambda lock, clock: lock.client.execute_command("PEXPIRE", "lock", 1),
    lambda lock, clock: (lock.client.set("lock", "x"), clock.advance(1), lock.client.delete("lock"))
], ids=["release", "del", "flushall", "lease", "rename", "swapdb", "expire", "a string, deleted"])
def test_the_first_in_line_gets_the_lock_however_it_ends(server, held, clock, end):
    session = Session(server, 3_600_000)
    session.wait("you")
    session.wait("they")
    end(held, clock)
    clock.advance(1)
    assert_granted(held, session.events())
    assert order(held) == ["they"]


def test_waiters_of_both_kinds_stand_in_one_queue(server, session, held):
    waiting = {}
    for i in range(6):
        if i % 2:
            session.wait(str(i))
        else:
            [waiting[i]] = queue_up(server, [str(i)])
    assert order(held) == [str(i) for i in range(6)]
    holder = "me"
    for i in range(6):
        held.release(holder)
        fence = session.event()[3] if i % 2 else waiting[i].answer()
        holder = str(i)
        assert (held.info()["token"], held.info()["fence"]) == (holder.encode(), fence)


def test_nobody_overtakes_a_waiter_of_a_session(session, lock):
    lock.acquire("me", 60_000, "SHARED")
    session.wait("writer")
    assert lock.acquire("reader", 60_000, "SHARED") is None


def test_shared_waiters_are_admitted_together(session, held):
    for i in range(3):
        session.wait(str(i), "SHARED")
    session.wait("next writer")
    held.release("me")
    assert [event[2] for event in session.events()] == ["0", "1", "2"]


def test_max_holds_for_waiters_of_a_session(session, lock):
    lock.acquire("holder", 60_000, "SHARED")
    session.wait("you", "SHARED", "MAX", 1)
    lock.acquire("holder", 60_000, "SHARED")
    assert session.has_no_events()
    lock.release("holder")
    assert_granted(lock, session.read()[1])


def test_a_waiter_may_ask_for_a_fence(session, held):
    fence = held.info()["fence"] + 60_000_000
    session.wait("you", "FENCE", fence)
    held.release("me")
    assert granted(session.events()) == [("you", fence)]


# -- without the lock -----------------------------------------------------------------------------


def by_time(server, lock):
    server.clock.advance(5)


def by_release(server, lock):
    assert lock.release("you") == 0


def by_time_before_the_release_of_the_lock(server, lock):
    assert sleep_then(server, 6, "DLOCK.RELEASE lock me") == [b":1"]


def by_another_type(server, lock):
    in_one_turn(lock.client, ("DEL", "lock"), ("RPUSH", "lock", "x"))


@pytest.mark.parametrize("is_away, end, why", [
    (False, by_time, "timeout"), (True, by_time, "timeout"),
    (False, by_release, "released"), (True, by_release, "released"),
    (False, by_time_before_the_release_of_the_lock, "timeout"),
    (False, by_another_type, "WRONGTYPE"),
])
def test_a_wait_ends_without_the_lock(server, session, held, is_away, end, why):
    session.wait("you", wait_ms=5_000)
    if is_away:
        session.go_away()
    end(server, held)
    let_turn(server)
    assert stats(held.client)["waiters"] == 0
    [[kind, key, token, told]] = session.come_back() if is_away else session.events()
    assert (kind, key, token) == ("ended", "lock", "you") and told.startswith(why)
    assert stats(held.client)["wait_timeouts"] == (why == "timeout")
    assert end is by_another_type or tokens_at(held.client, "lock") == (
        [] if end is by_time_before_the_release_of_the_lock else ["me"])


def test_the_end_of_a_session_ends_its_waits_without_a_word(session, other, queued):
    session.end()
    wait_until(lambda: order(queued) == ["second"], "the wait to end")
    queued.release("me")
    assert_granted(queued, other.events(), "second")


def test_a_shared_waiter_behind_one_whose_session_ends_gets_the_lock(session, other, lock):
    lock.acquire("reader", 60_000, "SHARED")
    session.wait("writer")
    other.wait("second reader", "SHARED")
    session.end()
    assert other.event()[:3] == ["granted", "lock", "second reader"]


def test_a_withdrawn_permission_ends_the_wait(server, held):
    held.client.execute_command("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
    session = Session(server, username="app", password="x")
    session.commands = server.client(username="app", password="x")
    session.wait("you")
    held.client.execute_command("ACL", "SETUSER", "app", "resetkeys", "~other")
    held.release("me")
    kind, _, token, why = session.event()
    assert (kind, token) == ("ended", "you") and why.startswith("NOPERM")
    assert held.info() is None


@pytest.mark.parametrize("setting", ["max-waiters", "max-waiters-in-all"])
def test_a_full_queue_is_full_for_sessions_too(session, waiting, setting):
    waiting.client.config_set(f"dlock.{setting}", 1)
    with pytest.raises(redis.ResponseError, match=f"^QUEUEFULL.*dlock.{setting}"):
        session.wait("second")
    session.wait("you")
    assert stats(waiting.client)["queue_full"] == 1


# -- away -----------------------------------------------------------------------------------------


def test_a_session_that_is_away_is_passed_over(session, other, queued):
    session.go_away()
    assert (order(queued), queued.info()["waiters"]) == (["second"], 2)
    queued.release("me")
    assert_granted(queued, other.events(), "second")


def test_a_writer_that_is_away_holds_up_no_reader(server, session, lock):
    """Time stands still: the module does not look again by itself."""
    lock.acquire("reader", 60_000, "SHARED")
    session.wait("writer")
    reader = Waiting(server, "another", options=["SHARED"])
    assert not reader.is_answered()
    session.go_away()
    assert reader.is_answered()


def test_a_free_lock_goes_to_others_than_those_that_are_away(session, waiting):
    session.go_away()
    waiting.release("me")
    assert waiting.info() is None
    assert waiting.acquire("they") > 0


def test_a_free_lock_goes_to_the_session_that_comes_back(session, waiting):
    session.go_away()
    waiting.release("me")
    assert waiting.info() is None
    assert_granted(waiting, session.come_back())


def test_a_session_that_comes_back_has_its_old_places(session, queued):
    session.wait("third")
    session.go_away()
    session.come_back()
    assert order(queued) == ["first", "second", "third"]


def test_a_connection_cut_and_back_in_one_turn_keeps_its_places(server, session, queued):
    session.park()
    in_one_turn(queued.client, kill(session), ("DLOCK.SESSION", session.name, "PX", 60_000),
                RELEASE)
    let_turn(server)
    assert (queued.info()["token"], order(queued)) == (b"first", ["second"])


@pytest.mark.parametrize("key", ["lock", ["lock", "second"]], ids=["one name", "two names"])
def test_a_hold_of_a_session_does_not_pass_to_a_wait_of_it_at_its_end(server, session, lock, key):
    """Both end together, also if a command comes for the lock just before."""
    session.hold("me")
    session.wait("my other", key=key)
    assert sleep_then(server, TIMEOUT_S + 1, "DLOCK.ACQUIRE lock stranger PX 60000") == [b"$-1"]
    wait_until(lambda: lock.info() is None, "the session to end")
    assert stats(server.observer)["handed_over"] == 0


def test_a_session_whose_time_is_over_is_passed_over(server, session, held):
    other = Session(server, timeout_ms=10 * session.timeout_ms)
    session.wait("first")
    other.wait("second")
    assert sleep_then(server, TIMEOUT_S + 1, "DLOCK.RELEASE lock me") == [b":1"]
    assert held.info()["token"] == b"second"
    assert stats(server.observer)["handed_over"] == 1


def test_a_session_that_is_heard_of_in_the_last_moment_has_its_old_places(server, session, held):
    other = Session(server, timeout_ms=10 * session.timeout_ms)
    session.wait("first")
    other.wait("second")
    other.wait("third")
    heartbeat = Bare(server)
    sleep_then_run(server, heartbeat, TIMEOUT_S + 1, "DLOCK.RELEASE lock me",
                   f"DLOCK.SESSION {session.name} PX {session.timeout_ms}")
    assert heartbeat.read(2) == [b":1", b"*2"]
    wait_until(lambda: order(held) == ["first", "third"], "the first one to be back in line")
    heartbeat.close()


def test_a_request_of_a_session_that_is_away_waits_beside_the_line(session, held):
    session.go_away()
    session.wait("you")
    assert (order(held), held.info()["waiters"]) == ([], 1)
    session.come_back()
    assert order(held) == ["you"]


# -- grants and replies that are lost -------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1], ids=["after the grant", "before it"])
def test_a_session_cut_in_the_turn_of_the_release_is_passed_over(session, other, queued, sign):
    """A grant that was never written is taken back."""
    session.park()
    in_one_turn(queued.client, *[RELEASE, kill(session)][::sign])
    assert_granted(queued, other.events(), "second")
    assert session.come_back() == []
    assert order(queued) == ["first"]


@pytest.mark.parametrize("is_hold", [False, True], ids=["a lease", "a hold"])
def test_a_grant_that_was_taken_back_comes_with_a_new_fence(session, held, is_hold):
    assert session.acquire("you", *["SESSION"] if is_hold else ["PX", 60_000],
                           "WAIT", A_DAY) == "QUEUED"
    held.release("me")
    taken = held.info()["fence"]
    session.go_away()
    assert held.info() is None
    assert stats(held.client)["session_holds"] == 0
    assert_granted(held, session.come_back())
    assert held.info()["fence"] > taken
    assert stats(held.client)["session_holds"] == is_hold


@pytest.mark.parametrize("is_hold", [False, True], ids=["a lease", "a hold"])
@pytest.mark.parametrize("role", ["a master", "a master that was a replica meanwhile"])
def test_a_grant_that_an_ended_session_was_never_told_is_free_at(session, held, is_hold, role):
    """Unless the server was a replica since: the holder may have been told elsewhere."""
    assert session.acquire("you", *["SESSION"] if is_hold else ["PX", 60_000],
                           "WAIT", A_DAY) == "QUEUED"
    demotion = [("REPLICAOF", "127.0.0.1", free_port())] * (role != "a master")
    in_one_turn(held.client, RELEASE, ("DLOCK.SESSION", session.name, "END"), *demotion)
    let_turn(session.server)
    held.client.execute_command("REPLICAOF", "NO", "ONE")
    let_turn(session.server)
    assert (held.info() is None) == (role == "a master")
    assert stats(held.client)["waiters"] == 0


@pytest.mark.parametrize("end", [Session.go_away, Session.end])
def test_a_grant_that_was_written_stays(session, waiting, end):
    waiting.release("me")
    event = session.event()
    end(session)
    let_turn(session.server)
    assert waiting.info()["fence"] == event[3]


def test_an_event_comes_again_until_it_is_acknowledged(session, waiting):
    waiting.release("me")
    event = session.event()
    number = session.seen
    for _ in range(3):
        assert session.event(ack=number - 1)[:4] == event[:4]
    assert stats(waiting.client)["events_unacknowledged"] == 1
    assert session.has_no_events()
    assert stats(waiting.client)["events_unacknowledged"] == 0


def test_a_lost_reply_comes_again_over_the_next_connection(session, waiting):
    session.park()
    waiting.release("me")
    assert session.is_answered()  # and never reads it
    session.go_away()
    assert_granted(waiting, session.come_back())


def test_events_are_acknowledged_up_to_a_number(session, held):
    for i in range(3):
        session.wait(str(i))
        held.release(str(i))
    assert [event[2] for event in session.events()] == ["0", "1", "2"]
    assert [event[2] for event in session.events(ack=session.seen - 1)] == ["2"]


def test_only_events_that_were_written_are_acknowledged(session, waiting):
    waiting.release("me")
    [event] = session.events(ack=2**63 - 1)
    assert event[0] == "granted"
    session.send(ack=2**63 - 1)
    assert not session.is_answered()


def test_an_acknowledgement_of_an_earlier_life_does_no_harm(session, server, waiting):
    waiting.release("you")
    session.event()
    late = session.seen
    session.end()
    again = Session(server, name=session.name)
    again.wait("you")
    waiting.release("you")
    assert again.event(ack=late) == ended("you", "released")
    assert again.event(ack=late) == ended("you", "released")


def test_the_age_of_a_grant_is_counted_to_the_arrival_of_the_call(session, waiting, clock):
    waiting.release("me")
    clock.advance(5)
    *_, age = session.event()
    assert 5_000 <= age <= 600_000 - waiting.ttl() + 1
    clock.advance(5)
    *_, older = session.event(ack=session.seen - 1)
    assert older >= age + 5_000


def test_a_grant_after_the_arrival_of_the_call_has_no_age(session, waiting, clock):
    session.park()
    clock.advance(5)
    waiting.release("me")
    assert session.read()[1][0][4] == 0


def test_many_events_come_in_several_replies(session, held):
    pipe = held.client.pipeline(transaction=False)
    for i in range(2500):
        pipe.execute_command("DLOCK.ACQUIRE", "lock", i, "PX", 1000, "WAIT", A_DAY,
                             "VIA", session.name)
    for i in range(2500):
        pipe.execute_command("DLOCK.RELEASE", "lock", i)
    pipe.execute()
    replies = [session.events() for _ in range(3)]
    assert [event[2] for events in replies for event in events] == [str(i) for i in range(2500)]
    assert all(replies)
    assert session.has_no_events()


# -- the same token again -------------------------------------------------------------------------


def by_client(server, session):
    return Waiting(server, "first").answer


def by_session(server, session):
    session.wait("first")
    return lambda: session.event()[3]


def test_the_same_token_of_a_session_waits_again_and_keeps_its_place(session, queued):
    session.wait("first")
    assert order(queued) == ["first", "second"]
    queued.release("me")
    assert session.event()[2] == "first"
    assert session.has_no_events()


@pytest.mark.parametrize("before, again", [
    ("client", by_session), ("session", by_client), ("session", by_session),
    ("session that is away", by_client), ("session that is away", by_session)])
def test_a_token_that_waits_again_elsewhere_keeps_its_place(
        server, session, other, held, before, again):
    """The newer one is told what becomes of it, and not the older one."""
    if before == "client":
        [older] = queue_up(server, ["first"])
    else:
        session.wait("first")
    queue_up(server, ["second"])
    if before == "session that is away":
        session.go_away()
    answer = again(server, other)
    wait_until(lambda: order(held) == ["first", "second"], "it to stand in line")
    wait_until(lambda: stats(held.client)["session_waiters"] == (again is by_session), "one place")
    held.release("me")
    assert answer() == held.info()["fence"]
    if before == "client":
        assert older.answer() is None
    elif before == "session":
        assert session.has_no_events()
    else:
        assert session.come_back() == []


@pytest.mark.parametrize("options", [(), ("VIA",)], ids=["plain", "by its session"])
def test_a_token_that_gets_the_lock_waits_no_longer(session, waiting, options):
    """Its wait was passed over, as its session was away."""
    session.go_away()
    waiting.release("me")
    if options:
        assert session.acquire("you", "PX", 60_000, "WAIT", 60_000) > 0
    else:
        assert waiting.acquire("you") > 0
    assert waiting.info()["waiters"] == 0
    assert waiting.release("you") == 1
    assert session.come_back() == []
    assert waiting.info() is None


def test_asking_again_with_other_options_counts_from_then_on(session, held, clock):
    session.wait("you", wait_ms=5_000)
    session.wait("you", wait_ms=60_000, lease_ms=7_000)
    clock.advance(6)
    assert held.info()["waiters"] == 1
    held.release("me")
    assert held.info()["lease"] == 7_000


def test_a_holder_that_asks_again_has_the_same_fence(session, waiting):
    waiting.release("me")
    event = session.event()
    assert session.acquire("you", "PX", 1000, "WAIT", 1000) == event[3]


def test_a_token_that_asked_again_is_not_taken_back(session, waiting):
    """Its client has the fence by that reply, whatever became of the event."""
    waiting.release("me")
    fence = session.acquire("you", "PX", 600_000, "WAIT", 1000)
    session.go_away()
    assert waiting.info()["fence"] == fence


@pytest.mark.parametrize("words", [
    [["DLOCK.ACQUIRE", "lock", "you", "PX", 600_000], ["DLOCK.RELEASE", "lock", "you"]],
    [["DLOCK.RELEASE", "lock", "you"]]], ids=["acquire and release", "release"])
def test_a_token_whose_grant_is_being_taken_back_is_not_granted_again(session, waiting, words):
    """While the server is paused, the token holds the lock still and waits for it again. A request
    of the token comes before the end of the hold."""
    waiting.release("me")
    waiting.client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    session.go_away()
    at_once = waiting.client.pipeline(transaction=False)
    for each in [["CLIENT", "UNPAUSE"], *words]:
        at_once.execute_command(*each)
    assert at_once.execute()[-1] == 1
    session.come_back()
    assert waiting.info() is None
    assert stats(waiting.client)["waiters"] == 0


# -- other servers and databases ------------------------------------------------------------------


def test_a_queue_belongs_to_a_database(server, waiting, session):
    there = Session(server, db=3)
    Lock(server.client(db=3)).acquire("me")
    there.wait("you")
    waiting.release("me")
    assert_granted(waiting, session.events())
    assert there.has_no_events()


def test_waits_of_a_server_that_becomes_a_replica_are_over(waiting):
    waiting.client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    wait_until(lambda: stats(waiting.client)["waiters"] == 0, "the wait to end")
    assert waiting.info()["token"] == b"me"


def test_while_writes_are_refused_nothing_is_handed_on(server, waiting, clock):
    session = Session(server, timeout_ms=3_600_000)
    session.wait("they")
    waiting.client.config_set("min-replicas-to-write", 1)
    clock.advance(601)
    assert waiting.info() is None
    assert session.has_no_events()
    waiting.client.config_set("min-replicas-to-write", 0)
    assert session.read()[1][0][:3] == ["granted", "lock", "they"]


def test_a_grant_to_a_session_is_replicated_as_any_other(session, held, stream):
    session.wait("you", lease_ms=7_000)
    stream.take()
    held.release("me")
    fence = held.info()["fence"]
    assert stream.take() == [[b"dlock.apply", b"lock", b"you", b"%d" % fence, b"7000"]]


# -- a cluster ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_away", [False, True], ids=["present", "away"])
def test_waits_of_a_slot_that_moves_are_over(cluster, is_away):
    node, key = cluster.nodes[0], cluster.key_on(0)
    session = Session(node)
    assert Lock(node.client(), key).acquire("me", 600_000) > 0
    session.wait("you", key=key)
    session.go_away()
    if not is_away:
        session.come_back()
        session.wait("they", key=key)
    cluster.move(slot_of(key), 1)
    events = session.come_back() if is_away else session.read()[1]
    while len(events) < 2 - is_away:
        events += session.events()
    assert [event[:3] for event in events] == [
        ["ended", key, token] for token in ["you", "they"][:2 - is_away]]
    assert all(event[3].split()[0] in ("TRYAGAIN", "MOVED") for event in events)
    assert stats(node.client())["waiters"] == 0
