"""Fences do not need clocks that agree: the wall clocks of servers that replace each other differ
by an hour, or are set back, and no fence of a name goes back."""

import time

import pytest
import redis

from support.cluster import Cluster, slot_of
from support.commands import Lock, stats
from support.files import AOF, write_aof
from support.server import free_port, running, wait_until
from support.stream import ReplicationStream

HOUR = 3600
SKEWS = pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["an hour ahead", "an hour behind"])
GRANTS = 10_000
TAKEOVERS = 8

TAKE_AND_RELEASE = """
    local fences = {}
    for i = 1, ARGV[1] do
        fences[i] = redis.call('DLOCK.ACQUIRE', KEYS[1], 'me', 'PX', 600000)
        redis.call('DLOCK.RELEASE', KEYS[1], 'me')
    end
    return fences"""


class Fences:
    """All that one name was ever given: each is above the one before."""

    def __init__(self, key="lock"):
        self.key, self.count, self.highest = key, 0, 0

    def add(self, *fences):
        for fence in fences:
            assert fence > self.highest, f"back by {(self.highest - fence) / 1e6} s"
            self.highest = fence
        self.count += len(fences)

    def grant(self, client, count):
        self.add(*client.eval(TAKE_AND_RELEASE, 1, self.key, count))


def ahead_us(seconds):
    return time.time_ns() // 1000 + seconds * 1_000_000


def is_7_0(client):
    return client.info("server")["redis_version"].startswith("7.0.")


def rewrite(client):
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"]
               and not client.info("persistence")["aof_rewrite_scheduled"], "AOF rewrite")


def follow(replica, master):
    replica.observer.execute_command("REPLICAOF", "127.0.0.1", master.port)
    wait_until(lambda: replica.observer.info("replication")["master_link_status"] == "up",
               "the replica")


def wait_for_replica(master, replica):
    master.clock.turn()  # what the master tells by itself is in the stream

    def offset(server, name):
        return server.observer.info("replication")[name]
    wait_until(lambda: offset(replica, "slave_repl_offset") >= offset(master, "master_repl_offset"),
               "the replica to follow")


# -- failovers ------------------------------------------------------------------------------------


def test_a_server_that_is_stopped_does_not_run_ahead(start_server):
    """Between its readings of two clocks, as happens on a busy machine. It would be ahead for ever,
    and nodes of a cluster would differ by as much."""
    server = start_server()
    lock = Lock(server.client(), "lock")
    server.clock.stall(0.2)
    assert lock.acquire("before") > 0
    server.clock.stall(0)
    lock.release("before")
    assert stats(server.client())["fence_clock"] <= ahead_us(0.1)  # the clock may be set meanwhile
    assert lock.acquire("after") <= ahead_us(0.1)


