"""A grant that replicas must acknowledge."""

import pytest

from support.acl import set_user
from support.commands import Lock as Commands
from support.commands import served
from support.libdlock import Background, Event, State, Status, Told
from support.server import stopped, wait_until
from support.waiting import wait_for_waiters

PATIENT_MS = 10000


def has_acknowledged_all(client):
    replication = client.info("replication")
    return replication["slave0"]["offset"] == replication["master_repl_offset"]


def wait_for_releases(client, count):
    wait_until(lambda: served(client, "release") >= count, f"{count} releases")


@pytest.fixture
def replica(server, start_replica):
    return start_replica(server)


@pytest.fixture
def dlock(connect, server, replica):
    return connect(server, io_timeout_ms=PATIENT_MS)


class Failover:
    """A master with two replicas, and the steps of SENTINEL FAILOVER: a replica is promoted, then
    the other one is told to follow it, and the old master last, about a second later."""

    def __init__(self, old, promoted, other):
        self.old, self.promoted, self.other = old, promoted, other

    def promote(self):
        self.promoted.observer.replicaof("NO", "ONE")
        wait_until(lambda: self.old.observer.info("replication")["connected_slaves"] == 1,
                   "the old master to miss the promoted replica")

    def _follow(self, server):
        server.observer.replicaof("127.0.0.1", self.promoted.port)
        wait_until(lambda: server.observer.info("replication").get("master_link_status") == "up",
                   "a sync")

    def redirect_other_replica(self):
        self._follow(self.other)

    def demote_old_master(self):
        self._follow(self.old)


@pytest.fixture
def failover(server, start_replica):
    return Failover(server, start_replica(server), start_replica(server))


def lock_of(dlock, name="lock", replica_timeout_ms=PATIENT_MS, **options):
    return dlock.lock(name, **{"min_replicas": 1, "lease_ms": 60000, **options},
                      replica_timeout_ms=replica_timeout_ms)


def test_a_replica_that_is_well(dlock, replica, client):
    lock = lock_of(dlock)
    assert lock.acquire() == Status.OK, lock.error
    assert replica.client().exists("lock"), "it knows when we return"
    assert lock.release() == Status.OK


@pytest.mark.parametrize("wait_ms", [0, 300])
def test_a_replica_that_does_not_answer(dlock, replica, client, wait_ms):
    with stopped(replica):
        lock = lock_of(dlock, replica_timeout_ms=100)
        assert lock.acquire(wait_ms) == Status.NO_REPLICAS
        assert "replicas" in lock.error
        assert lock.state == State.FREE
        assert not client.exists("lock"), "it is undone"


def test_a_replica_that_is_well_again_within_the_wait(connect, server, replica, client):
    dlock = connect(server, io_timeout_ms=PATIENT_MS)
    lock = lock_of(dlock, replica_timeout_ms=100)
    with stopped(replica):
        waiting = Background(lock.acquire, 60_000)
        wait_for_releases(client, 2)  # two grants are undone
    assert waiting.result() == Status.OK
    assert lock.timings.attempts >= 3
    assert replica.client().exists("lock")


def test_too_few_replicas(dlock, client):
    lock = lock_of(dlock, min_replicas=2, replica_timeout_ms=100)
    assert lock.acquire() == Status.NO_REPLICAS
    assert not client.exists("lock")


@pytest.mark.parametrize("names", [["lock:a"], ["lock:a", "lock:{a}"]])
def test_a_grant_that_the_server_does_not_write_again_is_given_back(connect, server, client, names):
    words = "acquire", "acquireall", "release", "releaseall"
    set_user(server, [f"+dlock.{word}" for word in words])
    dlock = connect(f"redis://app:x@127.0.0.1:{server.port}", io_timeout_ms=PATIENT_MS)
    lock = lock_of(dlock, names)
    assert lock.acquire() == Status.REFUSED and "dlock.extend" in lock.error.lower()
    wait_until(lambda: not client.exists(*names), "its release")


