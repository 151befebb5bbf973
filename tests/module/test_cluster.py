"""Locks in a Redis Cluster: redirections, and slots that move while locks are held and awaited."""

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter

import pytest
import redis

from support import figures
from support.cluster import Cluster, Traveller, assert_fences_grow_over_moves, slot_of
from support.commands import Lock, details_of, plain, stats
from support.server import cli, wait_until
from support.session import Session
from support.waiting import (
    A_DAY, Waiting, flush_until_quiet, let_turn, queue_up, wait_for_waiters)

LOCKS = 15_000
ROUNDS = int(os.environ.get("DLOCK_MIGRATION_ROUNDS", 6))


class Moving:
    """A lock on node 0, held, whose slot is to move to node 1."""

    def __init__(self, cluster, db=0):
        self.cluster, self.db = cluster, db
        self.key = cluster.key_on(0)
        self.slot = slot_of(self.key)
        self.source, self.target = cluster.nodes[:2]
        self.here = Lock(self.source.client(db=db), self.key)
        self.there = Lock(self.target.client(db=db), self.key)
        self.fence = self.here.acquire("holder", 60_000)

    def queue_up(self, *tokens, **options):
        return queue_up(self.source, tokens, key=self.key, **options)

    def begin(self):
        self.cluster.begin_move(self.slot, 1)

    def move_keys(self):
        self.cluster.move_keys(self.slot, 1)

    def end(self):
        self.cluster.end_move(self.slot, 1)

    def turn_round(self):
        self.source, self.target = self.target, self.source
        self.here, self.there = self.there, self.here

    def follow(self, token="follower", lease_ms=60_000):
        """A client that comes to the source and goes where it is sent."""
        follower = Follower(self.source, "DLOCK.ACQUIRE", self.key, token, "PX", lease_ms,
                            "WAIT", A_DAY)
        follower.start()
        return follower

    def ask(self, command, *words):
        """On the target, while the slot is still the source's."""
        traveller = Traveller(self.source)
        try:
            return traveller.call(command, self.key, *words)
        finally:
            assert traveller.came_across == {"ASK": 1}
            traveller.close()


class Follower(threading.Thread):
    """One call of a traveller, in a thread of its own."""

    def __init__(self, node, *words):
        super().__init__(daemon=True)
        self.traveller = Traveller(node)
        self.words = words
        self.result = []

    def run(self):
        self.result.append(self.traveller.call(*self.words))
        self.traveller.close()

    def answer(self):
        self.join(50)
        assert self.result, "a waiter hangs"
        return self.result[0]


@pytest.fixture
def moving(cluster):
    return Moving(cluster)


def assert_sent_on(waiter, kinds=("TRYAGAIN", "MOVED", "ASK")):
    """With an error that a cluster client knows how to follow."""
    with pytest.raises(redis.ResponseError) as caught:
        waiter.answer()
    assert str(caught.value).split()[0] in kinds


# -- a cluster at rest ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    ("DLOCK.ACQUIRE", "me", "PX", 1000),
    ("DLOCK.ACQUIRE", "me", "PX", 1000, "WAIT", 1000, "SESSION"),
    ("DLOCK.RELEASE", "me"), ("DLOCK.EXTEND", "me", "PX", 1000), ("DLOCK.INFO",),
], ids=lambda words: " ".join(map(str, words)))
def test_a_command_to_the_wrong_node_is_redirected(cluster, words):
    key = cluster.key_on(0)
    command, *rest = words
    with pytest.raises(redis.ResponseError) as caught:
        cluster.nodes[1].client().execute_command(command, key, *rest)
    assert str(caught.value) == f"MOVED {slot_of(key)} 127.0.0.1:{cluster.nodes[0].port}"


def test_a_hash_tag_names_the_slot(cluster):
    key = cluster.key_on(2, "user")
    assert Lock(cluster.nodes[2].client(), "{%s}.lock" % key).acquire("me") > 0