@SKEWS
@pytest.mark.parametrize("is_lost", [False, True], ids=["all arrived", "the last were lost"])
def test_no_fence_goes_back_in_failovers(start_server, skew, is_lost):
    master, replica = start_server(), start_server()
    master.clock.step(skew)
    fences = Fences()
    for _ in range(TAKEOVERS):
        follow(replica, master)
        fences.grant(master.observer, GRANTS // TAKEOVERS // 2)
        wait_for_replica(master, replica)
        if is_lost:
            replica.observer.execute_command("REPLICAOF", "127.0.0.1", free_port())
        fences.grant(master.observer, GRANTS // TAKEOVERS // 2)
        wait_for_replica(master, replica) if not is_lost else None
        replica.observer.execute_command("REPLICAOF", "NO", "ONE")
        master, replica = replica, master
    assert fences.count == GRANTS


@SKEWS
def test_a_replica_that_comes_later_knows_the_clock(start_server, skew):
    """No lock is held, and no fence is given out while the replica is there."""
    master, replica = start_server(), start_server()
    master.clock.step(skew)
    fences = Fences()
    fences.grant(master.observer, 10)
    follow(replica, master)
    wait_for_replica(master, replica)
    replica.observer.execute_command("REPLICAOF", "NO", "ONE")
    fences.grant(replica.observer, 10)


def test_a_replica_of_a_replica_knows_the_clock(start_server):
    master, middle, last = (start_server() for _ in range(3))
    master.clock.step(HOUR)
    fences = Fences()
    follow(middle, master)
    follow(last, middle)
    fences.grant(master.observer, 10)
    wait_until(lambda: stats(last.observer)["last_fence"] == fences.highest, "the last replica")
    last.observer.execute_command("REPLICAOF", "NO", "ONE")
    fences.grant(last.observer, 10)


# -- restarts -------------------------------------------------------------------------------------

FILES = {"rdb": (), "aof": AOF, "aof without preamble": (*AOF, "--aof-use-rdb-preamble", "no")}
EVERY_FILE = pytest.mark.parametrize("options", FILES.values(), ids=FILES.keys())


@SKEWS
@EVERY_FILE
@pytest.mark.parametrize("is_rewritten", [False, True], ids=["as it was", "rewritten"])
def test_no_fence_goes_back_in_restarts(start_server, options, is_rewritten, skew):
    """The lock is free when the server stops, and the clock is set while the server is down."""
    server = start_server(*options)
    if not options and (is_rewritten or is_7_0(server.observer)):
        pytest.skip("has no file to rewrite; or is 7.0, whose RDB can say nothing of free locks")
    fences = Fences()
    for step in (skew, -2 * skew, skew):
        fences.grant(server.observer, 100)
        if is_rewritten:
            rewrite(server.observer)
            server.clock.turn()
        server.observer.save() if not options else None
        server.stop()
        server.clock.step(step)
        server.start()
    fences.grant(server.observer, 100)


@EVERY_FILE
def test_a_crash_whose_last_fences_were_lost_gives_none_of_them_again(start_server, options):
    server = start_server(*options)
    fences = Fences()
    fences.grant(server.observer, 10)
    server.observer.save() if not options else None
    fences.add(Lock(server.observer).acquire("me", 60_000, "FENCE", ahead_us(240)))
    Lock(server.observer).release("me")
    fences.grant(server.observer, 100)
    server.kill()
    server.start()
    fences.grant(server.observer, 10)


def test_files_of_a_server_that_is_to_lose_the_module_say_nothing_of_it(start_server):
    server = start_server(*AOF, "--aof-use-rdb-preamble", "no")
    client = server.observer
    Lock(client).acquire("me")
    Lock(client).release("me")
    server.clock.turn()
    client.config_set("dlock.drain", "yes")
    rewrite(client)
    server.clock.turn()
    files = (server.dir / "appendonlydir").glob("*.aof")
    assert not any(b"dlock" in file.read_bytes().lower() for file in files)


# -- who is told, and when ------------------------------------------------------------------------


def sent(stream, client, *names):
    """The commands with these names that were sent since the last time."""
    client.set(stream.MARK, 1)
    seen = []
    while (command := stream._next())[:2] != [b"SET", stream.MARK]:
        seen += [command] if command[0].lower() in names else []
    return seen


def clocks(stream, client):
    """The DLOCK.CLOCK that were sent since the last time."""
    return [tuple(map(int, words)) for _, *words in sent(stream, client, b"dlock.clock")]


@pytest.fixture
def stream(start_server):
    server = start_server()
    stream = ReplicationStream(server)
    stream.server = server
    yield stream
    stream.close()


def test_a_master_tells_its_clock_while_fences_are_given_out(stream):
    server, client = stream.server, stream.server.observer
    fences = Fences()
    assert clocks(stream, client) == []
    fences.grant(client, 10)
    server.clock.turn()
    [(first, _)] = clocks(stream, client)
    assert abs(first - fences.highest) < 60_000_000
    fences.grant(client, 10)
    server.clock.turn()
    assert clocks(stream, client) == [], "not with each grant"
    server.clock.advance(6)
    [(second, _)] = clocks(stream, client)
    assert second > first
    server.clock.advance(60)
    assert clocks(stream, client) == [], "nothing is new"


def test_a_clock_is_told_in_database_0_also_after_a_search_through_all_databases(stream):
    """A replica in a cluster refuses to select another one."""
    server, client = stream.server, stream.server.observer
    Lock(client).acquire("me", 600_000)
    server.clock.turn()
    client.rename("lock", "other")
    Lock(client).acquire("me", 600_000)
    assert clocks(stream, client) != []
    server.clock.advance(6)
    names = [words[0].lower() for words in sent(stream, client, b"dlock.clock", b"select")]
    assert names == [b"dlock.clock"]


def test_a_clock_that_has_stepped_is_told_at_once(stream):
    server, client = stream.server, stream.server.observer
    fences = Fences()
    fences.grant(client, 10)
    server.clock.turn()
    [(first, _)] = clocks(stream, client)
    server.clock.step(HOUR)
    fences.grant(client, 10)
    server.clock.turn()
    [(second, _)] = clocks(stream, client)
    assert second - first > (HOUR - 60) * 1_000_000


def test_a_master_tells_by_how_much_its_clock_leads(stream):
    server, client = stream.server, stream.server.observer
    Lock(client).acquire("me", 60_000, "FENCE", ahead_us(240))
    server.clock.turn()
    [(base, clock)] = clocks(stream, client)
    assert 180_000_000 < clock - base <= 240_000_000


@pytest.mark.parametrize("words", [
    ("DLOCK.CLOCK", 2**52, 2**52),
    ("EVAL", "return redis.call('DLOCK.CLOCK', '4503599627370496', '4503599627370496')", 0),
    ("EVAL", "return redis.pcall('DLOCK.CLOCK', '4503599627370496', '4503599627370496')", 0)])
def test_no_client_can_set_the_clock(client, words):
    with pytest.raises(redis.ResponseError, match="internal"):
        client.execute_command(*words)
    assert Lock(client).acquire("me") < 2**52


@pytest.mark.parametrize("base, clock", [(2**53, 1), (1, 2**53)])
def test_a_clock_beyond_all_fences_in_a_file_is_refused(start_server, base, clock):
    server = start_server(*AOF)
    server.stop()
    write_aof(server, ("DLOCK.CLOCK", base, clock))
    server.start()
    assert Lock(server.observer).acquire("me") < ahead_us(HOUR)


# -- a cluster ------------------------------------------------------------------------------------


@pytest.fixture(params=[HOUR, -HOUR], ids=["an hour ahead", "an hour behind"])
def cluster(request):
    """The clock of node 0 is not that of node 1."""
    cluster = Cluster(masters=2)
    cluster.nodes[0].clock.set_ahead(max(request.param, 0))
    cluster.nodes[1].clock.set_ahead(max(-request.param, 0))
    with running(cluster):
        yield cluster


def move(cluster, slot, target, fences):
    """Once the new owner has heard of the old one: nodes tell each other, but do not wait."""
    there = cluster.nodes[target].observer
    wait_until(lambda: stats(there)["fence_clock"] > fences.highest, "the message to the new owner")
    cluster.begin_move(slot, target)
    cluster.move_keys(slot, target)
    cluster.end_move(slot, target)


@pytest.mark.timeout(300)
def test_no_fence_goes_back_when_slots_move(cluster):
    """Every second time the lock is held, and moves along."""
    key = cluster.key_on(0)
    fences, slot = Fences(key), slot_of(key)
    moves = 20
    for i in range(moves):
        here, there = cluster.nodes[i % 2].observer, (i + 1) % 2
        fences.grant(here, GRANTS // moves)
        if i % 4 > 1:
            fences.add(Lock(here, key).acquire("holder", 600_000))
        move(cluster, slot, there, fences)
        if i % 4 > 1:
            assert Lock(cluster.nodes[there].observer, key).info()["fence"] == fences.highest
            assert Lock(cluster.nodes[there].observer, key).release("holder") == 1
    fences.grant(cluster.nodes[0].observer, 1)
    assert fences.count > GRANTS


def test_nodes_tell_each_other_of_fences_that_were_asked_for(cluster):
    key = cluster.key_on(0)
    fences, slot = Fences(key), slot_of(key)
    fences.grant(cluster.nodes[0].observer, 1)
    fences.add(Lock(cluster.nodes[0].observer, key).acquire(
        "me", 60_000, "FENCE", fences.highest + 240_000_000))
    Lock(cluster.nodes[0].observer, key).release("me")
    move(cluster, slot, 1, fences)
    fences.grant(cluster.nodes[1].observer, 10)


def test_a_node_whose_clock_is_years_ahead_does_not_carry_the_others_along():
    cluster = Cluster(masters=2)
    cluster.nodes[0].clock.set_ahead(3 * 365 * 24 * HOUR)
    with running(cluster):
        near, far = cluster.key_on(1), cluster.key_on(0)
        Lock(cluster.nodes[0].observer, far).acquire("me")
        wait_until(lambda: "more than a day ahead" in cluster.nodes[1].log(), "the warning")
        assert Lock(cluster.nodes[1].observer, near).acquire("me") < ahead_us(HOUR)


def test_a_lock_of_a_server_that_was_just_promoted_can_move(server, lock, start_replica):
    lock.acquire("me", 600_000)
    promoted = start_replica(server).observer
    promoted.execute_command("REPLICAOF", "NO", "ONE")
    fence = Lock(promoted, "moved").acquire("me", 600_000)
    server.observer.restore("moved", 0, promoted.dump("moved"))
    assert Lock(server.observer, "moved").info()["fence"] == fence
