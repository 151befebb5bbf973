"""A sentinel, or a node of a cluster, that has not heard of the newest master names another one, at
the moment when the connection of the session is cut. What is held and who waits at the true master
stay as they are until the discovery is right again: nobody else gets the lock meanwhile."""

import collections
import contextlib
import time

import pytest

from support.cluster import url_of as cluster_url
from support.commands import Lock as Commands
from support.commands import stats
from support.fake_server import SILENCE, naming, resp
from support.libdlock import Background, State, Status
from support.sentinel import url_of
from support.server import wait_until
from support.waiting import wait_for_waiters

LEASE_MS = 60_000
SESSION_MS = 30_000  # longer than a test takes
IO_MS = 5000


class Discovery:
    """Names a proxy to the true master, or a server that is none."""

    def __init__(self, proxy, teller, other):
        self.proxy, self.teller, self.other = proxy, teller, other

    def name_the_other(self):
        self.teller.name(self.other.port)

    def name_the_true_one(self):
        self.teller.name(self.proxy.port)

    def wait_until_the_other_is_tried(self):
        wait_until(lambda: self.other.asked("ROLE") or self.other.asked("DLOCK.SESSION"),
                   "that the other one is tried")


@pytest.fixture(params=["sentinel", "cluster"])
def found(request, server, start_proxy, fake_server, connect, told):
    """The discovery, and a client."""
    proxy, answers = start_proxy(server), []
    teller = fake_server(lambda words: answers[-1](words))
    other = fake_server(lambda words: resp(["slave", 0, []]) if words[0] == b"ROLE" else SILENCE)
    other.has_sessions = False

    def name_in_cluster(port):
        answers.append(lambda words: resp([[0, 16383, ["127.0.0.1", port, "id"]]]))
    is_cluster = request.param == "cluster"
    teller.name = name_in_cluster if is_cluster else lambda port: answers.append(naming(port))
    discovery = Discovery(proxy, teller, other)
    discovery.name_the_true_one()
    dlock = connect((cluster_url if is_cluster else url_of)(teller), on_event=told,
                    io_timeout_ms=IO_MS, lock_defaults={"lease_ms": SESSION_MS})
    return discovery, dlock


def waits_by_state(server):
    """How many wait by sessions that are present, and away."""
    waits = collections.Counter()
    for session in server.observer.info("dlock_sessions").values():
        if isinstance(session, dict):
            waits[session["state"]] += session["waiters"]
    return +waits


def cut_session(server, discovery):
    """Until the client has asked for the master: it does not ask too often."""
    asked = len(discovery.teller.requests)

    def is_asked():
        client = server.observer
        for each in client.client_list():
            if each["cmd"] == "dlock.session":
                client.execute_command("CLIENT", "KILL", "ID", each["id"])
        return len(discovery.teller.requests) > asked
    wait_until(is_asked, "a discovery")


def test_a_kept_lock_stays_with_its_holder(found, server, connect):
    discovery, dlock = found
    lock = dlock.hold(renew=True)
    fence = lock.fence
    rival = connect(server).lock(lease_ms=LEASE_MS)
    waiting = Background(rival.acquire, 50_000)
    wait_for_waiters(server.observer, 1)
    discovery.name_the_other()
    cut_session(server, discovery)
    discovery.wait_until_the_other_is_tried()
    assert lock.state == State.HELD
    assert rival.state == State.FREE and Commands(server.observer).info()["fence"] == fence
    discovery.name_the_true_one()
    discovery.other.close()
    wait_until(lambda: stats(server.observer)["sessions"] == 3, "a session of the same master")
    wait_until(lambda: Commands(server.observer).info()["session"] != 0, "the tie")
    assert (lock.state, lock.fence) == (State.HELD, fence)
    assert lock.release() == Status.OK
    assert waiting.result() == Status.OK


def test_a_waiter_keeps_its_place(found, server, connect):
    discovery, dlock = found
    holder = connect(server).hold(lease_ms=LEASE_MS)
    first, second = dlock.lock(lease_ms=LEASE_MS), connect(server).lock(lease_ms=LEASE_MS)
    waiting = Background(first.acquire, 50_000)
    wait_for_waiters(server.observer, 1)
    later = Background(second.acquire, 50_000)
    wait_for_waiters(server.observer, 2)
    discovery.name_the_other()
    cut_session(server, discovery)
    discovery.wait_until_the_other_is_tried()
    assert Commands(server.observer).info()["waiters"] == 2
    discovery.name_the_true_one()
    discovery.other.close()
    wait_until(lambda: waits_by_state(server) == {"present": 2}, "both to wait by open sessions")
    assert holder.release() == Status.OK
    assert waiting.result() == Status.OK and later.is_running()
    assert first.release() == Status.OK and later.result() == Status.OK


def test_a_lock_that_ends_with_its_connection_is_in_question_once_it_leaves(
        server, start_proxy, fake_server, connect):
    """The lock was tied again before the discovery ended, because the one before had failed."""
    proxy = start_proxy(server)
    other = fake_server(lambda words: resp(["slave", 0, []]) if words[0] == b"ROLE" else SILENCE)
    sentinel = fake_server(naming(proxy.port))
    dlock = connect(url_of(sentinel), io_timeout_ms=IO_MS)
    lock, rival = dlock.hold(session=True, lease_ms=LEASE_MS), connect(server).lock()

    def is_done_after_cut(condition, seconds):
        proxy.cut_near()  # the server does not hear of it
        with contextlib.suppress(AssertionError):
            return wait_until(condition, "a discovery", timeout=seconds)

    def name_the_other_late(words):
        time.sleep(0.5)  # so that the lock is tied again before that, as a rule
        return naming(other.port)(words)
    sentinel.answer = lambda words: b"-ERR not now\r\n"
    asked = len(sentinel.requests)
    wait_until(lambda: is_done_after_cut(lambda: len(sentinel.requests) > asked, 0.05), "no help")
    wait_until(lambda: lock.state == State.HELD, "that it is tied again")
    sentinel.answer = name_the_other_late
    wait_until(lambda: is_done_after_cut(lambda: other.asked("ROLE"), 3), "the other to be tried")
    wait_until(lambda: rival.acquire() == Status.OK, "the end of the connection")
    assert lock.state in (State.SUSPECT, State.LOST) and lock.remaining_ms == 0