def test_who_was_parked_needs_them_too(dlock, replica, server, client, connect):
    """The grant comes with somebody else's release, which the WAIT of Redis does not count."""
    other = connect(server, io_timeout_ms=PATIENT_MS).hold(lease_ms=60000)
    lock = lock_of(dlock, replica_timeout_ms=100)
    waiting = Background(lock.acquire, 60000)
    wait_for_waiters(client, 1)
    wait_until(lambda: has_acknowledged_all(client), "that all before it is acknowledged")
    with stopped(replica):
        assert other.release() == Status.OK
        wait_for_releases(client, 3)  # that one, and two grants that are undone
        assert waiting.is_running()
    assert waiting.result() == Status.OK
    assert Commands(replica.client()).info()["token"] == lock.token


def test_who_was_parked_gets_it(dlock, replica, server, client, connect):
    other = connect(server, io_timeout_ms=PATIENT_MS).hold(lease_ms=60000)
    lock = lock_of(dlock)
    waiting = Background(lock.acquire, 60000)
    wait_for_waiters(client, 1)
    assert other.release() == Status.OK
    assert waiting.result() == Status.OK
    assert Commands(replica.client()).info()["token"] == lock.token


def test_an_extension_needs_them_too(dlock, replica):
    lock = lock_of(dlock, replica_timeout_ms=100, lease_ms=30000)
    wait_until(lambda: lock.acquire() == Status.OK, "a replica that acknowledges in time")
    before = lock.remaining_ms
    with stopped(replica):
        assert lock.extend(600000) == Status.NO_REPLICAS
        assert lock.state == State.HELD and lock.remaining_ms <= before, "what was is certain"


def test_a_renewal_that_no_replica_knows_of_does_not_count(connect, server, replica):
    told = Told()
    dlock = connect(server, on_event=told, io_timeout_ms=PATIENT_MS)
    lock = lock_of(dlock, lease_ms=4000, renew_every_ms=200, replica_timeout_ms=100)
    wait_until(lambda: lock.acquire() == Status.OK, "a replica that acknowledges in time")
    with stopped(replica):
        wait_until(lambda: told.find(Event.SUSPECT), "suspicion")
        wait_until(lambda: told.find(Event.LOST), "the loss")
    lock.release()


def test_renewals_that_are_acknowledged(connect, server, replica):
    dlock = connect(server, io_timeout_ms=PATIENT_MS)
    locks = [lock_of(dlock, f"lock{i}", renew_every_ms=50) for i in range(20)]
    for lock in locks:
        assert lock.acquire() == Status.OK, lock.error
    wait_until(lambda: dlock.stats().renewed >= 100, "renewals", 60)
    for lock in locks:
        assert lock.state == State.HELD and lock.release() == Status.OK


def test_busy_is_busy(dlock, client):
    client.execute_command("DLOCK.ACQUIRE", "lock", "another", "PX", 60000)
    lock = lock_of(dlock)
    assert lock.acquire() == Status.BUSY
    assert lock.acquire(50) == Status.TIMEOUT


# -- which number covers which failover: see "What min_replicas covers" in client/OPERATIONS.md


def test_one_acknowledgement_does_not_cover_an_orderly_failover(connect, failover):
    """It can come from the replica that the old master has left, and which is overwritten next."""
    failover.promote()
    first = lock_of(connect(failover.old, io_timeout_ms=PATIENT_MS))
    assert first.acquire() == Status.OK, first.error
    failover.redirect_other_replica()
    second = lock_of(connect(failover.promoted, io_timeout_ms=PATIENT_MS))
    assert second.acquire() == Status.OK, second.error
    assert first.state == second.state == State.HELD, "granted twice"


def test_acknowledgements_of_all_replicas_cover_an_orderly_failover(connect, failover):
    needed = {"min_replicas": 2, "replica_timeout_ms": 100}
    before, after = (connect(server, io_timeout_ms=PATIENT_MS)
                     for server in (failover.old, failover.promoted))
    held = lock_of(before, "held", min_replicas=2)
    assert held.acquire() == Status.OK, held.error
    for step in failover.promote, failover.redirect_other_replica:
        step()
        assert lock_of(before, **needed).acquire() == Status.NO_REPLICAS, "one has left it"
        assert lock_of(after, **needed).acquire() == Status.NO_REPLICAS, "two are still missing"
        assert lock_of(after, "held", **needed).acquire() == Status.BUSY, "the promoted one knows"
    failover.demote_old_master()
    assert lock_of(after, min_replicas=2).acquire() == Status.OK
    assert lock_of(after, "held", **needed).acquire() == Status.BUSY
    failover.old.observer.replicaof("NO", "ONE")  # it takes the release, and the client ends
