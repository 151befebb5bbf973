"""A Lock of client/python does what its docstrings say, at one server. With threads and asyncio."""

import asyncio
import linecache
import math
import os
import pathlib
import signal
import sys
import threading

import pytest
import redis
import redis.asyncio

import dlock
from support.acl import set_user
from support.commands import fence_at, served, stats
from support.server import wait_until
from support.waiting import assert_nobody_waits, wait_for_waiters


def test_one_has_it_and_the_other_is_told_so(client):
    ours, theirs = client.lock("lock"), client.lock("lock")
    assert ours.acquire() == ours.fence > 0
    with pytest.raises(dlock.Busy) as busy:
        theirs.acquire()
    assert not isinstance(busy.value, dlock.Timeout) and theirs.fence == 0 and not theirs.held
    with pytest.raises(dlock.NotHeld):
        theirs.release()
    ours.release()
    with pytest.raises(dlock.NotHeld):
        ours.release()
    assert theirs.acquire() > ours.fence


def test_every_acquisition_has_a_token_of_its_own(client, server):
    lock = client.lock("lock")
    tokens = set()
    for _ in range(3):
        with lock:
            tokens.add(lock.token)
    assert len(tokens) == 3


@pytest.mark.parametrize("lease", [None, 60])
def test_a_wait_ends_with_the_lock(client, server, begin, lease):
    ours, theirs = client.lock("lock"), client.lock("lock", wait=60, lease=lease)
    ours.acquire()
    wanted = begin(theirs.acquire)
    wait_for_waiters(server.observer, 1)
    ours.release()
    assert wanted.result() == fence_at(server.observer) == theirs.fence
    assert theirs.remaining() > 50


def test_a_wait_ends_without_the_lock(client, hold, server, begin):
    hold("lock")
    wanted = begin(client.lock("lock").acquire, wait=60)
    wait_for_waiters(server.observer, 1)
    # Less than the timeout of the session, whose end would be another story.
    server.observer.execute_command("DLOCK.SESSION", client._id, "PX", 60_000)
    server.clock.advance(30)
    server.observer.execute_command("DLOCK.SESSION", client._id, "PX", 60_000)
    server.clock.advance(31)
    with pytest.raises(dlock.Timeout):
        wanted.result()


def test_a_short_wait_is_over_by_itself(client, hold):
    hold("lock")
    with pytest.raises(dlock.Timeout, match="lock: busy until the wait was over"):
        client.lock("lock", wait=0.05).acquire()


def test_waits_need_one_session_and_no_connections(client, hold, server, begin):
    ours = hold("lock")
    connected = server.observer.info("clients")["connected_clients"]
    wanted = []
    for i in range(20):
        wanted.append((client.lock("lock", wait=60), i))
        wanted[-1] = wanted[-1][0], begin(wanted[-1][0].acquire)
        wait_for_waiters(server.observer, i + 1)
        [known] = client._servers.values()
        wait_until(lambda: known.free, "the connection, which the next wait can use again")
    assert stats(server.observer)["sessions"] == 1
    assert server.observer.info("clients")["connected_clients"] <= connected + 1
    ours.release()
    fences = []
    for lock, asking in wanted:  # in the order in which they came
        fences.append(asking.result())
        lock.release()
    assert fences == sorted(fences)


@pytest.mark.parametrize("form", ["threads"])
def test_a_look_at_an_idle_connection_does_not_wait(client, monkeypatch):
    """A connection that can be read would be one that the server has closed."""
    with client.lock("lock"):
        pass
    [known] = client._servers.values()
    [idle] = known.free
    looks = []
    monkeypatch.setattr(idle, "can_read", looks.append)  # which returns None: there is nothing
    assert known.idle() is idle and looks == [0]
    monkeypatch.undo()
    known.free.append(idle)


def test_with_gives_it_back_on_every_way_out(client, server):
    with pytest.raises(ZeroDivisionError), client.lock("lock") as held:
        assert fence_at(server.observer) == held.fence and held.held
        1 / 0
    assert server.observer.dbsize() == 0


