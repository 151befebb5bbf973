"""ACQUIRE ... WAIT ... VIA: places in the queue that hang on a session, and the events that tell
what became of them."""

import pytest
import redis

from support.cluster import slot_of
from support.commands import Lock, stats
from support.server import free_port, wait_until
from support.session import Session
from support.turn import Bare, in_one_turn, sleep_then, sleep_then_run
from support.waiting import A_DAY, Waiting, let_turn, queue_up

TIMEOUT_S = 60


def queue_two(lock, session, other):
    """For the lock that "me" holds."""
    lock.acquire("me")
    session.wait("first")
    other.wait("second")


def granted(events):
    """Token and fence of each, which must all be grants of the same lock."""
    assert {(kind, key) for kind, key, *_ in events} == {("granted", "lock")}
    return [(token, fence) for _, _, token, fence, _ in events]


def ended(token, why, key="lock"):
    return ["ended", key, token, why]


def order(lock):
    return [waiter["token"].decode() for waiter in lock.queue()]


# -- in the queue ---------------------------------------------------------------------------------


def test_a_free_lock_is_granted_at_once(session, lock):
    fence = session.acquire("me", "PX", 1000, "WAIT", 1000)
    assert fence == lock.info()["fence"]
    assert session.has_no_events()


def test_without_wait_a_held_lock_is_refused(session, lock):
    lock.acquire("me")
    assert session.acquire("you", "PX", 1000) is None
    assert stats(lock.client)["waiters"] == 0


def test_a_waiter_costs_no_connection(session, lock):
    lock.acquire("me")
    session.park()
    before = lock.client.info("clients")
    for i in range(100):
        session.wait(f"token:{i}")
    after = lock.client.info("clients")
    assert [after[name] for name in ("connected_clients", "blocked_clients")] == [
        before[name] for name in ("connected_clients", "blocked_clients")]
    assert (stats(lock.client)["session_waiters"], lock.info()["waiters"]) == (100, 100)


def test_the_grant_comes_to_the_parked_heartbeat(session, lock):
    lock.acquire("me")
    session.wait("you")
    session.park()
    lock.release("me")
    assert session.is_answered()
    assert granted(session.read()[1]) == [("you", lock.info()["fence"])]
    assert stats(lock.client)["session_waiters"] == 0


def test_the_lease_of_a_waiter_begins_with_the_grant(session, lock, clock):
    lock.acquire("me", 600_000)
    session.wait("you", lease_ms=10_000)
    clock.advance(30)
    lock.release("me")
    assert 9_000 < lock.ttl() <= 10_000


@pytest.mark.parametrize("end", [
    lambda lock, clock: lock.release("me"), lambda lock, clock: lock.client.delete("lock"),
    lambda lock, clock: lock.client.flushall(), lambda lock, clock: clock.advance(601),
    lambda lock, clock: lock.client.rename("lock", "else"),
    lambda lock, clock: lock.client.swapdb(0, 3),
    lambda lock, clock: lock.client.execute_command("PEXPIRE", "lock", 1),
], ids=["release", "del", "flushall", "lease", "rename", "swapdb", "expire"])
def test_the_first_in_line_gets_the_lock_however_it_ends(server, lock, clock, end):
    session = Session(server, 3_600_000)
    lock.acquire("me", 600_000)
    session.wait("you")
    session.wait("they")
    end(lock, clock)
    clock.advance(1)
    [(kind, key, token, fence, _)] = session.events()
    assert (kind, key, token) == ("granted", "lock", "you")
    assert (lock.info()["token"], lock.info()["fence"]) == (b"you", fence)
    assert order(lock) == ["they"]


def test_waiters_of_both_kinds_stand_in_one_queue(server, session, lock):
    lock.acquire("holder")
    waiting = {}
    for i in range(6):
        if i % 2:
            session.wait(str(i))
        else:
            [waiting[i]] = queue_up(server, [str(i)])
    assert order(lock) == [str(i) for i in range(6)]
    holder = "holder"
    for i in range(6):
        lock.release(holder)
        fence = session.event()[3] if i % 2 else waiting[i].answer()
        holder = str(i)
        assert (lock.info()["token"], lock.info()["fence"]) == (holder.encode(), fence)


