"""ACQUIREALL and RELEASEALL: several names in one step, all or none, first come, first served."""

import itertools

import pytest
import redis

from support.commands import Lock, Locks, details_of, line_at, plain, stats, tokens_at
from support.server import wait_until
from support.turn import Bare, in_one_turn, sleep_then
from support.waiting import A_DAY, Waiting, assert_nobody_waits, queue_up

FREE = {"a": [], "b": [], "c": []}


@pytest.fixture
def three(client):
    return Locks(client, "a", "b", "c")


# -- all or none ----------------------------------------------------------------------------------


def test_free_locks_are_taken_with_one_fence(three, at):
    fence = three.acquire("me", 50_000)
    assert three.holders() == {key: ["me"] for key in "abc"}
    assert [at(key).info()["fence"] for key in "abc"] == [fence] * 3
    assert [at(key).info()["lease"] for key in "abc"] == [50_000] * 3


@pytest.mark.parametrize("taken", "abc")
def test_if_one_is_held_none_is_taken(three, at, taken):
    at(taken).acquire("you")
    assert three.acquire("me") is None
    assert three.holders() == {**FREE, taken: ["you"]}
    assert stats(three.client)["contended"] == 1


def test_the_same_token_gets_the_same_fence_and_at_least_the_lease(three, at):
    fence = three.acquire("me", 60_000)
    assert three.acquire("me", 600_000) == fence
    assert all(at(key).ttl() > 60_000 for key in "abc")
    at("b").extend("me", 3_600_000)
    assert three.acquire("me", 600_000) == fence
    assert at("b").ttl() > 600_000
    assert stats(three.client)["granted"] == 3


def test_the_order_of_the_names_does_not_matter(client, both):
    fence = both.acquire("me")
    assert Locks(client, "b", "a").acquire("me") == fence


def test_what_was_lost_is_taken_again_with_a_new_fence_for_all(both, at):
    fence = both.acquire("me")
    both.client.delete("b")
    at("b").acquire("you")
    assert both.acquire("me") is None
    assert both.holders() == {"a": ["me"], "b": ["you"]}
    at("b").release("you")
    newer = both.acquire("me")
    assert newer > fence
    assert [at(key).info()["fence"] for key in "ab"] == [newer] * 2


def test_locks_taken_one_by_one_get_one_fence(both, at):
    at("a").acquire("me")
    fence = at("b").acquire("me")
    assert both.acquire("me") > fence
    assert at("a").info()["fence"] == at("b").info()["fence"]


def test_a_token_that_holds_a_part_cannot_wait_for_the_rest(both, at):
    """Nobody holds a part while waiting, so nobody waits in a circle."""
    at("a").acquire("me")
    at("b").acquire("you")
    with pytest.raises(redis.ResponseError, match="holds some of these locks"):
        both.acquire("me", 60_000, "WAIT", 1000)
    assert_nobody_waits(both.client)


def test_each_lock_is_then_like_any_other(three, at):
    fence = three.acquire("me", 60_000)
    assert at("a").release("me") == 1
    assert at("b").extend("me", 600_000) == 1
    assert at("c").acquire("me") == fence
    assert three.client.execute_command("DLOCK.GUARD", "b", "me", "ECHO", "x") == b"x"
    assert three.holders() == {"a": [], "b": ["me"], "c": ["me"]}
    assert three.release("me") == 2


def test_a_lease_ends_everywhere(three, server):
    three.acquire("me", 60_000)
    server.clock.advance(61)
    assert three.holders() == FREE
    assert stats(three.client)["expired"] == 3


def test_a_lease_that_is_over_does_not_count_before_it_is_removed(both, server, at):
    at("a").acquire("before", 60_000)
    at("b").acquire("before", 60_000)
    [reply] = sleep_then(server, 61, "DLOCK.ACQUIREALL 2 a b me PX 60000")
    assert int(reply[1:]) > 0
    assert both.holders() == {"a": ["me"], "b": ["me"]}