def test_with_tells_that_the_lock_was_lost_meanwhile(client, server):
    with pytest.raises(dlock.Lost), client.lock("lock"):
        server.observer.delete("lock")


def test_what_the_body_raises_goes_before_a_loss(client, server):
    with pytest.raises(ZeroDivisionError), client.lock("lock"):
        server.observer.delete("lock")
        1 / 0


@pytest.mark.parametrize("lease", [None, 60])
def test_what_the_body_raises_goes_before_the_end_of_the_client(connect, server, lease):
    client = connect(server)
    with pytest.raises(ZeroDivisionError), client.lock("lock", lease=lease):
        client.close()
        1 / 0
    client = connect(server)
    with pytest.raises((dlock.Lost, ValueError)), client.lock("another", lease=lease):
        client.close()


def test_a_body_may_release_it_itself(client):
    with client.lock("lock") as held:
        held.release()


def test_a_lock_is_not_re_entrant(client):
    with client.lock("lock") as held:
        with pytest.raises(RuntimeError, match="re-entrant"):
            held.acquire()
        assert held.held


def test_one_lock_object_does_not_let_two_in(client, hold, server, begin):
    """Who waits is not told the outcome of another call, and its lock is not given back."""
    ours, shared = hold("lock"), client.lock("lock", wait=60)
    first = begin(shared.acquire)
    wait_for_waiters(server.observer, 1)
    with pytest.raises(RuntimeError, match="another thread or task"):
        shared.acquire()
    ours.release()
    assert first.result() == fence_at(server.observer) and shared.held
    shared.release()
    assert server.observer.dbsize() == 0


def let_beat(server, times):
    """A timeout is 60 s. The server replies to a heartbeat after 20 s, and another one follows."""
    for _ in range(times):
        beats = served(server.observer, "session")
        server.clock.advance(21)
        wait_until(lambda: served(server.observer, "session") > beats, "a heartbeat")


def test_a_kept_lock_lasts_as_long_as_its_process(client, server):
    with client.lock("lock") as held:
        let_beat(server, 6)
        assert held.held and not held.lost.is_set()
        assert fence_at(server.observer) == held.fence


def test_many_kept_locks_need_no_command_each(client, server):
    locks = [client.lock(f"lock {i}") for i in range(50)]
    for lock in locks:
        lock.acquire()
    let_beat(server, 3)
    assert all(lock.held for lock in locks)
    assert served(server.observer, "acquire") == 50
    assert served(server.observer, "extend") == 0


def test_a_loss_is_told_at_once(hold, server):
    told = []
    lock = hold("lock", on_lost=told.append)
    server.observer.delete("lock")
    wait_until(lock.lost.is_set, "the loss")
    wait_until(lambda: told, "the callback")
    assert told[0].why_lost == lock.why_lost == "deleted"
    assert lock.remaining() == 0
    for call in lock.check, lock.release:
        with pytest.raises(dlock.Lost, match="lock: deleted"):
            call()


def test_a_flush_is_a_loss_of_all(client, server):
    locks = [client.lock("one"), client.lock("other")]
    for lock in locks:
        lock.acquire()
    server.observer.flushall()
    for lock in locks:
        wait_until(lock.lost.is_set, "the loss")


def test_a_callback_that_fails_hurts_nobody_else(client, server):
    failing, other = client.lock("lock", on_lost=lambda lock: 1 / 0), client.lock("other")
    failing.acquire()
    other.acquire()
    server.observer.delete("lock")
    wait_until(failing.lost.is_set, "the loss")
    server.observer.delete("other")
    wait_until(other.lost.is_set, "the next one")


def test_a_lock_with_a_lease_needs_no_session(hold, server):
    lock = hold("lock", lease=60)
    assert stats(server.observer)["sessions"] == 0
    assert 50 < lock.remaining() < 59.5, "counted from before the request, and 1 % less"
    lock.extend(600)
    assert 500 < lock.remaining() < 594.5
    assert fence_at(server.observer) == lock.fence
    server.clock.advance(601)
    with pytest.raises(dlock.Lost):
        lock.extend()
    with pytest.raises(dlock.Lost):
        lock.guarded("SET", "x", 1)
    assert lock.lost.is_set()