def test_nobody_overtakes_a_waiter_of_a_session(session, lock):
    lock.acquire("me", 60_000, "SHARED")
    session.wait("writer")
    assert lock.acquire("reader", 60_000, "SHARED") is None


def test_shared_waiters_are_admitted_together(session, lock):
    lock.acquire("writer")
    for i in range(3):
        session.wait(str(i), "SHARED")
    session.wait("next writer")
    lock.release("writer")
    assert [event[2] for event in session.events()] == ["0", "1", "2"]


def test_max_holds_for_waiters_of_a_session(session, lock):
    lock.acquire("holder", 60_000, "SHARED")
    session.wait("you", "SHARED", "MAX", 1)
    lock.acquire("holder", 60_000, "SHARED")
    lock.release("holder")
    assert session.event()[:3] == ["granted", "lock", "you"]


def test_a_waiter_may_ask_for_a_fence(session, lock):
    lock.acquire("me")
    fence = lock.info()["fence"] + 60_000_000
    session.wait("you", "FENCE", fence)
    lock.release("me")
    assert granted(session.events()) == [("you", fence)]


def test_a_key_of_another_type_ends_the_wait(session, lock):
    lock.acquire("me")
    session.wait("you")
    in_one_turn(lock.client, ("DEL", "lock"), ("RPUSH", "lock", "x"))
    kind, _, token, why = session.event()
    assert (kind, token) == ("ended", "you") and why.startswith("WRONGTYPE")


def test_a_waiter_waits_for_a_plain_string(session, lock, clock):
    lock.client.set("lock", "theirs")
    session.wait("you")
    lock.client.delete("lock")
    clock.advance(1)
    assert session.event()[:3] == ["granted", "lock", "you"]


# -- without the lock -----------------------------------------------------------------------------


def test_a_wait_that_is_over_ends(session, lock, clock):
    lock.acquire("me", 600_000)
    session.wait("you", wait_ms=5_000)
    clock.advance(5)
    assert session.event() == ended("you", "timeout")
    assert stats(lock.client)["wait_timeouts"] == 1
    assert lock.info()["waiters"] == 0


def test_a_wait_ends_on_time_while_its_session_is_away(session, lock, clock):
    lock.acquire("me", 600_000)
    session.wait("you", wait_ms=5_000)
    session.go_away()
    clock.advance(5)
    assert lock.info()["waiters"] == 0
    assert session.come_back() == [ended("you", "timeout")]


def test_a_wait_that_is_over_in_the_turn_of_the_release_gets_nothing(session, lock, server):
    lock.acquire("me", 600_000)
    session.wait("you", wait_ms=5_000)
    assert sleep_then(server, 6, "DLOCK.RELEASE lock me") == [b":1"]
    assert session.event() == ended("you", "timeout")
    assert lock.info() is None


def test_a_release_ends_the_wait(session, lock):
    lock.acquire("me")
    session.wait("you")
    assert lock.release("you") == 0
    assert session.event() == ended("you", "released")
    assert lock.info()["waiters"] == 0


def test_a_release_ends_the_wait_of_a_session_that_is_away(session, lock):
    lock.acquire("me")
    session.wait("you")
    session.go_away()
    assert lock.release("you") == 0
    assert session.come_back() == [ended("you", "released")]


def test_the_end_of_a_session_ends_its_waits_without_a_word(session, other, lock):
    lock.acquire("me")
    session.wait("you")
    other.wait("they")
    session.end()
    wait_until(lambda: order(lock) == ["they"], "the wait to end")
    lock.release("me")
    assert other.event()[:3] == ["granted", "lock", "they"]


def test_a_shared_waiter_behind_one_whose_session_ends_gets_the_lock(session, other, lock):
    lock.acquire("reader", 60_000, "SHARED")
    session.wait("writer")
    other.wait("second reader", "SHARED")
    session.end()
    assert other.event()[:3] == ["granted", "lock", "second reader"]


