"""dlock_guarded(): commands that run only while the lock is held. In a cluster and at the master of
sentinels: in their files."""

import ctypes

import pytest

from support.commands import stats
from support.fake_server import CUT, SILENCE, resp
from support.libdlock import SHARED, Background, Event, Reply, State, Status, Told, lib
from support.server import wait_until

IO_MS = 5000  # where an answer comes, it may be late
SHORT_MS = 100  # where none comes
MEGABYTE = 1 << 20


@pytest.fixture
def lock(dlock):
    lock = dlock.hold("lock", lease_ms=60_000)
    return lock


# -- replies --------------------------------------------------------------------------------------


def test_the_holder_writes(lock, client):
    assert lock.guarded("SET", "stock", 41) == (Status.OK, b"OK")
    assert lock.guarded("INCR", "stock") == (Status.OK, 42)
    assert lock.guarded("GET", "stock") == (Status.OK, b"42")
    assert lock.guarded("GET", "nothing") == (Status.OK, None)
    assert lock.guarded("MGET", "stock", "nothing") == (Status.OK, [2])
    assert lock.error == ""
    assert client.get("stock") == b"42"


def test_words_and_replies_are_any_bytes(lock, client):
    data = bytes(range(256))
    assert lock.guarded("SET", "data", data) == (Status.OK, b"OK")
    assert client.get("data") == data
    assert lock.guarded("GET", "data", room=300) == (Status.OK, data)


def test_without_lengths_words_end_with_a_nul(lock, client):
    argv = (ctypes.c_char_p * 3)(b"SET", b"stock", b"")
    assert lib.dlock_guarded(lock.handle, 3, argv, None, None) == Status.OK
    assert client.get("stock") == b""


def test_a_reply_that_does_not_fit_is_cut(lock):
    assert lock.guarded("SET", "data", "abcdef") == (Status.OK, b"OK")
    assert lock.guarded("GET", "data", room=4) == (Status.OK, b"abc")


def test_the_room_of_the_reply_may_be_that_of_a_word(lock, client):
    room = ctypes.create_string_buffer(b"new", 16)
    reply = Reply(struct_size=ctypes.sizeof(Reply), text=ctypes.addressof(room), text_size=16)
    argv = (ctypes.c_char_p * 3)(b"GETSET", b"data")
    client.set("data", "old")
    argv_pointers = ctypes.cast(argv, ctypes.POINTER(ctypes.c_void_p))
    argv_pointers[2] = ctypes.addressof(room)  # and not a copy of it
    assert lib.dlock_guarded(lock.handle, 3, argv, None, ctypes.byref(reply)) == Status.OK
    assert client.get("data") == b"new" and room.value == b"old"


def test_large_commands_and_replies_pass(lock):
    data = b"x" * (8 * MEGABYTE)
    assert lock.guarded("SET", "data", data) == (Status.OK, b"OK")
    assert lock.guarded("GET", "data", room=len(data) + 1) == (Status.OK, data)


def test_many_words_pass(lock):
    assert lock.guarded("DEL", *range(100_000)) == (Status.OK, 0)


@pytest.mark.parametrize("script, words", [
    ("redis.call('SET', KEYS[1], ('x'):rep(17 * 2^20))", ["GET", "data"]),
    ("for i = 1, 2200 do redis.call('RPUSH', KEYS[1], unpack(ARGV)) end",
     ["LRANGE", "data", 0, -1])], ids=["bytes", "elements"])
def test_a_reply_beyond_the_limit_leaves_the_command_in_doubt_and_the_lock_held(lock, client,
                                                                                script, words):
    client.eval(script, 1, "data", *["x"] * 500)
    assert lock.guarded(*words) == (Status.IN_DOUBT, None)
    assert "too long" in lock.error
    assert lock.guarded("EXISTS", "data") == (Status.OK, 1)
    assert lock.release() == Status.OK


def test_an_error_of_the_command_is_told(lock, client):
    client.rpush("list", "x")
    assert lock.guarded("INCR", "list") == (Status.REFUSED, None)
    assert "WRONGTYPE" in lock.error
    assert lock.guarded("BLPOP", "list", 1) == (Status.REFUSED, None)
    assert "BLPOP" in lock.error
    assert lock.guarded("NOSUCHCOMMAND") == (Status.REFUSED, None)
    assert lock.state == State.HELD
    assert lock.release() == Status.OK