def test_a_kept_lock_has_no_lease_to_extend(client):
    with client.lock("lock") as held, pytest.raises(ValueError):
        held.extend()


def test_readers_share_it_and_keep_a_writer_out(client):
    one, other, writer = (client.lock("lock", shared=True), client.lock("lock", shared=True),
                          client.lock("lock"))
    one.acquire()
    other.acquire()
    with pytest.raises(dlock.Busy):
        writer.acquire()
    one.release()
    other.release()
    with writer, pytest.raises(dlock.Busy):
        one.acquire()


def test_slots_are_for_so_many_at_a_time(client, server, begin):
    locks = [client.lock("lock", slots=2, wait=60) for _ in range(3)]
    locks[0].acquire()
    locks[1].acquire()
    third = begin(locks[2].acquire)
    wait_for_waiters(server.observer, 1)
    locks[1].release()
    assert third.result() > locks[0].fence


def test_a_guarded_write_is_made_by_the_holder_alone(hold, server):
    lock = hold("lock")
    assert lock.guarded("SET", "items", 41) == b"OK"
    assert lock.guarded("INCR", "items") == 42
    server.observer.delete("lock")
    server.observer.set("items", 0)
    with pytest.raises(dlock.Lost):
        lock.guarded("SET", "items", 1)
    assert server.observer.get("items") == b"0" and lock.lost.is_set()


def test_an_error_of_a_guarded_command_is_no_loss(client, server):
    server.observer.rpush("items", "x")
    with client.lock("lock") as held:
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            held.guarded("INCR", "items")
        assert held.held


def test_several_names_are_taken_all_or_none(client, hold, server, begin):
    one = hold("{a}2", lease=60)
    both = client.lock("{a}1", "{a}2", wait=60)
    wanted = begin(both.acquire)
    wait_until(lambda: stats(server.observer)["waiters"], "the wait")
    one.release()
    fence = wanted.result()
    assert fence == fence_at(server.observer, "{a}1") == fence_at(server.observer, "{a}2")
    both.release()
    assert server.observer.dbsize() == 0


def test_a_release_tells_that_one_of_several_names_was_gone(hold, server):
    both = hold("{a}1", "{a}2", lease=60)
    both.extend()
    server.observer.delete("{a}2")
    with pytest.raises(dlock.Lost):
        both.release()
    assert server.observer.dbsize() == 0


def test_one_lost_name_is_a_loss_of_all(hold, server):
    both = hold("{a}1", "{a}2")
    server.observer.delete("{a}2")
    wait_until(both.lost.is_set, "the loss")
    wait_until(lambda: not server.observer.dbsize(), "the other name to be given back")


def test_a_full_queue_is_told(client, server, begin):
    server.observer.config_set("dlock.max-waiters", 1)
    with client.lock("lock"):
        first = begin(client.lock("lock", wait=60).acquire)
        wait_for_waiters(server.observer, 1)
        with pytest.raises(dlock.QueueFull):
            client.lock("lock", wait=60).acquire()
    assert first.result()


@pytest.mark.parametrize("lease", [None, 60])
def test_a_permission_that_is_missing_is_named(connect, server, lease):
    set_user(server, ["+dlock.session"], "~*")
    client = connect(f"redis://app:x@127.0.0.1:{server.port}")
    with pytest.raises(dlock.Refused, match="dlock.acquire"):
        client.lock("lock", lease=lease, wait=60).acquire()


def test_a_session_that_may_not_be_opened_is_told(connect, server):
    set_user(server, ["+dlock.acquire"], "~*")
    client = connect(f"redis://app:x@127.0.0.1:{server.port}")
    with pytest.raises(dlock.Refused, match="dlock.session"):
        client.lock("lock", wait=60).acquire()


def test_a_wrong_password_is_told(connect, server):
    client = connect(f"redis://app:wrong@127.0.0.1:{server.port}")
    with pytest.raises(dlock.Refused):
        client.lock("lock", wait=60).acquire()