def test_a_withdrawn_permission_ends_the_wait(server, lock):
    lock.client.execute_command("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
    session = Session(server, username="app", password="x")
    session.commands = server.client(username="app", password="x")
    lock.acquire("me")
    session.wait("you")
    lock.client.execute_command("ACL", "SETUSER", "app", "resetkeys", "~other")
    lock.release("me")
    kind, _, token, why = session.event()
    assert (kind, token) == ("ended", "you") and why.startswith("NOPERM")
    assert lock.info() is None


@pytest.mark.parametrize("setting, value", [("max-waiters", 1), ("max-waiters-in-all", 1)])
def test_a_full_queue_is_full_for_sessions_too(session, lock, setting, value):
    lock.client.config_set(f"dlock.{setting}", value)
    lock.acquire("me")
    session.wait("first")
    with pytest.raises(redis.ResponseError, match=f"^QUEUEFULL.*dlock.{setting}"):
        session.wait("second")
    session.wait("first")
    assert stats(lock.client)["queue_full"] == 1


def test_waiters_of_sessions_do_not_count_as_clients(server, session, lock):
    """dlock_max_blocked is about connections."""
    lock.client.config_set("maxclients", 20)
    lock.acquire("me")
    for i in range(100):
        session.wait(str(i))
    assert lock.info()["waiters"] == 100


# -- away -----------------------------------------------------------------------------------------


def test_a_session_that_is_away_is_passed_over(session, other, lock):
    queue_two(lock, session, other)
    session.go_away()
    assert order(lock) == ["second"]
    assert lock.info()["waiters"] == 2
    lock.release("me")
    assert other.event()[:3] == ["granted", "lock", "second"]


def test_a_free_lock_goes_to_others_than_those_that_are_away(session, lock):
    lock.acquire("me")
    session.wait("you")
    session.go_away()
    lock.release("me")
    assert lock.info() is None
    assert lock.acquire("they") > 0


def test_a_session_that_comes_back_has_its_old_places(session, other, lock):
    queue_two(lock, session, other)
    session.wait("third")
    session.go_away()
    session.come_back()
    assert order(lock) == ["first", "second", "third"]


def test_a_free_lock_goes_to_the_session_that_comes_back(session, lock):
    lock.acquire("me")
    session.wait("you")
    session.go_away()
    lock.release("me")
    assert lock.info() is None
    assert granted(session.come_back()) == [("you", lock.info()["fence"])]


def test_a_connection_cut_and_back_in_one_turn_keeps_its_places(server, session, other, lock):
    queue_two(lock, session, other)
    session.park()
    in_one_turn(lock.client, ("CLIENT", "KILL", "ID", session.id),
                ("DLOCK.SESSION", session.name, "PX", 60_000), ("DLOCK.RELEASE", "lock", "me"))
    let_turn(server)
    assert lock.info()["token"] == b"first"
    assert order(lock) == ["second"]


@pytest.mark.parametrize("key", ["lock", ["lock", "second"]], ids=["one name", "two names"])
def test_a_hold_of_a_session_does_not_pass_to_a_wait_of_it_at_its_end(server, session, lock, key):
    """Both end together, also if a command comes for the lock just before."""
    session.hold("me")
    session.wait("my other", key=key)
    assert sleep_then(server, TIMEOUT_S + 1, "DLOCK.ACQUIRE lock stranger PX 60000") == [b"$-1"]
    wait_until(lambda: lock.info() is None, "the session to end")
    assert stats(server.observer)["handed_over"] == 0


def test_a_session_whose_time_is_over_is_passed_over(server, session, lock):
    other = Session(server, timeout_ms=10 * session.timeout_ms)
    lock.acquire("me", A_DAY)
    session.wait("first")
    other.wait("second")
    assert sleep_then(server, TIMEOUT_S + 1, "DLOCK.RELEASE lock me") == [b":1"]
    assert lock.info()["token"] == b"second"
    assert stats(server.observer)["handed_over"] == 1


def test_a_session_that_is_heard_of_in_the_last_moment_has_its_old_places(server, session, lock):
    other = Session(server, timeout_ms=10 * session.timeout_ms)
    lock.acquire("me", A_DAY)
    session.wait("first")
    other.wait("second")
    other.wait("third")
    heartbeat = Bare(server)
    sleep_then_run(server, heartbeat, TIMEOUT_S + 1, "DLOCK.RELEASE lock me",
                   f"DLOCK.SESSION {session.name} PX {session.timeout_ms}")
    assert heartbeat.read(2) == [b":1", b"*2"]
    wait_until(lambda: order(lock) == ["first", "third"], "the first one to be back in line")
    heartbeat.close()


def test_a_session_cut_in_the_turn_of_the_release_is_passed_over(session, other, lock):
    queue_two(lock, session, other)
    session.park()
    in_one_turn(lock.client, ("CLIENT", "KILL", "ID", session.id), ("DLOCK.RELEASE", "lock", "me"))
    assert other.event()[:3] == ["granted", "lock", "second"]


def test_a_request_of_a_session_that_is_away_waits_beside_the_line(session, lock):
    lock.acquire("me")
    session.go_away()
    session.wait("you")
    assert (order(lock), lock.info()["waiters"]) == ([], 1)
    session.come_back()
    assert order(lock) == ["you"]


# -- grants and replies that are lost -------------------------------------------------------------


def test_a_grant_that_was_never_written_is_taken_back(session, other, lock):
    """The connection of the session ends in the turn of the grant."""
    queue_two(lock, session, other)
    session.park()
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "me"), ("CLIENT", "KILL", "ID", session.id))
    assert other.event()[:3] == ["granted", "lock", "second"]
    assert session.come_back() == []
    assert order(lock) == ["first"]