def test_one_name_is_enough_and_64_are_not_too_many(client):
    assert Locks(client, "a").acquire("me") > 0
    names = [f"name:{i}" for i in range(64)]
    assert Locks(client, *names).acquire("me") > 0
    assert stats(client)["held"] == 65
    assert Locks(client, *names).release("me") == 64


# -- release --------------------------------------------------------------------------------------


def test_a_release_counts_the_locks_that_were_held(three, at):
    three.acquire("me")
    assert three.release("you") == 0
    at("b").release("me")
    assert three.release("me") == 2
    assert three.release("me") == 0
    assert three.holders() == FREE
    now = stats(three.client)
    assert (now["released"], now["refused"]) == (3, 7)


def test_a_release_takes_any_names_of_the_token(client, three, at):
    three.acquire("me")
    assert Locks(client, "c", "a", "d").release("me") == 2
    assert at("b").info()["token"] == b"me"


def test_a_plain_string_is_compared_with_the_token(both):
    both.client.set("a", "theirs")
    assert both.acquire("theirs") is None
    assert both.release("me") == 0
    assert both.release("theirs") == 1
    assert not both.client.exists("a")


@pytest.mark.parametrize("key", "abc")
def test_another_type_is_an_error_that_changes_nothing(three, at, key):
    three.client.rpush(key, "x")
    others = [other for other in "abc" if other != key]
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE"):
        three.acquire("me")
    for other in others:
        assert at(other).info() is None
        at(other).acquire("me")
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE"):
        three.release("me")
    assert all(tokens_at(three.client, other) == ["me"] for other in others)


# -- arguments ------------------------------------------------------------------------------------


WRONG_CALLS = [
    *((("DLOCK.ACQUIREALL", *words.split()), message) for words, message in [
        ("0 a t PX 1", "count must be an integer from 1 to 64"),
        ("-1 a t PX 1", "count must be"),
        ("x a t PX 1", "count must be"),
        (f"65 {' '.join(map(str, range(65)))} t PX 1", "count must be"),
        ("2 a t", "count is 2, but only 2 words follow"),
        ("64 a t PX 1", "count is 64, but only 4 words follow"),
        ("2 a a t PX 1", "the name 'a' is given twice"),
        ("3 a b a t PX 1", "the name 'a' is given twice"),
        ("1 a b t PX 1", "unknown option 't'"),
        ("2 a b t", "PX is missing"),
        ("2 a b t PX 0", "PX must be"),
        ("2 a b t PX 1 MAX 2", "MAX needs SHARED"),
        ("2 a b t PX 1 SESSION GRACE 5", "GRACE needs VIA"),
        ("2 a b t PX 1 WAIT 0", "WAIT must be"),
        ("2 a b t PX 1 nonsense", "unknown option 'nonsense'")]),
    (("DLOCK.ACQUIREALL", 2, "", "", "t", "PX", 1), "the name '' is given twice"),
    (("DLOCK.ACQUIREALL", 2, "a", "b", "", "PX", 1), "token must have"),
    *((("DLOCK.RELEASEALL", *words.split()), message) for words, message in [
        ("2 a t", "count is 2"), ("2 a a t", "given twice"), ("0 a t", "count must be"),
        ("1 a b t", "wrong number of arguments"), ("1 a", "wrong number of arguments"),
        (f"1 a {'t' * 257}", "token must have")]),
]


@pytest.mark.parametrize("words, message", WRONG_CALLS)
def test_a_bad_call_names_the_argument_and_changes_nothing(client, words, message):
    with pytest.raises(redis.ResponseError, match=message):
        client.execute_command(*words)
    assert client.dbsize() == 0