def test_it_goes_over_the_connection_of_all_other_commands(lock, server):
    assert lock.guarded("PING") == (Status.OK, b"PONG")
    clients = server.observer.client_list()
    assert len([each for each in clients if each["cmd"].lower() == "dlock.guard"]) == 1
    assert lock.release() == Status.OK
    ids = [each["id"] for each in server.observer.client_list()
           if each["cmd"].lower() == "dlock.release"]
    assert ids == [each["id"] for each in clients if each["cmd"].lower() == "dlock.guard"]


# -- who may --------------------------------------------------------------------------------------


def test_a_lost_lock_writes_nothing(lock, client):
    client.delete("lock")
    assert lock.guarded("SET", "stock", 41) == (Status.LOST, None)
    assert lock.error != ""
    assert not client.exists("stock")
    assert lock.state == State.LOST and lock.is_lost_by_fd()
    assert lock.release() == Status.LOST


def test_a_loss_that_a_guarded_command_finds_is_told(connect, server, client):
    told = Told()
    lock = connect(server, on_event=told).hold("lock", lease_ms=60_000)
    client.delete("lock")
    assert lock.guarded("PING")[0] == Status.LOST
    wait_until(lambda: told.find(Event.LOST), "the loss")


def test_a_lease_that_is_over_by_the_local_clock_sends_nothing(dlock, server):
    lock = dlock.hold("brief", lease_ms=10, wait_ms=20_000)
    wait_until(lambda: lock.state == State.LOST, "the end of the lease")
    commands = dlock.stats().commands
    assert lock.guarded("PING") == (Status.LOST, None)
    assert dlock.stats().commands == commands


def test_a_handle_that_holds_nothing_writes_nothing(dlock, client):
    lock = dlock.lock("free")
    assert lock.guarded("SET", "stock", 41) == (Status.NOT_HELD, None)
    assert lock.acquire() == lock.release() == Status.OK
    assert lock.guarded("SET", "stock", 41) == (Status.NOT_HELD, None)
    assert not client.exists("stock")


def test_every_shared_holder_may(dlock):
    one, two = (dlock.lock("shared", mode=SHARED) for _ in range(2))
    assert one.acquire() == two.acquire() == Status.OK
    assert one.guarded("INCR", "n") == (Status.OK, 1)
    assert two.guarded("INCR", "n") == (Status.OK, 2)


def test_a_lock_taken_twice_may_until_the_last_release(lock):
    assert lock.acquire() == Status.OK
    assert lock.guarded("INCR", "n") == (Status.OK, 1)
    assert lock.release() == Status.OK
    assert lock.guarded("INCR", "n") == (Status.OK, 2)
    assert lock.release() == Status.OK
    assert lock.guarded("INCR", "n") == (Status.NOT_HELD, None)


def test_renewal_goes_on_beside(dlock):
    lock = dlock.hold("kept", lease_ms=60_000, renew_every_ms=20)
    wait_until(lambda: lock.guarded("INCR", "n")[0] == Status.OK and dlock.stats().renewed > 20,
               "renewals between the commands")
    assert lock.release() == Status.OK


def test_threads_write_at_once_over_one_connection(dlock, client):
    def work(number):
        lock = dlock.hold(f"lock:{number}", lease_ms=60_000)
        results = {lock.guarded("INCR", f"n:{number}") for _ in range(200)}
        assert lock.release() == Status.OK
        return results

    works = [Background(work, number) for number in range(8)]
    for each in works:
        assert each.result() == {(Status.OK, number) for number in range(1, 201)}


# -- bad arguments --------------------------------------------------------------------------------


def refuse(lock, argc, argv, argvlen=None, reply=None):
    assert lib.dlock_guarded(lock.handle, argc, argv, argvlen, reply) == Status.INVALID
    return lock.error


def words(*given):
    return (ctypes.c_char_p * len(given))(*given)