def test_a_grant_that_was_taken_back_comes_with_a_new_fence(session, lock):
    lock.acquire("me")
    session.wait("you")
    lock.release("me")
    taken = lock.info()["fence"]
    session.go_away()
    assert lock.info() is None
    [(_, _, _, fence, _)] = session.come_back()
    assert fence == lock.info()["fence"] > taken


def test_a_grant_without_a_heartbeat_is_taken_back_from_a_hold_of_the_session_too(session, lock):
    lock.acquire("me")
    assert session.acquire("you", "SESSION", "WAIT", A_DAY) == "QUEUED"
    lock.release("me")
    session.go_away()
    assert lock.info() is None
    assert stats(lock.client)["session_holds"] == 0
    assert granted(session.come_back()) == [("you", lock.info()["fence"])]
    assert stats(lock.client)["session_holds"] == 1


def test_a_grant_that_was_written_stays(session, lock):
    lock.acquire("me")
    session.wait("you")
    lock.release("me")
    event = session.event()
    session.go_away()
    assert lock.info()["fence"] == event[3]


def test_an_event_comes_again_until_it_is_acknowledged(session, lock):
    lock.acquire("me")
    session.wait("you")
    lock.release("me")
    event = session.event()
    number = session.seen
    for _ in range(3):
        assert session.event(ack=number - 1)[:4] == event[:4]
    assert stats(lock.client)["events_unacknowledged"] == 1
    assert session.has_no_events()
    assert stats(lock.client)["events_unacknowledged"] == 0


def test_a_lost_reply_comes_again_over_the_next_connection(session, lock):
    lock.acquire("me")
    session.wait("you")
    session.park()
    lock.release("me")
    assert session.is_answered()  # and never reads it
    session.go_away()
    assert granted(session.come_back()) == [("you", lock.info()["fence"])]


def test_events_are_acknowledged_up_to_a_number(session, lock):
    lock.acquire("me")
    for i in range(3):
        session.wait(str(i))
        lock.release(str(i))
    assert [event[2] for event in session.events()] == ["0", "1", "2"]
    assert [event[2] for event in session.events(ack=session.seen - 1)] == ["2"]


def test_an_acknowledgement_of_an_earlier_life_does_no_harm(session, server, lock):
    lock.acquire("me")
    session.wait("you")
    lock.release("you")
    session.event()
    late = session.seen
    session.end()
    again = Session(server, name=session.name)
    again.wait("you")
    lock.release("you")
    assert again.event(ack=late) == ended("you", "released")
    assert again.event(ack=late) == ended("you", "released")