def test_every_node_hands_over_however_a_lock_ends(cluster):
    for number, node in enumerate(cluster.nodes):
        key = cluster.key_on(number)
        lock = Lock(node.client(), key)
        holder = Waiting(node, "holder", key=key, options=["SESSION"])
        fences = [holder.answer()]
        waiting = queue_up(node, ["first", "second", "third", "fourth"], key=key)
        for waiter, end in zip(waiting, [
                holder.close, lambda: lock.release("first"), lambda: lock.client.delete(key),
                lambda: node.clock.advance(601)]):
            end()
            fences.append(waiter.answer())
        assert fences == sorted(set(fences))


# -- a slot moves ---------------------------------------------------------------------------------


def test_a_held_lock_moves_with_its_slot(cluster, moving):
    cluster.move(moving.slot, 1)
    info = moving.there.info()
    assert (info["token"], info["fence"], info["lease"]) == (b"holder", moving.fence, 60_000)
    assert moving.there.acquire("thief") is None
    assert moving.there.acquire("holder") == moving.fence
    assert moving.there.release("holder") == 1
    assert moving.there.acquire("next") > moving.fence
    with pytest.raises(redis.ResponseError, match="^MOVED"):
        moving.here.info()


def test_the_new_owner_of_a_slot_starts_the_lease_anew(cluster, moving):
    moving.source.clock.advance(30)
    assert moving.here.ttl() <= 30_000
    cluster.move(moving.slot, 1)
    assert 30_000 < moving.there.ttl() <= 60_000
    assert moving.there.client.pttl(moving.key) == -1


def test_a_lock_that_moves_twice_comes_back_as_it_was(cluster, moving):
    cluster.move(moving.slot, 1)
    cluster.move(moving.slot, 0)
    info = moving.here.info()
    assert (info["token"], info["fence"]) == (b"holder", moving.fence)
    assert moving.here.release("holder") == 1
    assert moving.here.acquire("next") > moving.fence


def test_waiters_of_a_lock_that_moves_are_sent_on_and_granted_nothing(cluster, moving):
    waiting = moving.queue_up("first", "second") + moving.queue_up("third", options=["SESSION"])
    before = stats(moving.here.client)["granted"]
    moving.begin()
    assert not waiting[0].is_answered()
    moving.move_keys()
    for waiter in waiting:
        assert_sent_on(waiter)
    moving.end()
    assert stats(moving.here.client)["granted"] == before
    assert stats(moving.here.client)["waiters"] == 0
    assert moving.there.info()["fence"] == moving.fence


def test_waiters_that_follow_get_the_lock_on_the_other_side(cluster, moving):
    waiting = moving.queue_up("first")
    cluster.move(moving.slot, 1)
    assert_sent_on(waiting[0])
    follower = moving.follow("first")
    wait_for_waiters(moving.there.client, 1)
    assert moving.there.release("holder") == 1
    assert follower.answer() == moving.there.info()["fence"]
    assert follower.answer() > moving.fence
    assert follower.traveller.came_across == {"MOVED": 1}


def test_a_waiter_finds_the_moved_lock_before_the_move_is_over(cluster, moving):
    """Key there, slot not yet: the source says ASK, and the target lets it wait."""
    moving.begin()
    moving.move_keys()
    follower = moving.follow()
    wait_for_waiters(moving.there.client, 1)
    assert follower.traveller.came_across == {"ASK": 1}
    assert moving.ask("DLOCK.RELEASE", "holder") == 1
    assert follower.answer() > moving.fence
    moving.end()
    assert moving.there.info()["fence"] == follower.answer()


def test_a_waiter_on_the_other_side_is_served_after_the_move_is_over(cluster, moving):
    moving.begin()
    moving.move_keys()
    follower = moving.follow()
    wait_for_waiters(moving.there.client, 1)
    moving.end()
    assert not follower.result
    assert moving.there.release("holder") == 1
    assert follower.answer() == moving.there.info()["fence"]


def test_a_release_before_the_key_moves_hands_over_here(cluster, moving):
    first, second = moving.queue_up("first", "second")
    moving.begin()
    assert moving.here.release("holder") == 1
    fence = first.answer()
    assert fence > moving.fence
    assert not second.is_answered()
    moving.move_keys()
    assert_sent_on(second)
    moving.end()
    assert moving.there.info()["fence"] == fence
    assert moving.there.acquire("thief") is None


