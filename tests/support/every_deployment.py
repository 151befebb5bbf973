"""What a lock does, wherever it is kept: the same sentences for each kind of deployment.

    class TestSentinel(EveryDeployment):
        @pytest.fixture
        def deployment(self): return Deployment(...)
"""

import itertools
import threading
import time

import pytest

from support.commands import details_of
from support.libdlock import (LOG_FN, NO_MODULE, SERVER_WAIT, SHARED, SPIN, Background, Event,
                              State, Status)
from support.server import wait_until

IO_MS = 20_000  # where an answer comes, it may be late
LONG_MS = 60_000


class Deployment:
    """url: one or several. names: of some locks, at different servers if there are several.
    servers_of(name): those that keep it. options: of all its clients; with module=NO_MODULE the
    servers are plain ones."""

    def __init__(self, url, names, servers_of, replicas=0, **options):
        self.url, self.names, self.servers_of = url, names, servers_of
        self.replicas = replicas
        self.options = {"io_timeout_ms": IO_MS, **options}
        self.is_redlock = not isinstance(url, str)
        self.is_plain = options.get("module") == NO_MODULE
        self.has_queue = not (self.is_redlock or self.is_plain)
        self.wait_modes = [SPIN] if self.is_plain else [SPIN, SERVER_WAIT]

    def _look(self, server, name):
        if not self.is_plain:
            details = details_of(server.observer.execute_command("DLOCK.INFO", name))
            return details and {**details, **details["holders"][0]}
        token, ttl = server.observer.get(name), server.observer.pttl(name)
        return token and {"token": token, "ttl": ttl, "fence": 0, "waiters": 0}

    def infos(self, name):
        """Of several servers, once they agree: a call does not wait for more than a majority."""
        seen = []

        def do_agree():
            seen[:] = [self._look(server, name) for server in self.servers_of(name)]
            return len({info and info["token"] for info in seen}) == 1
        wait_until(do_agree, "all servers to have heard of it")
        return seen

    def info(self, name):
        return self.infos(name)[0]

    def counts_on_from(self, name, fence):
        """Of several servers a majority, some of them from a larger one."""
        fences = [info["fence"] for info in self.infos(name)]
        if not self.is_redlock:
            return fences == [fence]
        return sum(each >= fence for each in fences) > len(fences) // 2

    def is_free(self, name):
        return not any(self.infos(name))

    def let_pass(self, seconds, names):
        """So many seconds of the leases of these locks go by."""
        keepers = [(server, name) for name in names for server in self.servers_of(name)]
        if not self.is_plain:
            for server in {server for server, _ in keepers}:
                server.clock.advance(seconds)
            return
        for server, name in keepers:
            left_ms = server.observer.pttl(name)
            server.observer.pexpire(name, max(left_ms - seconds * 1000, 0))

    def force_open(self, name):
        for server in self.servers_of(name):
            server.observer.delete(name)

    def wait_for_waiter(self, name, dlock, mode=SERVER_WAIT):
        """Somebody waits for it, by this client; until then nothing else goes on there."""
        if mode == SPIN or not self.has_queue:
            enough = dlock.stats().commands + 2 * len(self.servers_of(name))
            wait_until(lambda: dlock.stats().commands >= enough, "two attempts")
        else:
            wait_until(lambda: self.info(name)["waiters"] == 1, "a waiter")


def now_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


def take_turns(dlock, name, threads=4, rounds=6):
    """Each thread takes the lock so many times. The fences, in order."""
    fences, failures, inside = [], [], threading.Lock()

    def work():
        lock = dlock.lock(name, lease_ms=LONG_MS)
        for _ in range(rounds):
            status = lock.acquire(LONG_MS)
            if status != Status.OK or not inside.acquire(blocking=False):
                failures.append((status, lock.error))
                return
            fences.append(lock.fence)
            inside.release()
            status = lock.release()
            if status != Status.OK:
                failures.append((status, lock.error))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert len(fences) == threads * rounds
    return fences


