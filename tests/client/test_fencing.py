"""The pause that no lock survives: a holder sleeps through its lease, wakes up and writes.

Each store of client/examples/fenced_*.c refuses that write, and its twin, which does not look at
the fence, lets it destroy the newer data: so these tests would see it.
"""

import os
import pathlib
import re
import signal
import sqlite3
import subprocess

import pytest

from support.commands import stats
from support.server import ROOT, free_port, wait_until

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
WRITTEN, FAILED, REFUSED = 0, 1, 3
PATIENCE_S = 120  # far beyond any lease, as the machine may be busy
PATIENT = "io_timeout_ms=20000&connect_timeout_ms=20000"  # a slow machine is no silent server
LETTER = "Dear reader,\n"


class FileStore:
    program = "fenced_file"

    def __init__(self, folder, server, name):
        self.where = str(folder / name)

    def put(self, fence, text):
        pathlib.Path(self.where).write_text(f"fence {fence:020}\n{text}\n")

    def read(self):
        found = re.fullmatch("fence (\\d{20})\n(.*)\n", pathlib.Path(self.where).read_text())
        return int(found[1]), found[2]

    def put_letter(self):
        pathlib.Path(self.where).write_text(LETTER)

    def read_letter(self):
        return pathlib.Path(self.where).read_text()


class SqliteStore(FileStore):
    program = "fenced_sqlite"

    def put(self, fence, text):
        with sqlite3.connect(self.where) as database:
            database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text, fence)")
            database.execute("INSERT INTO notes VALUES (1, ?, ?)", (text, fence))

    def read(self):
        with sqlite3.connect(self.where) as database:
            rows = database.execute("SELECT fence, text FROM notes").fetchall()
        assert len(rows) == 1
        return rows[0]


class RedisStore:
    program = "fenced_redis"

    def __init__(self, folder, server, name):
        self.key = name
        self.where = f"127.0.0.1:{server.port}/{name}"
        self.client = server.client(decode_responses=True)

    def put(self, fence, text):
        self.client.hset(self.key, mapping={"fence": fence, "text": text})

    def read(self):
        notes = self.client.hgetall(self.key)
        assert sorted(notes) == ["fence", "text"]
        return int(notes["fence"]), notes["text"]

    def put_letter(self):
        self.client.set(self.key, LETTER)

    def read_letter(self):
        return self.client.get(self.key)


class Writer:
    """A process that writes this text, or waits for a text, as soon as it has the lock."""

    def __init__(self, server, store, text="-", options=()):
        self.process = subprocess.Popen(
            [BUILD / "client/examples" / store.program, *options,
             f"redis://127.0.0.1:{server.port}?{PATIENT}", store.where, text],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            bufsize=0)  # communicate() does not see what readline() has read ahead

    def wait_until_it_holds(self):
        """The fence."""
        line = self.process.stdout.readline()
        found = re.fullmatch(b"holding, fence ([1-9]\\d*)\n", line)
        assert found, line + self.process.stderr.read()
        return int(found[1])

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_until(self.is_stopped, "the process to stop", timeout=PATIENCE_S)

    def is_stopped(self):
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return all("\nState:\tT" in (thread / "status").read_text() for thread in threads)

    def wake_up(self):
        self.process.send_signal(signal.SIGCONT)

    def finish(self, text=""):
        """What it says, and the exit code."""
        out, complaints = self.process.communicate(text.encode(), timeout=PATIENCE_S)
        return (out + complaints).decode(), self.process.returncode


@pytest.fixture
def start(server):
    """start(store, text, options): a writer that ends with the test, even if it is stopped."""
    writers = []

    def start_one(store, *more, **options):
        writers.append(Writer(server, store, *more, **options))
        return writers[-1]

    yield start_one
    for writer in writers:
        writer.process.kill()
        writer.process.communicate()


@pytest.fixture(params=[FileStore, SqliteStore, RedisStore], ids=lambda kind: kind.program)
def make_store(request, server, tmp_path):
    """make_store(name): an empty one of each kind."""
    return lambda name="store": request.param(tmp_path, server, name)


@pytest.fixture
def store(make_store):
    return make_store()


def is_free(client, name):
    return client.execute_command("DLOCK.INFO", name) is None


def test_a_holder_that_slept_through_its_lease_is_refused_and_its_unfenced_twin_does_harm(
        start, make_store, server, client):
    fenced, twin = make_store("fenced"), make_store("unfenced")
    sleepers, old, new = {}, {}, {}
    for store, options in (fenced, []), (twin, ["--unfenced"]):
        sleepers[store] = start(store, options=options)
        old[store] = sleepers[store].wait_until_it_holds()
        sleepers[store].stop()
    server.clock.advance(60)
    for store, options in (fenced, []), (twin, ["--unfenced"]):
        wait_until(lambda: is_free(client, store.where), "the end of the lease", PATIENCE_S)
        another = start(store, "newer", options=options)
        new[store] = another.wait_until_it_holds()
        assert another.finish() == ("written\n", WRITTEN)
        assert store.read() == (new[store], "newer")
        assert new[store] > old[store]
        assert sleepers[store].is_stopped()
        sleepers[store].wake_up()

    said, code = sleepers[fenced].finish("older\n")
    assert (said, code) == ("refused: a larger fence was there\n", REFUSED)
    assert fenced.read() == (new[fenced], "newer")

    assert sleepers[twin].finish("older\n") == ("written\n", WRITTEN)
    assert twin.read() == (old[twin], "older")


@pytest.mark.parametrize("later, code, text", [(-1, WRITTEN, "mine"), (0, WRITTEN, "mine"),
                                               (1, REFUSED, "another's")])
def test_a_store_tells_fences_apart_that_differ_by_one(start, store, later, code, text):
    writer = start(store)
    fence = writer.wait_until_it_holds()
    store.put(fence + later, "another's")
    assert writer.finish("mine\n")[1] == code
    assert store.read() == (fence + (later if code == REFUSED else 0), text)


def test_nothing_of_a_longer_text_is_left(start, store):
    for text in "a longer text", "short":
        writer = start(store, text)
        fence = writer.wait_until_it_holds()
        assert writer.finish() == ("written\n", WRITTEN)
        assert store.read() == (fence, text)


def test_the_lock_is_given_back_and_does_not_just_end(start, store, client):
    assert start(store, "text").finish()[1] == WRITTEN
    wait_until(lambda: stats(client)["released"] == 1, "the release")


def test_what_is_no_store_is_left_alone(start, store):
    store.put_letter()
    said, code = start(store, "text").finish()
    assert code == FAILED
    assert re.search(re.escape(store.where) + ": \\w", said), said
    assert store.read_letter() == LETTER


def test_a_store_that_cannot_be_had_is_no_refusal(start, make_store):
    store = make_store("store")
    if store.program == "fenced_redis":
        store.where = f"127.0.0.1:{free_port()}/store"
    else:
        store.where += "/in/no/folder"
    said, code = start(store, "text").finish()
    assert code == FAILED
    assert re.search(re.escape(store.where) + ": \\w", said), said