def test_bad_arguments_are_refused_in_words(lock, dlock):
    commands = dlock.stats().commands
    assert refuse(lock, 0, words(b"PING")) == "no command is given"
    assert refuse(lock, 1, None) == "no command is given"
    assert refuse(lock, 2, words(b"GET", None)) == "a word of the command is NULL"
    assert refuse(lock, 1, words(b"")) == "the name of the command is empty"
    assert "1000000" in refuse(lock, 1_000_001, words(b"DEL"))
    lengths = (ctypes.c_size_t * 2)(3, 17 * MEGABYTE)
    assert "16 MB" in refuse(lock, 2, words(b"SET", b""), lengths)
    assert "struct_size" in refuse(lock, 1, words(b"PING"), None, ctypes.byref(Reply()))
    homeless = Reply(struct_size=ctypes.sizeof(Reply), text_size=3)
    assert "no room" in refuse(lock, 1, words(b"PING"), None, ctypes.byref(homeless))
    assert lib.dlock_guarded(None, 1, words(b"PING"), None, None) == Status.INVALID
    assert dlock.stats().commands == commands
    assert lock.state == State.HELD


def test_several_independent_servers_refuse_it(connect, lend):
    dlock = connect(lend(3))
    lock = dlock.hold()
    assert lock.guarded("PING") == (Status.INVALID, None)
    assert "one step" in lock.error
    assert lock.release() == Status.OK


def test_a_server_without_the_command_has_no_module(fake_server, connect):
    def answer(request):
        if request[0] == b"DLOCK.GUARD":
            return resp(Exception("ERR unknown command 'DLOCK.GUARD', with args beginning with:"))
        return resp(1)

    lock = connect(fake_server(answer)).hold()
    assert lock.guarded("PING")[0] not in (Status.OK, Status.REFUSED, Status.LOST)


# -- doubt ----------------------------------------------------------------------------------------


class Once:
    """Takes the first GUARD and does this with it; answers everything else."""

    def __init__(self, action):
        self.action = action

    def __call__(self, request):
        action, is_guard = self.action, request[0] == b"DLOCK.GUARD"
        if is_guard:
            self.action = resp(7)
        return action if is_guard else resp(1)


@pytest.mark.parametrize("action", [SILENCE, CUT], ids=["silence", "cut"])
def test_no_reply_is_a_doubt_and_nothing_is_sent_twice(fake_server, connect, action):
    server = fake_server(Once(action))
    lock = connect(server, io_timeout_ms=SHORT_MS).hold(lease_ms=60_000, wait_ms=20_000)
    assert lock.guarded("INCR", "stock") == (Status.IN_DOUBT, None)
    assert "127.0.0.1" in lock.error
    assert len(server.asked("DLOCK.GUARD")) == 1
    assert lock.state == State.HELD
    wait_until(lambda: lock.guarded("INCR", "stock") == (Status.OK, 7), "a server that replies")


def test_an_error_about_a_script_is_no_reason_to_send_it_again(fake_server, connect):
    server = fake_server(Once(resp(Exception("NOSCRIPT No matching script."))))
    lock = connect(server).hold(lease_ms=60_000, wait_ms=20_000)
    assert lock.guarded("INCR", "stock") == (Status.REFUSED, None)
    assert len(server.asked("DLOCK.GUARD")) == 1


def test_a_server_that_is_away_gets_nothing(start_server, connect):
    server = start_server()
    lock = connect(server, io_timeout_ms=IO_MS).hold(lease_ms=60_000, wait_ms=20_000)
    server.stop()
    wait_until(lambda: lock.guarded("INCR", "stock")[0] == Status.UNREACHABLE, "no connection")
    assert "refused" in lock.error
    assert lock.state == State.HELD
    server.start(server.port)  # it takes the release


def test_after_the_release_a_late_write_is_refused(connect, server, start_proxy, client):
    """The write is still on its way when the lock is given back over another connection."""
    proxy = start_proxy(server)
    lock = connect(proxy, io_timeout_ms=SHORT_MS).hold(lease_ms=60_000, wait_ms=20_000)
    proxy.delay(b"DLOCK.GUARD")
    assert lock.guarded("SET", "stock", 41)[0] == Status.IN_DOUBT
    lock.release()  # if its reply is late, it goes on in the background
    wait_until(lambda: client.execute_command("DLOCK.INFO", "lock") is None, "the release")
    proxy.deliver()
    wait_until(lambda: stats(server.observer)["guards_refused"] == 1, "the late write")
    assert not client.exists("stock")
