"""SHARED [MAX n]: several holders at a time, each with its own token, lease, session and fence, in
the same queue as exclusive ones."""

import pytest
import redis

from support.commands import Lock, details_of, stats, tokens_at
from support.server import wait_until
from support.turn import in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


def share(lock, token, *options, lease_ms=60_000):
    return lock.acquire(token, lease_ms, "SHARED", *options)


def details(lock, *options):
    return details_of(lock.client.execute_command("DLOCK.INFO", lock.key, *options))


def holders(lock):
    return tokens_at(lock.client, lock.key)


def readers(server, tokens, options=("SHARED",), **others):
    return queue_up(server, tokens, options=options, **others)


# -- who may hold it together ---------------------------------------------------------------------


def test_any_number_of_shared_requests_hold_the_lock_together(lock):
    fences = [share(lock, f"reader:{i}") for i in range(10)]
    assert fences == sorted(set(fences))
    assert holders(lock) == [f"reader:{i}" for i in range(10)]
    assert lock.acquire("writer") is None


def test_an_exclusive_holder_excludes_shared_requests(lock):
    lock.acquire("writer")
    assert share(lock, "reader") is None
    assert holders(lock) == ["writer"]


def test_max_counts_all_holders_and_each_request_brings_its_own(lock):
    assert share(lock, "a", "MAX", 2)
    assert share(lock, "b", "MAX", 2)
    assert share(lock, "c", "MAX", 2) is None
    assert share(lock, "c", "MAX", 3)
    assert share(lock, "d")
    assert share(lock, "e", "MAX", 4) is None
    assert share(lock, "f", "MAX", 1) is None
    assert holders(lock) == ["a", "b", "c", "d"]
    lock.release("a")
    assert share(lock, "e", "MAX", 4)


def test_max_holders_limits_every_lock(lock, client):
    client.config_set("dlock.max-holders", 2)
    assert share(lock, "a") and share(lock, "b", "MAX", 5)
    assert share(lock, "c") is None
    assert share(lock, "c", "MAX", 5) is None
    lock.release("a")
    assert share(lock, "c")


def test_a_higher_max_holders_lets_waiters_in(server, lock, client):
    client.config_set("dlock.max-holders", 1)
    share(lock, "a")
    waiting = readers(server, ["b", "c", "d"])
    client.config_set("dlock.max-holders", 3)
    assert waiting[0].answer() > 0 and waiting[1].answer() > 0
    assert not waiting[2].is_answered()


@pytest.mark.parametrize("words, error", [
    (["MAX", 1], "MAX needs SHARED"),
    (["SHARED", "SHARED"], "SHARED is given twice"),
    (["SHARED", "MAX", 1, "MAX", 1], "MAX is given twice"),
    (["SHARED", "MAX"], "MAX needs a value"),
    (["SHARED", "MAX", 0], "MAX must be an integer from 1"),
    (["SHARED", "MAX", -1], "MAX must be an integer from 1"),
    (["SHARED", "MAX", 2**31], "MAX must be an integer from 1"),
    (["SHARED", "MAX", "two"], "MAX must be an integer from 1"),
])
def test_a_bad_option_is_named_and_changes_nothing(lock, client, words, error):
    with pytest.raises(redis.ResponseError, match=error):
        lock.acquire("me", 1000, *words)
    assert client.dbsize() == 0


def test_options_come_in_any_order_and_case(client):
    words = ["DLOCK.ACQUIRE", "lock", "me", "max", 2, "shared", "px", 1000]
    assert client.execute_command(*words) > 0
    assert details(Lock(client))["mode"] == b"shared"


def test_a_plain_string_counts_as_an_exclusive_lock(server, lock, client):
    client.set("lock", "other", nx=True, px=60_000)
    assert share(lock, "me") is None
    [waiter] = readers(server, ["waiter"])
    client.delete("lock")
    assert waiter.answer() > 0


# -- one holder among many ------------------------------------------------------------------------


def test_a_release_ends_one_holder(lock):
    for token in "abc":
        share(lock, token)
    assert lock.release("b") == 1
    assert lock.release("b") == 0
    assert holders(lock) == ["a", "c"]
    assert [lock.release(token) for token in "ac"] == [1, 1]
    assert lock.client.dbsize() == 0


def test_the_same_token_again_keeps_its_fence_and_only_lengthens_its_lease(lock):
    share(lock, "a", lease_ms=10_000)
    fence = share(lock, "b", lease_ms=10_000)
    assert share(lock, "b", "MAX", 1, lease_ms=50_000) == fence
    assert share(lock, "b", lease_ms=10) == fence
    a, b = details(lock)["holders"]
    assert (a["lease"], b["lease"]) == (10_000, 50_000)
    assert 40_000 < b["ttl"] <= 50_000