@pytest.mark.parametrize("command", ["DLOCK.ACQUIREALL", "DLOCK.RELEASEALL"])
def test_a_name_that_is_given_twice_is_found_at_any_two_places(client, command):
    """Among names of the same length, which begin and end alike."""
    names = [f"{{a}}{'x' * 100}{i:02}{'x' * 100}" for i in range(64)]
    options = ["PX", 1000] if command == "DLOCK.ACQUIREALL" else []
    pipe = client.pipeline(transaction=False)
    for first, second in itertools.combinations(range(64), 2):
        given = names[:second] + [names[first]] + names[second + 1:]
        pipe.execute_command(command, 64, *given, "me", *options)
    replies = pipe.execute(raise_on_error=False)
    assert len(replies) == 64 * 63 // 2
    assert all("is given twice" in str(reply) for reply in replies)
    assert client.execute_command(command, 64, *names, "me", *options) is not None


def test_options_come_in_any_order_and_case(both):
    words = ["DLOCK.ACQUIREALL", 2, "a", "b", "me", "max", 2, "SHARED", "fence", 7, "pX", 60_000]
    assert both.client.execute_command(*words) > 0


def test_names_are_any_bytes(client):
    names = [b"", b"\x00\xff\r\n", b"x" * 10_000]
    assert Locks(client, *names).acquire("me") > 0
    assert Locks(client, *names).release("me") == 3


# -- modes and fences -----------------------------------------------------------------------------


def test_shared_holders_hold_all_locks_together(both):
    first, second = (both.acquire(token, 60_000, "SHARED") for token in ("r1", "r2"))
    assert second > first
    assert both.holders() == {"a": ["r1", "r2"], "b": ["r1", "r2"]}
    assert both.acquire("writer") is None
    assert both.acquire("r1", 60_000, "SHARED") == first


def test_max_counts_at_each_lock(both, at):
    at("b").acquire("one", 60_000, "SHARED")
    assert both.acquire("two", 60_000, "SHARED", "MAX", 1) is None
    assert both.acquire("two", 60_000, "SHARED", "MAX", 2) > 0


def test_a_mode_cannot_change(both, at):
    at("b").acquire("me", 60_000, "SHARED")
    with pytest.raises(redis.ResponseError, match="holds this lock as SHARED"):
        both.acquire("me")
    assert both.holders() == {"a": [], "b": ["me"]}


def test_a_fence_and_a_run_of_fences_are_common_to_all(both, at):
    fence = both.acquire("me")
    assert both.acquire("me", 60_000, "FENCE", fence + 60_000_000) == fence + 60_000_000
    first = both.acquire("me", 60_000, "FENCES", 10)
    assert [at(key).info()["fence"] for key in "ab"] == [first + 9] * 2
    assert at("a").acquire("me") == first + 9


# -- waiting --------------------------------------------------------------------------------------