def test_a_server_without_the_module_is_told(connect, start_server):
    with pytest.raises(dlock.Refused, match="does not have the module"):
        connect(start_server(module=None)).lock("lock", wait=60).acquire()


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"wait": True}, {"wait": float("nan")},
                                   {"lease": 0}, {"lease": True}, {"lease": math.inf},
                                   {"slots": 0}, {"slots": True}, {"slots": 2.5}])
def test_wrong_arguments_are_refused(client, wrong):
    with pytest.raises(ValueError):
        client.lock("lock", **wrong)


@pytest.mark.parametrize("url", ["redis+sentinel://s1/locks", "redis+cluster://n1", "n1:6379"])
def test_a_url_that_redis_py_does_not_read_is_answered_with_advice(connect, url):
    with pytest.raises(ValueError, match="Sentinel its master_for.*a RedisCluster"):
        connect(url)


@pytest.mark.parametrize("lease", [0, -1, math.inf])
def test_a_lease_is_not_extended_by_nonsense(hold, lease):
    with pytest.raises(ValueError, match="lease"):
        hold("lock", lease=60).extend(lease)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("which", ["session_timeout", "io_timeout"])
def test_a_timeout_of_the_client_has_an_end(connect, server, which, seconds):
    with pytest.raises(ValueError, match=which):
        connect(server, **{which: seconds})


@pytest.mark.parametrize("name", [5, None, ["a", "b"]])
def test_a_name_is_text_or_bytes(client, name):
    with pytest.raises(TypeError, match="a name is"):
        client.lock(name)


def test_the_end_of_the_client_ends_its_locks(connect, server):
    client = connect(server)
    lock = client.lock("lock")
    lock.acquire()
    client.close()
    assert lock.lost.is_set() and stats(server.observer)["sessions"] == 0
    assert server.observer.dbsize() == 0
    with pytest.raises(dlock.Lost, match="closed"):
        lock.release()
    with pytest.raises(ValueError, match="closed"):
        lock.acquire()


def test_the_end_of_the_client_ends_its_waits(connect, server, begin):
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 600_000)
    client = connect(server)
    wanted = begin(client.lock("lock").acquire, wait=math.inf)
    wait_for_waiters(server.observer, 1)
    client.close()
    with pytest.raises(ValueError, match="closed"):
        wanted.result()


def test_the_end_of_the_client_ends_its_connections(connect, server):
    client = connect(server)
    with client.lock("lock"):
        pass
    client.close()
    wait_until(lambda: not [each for each in server.observer.client_list()
                            if each["cmd"].startswith("dlock")], "their end", timeout=5)


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_a_wait_that_is_canceled_while_the_client_is_closed_is_canceled(connect, server, loop):
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 600_000)
    client = connect(server)
    wanted = loop.begin(client.lock("lock", wait=60).it.acquire())
    wait_for_waiters(server.observer, 1)

    async def cancel():
        closing = asyncio.ensure_future(client.it.close())
        await asyncio.sleep(0)
        wanted.cancel()
        await asyncio.wait({wanted})
        await closing
    loop.run(cancel())
    assert wanted.cancelled()


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_many_tasks_need_few_connections(client, server, loop):
    async def take(number):
        async with client.it.lock(f"lock {number}", lease=60):
            pass

    async def take_all():
        await asyncio.gather(*map(take, range(500)))
    loop.run(take_all())
    assert server.observer.info("clients")["connected_clients"] < 100


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_many_threads_leave_few_connections_behind(client, server, begin):
    is_over = threading.Barrier(150)

    def take(number):
        with client.lock(f"lock {number}", lease=60):
            is_over.wait(50)
    for each in [begin(take, number) for number in range(150)]:
        each.result()
    [known] = client._servers.values()
    assert len(known.free) <= 64


def test_a_client_of_another_kind_is_refused(connect, form):
    for wrong in (redis.asyncio if form == "threads" else redis).Redis(), None, 5:
        with pytest.raises(TypeError, match="server: a URL or a client"):
            dlock.Client(wrong) if form == "threads" else dlock.aio.Client(wrong)