@pytest.mark.parametrize("end", [
    lambda lock: lock.client.delete(lock.key),
    lambda lock: lock.client.pexpire(lock.key, 20),
    lambda lock: lock.client.pexpire(lock.key, 0),
], ids=["del", "pexpire", "pexpire 0"])
def test_a_lock_that_ends_here_while_its_slot_moves_is_not_granted_here(cluster, moving, end):
    """A key that is not here is to be made over there. That side may not have heard of the newest
    fences yet."""
    waiting = moving.queue_up("first", "second")
    moving.begin()
    before = stats(moving.here.client)["granted"]
    end(moving.here)
    for waiter in waiting:
        assert_sent_on(waiter)
    assert stats(moving.here.client)["granted"] == before
    assert moving.ask("DLOCK.ACQUIRE", "first", "PX", 60_000) > 0
    moving.end()
    assert moving.there.info()["token"] == b"first"


def test_a_lease_that_ends_here_while_its_slot_moves_is_handed_on_by_one_of_both(cluster, moving):
    """The key is here until it moves. Here the waiter may get the lock, or be sent on."""
    [waiter] = moving.queue_up("waiter")
    moving.begin()
    moving.source.clock.advance(61)
    try:
        fence = waiter.answer()
        assert fence == moving.here.info()["fence"]
    except redis.ResponseError as error:
        assert str(error).split()[0] in ("TRYAGAIN", "MOVED", "ASK")
        fence = moving.follow("waiter").answer()
    assert fence > moving.fence


def test_a_session_that_ends_here_while_its_slot_moves_hands_over_here(cluster, moving):
    moving.here.release("holder")
    holder = Waiting(moving.source, "holder", key=moving.key, options=["SESSION"])
    holder.answer()
    [waiter] = moving.queue_up("waiter")
    moving.begin()
    holder.close()
    fence = waiter.answer()
    moving.move_keys()
    moving.end()
    assert moving.there.info()["fence"] == fence


def test_a_session_does_not_move_and_its_end_frees_nothing_over_there(cluster, moving):
    moving.here.release("holder")
    holder = Waiting(moving.source, "holder", key=moving.key, options=["SESSION"])
    fence = holder.answer()
    cluster.move(moving.slot, 1)
    assert stats(moving.here.client)["session_holds"] == 0
    assert (moving.there.info()["fence"], moving.there.info()["session"]) == (fence, 0)
    holder.close()
    let_turn(moving.source)
    let_turn(moving.target)
    assert moving.there.info()["fence"] == fence


def test_a_lease_that_ends_over_there_too_early_starts_anew_with_the_end_of_the_move(
        cluster, moving):
    moving.begin()
    moving.move_keys()
    moving.target.clock.advance(61)
    moving.end()
    assert moving.there.acquire("next") is None
    assert (moving.there.info()["fence"], moving.there.ttl() > 0) == (moving.fence, True)
    moving.target.clock.advance(61)
    assert moving.there.acquire("next") > moving.fence


HOLD_UP = [  # Valkey 9; Redis 8.4: words that begin it, and words that end it
    (("SLOTMIGRATION", "PREVENT-PAUSE", 1), ("SLOTMIGRATION", "PREVENT-PAUSE", 0)),
    (("ASM-FAILPOINT", "migrate-main-channel", "handoff-prep"), ("ASM-FAILPOINT", "", "")),
]


@contextlib.contextmanager
def held_up(source):
    """Migrations that begin have sent all keys, and go on when the with statement ends."""
    for begin, end in HOLD_UP:
        with contextlib.suppress(redis.ResponseError):
            plain(source.observer, "DEBUG", *begin)
            break
    else:
        pytest.skip("this server can hold up no migration")
    try:
        yield
    finally:
        plain(source.observer, "DEBUG", *end)


def begin_migration(cluster, moving):
    """Returns when a copy of the lock is over there, with what has to be called until the end."""
    wait_until(lambda: stats(moving.there.client)["held"] == 0, "the end of an earlier copy")
    goes_on = cluster.begin_migration(moving.slot, cluster.nodes.index(moving.target))
    wait_until(lambda: goes_on() and stats(moving.there.client)["held"] == 1, "the copy")
    return goes_on