ENDS = {
    "release": lambda lock, clock: lock.release("holder"),
    "del": lambda lock, clock: lock.client.delete("a", "b"),
    "flushall": lambda lock, clock: lock.client.flushall(),
    "lease": lambda lock, clock: clock.advance(601),
    "swapdb": lambda lock, clock: lock.client.swapdb(0, 3),
    "rename": lambda lock, clock: [lock.client.rename(key, f"else:{key}") for key in "ab"],
    "expire": lambda lock, clock: [lock.client.pexpire(key, 1) for key in "ab"],
    "a, b": lambda lock, clock: [Lock(lock.client, key).release("holder") for key in "ab"],
    "b, a": lambda lock, clock: [Lock(lock.client, key).release("holder") for key in "ba"],
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_the_first_gets_all_locks_however_they_end(server, both, clock, end):
    both.acquire("holder", 600_000)
    first, second = queue_up(server, ["first", "second"], keys=["a", "b"])
    end(both, clock)
    clock.advance(1)
    fence = first.answer()
    assert both.holders() == {"a": ["first"], "b": ["first"]}
    assert [Lock(both.client, key).info()["fence"] for key in "ab"] == [fence] * 2
    assert line_at(both.client, "a") == line_at(both.client, "b") == ["second"]
    assert not second.is_answered()


def test_it_takes_nothing_until_all_are_free(server, both, at):
    at("a").acquire("x")
    at("b").acquire("y")
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    at("a").release("x")
    assert not waiter.is_answered()
    assert both.holders() == {"a": [], "b": ["y"]}
    at("b").release("y")
    assert waiter.answer() > 0
    assert both.holders() == {"a": ["me"], "b": ["me"]}


def test_the_hand_over_happens_within_the_release(server, both, at):
    at("a").acquire("x")
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    assert in_one_turn(both.client, ("DLOCK.RELEASE", "a", "x"),
                       ("DLOCK.ACQUIRE", "a", "thief", "PX", 1000),
                       ("DLOCK.ACQUIRE", "b", "thief", "PX", 1000),
                       ("EXISTS", "a", "b")) == [1, None, None, 2]
    assert waiter.answer() > 0


def test_a_free_lock_is_kept_for_the_one_that_came_first(server, both, at):
    """While it waits for another lock: also from a plain request, and from one in the queue."""
    at("b").acquire("y")
    [first] = queue_up(server, ["first"], keys=["a", "b"])
    assert at("a").info() is None
    assert at("a").acquire("thief") is None
    assert Locks(both.client, "a", "c").acquire("thief") is None
    assert at("a").acquire("thief", 60_000, "SHARED") is None
    [second] = queue_up(server, ["second"], key="a")
    at("b").release("y")
    assert first.answer() > 0
    assert not second.is_answered()
    both.release("first")
    assert second.answer() > 0


LEAVES = {
    "close": lambda waiter, lock: waiter.close(),
    "abort": lambda waiter, lock: waiter.abort(),
    "time": lambda waiter, lock: waiter.server.clock.advance(31),
    "unblock": lambda waiter, lock: lock.client.client_unblock(waiter.id),
    "unblock with an error": lambda waiter, lock: lock.client.client_unblock(waiter.id, error=True),
    "release": lambda waiter, lock: Lock(lock.client, "b").release("first"),
    "releaseall": lambda waiter, lock: Locks(lock.client, "c", "b").release("first"),
    "releaseall of all": lambda waiter, lock: lock.release("first"),
    "kill": lambda waiter, lock: lock.client.client_kill_filter(_id=waiter.id),
}


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES.keys())
def test_one_that_leaves_makes_room_in_all_queues(server, three, at, leave):
    at("b").acquire("y")
    [first] = queue_up(server, ["first"], keys=["a", "b", "c"], wait_ms=30_000)
    [on_a], [on_b], [on_c] = (queue_up(server, [f"on {key}"], key=key) for key in "abc")
    leave(first, three)
    assert on_a.answer() > 0 and on_c.answer() > 0
    assert not on_b.is_answered()
    assert three.holders() == {"a": ["on a"], "b": ["y"], "c": ["on c"]}
    assert stats(three.client)["wait_timeouts"] == (leave in (LEAVES["time"], LEAVES["unblock"]))


def test_one_that_is_over_when_its_turn_comes_gets_nothing(server, both, at):
    at("b").acquire("y", 600_000)
    [first] = queue_up(server, ["first"], keys=["a", "b"], wait_ms=5_000)
    [second] = queue_up(server, ["second"], keys=["b", "a"])
    assert sleep_then(server, 6, "DLOCK.RELEASE b y") == [b":1"]
    assert first.answer() is None
    assert second.answer() > 0


def test_requests_are_served_in_the_order_they_came(server, client):
    """Each waits for two of four locks, in any order: nobody overtakes and nobody hangs."""
    names = "abcd"
    for key in names:
        Lock(client, key).acquire("holder")
    pairs = [(x, y) for x in names for y in names if x != y]
    waiting = [queue_up(server, [x + y], keys=[x, y])[0] for x, y in pairs]
    Locks(client, *names).release("holder")
    served = []
    while len(served) < len(pairs):
        ready = [w for w in waiting if w.token not in served and w.is_answered()]
        assert ready, (served, [line_at(client, key) for key in names])
        for waiter in ready:
            earlier = {w.token for w in waiting[:waiting.index(waiter)]} - set(served)
            assert not any(set(token) & set(waiter.token) for token in earlier)
        for waiter in ready:
            assert waiter.answer() > 0
            served.append(waiter.token)
        for waiter in ready:
            assert Locks(client, *waiter.token).release(waiter.token) == 2
    assert_nobody_waits(client)


