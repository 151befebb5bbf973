"""Shared holders in replicas, files, other names and other servers: one command for each holder,
and the same holders everywhere."""

import pytest
import redis

from support.commands import Lock, details_of, stats
from support.files import FILES
from support.server import wait_until
from support.stream import digest, in_sync
from support.waiting import queue_up

TOKENS = [b"a", b"b", b"\x00\r\n", b"t" * 256]


def share_all(client, key="lock", tokens=TOKENS):
    """token -> fence"""
    return {token: Lock(client, key).acquire(token, 50_000 + i, "SHARED")
            for i, token in enumerate(tokens)}


def shown(client, key="lock"):
    """Mode, and token, fence and length of the lease of each holder."""
    details = details_of(client.execute_command("DLOCK.INFO", key))
    return details and (details["mode"], sorted(
        (holder["token"], holder["fence"], holder["lease"]) for holder in details["holders"]))


# -- replication ----------------------------------------------------------------------------------


def test_each_holder_is_replicated_by_itself(stream, lock):
    fences = [lock.acquire(token, 50_000, "SHARED") for token in "ab"]
    lock.extend("a", 60_000)
    lock.release("a")
    assert stream.take() == [
        [b"dlock.apply", b"lock", b"a", b"%d" % fences[0], b"50000", b"SHARED"],
        [b"dlock.apply", b"lock", b"b", b"%d" % fences[1], b"50000", b"SHARED"],
        [b"dlock.apply", b"lock", b"a", b"%d" % fences[0], b"60000", b"SHARED"],
        [b"DLOCK.RELEASE", b"lock", b"a"]]


def test_a_permit_that_changes_hands_is_a_release_and_a_grant(server, stream, lock):
    lock.acquire("a", 50_000, "SHARED", "MAX", 1)
    [waiter] = queue_up(server, ["b"], options=["SHARED", "MAX", 1])
    lock.release("a")
    fence = waiter.answer()
    commands = [words for words in stream.take() if words[0] not in (b"MULTI", b"EXEC")]
    assert commands[1:] == [
        [b"DLOCK.RELEASE", b"lock", b"a"],
        [b"dlock.apply", b"lock", b"b", b"%d" % fence, b"600000", b"SHARED"]]


def test_the_end_of_one_lease_is_replicated_as_a_release(stream, lock, clock):
    lock.acquire("a", 500_000, "SHARED")
    lock.acquire("b", 50_000, "SHARED")
    clock.advance(51)
    assert stream.take()[2:] == [[b"dlock.release", b"lock", b"b"]]


def test_a_replica_has_the_same_holders_after_every_kind_of_change(server, client, start_replica):
    replica = start_replica(server).client()
    lock = Lock(client)

    def check():
        in_sync(client, replica)
        assert digest(replica) == digest(client)
        assert shown(replica) == shown(client)

    share_all(client)
    check()
    lock.extend(b"a", 90_000)
    lock.acquire(b"b", 95_000, "SHARED", "FENCE", lock.acquire(b"b", 95_000, "SHARED") + 1000)
    lock.release(b"\x00\r\n")
    check()
    waiting = queue_up(server, ["writer"])
    waiting += queue_up(server, ["r1", "r2"], options=["SHARED"])
    for token in (b"a", b"b", b"t" * 256):
        lock.release(token)
    assert waiting[0].answer() > 0
    check()
    lock.release("writer")
    assert waiting[1].answer() > 0 and waiting[2].answer() > 0
    check()
    client.pexpire("lock", 600_000)
    lock.acquire("r3", 50_000, "SHARED")
    check()
    [writer] = queue_up(server, ["writer:2"])
    client.delete("lock")
    assert writer.answer() > 0
    check()
    assert replica.ttl("lock") == -1
    lock.release("writer:2")
    check()
    assert shown(client) is None


def test_a_promoted_replica_starts_every_lease_anew(server, client, start_replica):
    promoted = start_replica(server)
    replica = promoted.client()
    for token in ("a", "b"):
        Lock(client).acquire(token, 120_000, "SHARED")
    in_sync(client, replica)
    promoted.clock.advance(90)
    replica.execute_command("REPLICAOF", "NO", "ONE")
    promoted.clock.advance(90)
    assert len(shown(replica)[1]) == 2
    assert Lock(replica).acquire("writer") is None
    assert Lock(replica).release("a") == 1
    promoted.clock.advance(31)
    assert replica.dbsize() == 0


# -- files ----------------------------------------------------------------------------------------


