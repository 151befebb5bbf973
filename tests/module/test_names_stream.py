"""Several names beyond one server: replicas, files and a cluster."""

import pytest
import redis

from support.cluster import Traveller, slot_of
from support.commands import Lock, Locks, stats, tokens_at
from support.files import FILES
from support.server import free_port
from support.stream import digest, in_sync
from support.turn import in_one_turn
from support.waiting import queue_up, wait_for_waiters


def words_of(commands):
    return [[words[0].lower(), *words[1:]] for words in commands]


# -- the stream -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("SHARED",), ("WAIT", 1000, "FENCE", 7)], ids=str)
def test_a_grant_is_one_command(stream, both, options):
    fence = both.acquire("me", 50_000, *options)
    assert words_of(stream.take()) == [
        [b"dlock.applyall", b"2", b"a", b"b", b"me", b"%d" % fence, b"50000",
         *[b"SHARED"] * ("SHARED" in options)]]


def test_a_release_is_itself(stream, both):
    both.acquire("me")
    both.release("me")
    assert words_of(stream.take())[1:] == [[b"dlock.releaseall", b"2", b"a", b"b", b"me"]]


def test_a_no_is_not_replicated(stream, both):
    Lock(both.client, "b").acquire("you")
    stream.take()
    both.acquire("me")
    both.release("me")
    with pytest.raises(redis.ResponseError):
        Locks(both.client, "a", "a").acquire("me")
    assert stream.take() == []


def test_a_hand_over_is_one_transaction(server, stream, both):
    both.acquire("holder")
    [waiter] = queue_up(server, ["me"], keys=["b", "a"], lease_ms=50_000)
    stream.take()
    both.release("holder")
    fence = waiter.answer()
    assert words_of(stream.take()) == [
        [b"multi"], [b"dlock.releaseall", b"2", b"a", b"b", b"holder"],
        [b"dlock.applyall", b"2", b"b", b"a", b"me", b"%d" % fence, b"50000"], [b"exec"]]


def test_a_repeated_request_is_one_transaction(stream, both):
    fence = both.acquire("me", 50_000)
    stream.take()
    both.acquire("me", 60_000)
    assert words_of(stream.take()) == [
        [b"multi"], [b"dlock.apply", b"a", b"me", b"%d" % fence, b"60000"],
        [b"dlock.apply", b"b", b"me", b"%d" % fence, b"60000"], [b"exec"]]


def test_a_replica_has_what_the_master_has(server, both, start_replica):
    replica = start_replica(server).client()
    three = Locks(both.client, "b", "c", "d")

    def same():
        in_sync(both.client, replica)
        assert digest(replica) == digest(both.client)

    both.acquire("me")
    same()
    queue_up(server, ["next"], keys=["b", "c", "d"])
    both.release("me")
    same()
    assert tokens_at(replica, "c") == ["next"]
    three.release("next")
    for token in "r1", "r2":
        three.acquire(token, 60_000, "SHARED")
    same()
    Lock(both.client, "c").release("r1")
    three.acquire("r1", 60_000, "SHARED")
    same()
    three.release("r2"), three.release("r1")
    same()
    assert replica.dbsize() == 0


def test_a_replica_refuses_both_commands(server, start_replica):
    replica = start_replica(server).client()
    for act in Locks(replica, "a", "b").acquire, Locks(replica, "a", "b").release:
        with pytest.raises(redis.exceptions.ReadOnlyError):
            act("me")


def test_the_internal_command_is_refused(client):
    with pytest.raises(redis.ResponseError, match="DLOCK.APPLYALL is internal"):
        client.execute_command("DLOCK.APPLYALL", 2, "a", "b", "me", 1, 1000)
    assert client.dbsize() == 0


@FILES
def test_a_restart_keeps_all_locks_or_none(start_server, options, prepare):
    server = start_server(*options)
    both, shared = Locks(server.client(), "a", "b"), Locks(server.client(), "c", "d")
    fence = both.acquire("me")
    shared.acquire("r1", 60_000, "SHARED"), shared.acquire("r2", 60_000, "SHARED")
    Locks(server.client(), "e", "f").acquire("gone")
    Locks(server.client(), "e", "f").release("gone")
    prepare(server.client())
    server.kill()
    server.start()
    both, shared = Locks(server.client(), "a", "b"), Locks(server.client(), "c", "d")
    assert both.acquire("me") == fence
    assert shared.holders() == {"c": ["r1", "r2"], "d": ["r1", "r2"]}
    assert server.client().dbsize() == 4
    assert both.acquire("you") is None
    assert both.release("me") == 2
    assert both.acquire("you") > fence


def test_a_promoted_replica_hands_on(server, both, start_replica):
    replica = start_replica(server)
    both.acquire("me", 60_000)
    in_sync(both.client, replica.client())
    replica.client().execute_command("REPLICAOF", "NO", "ONE")
    [waiter] = queue_up(replica, ["you"], keys=["b", "a"])
    replica.clock.advance(61)
    assert waiter.answer() > 0
    assert tokens_at(replica.client(), "a") == tokens_at(replica.client(), "b") == ["you"]


def test_waiters_are_sent_away_by_a_demotion(server, both):
    both.acquire("holder")
    [waiter] = queue_up(server, ["me"], keys=["a", "b"])
    both.client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(redis.ResponseError, match="UNBLOCKED"):
        waiter.answer()
    wait_for_waiters(both.client, 0)


# -- a cluster ------------------------------------------------------------------------------------


