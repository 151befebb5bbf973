"""DLOCK.WATCH: a session is told whenever a lock changes hands."""

import pytest
import redis

from support.cluster import slot_of
from support.commands import Lock, stats
from support.session import Session
from support.turn import in_one_turn
from support.waiting import let_turn, queue_up


def changed(holder, key="lock"):
    return ["changed", key, holder]


# -- the present state ----------------------------------------------------------------------------


@pytest.mark.parametrize("before, holder", [
    ((), None), (("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000), "me"),
    (("SET", "lock", "theirs"), "theirs"), (("RPUSH", "lock", "x"), None),
], ids=["a free lock", "a holder", "a plain string", "another type, which has no holder"])
def test_a_watch_begins_with(session, other, client, before, holder):
    """Each session is told, and told once more when it asks again."""
    if before:
        client.execute_command(*before)
    for watcher in session, session, other:
        watcher.watch()
        assert watcher.event() == changed(holder)
    assert stats(client)["watches"] == 2


def test_all_sessions_together_have_at_most_so_many_watches(session, other, client):
    client.config_set("dlock.max-watches", 2)
    session.watch("one")
    session.watch("two")
    for refused in session, other:
        with pytest.raises(redis.ResponseError, match="QUEUEFULL.*dlock.max-watches"):
            refused.watch("three")
    session.watch("two")  # once more
    assert (stats(client)["watches"], stats(client)["queue_full"]) == (2, 2)
    session.unwatch("one")
    other.watch("three")


def test_a_watch_in_the_turn_of_the_change_tells_the_later_state(server, session, other, lock):
    """The second watcher is told what the last look has found, and the look comes later."""
    session.watch()
    session.event()
    in_one_turn(lock.client, ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000),
                ("DLOCK.WATCH", "lock", other.name))
    let_turn(server)
    assert other.event() == changed("me")
    assert session.event() == changed("me")


def test_a_second_watcher_is_never_told_that_a_held_lock_is_free(server, session, other, lock):
    lock.acquire("me")
    *_, (_, events) = in_one_turn(
        lock.client, ("DLOCK.WATCH", "lock", session.name), ("DLOCK.WATCH", "lock", other.name),
        ("DLOCK.SESSION", other.name, "PX", other.timeout_ms))
    assert events == []
    let_turn(server)
    assert other.event() == changed("me")


# -- changes --------------------------------------------------------------------------------------


def hand_over(lock, clock):
    [waiter] = queue_up(clock.server, ["you"])
    lock.release("me")
    waiter.answer()


CHANGES = {
    # what happens: who holds the lock before it, how it is done, whom the watch names then
    "acquire": (None, lambda lock, clock: lock.acquire("me"), "me"),
    "acquire shared": (None, lambda lock, clock: lock.acquire("me", 60_000, "SHARED"), "me"),
    "release": ("me", lambda lock, clock: lock.release("me"), None),
    "hand-over": ("me", hand_over, "you"),
    "lease": ("me", lambda lock, clock: clock.advance(61), None),
    "del": ("me", lambda lock, clock: lock.client.delete("lock"), None),
    "flushall": ("me", lambda lock, clock: lock.client.flushall(), None),
    "pexpire": ("me", lambda lock, clock: lock.client.pexpire("lock", 0), None),
    "rename": ("me", lambda lock, clock: lock.client.rename("lock", "else"), None),
    "swapdb": ("me", lambda lock, clock: lock.client.swapdb(0, 3), None),
    "set": ("me", lambda lock, clock: lock.client.set("lock", "theirs"), "theirs"),
    **{f"release and acquire by {token}": ("me", lambda lock, clock, token=token: in_one_turn(
        lock.client, ("DLOCK.RELEASE", "lock", "me"),
        ("DLOCK.ACQUIRE", "lock", token, "PX", 60_000)), token) for token in ("you", "me")},
}


@pytest.mark.parametrize("before, change, holder", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_hands_is_told(server, lock, clock, before, change, holder):
    """It wakes the parked heartbeat."""
    session = Session(server, 600_000)
    if before is not None:
        lock.acquire(before)
    session.watch()
    session.event()
    session.park()
    change(lock, clock)
    assert session.is_answered()
    assert session.read()[1] == [changed(holder)]


@pytest.mark.parametrize("bring", [
    lambda client: client.rename("else", "lock"),
    lambda client: client.restore("lock", 0, client.dump("else")),
], ids=["RENAME", "RESTORE"])
def test_a_lock_that_comes_under_a_watched_name_is_told(server, clock, client, bring):
    """At the latest when the module has searched for it."""
    session = Session(server, 600_000)
    session.watch()
    assert session.event() == changed(None)
    Lock(client, "else").acquire("me")
    bring(client)
    clock.advance(2)
    assert session.event() == changed("me")


def test_a_withdrawn_permission_ends_the_watch(server, lock):
    lock.client.execute_command("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
    session = Session(server, username="app", password="x")
    session.commands = server.client(username="app", password="x")
    session.watch()
    assert session.event() == changed(None)
    lock.client.execute_command("ACL", "SETUSER", "app", "resetkeys", "~other")
    lock.acquire("me")
    kind, _, token, why = session.event()
    assert (kind, token) == ("ended", "") and why.startswith("NOPERM")
    lock.release("me")
    assert session.has_no_events()


@pytest.mark.parametrize("change", [
    lambda lock: lock.extend("me", 90_000), lambda lock: lock.acquire("me", 90_000),
    lambda lock: lock.acquire("you"), lambda lock: lock.release("you"),
    lambda lock: lock.client.expire("lock", 1000), lambda lock: lock.client.persist("lock"),
    lambda lock: lock.client.delete("other"),
], ids=["extend", "acquire again", "refused", "stranger", "expire", "persist", "other"])
def test_what_is_no_change_of_hands_is_not_told(session, lock, change):
    lock.acquire("me")
    session.watch()
    session.event()
    change(lock)
    assert session.has_no_events()


def test_of_several_holders_the_watch_names_one(session, lock):
    lock.acquire("one", 60_000, "SHARED")
    lock.acquire("two", 60_000, "SHARED")
    session.watch()
    kind, key, holder = session.event()
    assert (kind, key) == ("changed", "lock") and holder in ("one", "two")
    lock.release(holder)
    left = {"one": "two", "two": "one"}[holder]
    assert session.event() == changed(left)


def test_the_end_of_a_session_is_told_to_those_who_watch(session, other):
    other.hold("me")
    session.watch()
    session.event()
    other.end()
    assert session.event() == changed(None)


def test_a_watch_has_one_event_with_the_latest_state(session, lock):
    session.watch()
    let_turn(session.server)
    for i in range(10):
        lock.acquire(str(i))
        let_turn(session.server)
        assert stats(lock.client)["events_unacknowledged"] == 1
        lock.release(str(i))
    lock.acquire("last")
    let_turn(session.server)
    assert stats(lock.client)["events_unacknowledged"] == 1
    assert session.event() == changed("last")


def test_an_event_that_changed_after_it_was_read_is_not_acknowledged_with_it(session, lock):
    session.watch()
    session.event()
    read = session.seen
    lock.acquire("me")
    let_turn(session.server)
    assert session.event(ack=read) == changed("me")


def test_the_changes_of_a_session_that_is_away_are_told_when_it_is_back(session, lock):
    session.watch()
    session.event()
    session.go_away()
    lock.acquire("me")
    let_turn(session.server)
    assert session.come_back() == [changed("me")]


def test_a_watch_that_is_over_tells_nothing(session, lock):
    session.watch()
    session.event()
    session.unwatch()
    assert stats(lock.client)["watches"] == 0
    lock.acquire("me")
    assert session.has_no_events()


def test_the_event_of_a_watch_goes_with_the_watch(session, lock):
    session.watch()
    let_turn(session.server)
    assert stats(lock.client)["events_unacknowledged"] == 1
    session.unwatch()
    assert stats(lock.client)["events_unacknowledged"] == 0
    assert session.has_no_events()


def test_an_unwatch_of_a_lock_that_is_not_watched_is_ok(session):
    session.unwatch()
    session.watch()
    session.event()
    session.unwatch("other")
    assert stats(session.commands)["watches"] == 1


def test_the_end_of_a_session_ends_its_watches_only(session, other, lock):
    session.watch()
    other.watch()
    other.event()
    session.end()
    let_turn(session.server)
    assert stats(lock.client)["watches"] == 1
    lock.acquire("me")
    assert other.event() == changed("me")


def test_a_watch_belongs_to_a_database(server, lock):
    session = Session(server, db=3)
    session.watch()
    assert session.event() == changed(None)
    lock.acquire("me")
    let_turn(server)
    Lock(server.client(db=3)).acquire("you")
    assert session.event() == changed("you")


def test_many_watches_of_one_lock_are_all_told(server, lock):
    sessions = [Session(server) for _ in range(20)]
    for session in sessions:
        session.watch()
        session.event()
    lock.acquire("me")
    assert [session.event() for session in sessions] == [changed("me")] * 20


def test_many_watched_locks_are_all_told_also_of_a_flush(session, client):
    keys = [f"lock:{i}" for i in range(500)]

    def assert_told(holder):
        let_turn(session.server)
        assert sorted(session.events()) == sorted(changed(holder, key) for key in keys)

    for key in keys:
        session.watch(key)
    assert_told(None)
    for key in keys:
        Lock(client, key).acquire("me")
    assert_told("me")
    session.watch("free")
    session.event()
    client.flushall()
    assert_told(None)


@pytest.mark.parametrize("holder", ["me", None])
def test_a_watch_of_a_slot_that_moves_is_over(cluster, holder):
    node = cluster.nodes[0]
    key = cluster.key_on(0)
    session = Session(node)
    if holder is not None:
        Lock(node.client(), key).acquire(holder, 600_000)
    session.watch(key)
    assert session.event() == changed(holder, key)
    cluster.move(slot_of(key), 1)
    kind, of_key, token, why = session.event()
    assert (kind, of_key, token) == ("ended", key, "")
    assert why.split()[0] in ("TRYAGAIN", "MOVED")
    assert session.has_no_events()
    assert stats(node.client())["watches"] == 0
