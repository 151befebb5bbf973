"""DLOCK.WATCH: a session is told whenever a lock changes hands."""

import threading

import pytest
import redis

from support.cluster import slot_of
from support.commands import Lock, stats
from support.server import is_readable
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


@pytest.mark.parametrize("bring", [
    lambda client: ("RENAME", "else", "lock"),
    lambda client: ("RESTORE", "lock", 0, client.dump("else")),
], ids=["RENAME", "RESTORE"])
def test_a_lock_that_a_command_finds_under_a_watched_name_is_told(server, session, client, bring):
    """The command comes before the search, which then has nothing to find."""
    session.watch()
    assert session.event() == changed(None)
    Lock(client, "else").acquire("me", 600_000)
    in_one_turn(client, bring(client), ("DLOCK.INFO", "lock"))
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


def test_a_watch_that_begins_anew_is_not_ended_by_the_acknowledgement_of_its_end(server, lock):
    client = lock.client
    client.execute_command("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
    session = Session(server, username="app", password="x")
    session.commands = server.client(username="app", password="x")
    session.watch()
    session.event()
    client.execute_command("ACL", "SETUSER", "app", "resetkeys", "~other")
    lock.acquire("me")
    assert session.event()[0] == "ended"
    client.execute_command("ACL", "SETUSER", "app", "~*")
    in_one_turn(session.commands, ("DLOCK.WATCH", "lock", session.name),
                ("DLOCK.SESSION", session.name, "PX", session.timeout_ms, "ACK", session.seen))
    assert session.come_back() == [changed("me")]
    lock.release("me")
    assert session.event() == changed(None)


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


def test_a_shared_holder_that_takes_the_place_of_another_is_told(server, session, lock):
    """Not only of the holder that the event names, and in one step."""
    lock.acquire("one", 60_000, "SHARED")
    lock.acquire("two", 60_000, "SHARED")
    [waiter] = queue_up(server, ["zwei"], options=["SHARED", "MAX", 2])
    session.watch()
    _, _, named = session.event()
    lock.release("two" if named == "one" else "one")
    assert waiter.answer() > 0
    assert session.event()[0] == "changed"


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


def test_a_change_that_was_read_is_told_also_if_it_is_taken_back_at_once(session, lock):
    """Whoever was shown the holder by DLOCK.INFO learns that the lock is free again."""
    session.watch()
    session.event()
    steps = (("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000), ("DLOCK.INFO", "lock"),
             ("DLOCK.RELEASE", "lock", "me"))
    in_one_turn(lock.client, *steps)
    assert session.event() == changed(None)
    in_one_turn(lock.client, steps[0], steps[2])
    let_turn(session.server)
    lock.client.execute_command("DLOCK.INFO", "lock")
    assert session.has_no_events()


def test_a_hold_that_was_shown_as_over_and_goes_on_is_told(server, session, other, lock):
    """A pause keeps a hold whose grace is over, and its session may come back in time."""
    session.hold("me", "GRACE", 100)
    other.watch()
    assert other.event() == changed("me")
    lock.client.execute_command("CLIENT", "PAUSE", 3_600_000, "WRITE")
    session.go_away()
    server.clock.advance(1)
    assert lock.info() is None
    session.come_back()
    lock.client.execute_command("CLIENT", "UNPAUSE")
    let_turn(server)
    assert lock.info()["token"] == b"me"
    assert other.event() == changed("me")
    assert other.has_no_events()


def test_a_hold_with_a_grace_goes_on_unseen_if_its_session_is_back_at_once(session, other, lock):
    """The grace has not begun for the hold, so nobody is shown that it is over."""
    session.hold("me", "GRACE", 0)
    other.watch()
    assert other.event() == changed("me")
    back = ("DLOCK.SESSION", session.name, "PX", 60_000)
    _, seen, _ = in_one_turn(lock.client, ("CLIENT", "KILL", "ID", session.id),
                             ("DLOCK.INFO", "lock"), back)
    assert seen is not None
    assert lock.info()["token"] == b"me"
    assert other.has_no_events()


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


def test_looks_at_a_lock_of_which_many_are_being_told_tell_nobody_again(server, lock):
    """They are told in portions, and whoever is told early may look while others are not told yet:
    if each look were followed by further events, that would never end."""
    sessions = [Session(server, 600_000) for _ in range(600)]  # of which a turn answers 128
    for session in sessions:
        session.watch()
        session.event()
        session.send()
    let_turn(server)
    before = stats(lock.client)["events"]
    is_over = threading.Event()

    def look():
        reader = Lock(server.client())
        while not is_over.is_set():
            reader.info()

    looking = threading.Thread(target=look)
    looking.start()
    lock.acquire("me")
    assert all(session.read()[1] == [changed("me")] for session in sessions)
    is_over.set()
    looking.join()
    let_turn(server)
    assert stats(lock.client)["events"] - before == len(sessions)


def test_a_lock_that_never_rests_does_not_hold_up_those_who_watch_others(server, session, client):
    """In each turn it changes again, before all who watch it are told: to check their permission
    takes long."""
    keys = [f"~restless-{i}" for i in range(4000)]
    client.execute_command("ACL", "SETUSER", "app", "on", "nopass", *keys, "~restless", "+@all")
    pipe = server.client(username="app", password="x").pipeline(transaction=False)
    for i in range(400):  # of one connection
        name = f"a-session-{i:010}"
        pipe.execute_command("DLOCK.SESSION", name, "PX", 600_000)
        pipe.execute_command("DLOCK.WATCH", "restless", name)
    pipe.execute()
    session.watch()
    session.event()
    session.park()
    begin = [("DLOCK.ACQUIRE", key, "me", "PX", 600_000) for key in ("lock", "restless")]
    in_one_turn(client, *begin)
    for _ in range(300):
        in_one_turn(client, ("DLOCK.RELEASE", "restless", "me"), begin[1])
        if is_readable(session.connection._sock):
            break
    else:
        pytest.fail("the session was not told")
    assert session.read()[1] == [changed("me")]


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