@contextlib.contextmanager
def migrating(cluster, moving):
    """A copy of the lock is over there. The slot follows when the with statement ends."""
    with held_up(moving.source):
        goes_on = begin_migration(cluster, moving)
        yield
    cluster.owners[moving.slot] = cluster.nodes.index(moving.target)
    wait_until(lambda: goes_on() and cluster.all_know_owner(moving.slot), "the slot to be moved")


def keep(moving, *mode):
    """A session keeps the lock at the source."""
    moving.here.release("holder")
    session = Session(moving.source, db=moving.db)
    return session, session.hold("me", *mode, key=moving.key)


@pytest.mark.parametrize("mode", [(), ("SHARED",)], ids=["exclusive", "shared"])
@pytest.mark.parametrize("seconds", [45, 61])
def test_a_kept_lock_gets_a_whole_new_lease_however_long_its_slot_has_migrated(
        cluster, moving, seconds, mode):
    """The new owner hears of no heartbeat, and cannot know how long the session lives."""
    _, fence = keep(moving, *mode)
    with migrating(cluster, moving):
        moving.target.clock.advance(seconds)
        assert moving.here.acquire("next") is None
    assert moving.there.acquire("next") is None
    assert moving.there.info()["fence"] == fence
    assert 15_000 < moving.there.ttl() <= 60_000
    moving.target.clock.advance(61)
    assert moving.there.acquire("next") > fence


def assert_has_whole_new_lease(moving, fence):
    """45 seconds after the copy was made."""
    moving.target.clock.advance(20)  # past the lease of the copy
    let_turn(moving.target)
    assert (moving.there.info()["fence"], moving.there.ttl() > 0) == (fence, True)
    moving.target.clock.advance(61)
    wait_until(lambda: stats(moving.there.client)["held"] == 0, "the end of the lock")


def test_a_kept_lock_that_nobody_asks_for_has_a_whole_new_lease_too(cluster, moving):
    _, fence = keep(moving)
    with migrating(cluster, moving):
        moving.target.clock.advance(45)
    assert_has_whole_new_lease(moving, fence)


@pytest.fixture
def with_databases(cluster):
    """Another cluster, of two nodes with several databases. Valkey 9 has such."""
    if not cluster.nodes[0].observer.config_get("cluster-databases"):
        pytest.skip("the clusters of this server have one database")
    made = Cluster(2, options=("--cluster-databases", 2))
    try:
        made.start()
        yield made
    finally:
        made.destroy()


@pytest.mark.parametrize("db", [0, 1])
def test_a_kept_lock_has_a_whole_new_lease_in_a_slot_that_moves_on(with_databases, db):
    """A node that gives a slot away redirects whoever asks for a key that it does not have: so it
    is asked in the database of the lock."""
    moving = Moving(with_databases, db)
    _, fence = keep(moving)
    with migrating(with_databases, moving):
        moving.target.clock.advance(45)
    plain(moving.target.observer, "CLUSTER", "SETSLOT", moving.slot, "MIGRATING",
          with_databases.ids[0])
    assert_has_whole_new_lease(moving, fence)


@pytest.mark.limit(180, "thousands of locks migrate")
def test_shared_holders_that_lose_another_while_they_migrate_have_a_whole_new_lease(
        cluster, moving):
    """The release of the other one arrives while the module of the new node has not yet looked at
    all the copies."""
    moving.here.release("holder")
    session, names = Session(moving.source), ["%d{%s}" % (i, moving.key) for i in range(LOCKS)]

    def ask(client, *words):
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.execute_command(words[0], name, *words[1:])
        return pipe.execute()
    ask(moving.here.client, "DLOCK.ACQUIRE", "other", "PX", 600_000, "SHARED")
    ask(moving.here.client, "DLOCK.ACQUIRE", "me", "VIA", session.name, "SESSION", "SHARED")
    there = moving.target.observer

    def count(what):
        return stats(there)[what]
    with held_up(moving.source):
        goes_on = cluster.begin_migration(moving.slot, 1)
        wait_until(lambda: goes_on() and count("held") > 0, "the first copies")
        ask(moving.here.client, "DLOCK.RELEASE", "other")
        wait_until(lambda: goes_on() and count("held") == count("holders") == LOCKS, "all copies")
        let_turn(moving.target)
        moving.target.clock.advance(45)
    cluster.owners[moving.slot] = 1
    wait_until(lambda: goes_on() and cluster.all_know_owner(moving.slot), "the slot to be moved")
    left = [details_of(reply)["holders"][0]["ttl"] for reply in ask(there, "DLOCK.INFO")]
    assert min(left) > 30_000, f"{sum(ms <= 30_000 for ms in left)} have the rest of an old lease"