def assert_refused(dlock, **options):
    with pytest.raises(ValueError) as refusal:
        dlock.lock(**options)
    assert refusal.value.args[0] == Status.INVALID


class EveryDeployment:
    @pytest.fixture
    def client_of(self, connect, deployment):
        """client_of(**options): a client of this deployment."""
        return lambda **options: connect(deployment.url, **{**deployment.options, **options})

    @pytest.fixture
    def dlock(self, client_of):
        return client_of()

    # -- take and give back ------------------------------------------------------------------------

    def test_a_free_lock_is_taken_and_given_back(self, deployment, dlock):
        for name in deployment.names:
            lock = dlock.hold(name)
            assert lock.state == State.HELD
            for info in deployment.infos(name):
                assert info["token"] == lock.token
            assert deployment.counts_on_from(name, lock.fence)
            assert lock.release() == Status.OK
            assert lock.state == State.FREE and lock.fence == 0
            assert deployment.is_free(name)

    def test_a_held_lock_is_busy_to_others_who_ask_once(self, deployment, dlock, client_of):
        stranger = client_of()
        for name in deployment.names:
            dlock.hold(name)
            wait_until(lambda: all(deployment.infos(name)), "the slowest server to have the lock")
            second = stranger.lock(name)
            assert second.acquire() == Status.BUSY
            assert second.timings.attempts == 1 and second.error != ""
            assert second.state == State.FREE

    def test_a_wait_for_a_held_lock_ends_in_time(self, deployment, dlock, client_of):
        dlock.hold(deployment.names[0], lease_ms=LONG_MS)
        for mode in deployment.wait_modes:
            lock = client_of(wait_mode=mode).lock(deployment.names[0])
            status, took_ms = lock.timed_acquire(150)
            assert status == Status.TIMEOUT, "later, the lease would have ended"
            assert took_ms >= 150

    def test_who_waits_gets_it_when_it_is_given_back(self, deployment, client_of):
        for name, mode in itertools.product(deployment.names, deployment.wait_modes):
            dlock = client_of(wait_mode=mode)
            holder, waiter = dlock.hold(name), dlock.lock(name)
            waiting = Background(waiter.acquire, 20_000)
            deployment.wait_for_waiter(name, dlock, mode)
            first_fence = holder.fence
            assert holder.release() == Status.OK
            assert waiting.result() == Status.OK
            assert deployment.is_plain or waiter.fence > first_fence
            if mode == SERVER_WAIT and deployment.has_queue:
                assert waiter.timings.attempts == 1
            assert waiter.release() == Status.OK
            assert deployment.is_free(name)

    def test_an_extension_lengthens_the_lease(self, deployment, dlock):
        for name in deployment.names:
            lock = dlock.hold(name, lease_ms=LONG_MS)
            assert lock.extend(10 * LONG_MS) == Status.OK
            wait_until(lambda: all(info["ttl"] > 5 * LONG_MS for info in deployment.infos(name)),
                       "the longer lease")
            assert lock.remaining_ms > 5 * LONG_MS
            assert lock.extend(LONG_MS) == Status.OK and lock.remaining_ms > 5 * LONG_MS
            assert all(info["ttl"] > 5 * LONG_MS for info in deployment.infos(name))

    def test_a_lock_that_ended_is_lost(self, deployment, dlock):
        locks = [dlock.lock(name, lease_ms=100) for name in deployment.names]
        for lock in locks:
            assert lock.acquire(20_000) == Status.OK, lock.error
        for lock, name in zip(locks, deployment.names):
            wait_until(lambda: deployment.is_free(name), "the end of the lease")
            assert lock.extend() == Status.LOST
            assert lock.release() == Status.LOST

    def test_a_canceled_wait_leaves_nothing_behind(self, deployment, client_of):
        name = deployment.names[0]
        for mode in deployment.wait_modes:
            dlock = client_of(wait_mode=mode)
            holder, lock = dlock.hold(name), dlock.lock(name)
            waiting = Background(lock.acquire, -1)
            deployment.wait_for_waiter(name, dlock, mode)
            lock.cancel()
            assert waiting.result() == Status.CANCELED
            wait_until(lambda: deployment.info(name)["waiters"] == 0, "its leaving")
            assert holder.release() == Status.OK
            assert deployment.is_free(name)

    def test_a_handle_takes_what_it_holds_without_a_word(self, deployment, dlock):
        lock = dlock.hold(deployment.names[0])
        assert all(deployment.infos(deployment.names[0]))  # the slowest server has its request
        before, fence = dlock.stats().commands, lock.fence
        assert lock.acquire() == Status.OK
        assert lock.release() == Status.OK
        assert (dlock.stats().commands, lock.fence) == (before, fence)
        assert deployment.info(deployment.names[0])["token"] == lock.token
        assert lock.release() == Status.OK
        assert deployment.is_free(deployment.names[0])
        assert lock.release() == lock.extend() == Status.NOT_HELD
        assert "not held" in lock.error

    def test_the_fence_rises_with_each_holder(self, deployment, client_of):
        locks = [client_of().lock(deployment.names[0]) for _ in range(2)]
        fences = []
        for lock in locks * 5:
            assert lock.acquire() == Status.OK, lock.error
            fences.append(lock.fence)
            assert lock.release() == Status.OK
        assert fences == ([0] * len(fences) if deployment.is_plain else sorted(set(fences)))

    def test_a_prefix_is_put_before_the_name(self, deployment, client_of):
        lock = client_of(prefix="order:").hold(deployment.names[0])
        assert deployment.info(f"order:{deployment.names[0]}")["token"] == lock.token
        assert deployment.is_free(deployment.names[0])

    def test_ping_finds_servers(self, dlock):
        assert dlock.ping(IO_MS) == Status.OK

    def test_finding_the_server_costs_no_request_once_it_is_known(self, deployment, dlock):
        name = deployment.names[0]
        lock = dlock.lock(name)
        assert lock.acquire() == lock.release() == Status.OK  # a plain server gets a script once
        assert deployment.is_free(name)
        assert lock.acquire() == Status.OK
        assert all(deployment.infos(name))  # servers that are slow have been asked by now
        counts = []
        for _ in range(10):
            before = dlock.stats().commands
            assert lock.release() == Status.OK and lock.acquire() == Status.OK
            assert all(deployment.infos(name))
            counts.append(dlock.stats().commands - before)
        # Where servers vote, a slow machine needs a second round now and then.
        assert min(counts) == 2 * len(deployment.servers_of(name))

    # -- keeping it --------------------------------------------------------------------------------

    def test_a_renewed_lock_is_held_beyond_its_lease(self, deployment, client_of, told):
        """A lock with the same lease, which is taken last and not renewed, ends before them."""
        dlock = client_of(on_event=told)
        shared, ended = ("{%s}:%s" % (deployment.names[-1], word) for word in ("shared", "ended"))
        renewed = {"lease_ms": 20_000, "renew_every_ms": 100}
        locks = {name: dlock.lock(name, **renewed) for name in deployment.names}
        if not deployment.is_plain:
            locks[shared] = dlock.lock(shared, mode=SHARED, **renewed)
        for lock in locks.values():
            assert lock.acquire() == Status.OK, lock.error
        fences = {name: lock.fence for name, lock in locks.items()}
        dlock.hold(ended, lease_ms=20_000)
        for _ in range(3):
            dlock.wait_for_renewals(2 * len(locks))
            deployment.let_pass(8, [*locks, ended])
        wait_until(lambda: deployment.is_free(ended), "the end of the lease that is not renewed")
        for name, lock in locks.items():
            assert lock.state in (State.HELD, State.SUSPECT)
            assert not lock.is_lost_by_fd()
            assert lock.fence == fences[name] and deployment.counts_on_from(name, fences[name])
            assert lock.release() == Status.OK
            assert set(told.events(name)) <= {Event.ACQUIRED, Event.SUSPECT, Event.RELEASED}
            assert told.events(name)[0] == Event.ACQUIRED
            assert told.events(name)[-1] == Event.RELEASED
            assert deployment.is_free(name)

    def test_a_lock_is_not_renewed_beyond_its_bound(self, deployment, client_of, told):
        """Whenever one looks, it is held no longer than max_hold_ms after it was taken. A process
        that hangs may not come to renew it in that time: then the next one is looked at."""
        dlock = client_of(on_event=told)
        name = deployment.names[-1]
        while dlock.stats().renewed == 0:
            lock = dlock.hold(name, lease_ms=1500, renew_every_ms=50, max_hold_ms=2000,
                              wait_ms=IO_MS)
            bound = now_ms() + 2000

            def is_lost():
                now, remaining = now_ms(), lock.remaining_ms
                assert remaining == 0 or now + remaining <= bound
                return lock.state == State.LOST
            wait_until(is_lost, "the end")
            assert lock.is_lost_by_fd()
            wait_until(lambda: deployment.is_free(name), "the end of the lease")
        wait_until(lambda: told.find(Event.LOST, name), "that the loss is told")

    def test_a_lock_that_is_forced_open_is_told_lost(self, deployment, client_of, told):
        dlock = client_of(on_event=told)
        for name in deployment.names:
            lock = dlock.hold(name, lease_ms=LONG_MS, renew_every_ms=50)
            assert not lock.is_lost_by_fd()
            deployment.force_open(name)
            assert lock.is_lost_by_fd(20_000)
            wait_until(lambda: told.find(Event.LOST, name), "the loss")
            assert told.find(Event.LOST, name)[2] == Status.LOST
            assert lock.state == State.LOST and lock.remaining_ms == 0
            assert lock.release() == Status.LOST
            assert lock.state == State.FREE

    # -- shared holders ----------------------------------------------------------------------------

    def test_readers_share_and_a_writer_is_alone(self, deployment, client_of):
        dlock, stranger = client_of(), client_of()
        if deployment.is_plain:
            assert_refused(dlock, mode=SHARED)
            return
        for name in deployment.names:
            one, two = dlock.lock(name, mode=SHARED), stranger.lock(name, mode=SHARED)
            writer = stranger.lock(name)
            assert one.acquire() == two.acquire() == Status.OK, two.error
            assert writer.acquire() == Status.BUSY
            seen = {(token, mode) for _, token, _, mode, _ in dlock.inspect(name)}
            assert seen == {(one.token, SHARED), (two.token, SHARED)}
            waiting = Background(writer.acquire, LONG_MS)
            deployment.wait_for_waiter(name, stranger)
            assert one.extend() == Status.OK
            fences = one.fence, two.fence
            assert one.release() == two.release() == Status.OK
            assert waiting.result() == Status.OK
            assert writer.fence > max(fences)
            assert one.acquire() == Status.BUSY
            assert writer.release() == Status.OK
            assert deployment.is_free(name)

    def test_a_shared_holder_whose_lease_ends_leaves_the_others(self, deployment, dlock):
        name = deployment.names[-1]
        if deployment.is_plain:
            return  # refused: the test before
        kept = dlock.lock(name, mode=SHARED, lease_ms=LONG_MS)
        left = dlock.lock(name, mode=SHARED, lease_ms=100)
        assert kept.acquire() == left.acquire(IO_MS) == Status.OK
        wait_until(lambda: {token for _, token, *_ in dlock.inspect(name)} == {kept.token},
                   "the end of the short lease")
        assert left.release() == Status.LOST
        assert kept.extend() == kept.release() == Status.OK
        assert deployment.is_free(name)

    def test_permits_are_counted_by_one_server(self, deployment, dlock):
        if not deployment.has_queue:
            assert_refused(dlock, mode=SHARED, max_holders=2)
            return
        for name in deployment.names:
            one, two, three = (dlock.lock(name, mode=SHARED, max_holders=2) for _ in range(3))
            assert one.acquire() == two.acquire() == Status.OK
            assert three.acquire() == Status.BUSY
            waiting = Background(three.acquire, LONG_MS)
            deployment.wait_for_waiter(name, dlock)
            assert one.release() == Status.OK
            assert waiting.result() == Status.OK
            assert two.release() == three.release() == Status.OK
            assert deployment.is_free(name)

    # -- sessions and replicas ---------------------------------------------------------------------

    def test_a_session_ends_with_its_connection(self, deployment, client_of, told):
        dlock = client_of(on_event=told)
        if not deployment.has_queue:
            assert_refused(dlock, session=True)
            return
        for name in deployment.names:
            lock = dlock.hold(name, session=True, lease_ms=LONG_MS, renew_every_ms=1000)
            assert deployment.info(name)["session"] > 0
            assert lock.extend() == Status.OK
            assert lock.release() == Status.OK
            assert deployment.is_free(name)
            assert lock.acquire() == Status.OK
            session, = (info["session"] for info in deployment.infos(name))
            fence = lock.fence
            server, = deployment.servers_of(name)
            server.observer.execute_command("CLIENT", "KILL", "ID", session)
            wait_until(lambda: told.find(Event.LOST, name), "the loss")
            wait_until(lambda: deployment.is_free(name), "what a new connection got to be undone")
            assert lock.state == State.LOST and lock.is_lost_by_fd() and lock.fence == fence
            assert lock.release() == Status.LOST
            assert deployment.is_free(name)

    def test_a_grant_that_too_few_replicas_have_is_none(self, deployment, dlock):
        needed = {"min_replicas": deployment.replicas + 3, "replica_timeout_ms": 50}
        if deployment.is_redlock:
            assert_refused(dlock, **needed)
            return
        for name in deployment.names:
            assert dlock.lock(name, **needed).acquire() == Status.NO_REPLICAS
            assert deployment.is_free(name)

    # -- around it ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("hand_on", [0, 3])
    def test_threads_take_turns_at_a_hot_name(self, deployment, client_of, hand_on):
        dlock = client_of(hotspot_hand_on=hand_on)
        name = deployment.names[-1]
        assert dlock.hotspot_add(name) == Status.OK
        first = dlock.hold(name, lease_ms=LONG_MS)
        turns = Background(take_turns, dlock, name)
        wait_until(lambda: dlock.stats().waiting == 4, "all of them in line")
        assert first.release() == Status.OK
        fences = turns.result()
        assert fences == sorted(fences)
        assert deployment.is_free(name)
        if hand_on > 0:
            assert dlock.stats().hand_ons > 0
        if deployment.is_plain:
            assert set(fences) == {0}
        elif hand_on == 0:
            assert len(set(fences)) == len(fences)
        else:
            assert len(set(fences)) >= len(fences) // (hand_on + 1)

    def test_threads_take_turns_without_a_local_lock(self, deployment, dlock):
        fences = take_turns(dlock, deployment.names[0], rounds=4)
        assert deployment.is_plain or fences == sorted(set(fences))

    def test_a_guarded_body_runs_under_the_lock(self, deployment, dlock):
        seen = []

        def body(got):
            seen.extend([got, *deployment.infos(deployment.names[0])])
        assert dlock.scope_run(deployment.names[0], body) == Status.OK
        assert seen[0] == Status.OK and all(seen[1:])
        assert deployment.is_free(deployment.names[0])

    def test_a_line_for_each_acquire_and_release(self, deployment, client_of):
        lines = []
        log = LOG_FN(lambda _, level, line: lines.append((level, line.decode())))
        dlock = client_of(access_log=log)
        lock, other = dlock.lock(deployment.names[0]), dlock.lock(deployment.names[0])
        assert lock.acquire() == Status.OK
        about, fence = f"{deployment.names[0]}|{lock.token.decode()}|true|", lock.fence
        assert other.acquire() == Status.BUSY
        assert lock.release() == Status.OK
        assert not any(level for level, _ in lines)
        (_, taken), (_, refused), (_, given_back) = lines
        assert taken.startswith(f"acquire|{about}") and taken.split("|")[5] == str(fence)
        assert "|false|" in refused and "|DLOCK_BUSY|" in refused
        assert given_back.startswith(f"release|{about}") and given_back.endswith(f"|{fence}")