@pytest.mark.parametrize("order", ["cb", "bc"])
def test_a_request_that_is_first_in_one_line_only_waits(server, three, at, order):
    """All its locks are free, but an earlier request stands in line for one of them."""
    at("a").acquire("x")
    at("c").acquire("z")
    [first] = queue_up(server, ["first"], keys=["a", "b"])
    [second] = queue_up(server, ["second"], keys=list(order))
    at("c").release("z")
    assert not second.is_answered()
    assert three.holders() == {"a": ["x"], "b": [], "c": []}
    at("a").release("x")
    assert first.answer() > 0
    assert not second.is_answered()
    at("b").release("first")
    assert second.answer() > 0


def test_shared_requests_at_the_head_are_admitted_together(server, both, at):
    both.acquire("writer")
    first, second = queue_up(server, ["r1", "r2"], keys=["a", "b"], options=["SHARED"])
    [third] = queue_up(server, ["r3"], key="b", options=["SHARED"])
    [writer] = queue_up(server, ["w2"], keys=["b", "c"])
    both.release("writer")
    assert [w.answer() > 0 for w in (first, second, third)] == [True] * 3
    assert both.holders() == {"a": ["r1", "r2"], "b": ["r1", "r2", "r3"]}
    assert not writer.is_answered()
    both.release("r1"), both.release("r2")
    assert not writer.is_answered()
    at("b").release("r3")
    assert writer.answer() > 0


def test_a_shared_request_waits_for_room_at_each_lock(server, both, at):
    at("a").acquire("one", 60_000, "SHARED")
    at("b").acquire("one", 60_000, "SHARED")
    [waiter] = queue_up(server, ["two"], keys=["a", "b"], options=["SHARED", "MAX", "1"])
    at("a").release("one")
    assert not waiter.is_answered()
    at("b").release("one")
    assert waiter.answer() > 0


def test_a_higher_limit_of_holders_serves_requests(server, both):
    both.client.config_set("dlock.max-holders", 1)
    both.acquire("one", 60_000, "SHARED")
    [waiter] = queue_up(server, ["two"], keys=["a", "b"], options=["SHARED"])
    both.client.config_set("dlock.max-holders", 2)
    assert waiter.answer() > 0


def test_the_same_token_keeps_its_places(server, both, at):
    both.acquire("holder")
    [first] = queue_up(server, ["first"], keys=["a", "b"])
    [second] = queue_up(server, ["second"], keys=["a", "b"])
    again = Waiting(server, "first", keys=["b", "a"])
    assert first.answer() is None
    assert line_at(both.client, "a") == line_at(both.client, "b") == ["first", "second"]
    both.release("holder")
    assert again.answer() > 0
    assert not second.is_answered()


def test_the_same_token_may_ask_for_a_shared_lock_instead(server, both):
    both.acquire("reader", 60_000, "SHARED")
    [first] = queue_up(server, ["first"], keys=["a", "b"])
    again = Waiting(server, "first", keys=["a", "b"], options=["SHARED"])
    assert again.answer() > 0
    assert first.answer() is None
    assert both.holders() == {"a": ["first", "reader"], "b": ["first", "reader"]}


@pytest.mark.parametrize("first, second", [
    ({"keys": ["a", "b"]}, {"key": "a"}), ({"key": "a"}, {"keys": ["a", "b"]}),
    ({"keys": ["a", "b"]}, {"keys": ["b", "c"]}), ({"keys": ["a", "b"]}, {"keys": ["a", "b", "c"]}),
])
def test_a_token_that_waits_for_other_names_waits_anew(server, three, first, second):
    """In one queue a token has one place."""
    three.acquire("holder")
    [older] = queue_up(server, ["me"], **first)
    queue_up(server, ["behind"], keys=["a", "b", "c"])
    newer = Waiting(server, "me", **second)
    assert older.answer() is None
    wanted = second.get("keys") or [second["key"]]
    assert {key: line_at(three.client, key) for key in "abc"} == {
        key: ["behind", "me"] if key in wanted else ["behind"] for key in "abc"}
    three.release("holder"), three.release("behind")
    assert newer.answer() > 0