@FILES
def test_a_restarted_server_has_the_same_holders(start_server, options, prepare):
    server = start_server(*options)
    client = server.client()
    share_all(client)
    share_all(client, "one", ["only"])
    Lock(client, "exclusive").acquire("me")
    share_all(client, "left", ["gone", "stays"])
    Lock(client, "left").release("gone")
    expected = digest(client), shown(client), shown(client, "one"), shown(client, "left")
    prepare(client)
    server.kill()
    server.start()
    client = server.client()
    assert (digest(client), shown(client), shown(client, "one"), shown(client, "left")) == expected
    assert stats(client)["holders"] == len(TOKENS) + 3
    assert Lock(client).release(TOKENS[2]) == 1
    assert Lock(client, "one").acquire("other", 1000, "SHARED", "MAX", 2) > 0


def test_loaded_leases_end_for_each_holder(server, client):
    Lock(client).acquire("short", 60_000, "SHARED")
    Lock(client).acquire("long", 120_000, "SHARED")
    client.execute_command("DEBUG", "RELOAD")
    assert len(shown(client)[1]) == 2
    server.clock.advance(61)
    assert [token for token, *_ in shown(client)[1]] == [b"long"]
    assert stats(client)["expired"] == 1


def test_a_damaged_payload_is_refused(server, client):
    share_all(client, tokens=[b"token-one", b"token-two"])
    payload = client.dump("lock")
    client.delete("lock")
    client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    one = payload.index(b"token-one") - 14
    two = payload.index(b"token-two") - 14
    assert payload[one:one + 2] == payload[two:two + 2] == b"\x03\x01"

    def with_byte(at, value):
        return payload[:at] + bytes([value]) + payload[at + 1:]

    for damaged in (payload.replace(b"token-two", b"token-one"),  # one token twice
                    with_byte(two + 1, 0), with_byte(one + 1, 0),  # exclusive beside shared
                    with_byte(two + 1, 2), with_byte(two, 2)):  # another mode, another version
        with pytest.raises(redis.ResponseError, match="Bad data format"):
            client.restore("lock", 0, damaged)
    assert "a corrupt lock of 2 holders" in server.log()
    assert client.dbsize() == 0
    wait_until(lambda: stats(client)["holders"] == 0, "nothing to be left of the refused locks")
    client.restore("lock", 0, payload)
    assert len(shown(client)[1]) == 2


# -- other names and servers ----------------------------------------------------------------------


def test_renamed_holders_keep_the_lock_and_their_leases_end(server, client):
    """Also without a command on it."""
    for token, lease_ms in ("a", 60_000), ("b", 60_000), ("c", 120_000):
        Lock(client).acquire(token, lease_ms, "SHARED")
    before = shown(client)
    client.rename("lock", "renamed")
    assert stats(client)["forced"] == 3
    server.clock.advance(2)  # a search finds it
    server.clock.advance(61)
    assert stats(client)["holders"] == 1
    assert shown(client, "renamed") == (b"shared", before[1][2:])
    server.clock.advance(60)
    assert client.dbsize() == 0


def test_moved_restored_and_migrated_holders_keep_the_lock(server, start_server, client):
    share_all(client)
    before = shown(client)
    payload = client.dump("lock")
    client.move("lock", 1)
    other = server.client(db=1)
    assert shown(other) == before
    client.restore("copy", 0, payload)
    assert shown(client, "copy") == before
    with pytest.raises(redis.ResponseError):
        other.copy("lock", "copied")
    there = start_server()
    assert client.migrate("127.0.0.1", there.port, "copy", 0, 5000) == b"OK"
    assert (shown(there.client(), "copy"), shown(client, "copy")) == (before, None)
    assert Lock(there.client(), "copy").release(b"a") == 1


@pytest.mark.parametrize("how", ["SYNC", "ASYNC"])
def test_a_flush_ends_all_holders(server, client, how):
    share_all(client, tokens=[f"reader:{i}" for i in range(500)])
    [writer] = queue_up(server, ["writer"])
    client.execute_command("FLUSHALL", how)
    assert writer.answer() > 0
    wait_until(lambda: (stats(client)["holders"], stats(client)["forced"]) == (1, 500),
               "the holders to be forgotten")


@pytest.mark.parametrize("how", ["RENAME", "RESTORE", "SWAPDB"])
def test_a_waiter_gets_a_lock_that_its_token_holds_already(server, client, how):
    other = server.client(db=1)
    fence = Lock(other).acquire("a", 50_000, "SHARED")
    Lock(client).acquire("writer")
    [waiter] = queue_up(server, ["a"], options=["SHARED"], lease_ms=60_000)
    if how == "RENAME":
        other.rename("lock", "brought")
        other.move("brought", 0)
        client.rename("brought", "lock")
    if how == "RESTORE":
        client.restore("lock", 0, other.dump("lock"), replace=True)
    if how == "SWAPDB":
        client.swapdb(0, 1)
    assert waiter.answer() == fence
    assert shown(client) == (b"shared", [(b"a", fence, 60_000)])
    assert [Lock(client).release("a") for _ in range(2)] == [1, 0]
    assert shown(client) is None