def test_an_option_that_redis_py_does_not_know_is_told_at_once(connect):
    with pytest.raises(TypeError, match="lease_ms"):
        connect("redis://127.0.0.1?lease_ms=5000")


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_a_session_whose_task_was_canceled_begins_again(client, hold, loop):
    lost = hold("lost")

    async def cancel():
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    loop.run(cancel())
    wait_until(lost.lost.is_set, "the loss")
    with client.lock("lock", wait=60) as held:
        assert held.held


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_a_session_whose_thread_cannot_be_started_begins_later(client, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="new thread"):
        patch.setattr(threading.Thread, "start", refuse)
        client.lock("lock").acquire()
    with client.lock("lock") as held:
        assert held.held


def test_a_client_of_redis_py_may_decode_replies_and_choose_a_database(connect, server, form):
    package = redis if form == "threads" else redis.asyncio
    client = connect(package.Redis(port=server.port, db=3, decode_responses=True))
    with client.lock("lock", wait=60) as held:
        assert held.guarded("SET", "items", 41) == "OK"
        other = client.lock("lock", wait=0.05)
        with pytest.raises(dlock.Timeout):
            other.acquire()
    assert server.client(db=3).get("items") == b"41"


def test_over_tls(connect, tls_server, authority):
    client = connect(f"{tls_server.url}?ssl_ca_certs={authority.ca}")
    with client.lock("lock", wait=20) as held:
        assert fence_at(tls_server.observer) == held.fence


def test_over_a_unix_socket(connect, start_server, tmp_path):
    server = start_server("--unixsocket", tmp_path / "socket")
    with connect(f"unix://{tmp_path}/socket").lock("lock", wait=20) as held:
        assert fence_at(server.observer) == held.fence


def test_words_that_redis_py_cannot_send_are_no_failure_of_the_server(client):
    with client.lock("lock") as held:
        with pytest.raises(redis.DataError):
            held.guarded("SET", "items", None)
        assert held.guarded("SET", "items", 1) == b"OK"


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_a_callback_may_close_the_client(client, hold, server):
    hold("lock", on_lost=lambda lock: client.close())
    server.observer.delete("lock")
    wait_until(lambda: stats(server.observer)["sessions"] == 0, "the end of the session")
    wait_until(lambda: not any(t.name == "dlock-session" for t in threading.enumerate()),
               "the end of the thread")


class Exit(BaseException):
    """As those of pytest and greenlets."""


@pytest.mark.parametrize("form, way_out", [
    ("threads", SystemExit), ("threads", Exit), ("threads", asyncio.CancelledError),
    ("threads", KeyboardInterrupt), ("asyncio", asyncio.CancelledError)], indirect=["form"])
def test_a_callback_that_exits_does_not_end_the_session(client, hold, server, way_out):
    """It cannot end the program, as sys.exit() ends no thread but its own."""
    kept = hold("kept")

    def leave(lock):
        raise way_out
    lost = [hold(name, on_lost=leave) for name in ("one", "two")]
    server.observer.delete("one", "two")
    for lock in lost:
        wait_until(lock.lost.is_set, "the loss")
    with client.lock("lock", wait=20) as held:
        assert held.held
    assert kept.held and not kept.lost.is_set()


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_a_callback_in_a_thread_of_the_program_may_exit(client, server):
    def leave(lock):
        raise SystemExit
    lock = client.lock("lock", lease=60, on_lost=leave)
    lock.acquire()
    server.observer.delete("lock")
    with pytest.raises(SystemExit):
        lock.extend()
    assert lock.lost.is_set()


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_a_canceled_wait_leaves_the_queue(client, loop, server):
    with client.lock("lock"):
        waiting = client.lock("lock", wait=60)
        wanted = loop.begin(waiting.it.acquire())
        wait_for_waiters(server.observer, 1)

        async def cancel():
            wanted.cancel()
            await wanted
        with pytest.raises(BaseException) as canceled:
            loop.run(cancel())
        assert "Cancelled" in type(canceled.value).__name__
        assert_nobody_waits(server.observer)