def test_what_changes_while_the_slot_migrates_has_a_whole_new_lease_too(cluster, moving):
    with migrating(cluster, moving):
        assert moving.here.extend("holder", 80_000) == 1
        assert moving.here.acquire("holder") == moving.fence
        moving.target.clock.advance(70)
    assert 20_000 < moving.there.ttl() <= 80_000


def test_a_session_that_ends_while_the_slot_migrates_ends_its_lock_on_both_sides(
        cluster, moving):
    session, _ = keep(moving)
    with migrating(cluster, moving):
        moving.target.clock.advance(45)
        session.end()
        wait_until(lambda: stats(moving.there.client)["held"] == 0, "the end of the copy")
    assert moving.there.acquire("next") > 0


@contextlib.contextmanager
def too_few_replicas(moving):
    moving.target.observer.config_set("min-replicas-to-write", 1)
    try:
        yield
    finally:
        moving.target.observer.config_set("min-replicas-to-write", 0)


@contextlib.contextmanager
def cluster_down(moving):
    """As the target sees it, since one of its slots is nobody's there."""
    node, owners = moving.target.observer, moving.cluster.owners
    slot = owners.index(moving.cluster.nodes.index(moving.target))

    def is_down():
        return b"cluster_state:fail" in plain(node, "CLUSTER", "INFO").split()
    plain(node, "CLUSTER", "DELSLOTS", slot)
    try:
        wait_until(is_down, "the cluster to be down")
        yield
    finally:
        plain(node, "CLUSTER", "ADDSLOTS", slot)
        wait_until(lambda: not is_down(), "the cluster to be up")


def let_leases_end(moving):
    for _ in range(3):
        moving.target.clock.advance(61)
        let_turn(moving.target)


@pytest.mark.parametrize("refusing", [too_few_replicas, cluster_down])
def test_a_node_that_refuses_writes_ends_no_lock_of_a_slot_that_it_imports(
        cluster, moving, refusing):
    moving.begin()
    moving.move_keys()
    let_turn(moving.target)
    with refusing(moving):
        let_leases_end(moving)
    moving.end()
    assert moving.there.info()["fence"] == moving.fence


@pytest.mark.parametrize("refusing", [too_few_replicas, cluster_down])
def test_a_node_that_refuses_writes_ends_no_lock_that_migrates_to_it(cluster, moving, refusing):
    _, fence = keep(moving)
    with migrating(cluster, moving), refusing(moving):
        let_leases_end(moving)
    assert moving.there.info()["fence"] == fence


def test_nothing_is_left_of_a_migration_that_was_cancelled(cluster, moving):
    with held_up(moving.source):
        begin_migration(cluster, moving)
        cluster.cancel_migrations(0, 1)
        wait_until(lambda: stats(moving.there.client)["held"] == 0, "the end of the copy")
    assert moving.here.info()["fence"] == moving.fence
    with migrating(cluster, moving):
        moving.target.clock.advance(45)
    assert 15_000 < moving.there.ttl() <= 60_000


def test_a_lock_that_migrates_twice_gets_a_whole_new_lease_each_time(cluster, moving):
    _, fence = keep(moving)
    with migrating(cluster, moving):
        moving.target.clock.advance(45)
    moving.turn_round()
    with migrating(cluster, moving):
        moving.target.clock.advance(45)
    assert (moving.there.info()["fence"], moving.there.ttl() > 15_000) == (fence, True)