def test_an_extension_and_a_lifted_fence_are_of_one_holder(lock):
    fences = [share(lock, token, lease_ms=10_000) for token in "ab"]
    assert lock.extend("b", 50_000) == 1
    assert lock.extend("c", 50_000) == 0
    assert share(lock, "b", "FENCE", fences[1] + 1000, lease_ms=10_000) >= fences[1] + 1000
    assert [holder["lease"] for holder in details(lock)["holders"]] == [10_000, 50_000]
    assert share(lock, "a", lease_ms=10_000) == fences[0]


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("modes, error", [
    ((("SHARED",), ()), "as SHARED"), ((("SHARED",), ("WAIT", 1000)), "as SHARED"),
    (((), ("SHARED",)), "without SHARED")], ids=["to exclusive", "by a wait", "to shared"])
def test_a_holder_cannot_change_its_mode(lock, others, modes, error):
    before, after = modes
    if "SHARED" in before:
        for i in range(others):
            share(lock, f"other:{i}")
    fence = lock.acquire("me", 60_000, *before)
    with pytest.raises(redis.ResponseError, match=f"token holds this lock {error}"):
        lock.acquire("me", 1000, *after)
    assert lock.acquire("me", 60_000, *before) == fence


def test_the_end_of_a_lease_ends_one_holder(lock, clock):
    share(lock, "long")
    share(lock, "short", lease_ms=30_000)
    share(lock, "other")
    clock.advance(31)
    assert holders(lock) == ["long", "other"]
    assert lock.extend("short") == 0
    assert stats(lock.client)["holders"] == 2
    assert stats(lock.client)["expired"] == 1


def test_an_ended_lease_does_not_count_as_a_permit_even_before_it_is_removed(lock, client):
    """The module's own work does not run while a script runs."""
    script = """
        redis.call('DLOCK.ACQUIRE', 'lock', 'a', 'PX', 1, 'SHARED')
        redis.call('DLOCK.ACQUIRE', 'lock', 'b', 'PX', 60000, 'SHARED')
        local holders
        repeat holders = redis.call('DLOCK.INFO', 'lock')[6] until #holders == 1
        return {redis.call('DLOCK.ACQUIRE', 'lock', 'c', 'PX', 60000, 'SHARED', 'MAX', 2),
                redis.call('DLOCK.ACQUIRE', 'lock', 'd', 'PX', 60000, 'SHARED', 'MAX', 2)}
    """
    granted, refused = client.eval(script, 1, "lock")
    assert granted > 0 and refused is None
    assert holders(lock) == ["b", "c"]


def test_all_leases_can_end_together(lock, client, clock):
    assert all(in_one_turn(client, *(
        ("DLOCK.ACQUIRE", "lock", f"reader:{i}", "PX", 60_000, "SHARED") for i in range(300))))
    clock.advance(61)
    wait_until(lambda: client.dbsize() == 0, "all leases to end")
    assert stats(client)["expired"] == 300
    assert stats(client)["holders"] == 0
    assert lock.acquire("writer")


def test_a_session_ends_one_holder(server, lock):
    share(lock, "stays")
    session = Waiting(server, "goes", options=["SHARED", "SESSION"])
    assert session.answer() > 0
    shown = {holder["token"]: holder["session"] for holder in details(lock)["holders"]}
    assert shown == {b"stays": 0, b"goes": session.id}
    session.close()
    wait_until(lambda: holders(lock) == ["stays"], "the session to end")
    assert stats(lock.client)["session_releases"] == 1


def test_a_delete_ends_all_holders_and_their_sessions(server, lock, client):
    session = Waiting(server, "session", options=["SHARED", "SESSION"])
    assert session.answer() > 0
    share(lock, "a"), share(lock, "b")
    client.delete("lock")
    counted = stats(client)
    assert (counted["forced"], counted["session_holds"], counted["holders"]) == (3, 0, 0)
    assert [lock.release(token) for token in ("a", "b", "session")] == [0, 0, 0]


# -- the queue ------------------------------------------------------------------------------------