@pytest.mark.parametrize("form", ["threads"], indirect=True)
@pytest.mark.parametrize("function", ["run", "_expand"])
def test_an_interrupt_between_two_steps_leaves_no_lock(connect, server, function):
    """Ctrl-C, right when the reply has come."""
    client = connect(server, session_timeout=6.0)
    client.lock("other").acquire()

    def interrupt(frame, event, _):
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if frame.f_code.co_name == function and "steps.send(reply)" in line:
            if event == "line" and frame.f_locals["reply"] == [granted()]:
                sys.settrace(None)
                raise KeyboardInterrupt
        return interrupt

    def granted():
        return fence_at(server.observer)
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt) as kept:  # and its frames
            client.lock("lock").acquire()
    finally:
        sys.settrace(before)
    wait_until(lambda: granted() is None, "the release")
    assert kept.value


@pytest.mark.parametrize("form", ["threads"], indirect=True)
@pytest.mark.parametrize("options", [{}, {"lease": 60, "wait": 60}])
def test_an_interrupt_anywhere_in_a_block_leaves_no_lock(connect, server, options):
    """Ctrl-C, at every call of a function and at every line of the steps. Only before the first
    line of __exit__() nobody can catch it. (Without a session the lease ends the lock.)"""
    client, before = connect(server, session_timeout=6.0), sys.gettrace()
    client.lock("other").acquire()

    def is_reached(number):
        def interrupt(frame, event, _):
            nonlocal number
            file = pathlib.Path(frame.f_code.co_filename)
            if file.parent.name != "dlock":
                return None
            if event == "call" and frame.f_code.co_name != "__exit__" or (
                    event == "line" and file.name == "_claim.py"):
                number -= 1
                if number == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return interrupt
        lock = client.lock(f"lock {number}", **options)
        sys.settrace(interrupt)
        try:
            with lock:
                pass
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert not lock.held
        return number <= 0
    number = 1
    while is_reached(number):
        number += 1
    assert number > 50
    wait_until(lambda: server.observer.dbsize() == 1, "the releases")


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_an_interrupt_while_the_thread_of_a_session_starts_leads_to_no_second(client, monkeypatch):
    def sessions():
        return {each for each in threading.enumerate() if each.name == "dlock-session"}
    start, others = threading.Thread.start, sessions()

    def interrupt(thread):
        start(thread)
        if thread.name == "dlock-session":
            raise KeyboardInterrupt
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupt)
        client.lock("lock").acquire()
    with client.lock("lock", wait=60):
        wait_until(lambda: len(sessions() - others) == 1, "the end of the other thread")


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_a_child_has_a_session_of_its_own_and_no_lock_of_its_parent(client, server):
    lock, other = client.lock("lock"), client.lock("other", lease=60)
    lock.acquire()
    other.acquire()
    child = os.fork()
    if not child:
        status = 1
        try:
            assert not lock.held and not other.held
            for call in lock.release, other.release:
                with pytest.raises(dlock.NotHeld):
                    call()
            with pytest.raises(dlock.Busy):
                client.lock("lock", wait=0.05).acquire()
            with client.lock("of the child", wait=1):
                assert stats(server.connect())["sessions"] == 2
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.held and not lock.lost.is_set()
    lock.release()
    other.release()


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_a_child_does_not_wait_for_a_thread_of_its_parent(client, begin):
    """A thread that waits for an event, or sets it, has the lock of this event for a moment."""
    lock, is_taken, is_over = client.lock("lock"), threading.Event(), threading.Event()

    def use():
        with lock.lost._cond, lock._wakeup._cond:
            is_taken.set()
            is_over.wait()
    using = begin(use)
    is_taken.wait()
    child = os.fork()
    if not child:
        try:
            signal.alarm(20)
            with lock:
                assert not lock.lost.wait(0)
            os._exit(0)
        finally:
            os._exit(1)
    is_over.set()
    using.result()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_a_closed_client_is_closed_in_a_child(client):
    client.close()
    child = os.fork()
    if not child:
        try:
            client.lock("lock").acquire()
        except ValueError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_the_session_has_one_thread(client):
    for i in range(3):
        client.lock(f"lock {i}").acquire()
    assert [t.name for t in threading.enumerate()].count("dlock-session") == 1