def test_a_token_does_not_stand_in_its_own_way(server, three, at):
    """Its older request was the only one in line for a free lock."""
    at("b").acquire("holder")
    [older] = queue_up(server, ["me"], keys=["a", "b"])
    newer = Waiting(server, "me", keys=["a", "c"])
    assert older.answer() is None
    assert newer.answer() > 0
    assert three.holders() == {"a": ["me"], "b": ["holder"], "c": ["me"]}


def test_one_name_keeps_its_place_in_either_form(server, at):
    at("a").acquire("holder")
    [older] = queue_up(server, ["me"], key="a")
    queue_up(server, ["behind"], key="a")
    newer = Waiting(server, "me", keys=["a"])
    assert older.answer() is None
    newest = Waiting(server, "me", key="a")
    assert newer.answer() is None
    assert line_at(at("a").client, "a") == ["me", "behind"]
    at("a").release("holder")
    assert newest.answer() > 0


@pytest.mark.parametrize("comes", ["before", "while it waits"])
def test_a_plain_string_is_waited_for(server, both, at, clock, comes):
    """Also one that comes while the lock is free, so that nobody has looked at it."""
    at("b").acquire("y")
    if comes == "before":
        both.client.set("a", "theirs")
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    clock.advance(1)
    both.client.set("a", "theirs")
    at("b").release("y")
    assert not waiter.is_answered()
    both.client.delete("a")
    clock.advance(1)
    assert waiter.answer() > 0


@pytest.mark.parametrize("key", "ab")
def test_another_type_ends_the_wait(server, both, clock, key):
    both.acquire("holder")
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    [other] = queue_up(server, ["other"], key="ab".replace(key, ""))
    in_one_turn(both.client, ("DEL", "a", "b"), ("RPUSH", key, "x"))
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE"):
        waiter.answer()
    assert other.answer() > 0


def test_a_lease_that_ends_at_another_lock_is_noticed(server, both, at, clock):
    at("a").acquire("x", 600_000)
    at("b").acquire("y", 300_000)
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    clock.advance(301)
    assert not waiter.is_answered()
    assert at("b").info() is None
    clock.advance(300)
    assert waiter.answer() > 0


def test_leases_that_end_in_the_same_turn_make_way_at_once(server, both, at):
    at("a").acquire("x", 60_000)
    at("b").acquire("y", 60_000)
    at("c").acquire("z", 600_000)
    [waiter] = queue_up(server, ["me"], keys=["a", "b", "c"])
    assert sleep_then(server, 61, "DLOCK.RELEASE c z") == [b":1"]
    assert waiter.answer() > 0


@pytest.mark.parametrize("setting, value", [("max-waiters", 1), ("max-waiters-in-all", 4)])
def test_queues_are_bounded(server, both, setting, value):
    both.client.config_set(f"dlock.{setting}", value)
    both.acquire("holder")
    queue_up(server, ["first"], keys=["b", "c"])
    if value == 4:
        queue_up(server, ["other"], key="a")
    for keys in ["a", "b"], ["b", "a"]:
        with pytest.raises(redis.ResponseError, match=f"^QUEUEFULL.*dlock.{setting}"):
            Waiting(server, "second", keys=keys).answer()


def test_in_a_transaction_and_in_a_script_nobody_waits(both, at):
    at("b").acquire("y")
    words = ("DLOCK.ACQUIREALL", "2", "a", "b", "me", "PX", "1000", "WAIT", "1000")
    assert in_one_turn(both.client, words) == [None]
    assert both.client.eval("return redis.call(unpack(ARGV)) or 'none'", 0, *words) == b"none"
    at("b").release("y")
    assert in_one_turn(both.client, words)[0] > 0
    both.release("me")
    assert both.client.eval("return redis.call(unpack(ARGV))", 0, *words) > 0
    assert_nobody_waits(both.client)