def test_a_session_that_keeps_a_lock_before_the_slot_is_there_goes_on_keeping_it(
        cluster, moving):
    moving.begin()
    moving.move_keys()
    session = Session(moving.target)
    assert moving.ask("DLOCK.ACQUIRE", "holder", "VIA", session.name, "SESSION") == moving.fence
    moving.end()
    for _ in range(3):
        assert moving.there.info()["fence"] == moving.fence
        session.park()
        moving.target.clock.advance(45)
        assert session.read()[1] == []


def test_a_lease_that_ends_over_there_too_early_leaves_nobody_hanging(cluster, moving):
    moving.begin()
    moving.move_keys()
    followers = [moving.follow(f"waiter:{i}", lease_ms=50) for i in range(3)]
    wait_for_waiters(moving.there.client, 3)
    moving.target.clock.advance(61)
    fences = [follower.answer() for follower in followers]
    assert len(set(fences)) == 3 and min(fences) > moving.fence
    moving.end()


def test_a_move_that_is_taken_back_leaves_nobody_hanging(cluster, moving):
    """The waiter went over there with ASK; then the slot stays with the source after all."""
    moving.begin()
    moving.move_keys()
    follower = moving.follow()
    wait_for_waiters(moving.there.client, 1)
    cluster.take_back(moving.slot, 1)
    wait_for_waiters(moving.there.client, 0)
    wait_for_waiters(moving.here.client, 1)
    assert moving.here.info()["fence"] == moving.fence
    assert moving.here.release("holder") == 1
    assert follower.answer() == moving.here.info()["fence"]


def test_waiters_for_a_string_lock_that_moves_are_sent_on(cluster):
    key = cluster.key_on(0, "string")
    here, there = (node.client() for node in cluster.nodes[:2])
    here.set(key, "other", nx=True, px=60_000)
    waiting = queue_up(cluster.nodes[0], ["first", "second"], key=key)
    cluster.move(slot_of(key), 1)
    for waiter in waiting:
        assert_sent_on(waiter)
    assert there.get(key) == b"other"
    assert Lock(there, key).acquire("first") is None


def test_waiters_for_other_slots_do_not_notice(cluster, moving):
    key = cluster.key_on(0, "stays")
    lock = Lock(moving.source.client(), key)
    lock.acquire("me", 60_000)
    [waiter] = queue_up(moving.source, ["waiter"], key=key)
    cluster.move(moving.slot, 1)
    assert not waiter.is_answered()
    lock.release("me")
    assert waiter.answer() > 0


def test_waiters_for_a_slot_that_nobody_serves_are_told(cluster):
    key = cluster.key_on(2)
    node = cluster.nodes[2]
    Lock(node.client(), key).acquire("me", 60_000)
    waiting = queue_up(node, ["waiter"], key=key)
    node.client().execute_command("CLUSTER", "DELSLOTS", slot_of(key))
    try:
        assert_sent_on(waiting[0], ["CLUSTERDOWN"])
    finally:
        node.client().execute_command("CLUSTER", "ADDSLOTS", slot_of(key))
        cluster.wait_until_ready()


# -- a cluster that is down -----------------------------------------------------------------------


@contextlib.contextmanager
def down(cluster):
    """Nobody serves a slot, so that the cluster refuses all writes, for the body of a with."""
    client, slot = cluster.nodes[0].observer, slot_of("another")
    client.execute_command("CLUSTER", "DELSLOTS", slot)
    wait_until(lambda: b"cluster_state:fail" in plain(client, "CLUSTER", "INFO"), "the end of it")
    try:
        yield
    finally:
        client.execute_command("CLUSTER", "ADDSLOTS", slot)
        cluster.wait_until_ready()


def is_refused(node):
    with pytest.raises(redis.ResponseError) as caught:
        Lock(node.client(), "fresh").acquire("me")
    return "CLUSTERDOWN" in str(caught.value) or "down" in str(caught.value)


SENT_AWAY = ("CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")


def test_who_waits_for_a_string_in_a_cluster_that_goes_down_is_told_so(lonely):
    """The key is a string as before: WRONGTYPE would be final."""
    [node] = lonely.nodes
    node.client().set("string", "other")
    [waiter] = queue_up(node, ["waiter"], key="string")
    with down(lonely):
        assert is_refused(node)
        if waiter.is_answered():
            assert_sent_on(waiter, SENT_AWAY)
    node.client().flushall()