def test_the_age_of_a_grant_is_counted_to_the_arrival_of_the_call(session, lock, clock):
    lock.acquire("me", 600_000)
    session.wait("you", lease_ms=600_000)
    lock.release("me")
    clock.advance(5)
    _, _, _, _, age = session.event()
    assert 5_000 <= age <= 600_000 - lock.ttl() + 1
    clock.advance(5)
    _, _, _, _, older = session.event(ack=session.seen - 1)
    assert older >= age + 5_000


def test_a_grant_after_the_arrival_of_the_call_has_no_age(session, lock, clock):
    lock.acquire("me", 600_000)
    session.wait("you")
    session.park()
    clock.advance(5)
    lock.release("me")
    assert session.read()[1][0][4] == 0


def test_many_events_come_in_several_replies(session, lock):
    lock.acquire("me", 600_000)
    pipe = lock.client.pipeline(transaction=False)
    for i in range(2500):
        pipe.execute_command("DLOCK.ACQUIRE", "lock", i, "PX", 1000, "WAIT", A_DAY,
                             "VIA", session.name)
    for i in range(2500):
        pipe.execute_command("DLOCK.RELEASE", "lock", i)
    pipe.execute()
    sizes, tokens = [], []
    while len(tokens) < 2500:
        events = session.events()
        sizes.append(len(events))
        tokens += [event[2] for event in events]
    assert tokens == [str(i) for i in range(2500)]
    assert len(sizes) == 3
    assert session.has_no_events()


# -- the same token again -------------------------------------------------------------------------


def test_the_same_token_waits_again_and_keeps_its_place(session, lock):
    lock.acquire("me")
    session.wait("first")
    session.wait("second")
    session.wait("first")
    assert order(lock) == ["first", "second"]
    lock.release("me")
    assert session.event()[2] == "first"
    assert session.has_no_events()


def test_a_blocked_client_takes_over_the_place_of_a_session(server, session, lock):
    lock.acquire("me")
    session.wait("first")
    session.wait("second")
    waiter = Waiting(server, "first")
    wait_until(lambda: stats(lock.client)["session_waiters"] == 1, "the place to be taken over")
    assert order(lock) == ["first", "second"]
    lock.release("me")
    assert waiter.answer() == lock.info()["fence"]
    assert session.has_no_events()


def test_a_session_takes_over_the_place_of_a_blocked_client(server, session, lock):
    lock.acquire("me")
    waiter, _ = queue_up(server, ["first", "second"])
    session.wait("first")
    assert waiter.answer() is None
    assert order(lock) == ["first", "second"]
    lock.release("me")
    assert granted(session.events()) == [("first", lock.info()["fence"])]


def test_a_session_takes_over_the_place_of_another_one(session, other, lock):
    lock.acquire("me")
    session.wait("first")
    session.wait("second")
    other.wait("first")
    assert order(lock) == ["first", "second"]
    session.go_away()
    lock.release("me")
    assert granted(other.events()) == [("first", lock.info()["fence"])]


def test_a_blocked_client_takes_over_the_place_of_a_session_that_is_away(server, session, lock):
    lock.acquire("me")
    session.wait("first")
    queue_up(server, ["second"])
    session.go_away()
    waiter = Waiting(server, "first")
    wait_until(lambda: order(lock) == ["first", "second"], "it to stand in line")
    lock.release("me")
    assert waiter.answer() == lock.info()["fence"]
    assert session.come_back() == []


def test_a_token_that_gets_the_lock_waits_no_longer(session, lock):
    """Its wait was passed over, as its session was away."""
    lock.acquire("me")
    session.wait("you")
    session.go_away()
    lock.release("me")
    assert lock.acquire("you") > 0
    assert lock.info()["waiters"] == 0
    assert lock.release("you") == 1
    assert session.come_back() == []
    assert lock.info() is None


def test_asking_again_with_other_options_counts_from_then_on(session, lock, clock):
    lock.acquire("me", 600_000)
    session.wait("you", wait_ms=5_000)
    session.wait("you", wait_ms=60_000, lease_ms=7_000)
    clock.advance(6)
    assert lock.info()["waiters"] == 1
    lock.release("me")
    assert lock.info()["lease"] == 7_000


