"""rediss:// - who is trusted, who is not, and that nothing else is different."""

import contextlib
import os
import queue
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

from support.libdlock import LOG_FN, Background, Client, State, Status, last_error
from support.program import run_python
from support.server import free_port, stopped, wait_until
from support.tls import PAST, Authority, context_of, openssl, serving

PATIENT = {"connect_timeout_ms": 20_000, "io_timeout_ms": 20_000}  # on a slow machine
FAST_MS = 10_000  # what ends at once ends before that, and the waits are much longer
LONG_MS = 60_000


@pytest.fixture
def connect_tls(start_tls_server, connect, authority):
    """connect_tls(url or server, **options): a client that trusts the authority, and ends before
    the servers do."""
    def make(to, **options):
        return connect(to, **{"tls_ca_file": authority.ca, **PATIENT, **options})
    return make


@pytest.fixture
def localhost():
    """A name of this machine."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        pytest.skip("localhost has no address here")
    return "localhost"


def refused_at_once(lock):
    """The cause, of an acquire that did not use its wait."""
    status, took_ms = lock.timed_acquire(LONG_MS)
    assert status == Status.REFUSED, lock.error
    assert took_ms < FAST_MS
    assert lock.state == State.FREE
    return lock.error


# -- it works --------------------------------------------------------------------------------------


def connections_of(server):
    return server.client().info("stats")["total_connections_received"]


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_many_acquires_need_one_connection(connect_tls, start_tls_server, versions):
    server = start_tls_server("--tls-protocols", versions)
    lock = connect_tls(server).lock()
    before = connections_of(server)
    for i in range(50):
        assert lock.acquire() == Status.OK, lock.error
        assert lock.release() == Status.OK
        if i % 10 == 0:
            time.sleep(0.02)  # long enough to be looked at before it is used again
    assert connections_of(server) == before + 2  # ours, and who asks


def test_a_password_and_a_database(connect_tls, tls_server):
    tls_server.client().config_set("requirepass", "pw")
    url = tls_server.url.replace("://", "://:pw@") + "/3"
    connect_tls(url).hold("d")
    assert tls_server.client(db=3, password="pw").exists("d")
    wrong = connect_tls(tls_server.url.replace("://", "://:wrong@")).lock()
    assert "WRONGPASS" in refused_at_once(wrong)


@pytest.mark.parametrize("size", [16_300, 16_400, 70_000, 5_000_000])
def test_a_name_of_several_records(connect_tls, tls_server, size):
    lock = connect_tls(tls_server).lock("x" * size)
    for _ in range(3):
        assert lock.acquire() == Status.OK, lock.error
        assert tls_server.client().exists("x" * size)
        assert lock.release() == Status.OK, lock.error


def test_an_answer_that_is_longer_than_one_read(connect_tls, certificate):
    """TLS keeps the rest of the record, and poll(2) does not know of it."""
    context = context_of(certificate)

    def serve(connection):
        with context.wrap_socket(connection, server_side=True) as stream:
            stream.recv(100_000)
            stream.sendall(b"-EH " + b"x" * 16_000 + b"\r\n")
            stream.recv(100_000)

    with serving(serve) as port:
        lock = connect_tls(f"rediss://127.0.0.1:{port}").lock()
        assert lock.acquire() == Status.PROTOCOL
        assert "EH xxx" in lock.error


def test_a_server_that_stops_to_read(connect_tls, certificate):
    context, is_over = context_of(certificate), threading.Event()

    def serve(connection):
        with context.wrap_socket(connection, server_side=True):
            is_over.wait(LONG_MS / 1000)

    with serving(serve) as port:
        lock = connect_tls(f"rediss://127.0.0.1:{port}", io_timeout_ms=2500).lock("x" * 20_000_000)
        status, took_ms = lock.timed_acquire()
        is_over.set()
    assert status == Status.IN_DOUBT, lock.error
    assert took_ms < 8000, "the kernel itself gives up then"


def test_the_server_is_told_before_the_connection_ends(connect_tls, certificate):
    context, endings = context_of(certificate), queue.Queue()

    def serve(connection):
        with context.wrap_socket(connection, server_side=True,
                                 suppress_ragged_eofs=False) as secure:
            try:
                while secure.recv(1000):
                    pass
                endings.put("close_notify")
            except OSError as error:
                endings.put(repr(error))

    with serving(serve) as port:
        client = connect_tls(f"rediss://127.0.0.1:{port}", io_timeout_ms=200)
        assert client.lock().acquire() == Status.IN_DOUBT
        client.free()
        assert endings.get(timeout=20) == "close_notify"


def test_a_host_name(connect_tls, tls_server, localhost):
    connect_tls(f"rediss://{localhost}:{tls_server.tls_port}").hold()


def test_an_ipv6_address(connect_tls, start_tls_server, authority):
    server = start_tls_server("--bind", "127.0.0.1", "::1",
                              certificate=authority.issue("six", "IP:::1"))
    connect_tls(f"rediss://[::1]:{server.tls_port}").hold()


def test_the_machines_trust_store_is_the_default(tls_server, connect, authority, monkeypatch):
    lock = connect(tls_server, **PATIENT).lock()
    assert "certificate" in refused_at_once(lock)
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    lock = connect(tls_server, **PATIENT).hold()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_only_tls_1_2_and_later(connect_tls, certificate):
    """A server that knows no more has no version in common with us."""
    context = context_of(certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with serving(lambda connection: context.wrap_socket(connection, server_side=True)) as port:
        error = refused_at_once(connect_tls(f"rediss://127.0.0.1:{port}").lock())
    assert "alert protocol version" in error


# -- who is not trusted ----------------------------------------------------------------------------


def test_a_server_of_another_authority(connect_tls, tls_server, tmp_path):
    other = Authority(tmp_path / "other")
    lock = connect_tls(tls_server, tls_ca_file=other.ca).lock()
    error = refused_at_once(lock)
    assert f"127.0.0.1:{tls_server.tls_port}: TLS: " in error
    assert "issuer certificate" in error or "self-signed" in error
    assert not tls_server.client().exists("lock")


@pytest.mark.parametrize("addresses, complaint", [
    ("DNS:elsewhere.example,IP:127.0.0.2", "IP address mismatch"),
    ("DNS:127.0.0.1", "IP address mismatch")])
def test_a_certificate_of_another_address(connect_tls, start_tls_server, authority, addresses,
                                          complaint):
    server = start_tls_server(certificate=authority.issue("another", addresses))
    assert complaint in refused_at_once(connect_tls(server).lock())


@pytest.mark.parametrize("addresses", ["DNS:elsewhere.example", "IP:127.0.0.1,IP:::1",
                                       "DNS:*.localhost"])
def test_a_certificate_of_another_name(connect_tls, start_tls_server, authority, addresses,
                                       localhost):
    server = start_tls_server(certificate=authority.issue("another", addresses))
    error = refused_at_once(connect_tls(f"rediss://{localhost}:{server.tls_port}").lock())
    assert "hostname mismatch" in error.lower()


def test_an_expired_certificate(connect_tls, start_tls_server, authority):
    server = start_tls_server(certificate=authority.issue("old", "IP:127.0.0.1", until=PAST))
    assert "TLS: certificate has expired" in refused_at_once(connect_tls(server).lock())


# -- a certificate of our own ----------------------------------------------------------------------


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def demanding_server(start_tls_server, request):
    """It wants to see a certificate of its clients."""
    return start_tls_server("--tls-auth-clients", "yes", "--tls-protocols", request.param)


def test_a_certificate_that_the_server_trusts(connect_tls, demanding_server, authority):
    own = authority.issue("client", "DNS:client")
    dlock = connect_tls(demanding_server, tls_cert_file=own.cert, tls_key_file=own.key)
    dlock.hold()
    assert dlock.ping() == Status.OK


def test_no_certificate_where_one_is_wanted(connect_tls, demanding_server):
    dlock = connect_tls(demanding_server)
    error = refused_at_once(dlock.lock())
    assert "certificate required" in error or "handshake failure" in error
    assert dlock.ping() == Status.REFUSED


@pytest.mark.parametrize("size", [10, 4_000_000])
def test_a_refusal_is_told_even_if_the_connection_ends_while_we_send(connect_tls, demanding_server,
                                                                     size):
    """By the time that a request could not be sent, the reason is there to be read."""
    lock = connect_tls(demanding_server).lock("x" * size)
    for _ in range(30):
        assert lock.acquire() == Status.REFUSED, lock.error
        assert "certificate required" in lock.error or "handshake failure" in lock.error


def test_a_certificate_that_the_server_does_not_trust(connect_tls, demanding_server, tmp_path):
    own = Authority(tmp_path / "other").issue("client", "DNS:client")
    dlock = connect_tls(demanding_server, tls_cert_file=own.cert, tls_key_file=own.key)
    assert "unknown ca" in refused_at_once(dlock.lock())


def test_certificates_are_read_again_when_they_change(connect_tls, start_tls_server, authority,
                                                      tmp_path):
    """Also from another authority, and not while the key does not belong to the certificate."""
    lines = []
    log = LOG_FN(lambda _, level, line: lines.append(line.decode()))
    server = start_tls_server("--tls-auth-clients", "yes")
    bad = Authority(tmp_path / "other").issue("client", "DNS:client")
    good = authority.issue("renewed", "DNS:client")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(bad.cert, cert)
    shutil.copy(bad.key, key)
    lock = connect_tls(server, tls_cert_file=str(cert), tls_key_file=str(key),
                       diagnostic_log=log).lock()
    assert "unknown ca" in refused_at_once(lock)
    shutil.copy(good.cert, cert)
    assert "unknown ca" in refused_at_once(lock), "the old ones are used"
    wait_until(lambda: any(line.endswith("the old ones are used: tls_key_file is not the key of "
                                         "tls_cert_file") for line in lines), "a line")
    shutil.copy(good.key, key)
    assert lock.acquire(FAST_MS) == Status.OK, lock.error
    wait_until(lambda: "TLS: the files have changed, and were read again" in lines, "a line")


# -- options ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "text").write_text("not a certificate\n")
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-aes256",
            "-pass", "pass:secret", "-out", folder / "locked.key")
    openssl("genpkey", "-algorithm", "RSA", "-out", folder / "rsa.key")
    one, two = authority.issue("one", "DNS:one"), authority.issue("two", "DNS:two")
    return {"none": str(folder / "none"), "text": str(folder / "text"), "folder": str(folder),
            "locked key": str(folder / "locked.key"), "rsa key": str(folder / "rsa.key"),
            "one": one.cert, "one's key": one.key, "two's key": two.key}


@pytest.mark.parametrize("options, complaint", [
    ({"tls_ca_file": "none"}, "tls_ca_file: No such file or directory"),
    ({"tls_ca_file": "text"}, "tls_ca_file has no certificate in PEM form"),
    ({"tls_ca_file": "folder"}, "tls_ca_file has no certificate in PEM form"),
    ({"tls_cert_file": "one"}, "of tls_cert_file and tls_key_file only one is given"),
    ({"tls_key_file": "one's key"}, "of tls_cert_file and tls_key_file only one is given"),
    ({"tls_cert_file": "none", "tls_key_file": "one's key"},
     "tls_cert_file: No such file or directory"),
    ({"tls_cert_file": "text", "tls_key_file": "one's key"},
     "tls_cert_file has no certificate in PEM form"),
    ({"tls_cert_file": "one", "tls_key_file": "none"},
     "tls_key_file: No such file or directory"),
    ({"tls_cert_file": "one", "tls_key_file": "text"},
     "tls_key_file has no key in PEM form, or one with a passphrase"),
    ({"tls_cert_file": "one", "tls_key_file": "locked key"},
     "tls_key_file has no key in PEM form, or one with a passphrase"),
    ({"tls_cert_file": "one", "tls_key_file": "two's key"},
     "tls_key_file is not the key of tls_cert_file"),
    ({"tls_cert_file": "one", "tls_key_file": "rsa key"},
     "tls_key_file is not the key of tls_cert_file")])
def test_files_that_are_no_good_are_a_callers_mistake(files, options, complaint):
    options = {name: files[file] for name, file in options.items()}
    with pytest.raises(ValueError) as error:
        Client("rediss://127.0.0.1", **options)
    assert error.value.args == (Status.INVALID, complaint)


def test_good_files_are_no_mistake(files, authority):
    Client("rediss://127.0.0.1", tls_ca_file=authority.ca, tls_cert_file=files["one"],
           tls_key_file=files["one's key"]).free()
    assert last_error() == ""


@pytest.mark.parametrize("name", ["tls_ca_file", "tls_cert_file"])
@pytest.mark.parametrize("url", ["redis://127.0.0.1", "unix:///run/redis.sock"])
def test_a_tls_option_without_a_tls_url(files, name, url):
    options = {name: files["one"]}
    if name == "tls_cert_file":
        options["tls_key_file"] = files["one's key"]
    with pytest.raises(ValueError) as error:
        Client(url, **options)
    assert error.value.args == (Status.INVALID, f"{name} is given, but no URL is rediss://")


# -- servers that do not do their part -------------------------------------------------------------


def give_up_in_the_handshake(lock, wait_ms=0):
    """On a busy machine, the time may be over before."""
    def is_told():
        status, took_ms = lock.timed_acquire(wait_ms)
        assert status == Status.UNREACHABLE and took_ms >= wait_ms
        return "no answer to the TLS handshake in time" in lock.error
    wait_until(is_told, "a handshake in vain")


def test_a_server_that_is_silent_in_the_handshake(connect_tls):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}"
        lock = connect_tls(url, connect_timeout_ms=200, io_timeout_ms=300).lock()
        for wait_ms in 0, 400:
            give_up_in_the_handshake(lock, wait_ms)
        lazy = connect_tls(url, connect_timeout_ms=1000, io_timeout_ms=1000).lock()
        before = time.process_time()
        assert lazy.acquire() == Status.UNREACHABLE
        assert time.process_time() - before < 0.5  # it sleeps
        patient = connect_tls(url, connect_timeout_ms=LONG_MS, io_timeout_ms=LONG_MS).lock()
        waiting = Background(patient.acquire, LONG_MS)
        assert waiting.is_running()
        patient.cancel()
        assert waiting.result() == Status.CANCELED


def test_a_server_that_stops_in_the_middle_of_the_handshake(connect_tls, certificate):
    """Half of its first answer, and then nothing."""
    with serving(lambda c: say_half(c, certificate) and c.recv(1)) as port:
        lock = connect_tls(f"rediss://127.0.0.1:{port}", connect_timeout_ms=500,
                           io_timeout_ms=500).lock()
        give_up_in_the_handshake(lock)


def say_half(connection, certificate):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(connection.recv(100_000))
    with contextlib.suppress(ssl.SSLWantReadError):
        context_of(certificate).wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    answer = outgoing.read()
    connection.sendall(answer[:len(answer) // 2])
    return True


@pytest.mark.parametrize("cut", [lambda c, _: c.recv(100_000), lambda c, _: None, say_half])
def test_a_connection_that_is_cut_in_the_handshake(connect_tls, certificate, cut):
    with serving(lambda connection: cut(connection, certificate)) as port:
        lock = connect_tls(f"rediss://127.0.0.1:{port}").lock()
        assert lock.acquire() == Status.UNREACHABLE
        assert "closed the connection" in lock.error or "reset by peer" in lock.error
        status, took_ms = lock.timed_acquire(100)
        assert status == Status.UNREACHABLE
        assert took_ms >= 100


@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n", b"HTTP/1.1 400 Bad Request\r\n"])
def test_a_server_that_answers_without_tls(connect_tls, answer):
    def serve(connection):
        connection.recv(100_000)
        connection.sendall(answer)
        connection.recv(100_000)

    with serving(serve) as port:
        lock = connect_tls(f"rediss://127.0.0.1:{port}").lock()
        status, took_ms = lock.timed_acquire(LONG_MS)
    assert status == Status.PROTOCOL
    assert "TLS: the server does not speak TLS" in lock.error
    assert took_ms < FAST_MS


def test_a_redis_without_tls(connect_tls, server):
    """It takes the handshake for the beginning of a line, unless by chance there is its end."""
    lock = connect_tls(f"rediss://127.0.0.1:{server.port}", connect_timeout_ms=300,
                       io_timeout_ms=300).lock()

    def is_told():
        """On a busy machine, the time may be over before there is a connection."""
        assert lock.acquire() in (Status.UNREACHABLE, Status.PROTOCOL)
        return "TLS" in lock.error
    wait_until(is_told, "a handshake in vain")


def test_a_client_without_tls_at_a_tls_port(connect, tls_server):
    lock = connect(f"redis://127.0.0.1:{tls_server.tls_port}", **PATIENT).lock(lease_ms=500)
    assert lock.acquire() in (Status.IN_DOUBT, Status.UNREACHABLE, Status.PROTOCOL)
    assert lock.error
    assert lock.state == State.FREE


def test_a_server_that_is_killed_and_comes_back(connect_tls, tls_server):
    lock = connect_tls(tls_server).lock()
    for _ in range(3):
        assert lock.acquire(LONG_MS) == Status.OK, lock.error
        assert lock.release() == Status.OK, lock.error
        tls_server.kill()
        assert lock.acquire() in (Status.UNREACHABLE, Status.IN_DOUBT)
        waiting = Background(lock.acquire, LONG_MS)
        assert waiting.is_running()
        tls_server.start(tls_server.port)
        assert waiting.result() == Status.OK
        assert lock.release() == Status.OK


def test_a_connection_that_ended_while_it_was_idle_is_not_used(connect_tls, tls_server):
    lock = connect_tls(tls_server).lock()
    for _ in range(3):
        assert lock.acquire() == Status.OK, lock.error
        assert lock.release() == Status.OK, lock.error
        tls_server.stop()
        tls_server.start(tls_server.port)


def test_a_server_that_is_stopped(connect_tls, tls_server):
    lock = connect_tls(tls_server, io_timeout_ms=300).hold(lease_ms=LONG_MS, wait_ms=LONG_MS)
    with stopped(tls_server):
        assert lock.release() == Status.IN_DOUBT
    client = tls_server.client()
    wait_until(lambda: not client.exists("lock"), "the release in the background")


# -- the end of the program ------------------------------------------------------------------------


def test_a_program_that_has_openssl_of_its_own_may_end_in_the_middle_of_a_call(tls_server,
                                                                               authority):
    """It takes OpenSSL apart while other threads shake hands, talk, renew and end."""
    run_python("""