def by_session(node):
    holder = Waiting(node, "holder", key="lock", options=["SESSION"])
    holder.answer()
    return holder.close


def by_lease(node):
    Lock(node.observer).acquire("holder", 60_000)
    return lambda: node.clock.advance(61)


@pytest.mark.parametrize("reads", ["no", "yes"])
@pytest.mark.parametrize("prepare", [by_session, by_lease])
def test_in_a_cluster_that_is_down_no_lock_is_handed_on(lonely, prepare, reads):
    """Also where the node still answers reads."""
    [node] = lonely.nodes
    node.observer.config_set("cluster-allow-reads-when-down", reads)
    end = prepare(node)
    granted = stats(node.observer)["granted"]
    [waiter] = queue_up(node, ["waiter"])
    with down(lonely):
        assert is_refused(node)
        end()
        for _ in range(3):
            node.clock.advance(1)
        if waiter.is_answered():
            assert_sent_on(waiter, SENT_AWAY)
        assert stats(node.observer)["granted"] == granted, "granted while writes are refused"
    waiter.close()
    flush_until_quiet(node.observer)
    node.observer.config_set("cluster-allow-reads-when-down", "no")


# -- a node without replicas ----------------------------------------------------------------------


@pytest.mark.parametrize("prepare", ["session", "lease"])
@pytest.mark.parametrize("number", range(3))
def test_with_too_few_replicas_no_node_hands_a_lock_on(cluster, number, prepare):
    """Whichever slots it has: only one of them has slot 0."""
    node, key = cluster.nodes[number], cluster.key_on(number)
    holder = Waiting(node, "holder", key=key, lease_ms=600_000 if prepare == "session" else 60_000,
                     options=["SESSION"] if prepare == "session" else [])
    fence = holder.answer()
    [waiter] = queue_up(node, ["waiter"], key=key)
    node.observer.config_set("min-replicas-to-write", 1)
    try:
        holder.close()
        for _ in range(3):
            node.clock.advance(61)
        assert not waiter.is_answered(), "handed on while writes are refused"
    finally:
        node.observer.config_set("min-replicas-to-write", 0)
    assert waiter.answer() > fence


# -- many moves -----------------------------------------------------------------------------------


def by_hand(cluster, slot, target):
    cluster.begin_move(slot, target)
    time.sleep(0.05)  # not for luck: so long the slot is in between, with its keys here
    cluster.move_keys(slot, target)
    time.sleep(0.05)  # and so long with its keys there
    cluster.end_move(slot, target)


def by_redis_cli(cluster, slot, target):
    """It takes the lowest slots of the source, so the slot must be that one."""
    source = cluster.owners[slot]
    assert cluster.owners.index(source) == slot
    cluster.wait_until_settled()
    subprocess.run(
        [cli(), "--cluster", "reshard", f"127.0.0.1:{cluster.nodes[0].port}",
         "--cluster-from", cluster.ids[source], "--cluster-to", cluster.ids[target],
         "--cluster-slots", "1", "--cluster-yes"],
        check=True, capture_output=True, timeout=300)
    cluster.owners[slot] = target
    cluster.wait_until_all_know_owner(slot)


def atomically(cluster, slot, target):
    try:
        cluster.migrate_atomically(slot, target)
    except redis.ResponseError as refusal:
        assert "unknown subcommand" in str(refusal).lower()
        pytest.skip("this server has no atomic slot migration")


MOVES = [by_hand, by_redis_cli, atomically]


@pytest.mark.parametrize("move", [by_hand, atomically])
def test_all_shared_holders_move_with_the_slot(cluster, move):
    key = cluster.key_on(0)
    here = Lock(cluster.nodes[0].client(), key)
    fences = {token: here.acquire(token, 60_000, "SHARED") for token in (b"a", b"b", b"c")}
    move(cluster, slot_of(key), 1)
    there = Lock(cluster.nodes[1].client(), key)
    details = details_of(there.client.execute_command("DLOCK.INFO", key))
    assert details["mode"] == b"shared"
    assert {each["token"]: each["fence"] for each in details["holders"]} == fences
    assert there.acquire("d", 60_000, "SHARED", "MAX", 3) is None
    assert there.acquire("writer") is None
    assert there.release("a") == 1
    assert there.acquire("d", 60_000, "SHARED", "MAX", 3) > max(fences.values())
    there.client.delete(key)
    cluster.move(slot_of(key), 0)


