"""What a lock does, wherever it is kept: the same sentences for each kind of deployment.

    class TestSentinel(EveryDeployment): ...

needs the fixtures connect and deployment: url; names of some locks, at different servers if there
are several; info(name), as Commands.info() has it."""

import pytest

from support.libdlock import SERVER_WAIT, SPIN, Background, State, Status
from support.server import wait_until

IO_MS = 5000  # where an answer comes, it may be late


class EveryDeployment:
    @pytest.fixture
    def dlock(self, connect, deployment):
        return connect(deployment.url, io_timeout_ms=IO_MS)

    def test_a_free_lock_is_taken_and_given_back(self, deployment, dlock):
        for name in deployment.names:
            lock = dlock.lock(name)
            assert lock.acquire() == Status.OK, lock.error
            info = deployment.info(name)
            assert (info["token"], info["fence"]) == (lock.token, lock.fence)
            assert lock.release() == Status.OK
            assert lock.state == State.FREE
            assert deployment.info(name) is None

    def test_a_held_lock_is_busy_to_others_who_ask_once(self, deployment, dlock, connect):
        stranger = connect(deployment.url, io_timeout_ms=IO_MS)
        for name in deployment.names:
            assert dlock.lock(name).acquire() == Status.OK
            assert stranger.lock(name).acquire() == Status.BUSY

    @pytest.mark.parametrize("mode", [SPIN, SERVER_WAIT])
    def test_a_wait_for_a_held_lock_ends_in_time(self, deployment, connect, mode):
        dlock = connect(deployment.url, io_timeout_ms=IO_MS, wait_mode=mode)
        dlock.lock(deployment.names[0]).acquire()
        status, took_ms = dlock.lock(deployment.names[0]).timed_acquire(150)
        assert status == Status.TIMEOUT
        assert 150 <= took_ms < 1000

    def test_who_waits_gets_it_when_it_is_given_back(self, deployment, dlock):
        for name in deployment.names:
            holder, waiter = dlock.lock(name), dlock.lock(name)
            holder.acquire()
            waiting = Background(waiter.acquire, 20_000)
            wait_until(lambda: deployment.info(name)["waiters"] == 1, "a waiter")
            first_fence = holder.fence
            assert holder.release() == Status.OK
            assert waiting.result() == Status.OK
            assert waiter.fence > first_fence
            assert waiter.timings.attempts == 1

    def test_an_extension_lengthens_the_lease(self, deployment, dlock):
        for name in deployment.names:
            lock = dlock.lock(name, lease_ms=5000)
            lock.acquire()
            assert lock.extend(60_000) == Status.OK
            assert deployment.info(name)["ttl"] > 50_000
            assert lock.remaining_ms > 50_000

    def test_a_lock_that_ended_is_lost(self, deployment, dlock):
        for name in deployment.names:
            lock = dlock.lock(name, lease_ms=20)
            assert lock.acquire() == Status.OK
            wait_until(lambda: deployment.info(name) is None, "the end of the lease")
            assert lock.extend() == Status.LOST
            assert lock.release() == Status.LOST

    def test_a_cancelled_wait_leaves_the_queue(self, deployment, dlock):
        dlock.lock(deployment.names[0]).acquire()
        lock = dlock.lock(deployment.names[0])
        waiting = Background(lock.acquire, -1)
        wait_until(lambda: deployment.info(deployment.names[0])["waiters"] == 1, "a waiter")
        lock.cancel()
        assert waiting.result() == Status.CANCELED
        wait_until(lambda: deployment.info(deployment.names[0])["waiters"] == 0, "its leaving")

    def test_a_session_ends_with_its_connection(self, deployment, connect):
        dlock = connect(deployment.url, io_timeout_ms=IO_MS)
        for name in deployment.names:
            lock = dlock.lock(name, session=True)
            assert lock.acquire() == Status.OK
            if deployment.info(name)["session"] == 0:
                pytest.skip("this libdlock has no sessions")
            assert lock.extend() == Status.OK
            assert lock.release() == Status.OK
            assert deployment.info(name) is None
            assert lock.acquire() == Status.OK

    def test_ping_finds_servers_with_the_module(self, dlock):
        assert dlock.ping(IO_MS) == Status.OK

    def test_finding_the_server_costs_no_request_once_it_is_known(self, deployment, dlock):
        lock = dlock.lock(deployment.names[0])
        lock.acquire()
        before = dlock.stats().commands
        lock.release()
        lock.acquire()
        assert dlock.stats().commands == before + 2