class Moving:
    """Two locks of a slot of node 0, which is to move to node 1."""

    def __init__(self, cluster):
        self.cluster, tag = cluster, cluster.key_on(0, "names")
        self.names = ["{%s}%s" % (tag, name) for name in "ab"]
        self.slot = slot_of(tag)
        self.source, self.target = cluster.nodes[:2]
        self.here, self.there = (Locks(node.client(), *self.names) for node in cluster.nodes[:2])

    def send(self, name):
        """The MIGRATE of one of the keys."""
        return ("MIGRATE", "127.0.0.1", self.target.port, name, 0, 60_000)


@pytest.fixture
def moving(cluster):
    return Moving(cluster)


def test_names_of_one_slot_are_taken_and_handed_over_and_others_refused(moving):
    assert moving.here.acquire("me") > 0
    [waiter] = queue_up(moving.source, ["you"], keys=moving.names)
    assert moving.here.release("me") == 2
    assert waiter.answer() > 0
    others = Locks(moving.here.client, *moving.names, "x")
    for act in others.acquire, others.release:
        with pytest.raises(redis.ResponseError, match="CROSSSLOT|same slot"):
            act("me")


def test_a_request_to_the_wrong_node_is_redirected(moving):
    with pytest.raises(redis.ResponseError, match="^MOVED"):
        moving.there.acquire("me")


def test_locks_move_with_their_slot(cluster, moving):
    fence = moving.here.acquire("me")
    cluster.move(moving.slot, 1)
    assert moving.there.acquire("me") == fence
    assert moving.there.release("me") == 2


def test_while_only_one_has_moved_nobody_gets_both(cluster, moving):
    first, second = moving.names
    Lock(moving.here.client, first).acquire("x")
    Lock(moving.here.client, second).acquire("y")
    cluster.begin_move(moving.slot, 1)
    moving.here.client.execute_command(*moving.send(second))
    for act in moving.here.acquire, moving.here.release:
        with pytest.raises(redis.ResponseError, match="^TRYAGAIN"):
            act("me")
    assert tokens_at(moving.here.client, first) == ["x"]


def assert_sent_on(waiter):
    with pytest.raises(redis.ResponseError, match="^(TRYAGAIN|ASK|MOVED)"):
        waiter.answer()


@pytest.mark.parametrize("moved", [0, 1])
def test_a_waiter_gets_nothing_while_one_of_its_locks_is_held_elsewhere(cluster, moving, moved):
    """The move and the release come in one turn: the module has had no time to look."""
    gone, stays = moving.names[moved], moving.names[1 - moved]
    Lock(moving.here.client, gone).acquire("x")
    Lock(moving.here.client, stays).acquire("y")
    [waiter] = queue_up(moving.source, ["me"], keys=moving.names)
    cluster.begin_move(moving.slot, 1)
    before = stats(moving.here.client)["granted"]
    in_one_turn(moving.here.client, moving.send(gone), ("DLOCK.RELEASE", stays, "y"))
    assert_sent_on(waiter)
    assert stats(moving.here.client)["granted"] == before
    assert stats(moving.here.client)["waiters"] == 0


def test_waiters_of_a_slot_that_moves_are_sent_on(cluster, moving):
    moving.here.acquire("holder")
    waiting = queue_up(moving.source, ["first", "second"], keys=moving.names)
    cluster.move(moving.slot, 1)
    for waiter in waiting:
        assert_sent_on(waiter)
    assert stats(moving.here.client)["waiters"] == 0
    assert tokens_at(moving.there.client, moving.names[0]) == ["holder"]


def test_a_release_while_the_slot_moves_sends_waiters_on(cluster, moving):
    """Both locks are free then, and a key that is not here is to be made over there."""
    moving.here.acquire("holder")
    [waiter] = queue_up(moving.source, ["me"], keys=moving.names)
    cluster.begin_move(moving.slot, 1)
    before = stats(moving.here.client)["granted"]
    assert moving.here.release("holder") == 2
    assert_sent_on(waiter)
    assert stats(moving.here.client)["granted"] == before


def test_a_client_that_is_asked_over_gets_both_there(cluster, moving):
    """When both locks have moved, and the slot has not yet."""
    moving.here.acquire("holder")
    cluster.begin_move(moving.slot, 1)
    cluster.move_keys(moving.slot, 1)
    traveller = Traveller(moving.source)
    words = ["DLOCK.RELEASEALL", 2, *moving.names, "holder"]
    assert traveller.call(*words) == 2
    assert traveller.came_across == {"ASK": 1}
    traveller.close()


@pytest.mark.parametrize("stays", [0, 1])
@pytest.mark.parametrize("command", ["DLOCK.ACQUIREALL", "DLOCK.RELEASEALL"])
def test_a_client_that_is_asked_over_gets_nothing_while_one_is_held_at_the_old_node(
        cluster, moving, stays, command):
    """The new node would make a key that is not there, beside the one at the old node."""
    Lock(moving.here.client, moving.names[stays]).acquire("x")
    cluster.begin_move(moving.slot, 1)
    options = ["PX", 60_000] if command == "DLOCK.ACQUIREALL" else []
    connection = moving.there.client.connection_pool.get_connection("ASKING")
    connection.send_command("ASKING")
    connection.read_response()
    connection.send_command(command, 2, *moving.names, "me", *options)
    with pytest.raises(redis.ResponseError, match="^TRYAGAIN"):
        connection.read_response()
    connection.disconnect()
    assert tokens_at(moving.here.client, moving.names[stays]) == ["x"]
    assert moving.there.client.dbsize() == 0
