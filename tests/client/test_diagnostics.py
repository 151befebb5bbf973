"""The diagnostic log: what operators are told about connections."""

import pytest

from support.fake_server import resp
from support.libdlock import LOG_FN, Status
from support.server import free_port, wait_until

INFO, WARNING, ERROR = range(3)


class Diary:
    def __init__(self):
        self.lines = []
        self.function = LOG_FN(lambda _, level, line: self.lines.append((level, line.decode())))

    def wait_for(self, level, line):
        wait_until(lambda: (level, line) in self.lines, line)


@pytest.fixture
def diary():
    return Diary()


@pytest.fixture
def logged(connect, diary):
    """A client that writes the diary."""
    return lambda to, **options: connect(to, diagnostic_log=diary.function, **options)


def test_a_connection_is_made_lost_and_made_again(logged, server, client, diary):
    lock, name = logged(server).hold(), f"127.0.0.1:{server.port}"
    diary.wait_for(INFO, f"{name}: connected")
    client.client_kill_filter(_type="normal", skipme=True)
    assert lock.extend() == Status.OK
    diary.wait_for(WARNING, f"{name}: the connection is lost: the server closed the connection")
    diary.wait_for(INFO, f"{name}: connected again")
    lock.extend()
    assert len(diary.lines) == 3


def test_a_server_that_is_not_there_is_told_once(logged, diary):
    port = free_port()
    assert logged(f"redis://127.0.0.1:{port}").lock().acquire(200) == Status.UNREACHABLE
    diary.wait_for(WARNING, f"127.0.0.1:{port}: no connection: Connection refused")
    assert len(diary.lines) == 1


def test_a_refused_login_is_an_error(logged, server, diary):
    name = f"127.0.0.1:{server.port}"
    assert logged(f"redis://me:wrong@{name}").lock().acquire() == Status.REFUSED
    wait_until(lambda: diary.lines, "a line")
    (level, line), = diary.lines
    assert level == ERROR and line.startswith(f"{name}: no connection: WRONGPASS")
    assert "wrong@" not in line


def test_a_server_that_fails_again_and_again_is_left_alone(logged, lend, diary):
    servers = lend(3)
    down = servers[0]
    down.kill()
    lock = logged(servers).lock()
    for _ in range(10):
        assert lock.acquire(5000) == Status.OK
        lock.release()
    diary.wait_for(WARNING, f"127.0.0.1:{down.port}: left alone for a moment, after failures in a "
                            "row")


def test_a_new_master_is_told(logged, fake_server, diary):
    def master(words):
        if words[0] == b"ROLE":
            return b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
        return b"-READONLY no\r\n" if words[1] == b"away" else b":1\r\n"

    def sentinel(words):
        if words[1] == b"MASTER":
            return b"*2\r\n$12\r\nconfig-epoch\r\n$1\r\n%d\r\n" % epoch
        port = b"%d" % masters[epoch - 1].port
        return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port)

    masters, epoch = [fake_server(master), fake_server(master)], 1
    dlock = logged(f"redis+sentinel://127.0.0.1:{fake_server(sentinel).port}/main")
    dlock.hold()
    diary.wait_for(INFO, f"127.0.0.1:{masters[0].port}: is the master: main")
    epoch = 2
    dlock.lock("away").acquire(50)  # a sign of a failover
    diary.wait_for(WARNING, f"127.0.0.1:{masters[1].port}: is the new master: main")


def test_a_session_that_is_born_again_is_told(logged, start_server, diary):
    """Not the first birth, nor a connection that ends while the session lives."""
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    lock, name = logged(server, io_timeout_ms=5000).hold(renew=True), f"127.0.0.1:{server.port}"
    born_again = f"{name}: the session was forgotten, and is opened anew"
    server.observer.client_kill_filter(_type="normal", skipme=True)
    diary.wait_for(INFO, f"{name}: connected again")
    wait_until(lambda: lock.extend() == Status.OK, "both connections to be new")
    assert (WARNING, born_again) not in diary.lines
    server.crash()
    diary.wait_for(WARNING, born_again)


def test_slots_of_a_cluster_that_another_node_has_are_told(logged, fake_server, diary):
    def node(words):
        if words[0] == b"CLUSTER":
            return resp([[0, 16383, ["127.0.0.1", owner.port, "id"]]])
        return b":1\r\n" if owner.port == old.port else b"-MOVED 0 127.0.0.1:%d\r\n" % new.port

    old, new = fake_server(node), fake_server(lambda words: b":1\r\n")
    owner = old
    dlock = logged(f"redis+cluster://127.0.0.1:{old.port}")
    dlock.hold()
    owner = new

    def is_told():
        assert dlock.lock("any").acquire(5000) == Status.OK
        return (WARNING, f"127.0.0.1:{new.port}: has slots now that another node had: "
                         f"127.0.0.1:{old.port}") in diary.lines
    wait_until(is_told, "the line")
    assert sum("has slots" in line for _, line in diary.lines) == 1


def test_sentinels_that_are_not_there(logged, diary):
    port = free_port()
    logged(f"redis+sentinel://127.0.0.1:{port}/main").lock().acquire(50)
    diary.wait_for(WARNING, "discovery: no result: "
                            f"127.0.0.1:{port}: Connection refused")


def test_the_last_lines_are_told_before_the_client_ends(logged, server, diary):
    dlock = logged(server)
    dlock.hold()
    dlock.free()
    assert diary.lines[0] == (INFO, f"127.0.0.1:{server.port}: connected")