def test_readers_that_come_all_the_time_keep_no_writer_out_nor_writers_a_reader(server, lock):
    share(lock, "reader:0")
    [writer] = queue_up(server, ["writer"])
    for i in range(1, 20):
        assert share(lock, f"reader:{i}") is None
    [reader] = readers(server, ["last reader"])
    late = queue_up(server, ["writer:2", "writer:3"])
    lock.release("reader:0")
    assert writer.answer() > 0
    assert not reader.is_answered()
    lock.release("writer")
    assert reader.answer() > 0
    assert not any(waiter.is_answered() for waiter in late)


def test_the_run_of_shared_requests_at_the_head_is_admitted_in_one_step(server, lock, client):
    lock.acquire("writer")
    first = readers(server, ["a", "b", "c"])
    [second] = queue_up(server, ["writer:2"])
    last = readers(server, ["d"])
    assert lock.release("writer") == 1
    assert holders(lock) == ["a", "b", "c"]
    fences = [waiter.answer() for waiter in first]
    assert fences == sorted(set(fences))
    assert not second.is_answered() and not last[0].is_answered()
    for token in "abc":
        lock.release(token)
    assert second.answer() > fences[-1]
    assert lock.release("writer:2") == 1
    assert last[0].answer() > 0
    assert stats(client)["handed_over"] == 5


def test_as_many_are_admitted_as_fit_their_own_max(server, lock):
    lock.acquire("writer")
    waiting = readers(server, ["a", "b"]) + readers(server, ["c"], ["SHARED", "MAX", 2])
    waiting += readers(server, ["d"])
    lock.release("writer")
    assert waiting[0].answer() > 0 and waiting[1].answer() > 0
    assert not waiting[2].is_answered() and not waiting[3].is_answered()
    lock.release("a")
    assert waiting[2].answer() > 0 and waiting[3].answer() > 0
    assert holders(lock) == ["b", "c", "d"]


def test_a_permit_goes_to_the_first_waiter_in_the_same_step(server, lock, client):
    for token in "ab":
        share(lock, token, "MAX", 2)
    first, second = readers(server, ["c", "d"], ["SHARED", "MAX", 2])
    assert in_one_turn(
        client, ("DLOCK.RELEASE", "lock", "a"),
        ("DLOCK.ACQUIRE", "lock", "thief", "PX", 1000, "SHARED", "MAX", 2)) == [1, None]
    assert first.answer() > 0 and not second.is_answered()
    assert holders(lock) == ["b", "c"]


def test_the_end_of_a_lease_serves_the_queue_when_it_makes_room(server, lock):
    share(lock, "a", "MAX", 2)
    share(lock, "b", "MAX", 2, lease_ms=30_000)
    [waiter] = readers(server, ["c"], ["SHARED", "MAX", 2])
    server.clock.advance(31)
    assert waiter.answer() > 0
    assert holders(lock) == ["a", "c"]


def test_the_end_of_the_last_session_hands_the_lock_to_a_writer(server, lock):
    session = Waiting(server, "session", options=["SHARED", "SESSION"])
    assert session.answer() > 0
    [writer] = queue_up(server, ["writer"])
    session.close()
    assert writer.answer() > 0
    assert details(lock)["mode"] == b"exclusive"


LEAVES = {
    "time": lambda server, writer: server.clock.advance(11),
    "close": lambda server, writer: writer.close(),
    "release": lambda server, writer: Lock(server.client()).release("writer"),
    "unblock": lambda server, writer: server.client().client_unblock(writer.id),
}


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES.keys())
def test_readers_behind_a_writer_that_gives_up_are_admitted(server, lock, leave):
    share(lock, "reader")
    [writer] = queue_up(server, ["writer"], wait_ms=10_000)
    waiting = readers(server, ["a", "b"])
    leave(server, writer)
    assert all(waiter.answer() > 0 for waiter in waiting)
    assert holders(lock) == ["a", "b", "reader"]
    assert_nobody_waits(lock.client)


def test_a_delete_admits_the_run_at_the_head(server, lock, client):
    share(lock, "reader")
    [writer] = queue_up(server, ["writer"])
    waiting = readers(server, ["a", "b"])
    client.delete("lock")
    assert writer.answer() > 0
    client.delete("lock")
    assert all(waiter.answer() > 0 for waiter in waiting)


def test_the_same_token_waits_again_in_another_mode_and_keeps_its_place(server, lock):
    share(lock, "reader")
    [older] = queue_up(server, ["me"])
    [behind] = queue_up(server, ["behind"])
    newer = Waiting(server, "me", options=["SHARED"])
    assert newer.answer() > 0
    assert older.answer() is None
    assert not behind.is_answered()
    assert holders(lock) == ["me", "reader"]