def test_a_holder_that_asks_again_has_the_same_fence(session, lock):
    lock.acquire("me")
    session.wait("you")
    lock.release("me")
    event = session.event()
    assert session.acquire("you", "PX", 1000, "WAIT", 1000) == event[3]


def test_a_token_that_asked_again_is_not_taken_back(session, lock):
    """Its client has the fence by that reply, whatever became of the event."""
    lock.acquire("me")
    session.wait("you")
    lock.release("me")
    fence = session.acquire("you", "PX", 600_000, "WAIT", 1000)
    session.go_away()
    assert lock.info()["fence"] == fence


@pytest.mark.parametrize("words", [
    [["DLOCK.ACQUIRE", "lock", "you", "PX", 600_000], ["DLOCK.RELEASE", "lock", "you"]],
    [["DLOCK.RELEASE", "lock", "you"]]])
def test_a_token_whose_grant_is_being_taken_back_is_not_granted_again(session, lock, words):
    """While the server is paused, the token holds the lock still and waits for it again. A request
    of the token comes before the end of the hold."""
    lock.acquire("me")
    session.wait("you")
    lock.release("me")
    lock.client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    session.go_away()
    at_once = lock.client.pipeline(transaction=False)
    for each in [["CLIENT", "UNPAUSE"], *words]:
        at_once.execute_command(*each)
    assert at_once.execute()[-1] == 1
    session.come_back()
    assert lock.info() is None
    assert stats(lock.client)["waiters"] == 0


# -- other servers and databases ------------------------------------------------------------------


def test_a_queue_belongs_to_a_database(server, lock):
    here, there = Session(server), Session(server, db=3)
    lock.acquire("me")
    Lock(server.client(db=3)).acquire("me")
    here.wait("you")
    there.wait("you")
    lock.release("me")
    assert granted(here.events()) == [("you", lock.info()["fence"])]
    assert there.has_no_events()


def test_waits_of_a_server_that_becomes_a_replica_are_over(session, lock):
    lock.acquire("me")
    session.wait("you")
    lock.client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    wait_until(lambda: stats(lock.client)["waiters"] == 0, "the wait to end")
    assert lock.info()["token"] == b"me"


def test_while_writes_are_refused_nothing_is_handed_on(session, lock, clock):
    lock.acquire("me", 5_000)
    session.wait("you")
    lock.client.config_set("min-replicas-to-write", 1)
    clock.advance(6)
    assert lock.info() is None
    assert session.has_no_events()
    lock.client.config_set("min-replicas-to-write", 0)
    assert session.read()[1][0][:3] == ["granted", "lock", "you"]


def test_a_grant_to_a_session_is_replicated_as_any_other(session, lock, stream):
    lock.acquire("me")
    session.wait("you", lease_ms=7_000)
    stream.take()
    lock.release("me")
    fence = lock.info()["fence"]
    assert stream.take() == [[b"dlock.apply", b"lock", b"you", str(fence).encode(), b"7000"]]


# -- a cluster ------------------------------------------------------------------------------------


def wait_and_go_away(cluster):
    """A node, a key in it that is held, and a session that waits for the key."""
    node, key = cluster.nodes[0], cluster.key_on(0)
    session = Session(node)
    assert Lock(node.client(), key).acquire("me", 600_000) > 0
    session.wait("you", key=key)
    session.go_away()
    return node, key, session


def test_waits_of_a_slot_that_moves_are_over(cluster):
    node, key, session = wait_and_go_away(cluster)
    session.come_back()
    session.wait("they", key=key)
    cluster.move(slot_of(key), 1)
    events = session.read()[1]
    while len(events) < 2:
        events += session.events()
    assert [event[:3] for event in events] == [["ended", key, "you"], ["ended", key, "they"]]
    assert all(event[3].split()[0] in ("TRYAGAIN", "MOVED") for event in events)
    assert stats(node.client())["waiters"] == 0


def test_waits_of_a_session_that_is_away_are_over_when_the_slot_moves(cluster):
    _, key, session = wait_and_go_away(cluster)
    cluster.move(slot_of(key), 1)
    [event] = session.come_back()
    assert event[:3] == ["ended", key, "you"]