@pytest.mark.parametrize("end", [("KILL", "ID"), ("UNBLOCK",)], ids=["KILL", "UNBLOCK"])
def test_a_grant_that_is_not_told_ends_at_all_locks(server, both, end):
    """The connection or the wait ends in the turn of the grant."""
    both.acquire("holder")
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    in_one_turn(both.client, ("DLOCK.RELEASEALL", 2, "a", "b", "holder"),
                ("CLIENT", *end, waiter.id))
    if end == ("UNBLOCK",):
        assert waiter.answer() is None
    wait_until(lambda: both.holders() == {"a": [], "b": []}, "the locks to be free")


def test_a_request_ends_with_its_connection(server, both):
    waiter = Waiting(server, "me", keys=["a", "b"], options=["SESSION"])
    assert waiter.answer() > 0
    waiter.close()
    wait_until(lambda: both.holders() == {"a": [], "b": []}, "the locks to be free")
    assert stats(both.client)["session_releases"] == 2


def test_drain_refuses_new_requests_and_lets_old_ones_finish(server, both):
    fence = both.acquire("me")
    [waiter] = queue_up(server, ["you"], keys=["a", "b"])
    both.client.config_set("dlock.drain", "yes")
    assert both.acquire("me") == fence
    with pytest.raises(redis.ResponseError, match="dlock.drain"):
        both.acquire("they")
    with pytest.raises(redis.ResponseError, match="dlock.drain"):
        Locks(both.client, "a", "c").acquire("me")
    both.release("me")
    assert waiter.answer() > 0


def test_out_of_memory_refuses_requests_and_no_releases(both):
    both.acquire("me")
    both.client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="^OOM|command not allowed"):
        Locks(both.client, "c", "d").acquire("me")
    assert both.release("me") == 2


def test_requests_of_another_database_are_served_there(server, client):
    """And whoever serves them stays in its own."""
    there = Locks(server.client(db=3), "a", "b")
    there.acquire("holder")
    Locks(client, "a", "b").acquire("here")
    first, second = queue_up(server, ["first", "second"], keys=["a", "b"], db=3)
    there.release("holder")
    assert first.answer() > 0
    assert there.holders() == {"a": ["first"], "b": ["first"]}
    assert in_one_turn(client, ("SELECT", 3), ("DEL", "a", "b"), ("SELECT", 0),
                       ("DLOCK.RELEASEALL", 2, "a", "b", "here"), ("DBSIZE",))[-2:] == [2, 0]
    assert second.answer() > 0
    assert client.dbsize() == 0


# -- what is shown --------------------------------------------------------------------------------


def test_info_shows_for_how_many_names_each_waits(server, both, at):
    both.acquire("holder")
    queue_up(server, ["two"], keys=["a", "b"])
    queue_up(server, ["one"], key="a")
    assert [(each["token"], each["names"]) for each in at("a").queue()] == [
        (b"two", 2), (b"one", 1)]
    assert (stats(both.client)["waiters"], stats(both.client)["queues"]) == (3, 2)
    assert (at("a").info()["waiters"], at("b").info()["waiters"]) == (2, 1)


def test_info_with_waiters_shows_who_waits_for_a_free_lock(server, both, at):
    at("b").acquire("y")
    queue_up(server, ["me"], keys=["a", "b"])
    assert both.client.execute_command("DLOCK.INFO", "a") is None
    info = details_of(both.client.execute_command("DLOCK.INFO", "a", "WAITERS", 10))
    assert (info["kind"], info["mode"], info["holders"], info["waiters"]) == (
        b"lock", b"exclusive", [], 1)
    assert [each["token"] for each in info["queue"]] == [b"me"]