def test_a_reader_that_dies_with_its_grant_does_not_keep_it(server, lock, client):
    """Its connection ends in the turn of the release, before it could be told."""
    lock.acquire("writer")
    waiting = readers(server, ["a", "b", "c"])
    in_one_turn(client, ("CLIENT", "UNBLOCK", waiting[1].id),
                ("DLOCK.RELEASE", "lock", "writer"), ("CLIENT", "KILL", "ID", waiting[2].id))
    assert waiting[0].answer() > 0
    assert waiting[1].answer() is None
    wait_until(lambda: holders(lock) == ["a"], "the untold grant to be taken back")
    with pytest.raises(redis.ConnectionError):
        waiting[2].answer()


# -- what is shown --------------------------------------------------------------------------------


def test_info_shows_modes_and_holders(server, lock, client):
    fence = share(lock, "a", lease_ms=10_000)
    share(lock, "b", "MAX", 3)
    [writer] = queue_up(server, ["writer"])
    [reader] = readers(server, ["reader"])
    shown = details(lock, "WAITERS", 10)
    assert (shown["kind"], shown["mode"], shown["waiters"]) == (b"lock", b"shared", 2)
    assert [holder["token"] for holder in shown["holders"]] == [b"a", b"b"]
    assert shown["holders"][0]["fence"] == fence
    assert [(w["token"], w["mode"], w["client"]) for w in shown["queue"]] == [
        (b"writer", b"exclusive", writer.id), (b"reader", b"shared", reader.id)]
    Lock(client, "other").acquire("me")
    counted = stats(client)
    assert (counted["held"], counted["held_shared"], counted["holders"]) == (2, 1, 3)
    lock.release("a")
    assert stats(client)["holders"] == 2


def test_every_holder_has_its_own_events(server, lock, events):
    lock.acquire("writer")
    waiting = readers(server, ["a", "b"])
    lock.release("writer")
    assert all(waiter.answer() > 0 for waiter in waiting)
    share(lock, "c")
    lock.extend("c", 90_000)
    for token in "abc":
        lock.release(token)
    assert events.take() == ["acquire", "release", "handover", "handover", "acquire", "extend",
                             *["release"] * 3]


def test_no_event_is_lost_in_a_long_step(server, lock, events):
    """Every second waiter holds the lock that comes by RENAME already, and is only prolonged."""
    tokens = [f"reader:{i}" for i in range(8)]
    for token in tokens[::2]:
        share(Lock(lock.client, "other"), token, lease_ms=30_000)
    lock.acquire("writer")
    waiting = readers(server, tokens, lease_ms=60_000)
    events.take()
    lock.client.rename("other", "lock")
    assert all(waiter.answer() > 0 for waiter in waiting)
    seen = events.take()
    assert (seen.count("extend"), seen.count("handover")) == (4, 4)


# -- many -----------------------------------------------------------------------------------------


def test_a_thousand_holders(lock, client):
    pipe = client.pipeline(transaction=False)
    for i in range(1000):
        pipe.execute_command("DLOCK.ACQUIRE", "lock", f"reader:{i}", "PX", 60_000, "SHARED")
    fences = pipe.execute()
    assert len(set(fences)) == 1000 and all(fences)
    assert len(holders(lock)) == 1000
    assert client.memory_usage("lock", samples=0) > 1000 * 40
    for i in range(0, 1000, 2):
        pipe.execute_command("DLOCK.RELEASE", "lock", f"reader:{i}")
        pipe.execute_command("DLOCK.EXTEND", "lock", f"reader:{i + 1}", "PX", 70_000)
    assert pipe.execute() == [1, 1] * 500
    left = details(lock)["holders"]
    assert len(left) == 500 and {holder["lease"] for holder in left} == {70_000}
    before = client.info("memory")["lazyfreed_objects"]
    client.unlink("lock")
    wait_until(lambda: client.info("memory")["lazyfreed_objects"] == before + 1, "it is freed")
    assert stats(client)["holders"] == 0
    assert lock.acquire("writer") > 0


def test_a_thousand_readers_are_admitted_by_one_release(server, lock, client):
    lock.acquire("writer")
    waiting = [Waiting(server, f"reader:{i}", options=["SHARED"]) for i in range(1000)]
    wait_for_waiters(client, 1000)
    assert lock.release("writer") == 1
    assert len(holders(lock)) == 1000
    fences = [waiter.answer() for waiter in waiting]
    assert len(set(fences)) == 1000 and all(fences)
    assert stats(client)["handed_over"] == 1000
    assert_nobody_waits(client)