import ctypes, os, random, ssl, sys, threading, time
from support.libdlock import Client

def work(name):
    while True:
        dlock = Client(sys.argv[1], tls_ca_file=sys.argv[2])
        lock = dlock.lock(name, renew_every_ms=2)
        if lock.acquire() == 0:
            time.sleep(0.005)
            lock.release()
        dlock.free()

for _ in range(12):
    child = os.fork()
    if child == 0:
        ssl.create_default_context()
        for i in range(4):
            threading.Thread(target=work, args=(f"name {i}",), daemon=True).start()
        time.sleep(0.05 + random.random() / 20)
        ctypes.PyDLL(None).exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
""", tls_server.url, authority.ca)


# -- who meddles with it ---------------------------------------------------------------------------


class Meddler:
    """Stands between client and server, and passes on what they say: changed, if it is told to."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"rediss://127.0.0.1:{self.listener.getsockname()[1]}"
        self.is_changing = {"to the server": False, "to the client": False}
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                self.count += 1
                for way in (client, server, "to the server"), (server, client, "to the client"):
                    threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, source, to, direction):
        with contextlib.suppress(OSError):
            while said := source.recv(100_000):
                if self.is_changing[direction]:
                    said = said[:-1] + bytes([said[-1] ^ 1])
                to.sendall(said)
            to.shutdown(socket.SHUT_WR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.mark.parametrize("direction, status, complaint", [
    ("to the server", Status.IN_DOUBT, "alert bad record mac"),
    ("to the client", Status.PROTOCOL, "bad record mac")])
def test_a_byte_that_is_changed_on_the_way_is_noticed(connect_tls, tls_server, direction, status,
                                                      complaint):
    meddler = Meddler(tls_server.tls_port)
    lock = connect_tls(meddler.url).hold(lease_ms=LONG_MS)
    assert lock.release() == Status.OK
    assert meddler.count == 1
    meddler.is_changing[direction] = True
    assert lock.acquire() == status, lock.error
    assert complaint in lock.error
    before = meddler.count
    wait_until(lambda: meddler.count > before, "a withdrawal whose handshake is changed too")
    meddler.is_changing[direction] = False
    client = tls_server.client()
    wait_until(lambda: not client.exists("lock"), "its withdrawal")
    wait_until(lambda: lock.acquire(LONG_MS) == Status.OK, "a good connection")
    meddler.close()


# -- what TLS says besides -------------------------------------------------------------------------


class Conversation:
    """An "openssl s_server" whose side is spoken by the test."""

    def __init__(self, certificate):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["openssl", "s_server", "-accept", f"127.0.0.1:{self.port}", "-tls1_3", "-crlf",
             "-cert", certificate.cert, "-key", certificate.key],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.heard = b""
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait_for(b"ACCEPT")

    def _listen(self):
        while chunk := os.read(self.process.stdout.fileno(), 10_000):
            self.heard += chunk

    def wait_for(self, text):
        wait_until(lambda: text in self.heard, text)

    def say(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def conversation(certificate):
    made = Conversation(certificate)
    yield made
    made.end()


@pytest.mark.parametrize("update", [b"k", b"K"])
def test_new_keys_for_an_idle_connection_do_not_end_it(connect_tls, conversation, update):
    lock = connect_tls(f"rediss://127.0.0.1:{conversation.port}").lock(lease_ms=LONG_MS)
    acquiring = Background(lock.acquire)
    conversation.wait_for(b"DLOCK.ACQUIRE")
    conversation.say(b":1")
    assert acquiring.result() == Status.OK
    for command in b"DLOCK.EXTEND", b"DLOCK.RELEASE":
        conversation.say(update)
        time.sleep(0.3)  # until they have arrived, and for longer than a fresh one
        asking = Background(lock.extend if command == b"DLOCK.EXTEND" else lock.release)
        conversation.wait_for(command)
        conversation.say(b":1")
        assert asking.result() == Status.OK
    assert conversation.heard.count(b"CIPHER is") == 1  # the first connection is the only one
