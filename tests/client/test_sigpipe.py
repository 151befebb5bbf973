"""SIGPIPE is never raised, whatever the server does with a connection.

Python ignores SIGPIPE, so each test has a process of its own that would die of it.
"""

import json
import random
import socket
import threading

import pytest

from support.fake_server import CUT, Cut
from support.program import run_python, start_python
from support.tls import context_of, serving

START = """
import json, signal, sys
from support.libdlock import Client, Status
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
dlock = Client(sys.argv[1], io_timeout_ms=20000, **json.loads(sys.argv[2]))
"""
FAILURES = "(Status.UNREACHABLE, Status.IN_DOUBT, Status.LOST)"  # lost: a machine that is slow


def start(url, program, **options):
    return start_python(START + program, url, json.dumps(options))


def run(url, program, **options):
    run_python(START + program, url, json.dumps(options), timeout=120)


def test_these_processes_would_die_of_it():
    process = start("redis://127.0.0.1:1", """
import os
reader, writer = os.pipe()
os.close(reader)
os.write(writer, b"x")
""")
    process.communicate(timeout=120)
    assert process.returncode == -13


def test_a_connection_that_is_closed_while_it_is_idle(fake_server):
    server = fake_server(lambda words: b":1\r\n")
    process = start(server.url, """
lock = dlock.hold()
print("idle", flush=True)
sys.stdin.readline()
assert lock.release() == Status.OK, lock.error
""")
    assert process.stdout.readline() == "idle\n"
    server.break_connections()
    assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    assert server.connection_count == 2


@pytest.mark.parametrize("how", [CUT, Cut(b":"), Cut(b":1\r\n")])
def test_a_connection_that_is_closed_after_every_request(fake_server, how):
    server = fake_server(lambda words: how)
    run(server.url, f"""
lock = dlock.lock(lease_ms=500)
for _ in range(60):
    assert lock.acquire() in (Status.OK, *{FAILURES}), lock.error
    lock.release()
""")


def test_a_connection_that_is_closed_while_a_request_is_sent(tmp_path):
    """On a unix socket every write after the end of the other side is one to raise it."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        threading.Thread(target=_read_some_of_each, args=(listener,), daemon=True).start()
        run(f"unix://{path}", f"""
lock = dlock.lock("x" * 2_000_000, lease_ms=500)
for _ in range(20):
    assert lock.acquire() in {FAILURES}, lock.error
    assert "socket" in lock.error
""")
        listener.shutdown(socket.SHUT_RDWR)


def _read_some_of_each(listener):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            for _ in range(random.randrange(20)):
                connection.recv(100_000)


def test_a_tls_connection_that_is_closed_while_a_request_is_sent(authority, certificate):
    context = context_of(certificate)

    def serve(connection):
        with context.wrap_socket(connection, server_side=True) as stream:
            for _ in range(random.randrange(20)):
                stream.recv(100_000)

    with serving(serve) as port:
        run(f"rediss://127.0.0.1:{port}", f"""
lock = dlock.lock("x" * 2_000_000, lease_ms=500)
for _ in range(20):
    assert lock.acquire() in {FAILURES}, lock.error
""", tls_ca_file=authority.ca, connect_timeout_ms=5000)


def test_a_tls_connection_that_is_closed_while_it_is_idle(authority, certificate):
    context = context_of(certificate)

    def serve(connection):
        with context.wrap_socket(connection, server_side=True) as stream:
            stream.recv(100_000)
            stream.sendall(b":1\r\n")

    with serving(serve) as port:
        run(f"rediss://127.0.0.1:{port}", """
import time
lock = dlock.lock()
for _ in range(20):
    assert lock.acquire(5000) == Status.OK, lock.error
    time.sleep(0.02)  # longer than a connection is taken to be alive unseen
    assert lock.release() == Status.OK, lock.error
""", tls_ca_file=authority.ca, connect_timeout_ms=5000)