class Worker(threading.Thread):
    """Takes the lock again and again, wherever it is, and looks whether it is alone."""

    def __init__(self, cluster, key, name, shared):
        super().__init__(name=name, daemon=True)
        self.traveller = Traveller(cluster.owner(key))
        self.key = key
        self.shared = shared
        self.failure = None

    def run(self):
        try:
            count = 0
            while not self.shared.is_over:
                count += 1
                self.take_and_release(f"{self.name}:{count}")
        except BaseException as failure:
            self.failure = failure
        finally:
            self.traveller.close()

    def take_and_release(self, token):
        words = ("DLOCK.ACQUIRE", self.key, token, "PX", 30_000, "WAIT", 20_000)
        fence = self.traveller.call(*words)
        assert fence is not None, "20 s were not enough"
        assert self.shared.inside.acquire(blocking=False), "two holders"
        self.shared.fences.append(fence)
        time.sleep(0.001)
        self.shared.inside.release()
        assert self.traveller.call("DLOCK.RELEASE", self.key, token) == 1


class Work:
    """Workers for one key, who share what they see."""

    def __init__(self, cluster, key, count=8):
        self.is_over = False
        self.inside = threading.Lock()
        self.fences = []
        self.workers = [Worker(cluster, key, f"worker{i}", self) for i in range(count)]
        for worker in self.workers:
            worker.start()

    def check(self):
        for worker in self.workers:
            if worker.failure:
                raise worker.failure

    def wait_for_next_holder(self):
        before = len(self.fences)

        def is_there():
            self.check()
            return len(self.fences) > before
        wait_until(is_there, "the next holder")

    def end(self):
        self.is_over = True
        for worker in self.workers:
            worker.join(60)
            assert not worker.is_alive(), "a waiter hangs"
        self.check()
        assert_fences_grow_over_moves(self.fences)

    def came_across(self):
        return sum((worker.traveller.came_across for worker in self.workers), Counter())


def move_while_held_and_awaited(cluster, key, move, target):
    """One lock stays held during the move, and its waiter gets it afterwards; both fences."""
    here = Lock(cluster.owner(key).observer, key)
    fence = here.acquire("holder", 600_000)
    follower = Follower(cluster.owner(key), "DLOCK.ACQUIRE", key, "follower", "PX", 600_000,
                        "WAIT", 25_000)
    follower.start()
    wait_until(lambda: here.info()["waiters"] == 1, "the waiter")
    move(cluster, slot_of(key), target)
    there = Lock(cluster.owner(key).observer, key)
    assert (there.info()["token"], there.info()["fence"]) == (b"holder", fence)
    assert there.acquire("thief") is None
    assert there.release("holder") == 1
    next_fence = follower.answer()
    assert follower.traveller.came_across, "a waiter that was not sent on"
    assert there.release("follower") == 1
    return [fence, next_fence]


@pytest.mark.parametrize("move", MOVES)
def test_moves_there_and_back_grant_nothing_twice_and_leave_nobody_hanging(cluster, move):
    slot = cluster.owners.index(0)
    key = next(f"lock:{i}" for i in range(10**6) if slot_of(f"lock:{i}") == slot)
    work = Work(cluster, key)
    fences = []
    for i in range(ROUNDS):
        fences += move_while_held_and_awaited(cluster, "{%s}:held" % key, move, (i + 1) % 2)
        work.wait_for_next_holder()
    work.end()
    assert fences == sorted(set(fences)), "a fence that does not grow"
    kinds = work.came_across()
    expected = {"ASK", "MOVED", "TRYAGAIN"} if move is by_hand else {"MOVED"}
    assert expected <= set(kinds)
    figures.tell(f"slot migration {move.__name__}: {ROUNDS} moves, "
                 f"{len(work.fences) + len(fences)} grants, 0 double, 0 waiters hanging, "
                 f"{sum(kinds.values())} redirections")
    if ROUNDS % 2:
        cluster.move(slot, 0)