def test_events_come_for_each_name(both, client):
    client.config_set("notify-keyspace-events", "Ed")
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.psubscribe("__keyevent@0__:dlock.*")
    listener.get_message(timeout=50)
    both.acquire("me"), both.release("me")
    seen = []
    while len(seen) < 4:
        message = listener.get_message(timeout=50)
        seen += [(message["channel"].decode().partition("dlock.")[2], message["data"].decode())
                 ] if message else []
    assert seen == [("acquire", "a"), ("acquire", "b"), ("release", "a"), ("release", "b")]


def test_redis_finds_the_keys(client):
    words = ("DLOCK.ACQUIREALL", 2, "a", "b", "me", "PX", 1)
    assert plain(client, "COMMAND", "GETKEYS", *words) == [b"a", b"b"]
    flags = plain(client, "COMMAND", "GETKEYSANDFLAGS", *words)
    assert [key for key, _ in flags] == [b"a", b"b"]
    assert set(flags[0][1]) == {b"RW", b"access", b"update"}
    words = ("DLOCK.RELEASEALL", 3, "a", "b", "c", "me")
    assert plain(client, "COMMAND", "GETKEYS", *words) == [b"a", b"b", b"c"]


def test_no_code_of_the_module_runs_to_find_the_keys(client):
    for name in "acquireall", "releaseall", "applyall":
        [info] = plain(client, "COMMAND", "INFO", f"dlock.{name}")
        assert "getkeys-api" not in str(info) and b"movablekeys" in info[2]


def test_command_docs_name_the_arguments(client):
    docs = plain(client, "COMMAND", "DOCS", "dlock.acquireall")[1]
    arguments = docs[docs.index(b"arguments") + 1]
    names = [dict(zip(each[::2], each[1::2]))[b"name"] for each in arguments]
    assert names[:3] == [b"count", b"key", b"token"]


def test_each_key_needs_permission(server, client):
    client.execute_command("ACL", "SETUSER", "app", "on", ">x", "~a*", "+@all")
    app = server.client(username="app", password="x")
    assert Locks(app, "a1", "a2").acquire("me") > 0
    for keys in ("a1", "b"), ("b", "a1"):
        for act in Locks(app, *keys).acquire, Locks(app, *keys).release:
            with pytest.raises(redis.ResponseError, match="permission|NOPERM"):
                act("me")
    assert Locks(app, "a1", "a2").release("me") == 2


def app_waits(server, keys, *rules):
    """The user "app" waits for these locks. Its connection."""
    server.observer.execute_command("ACL", "SETUSER", "app", "on", ">x", "~*", *rules)
    client = server.client(username="app", password="x", single_connection_client=True)
    client.connection.send_command("DLOCK.ACQUIREALL", len(keys), *keys, "app", "PX", 60_000,
                                   "WAIT", A_DAY)
    wait_until(lambda: line_at(server.observer, keys[0]) == ["app"], "the waiter")
    return client.connection


def test_a_permission_that_is_withdrawn_ends_the_wait(server, both, client):
    both.acquire("holder")
    waiter = app_waits(server, ["a", "b"], "+@all")
    [behind] = queue_up(server, ["behind"], keys=["b", "a"])
    client.execute_command("ACL", "SETUSER", "app", "resetkeys", "~a")
    both.release("holder")
    with pytest.raises(redis.ResponseError, match="permission|NOPERM"):
        waiter.read_response()
    assert behind.answer() > 0


def test_the_right_for_acquireall_alone_is_enough_to_wait(server, at):
    at("a").acquire("holder")
    waiter = app_waits(server, ["a"], "+dlock.acquireall")
    at("a").release("holder")
    assert waiter.read_response() > 0


def test_replies_are_the_same_in_resp3(server):
    bare = Bare(server)
    bare.send("HELLO 3", "ECHO mark", "DLOCK.ACQUIREALL 2 a b me PX 60000",
              "DLOCK.ACQUIREALL 2 b c you PX 60000", "DLOCK.RELEASEALL 2 a b me")
    while bare.read() != [b"mark"]:
        pass
    fence, null, released = bare.read(3)
    assert int(fence[1:]) > 0 and (null, released) == (b"_", b":2")
    bare.close()
