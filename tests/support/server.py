"""A real Redis server with the module: private directory, free loopback port, stopped by pid.

Environment:
    DLOCK_MODULE    the module to load (default build/dlock.so)
    DLOCK_PRELOAD   libraries to preload into the server, for a module built with sanitizers
    REDIS_SERVER    the server program (default: see scripts/redis-server)
"""

import contextlib
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from support.clock import Clock

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = pathlib.Path(os.environ.get("DLOCK_MODULE", ROOT / "build/dlock.so")).resolve()
LAUNCH_DIR = pathlib.Path.cwd()
HOST = "127.0.0.1"
START_TIMEOUT = 60
STOP_TIMEOUT = 60
PORTS = range(10_000, 32_000)
BLOCK = 200  # ports that belong to one process
ANSWER_TIMEOUT = 0.5  # for SHUTDOWN: clients may be paused, then a signal follows
# In front of a command that must not outlive a killed test run. Python's preexec_fn could do the
# same, but under ASan the child hangs for ever if another thread allocates during the fork.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
CRASH_MARKS = ("BUG REPORT", "AddressSanitizer", "LeakSanitizer", "runtime error:",
               "ASSERTION FAILED")

# These errors keep their first word, with every version of redis-py. Versions from 5 on turn the
# word into a class of its own and take it off the message.
for code in ("ASK", "CLUSTERDOWN", "CROSSSLOT", "MASTERDOWN", "MOVED", "OOM", "TRYAGAIN",
             "WRONGPASS"):
    redis.connection.DefaultParser.EXCEPTION_CLASSES.pop(code, None)

_ports = None


def wait_until(condition, what, timeout=50):
    """Poll until condition() is true; its value is the result. The timeout is for what never comes:
    a busy machine may need many seconds for what takes a moment otherwise."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting after {timeout} s: {what}")
        time.sleep(0.002)


def cli():
    """The command line client that came with the server."""
    folder, slash, name = os.environ.get("REDIS_SERVER", "").rpartition("/")
    beside = LAUNCH_DIR / (folder + slash) / name.replace("-server", "-cli")
    is_there = slash and "-server" in name and beside.is_file()
    return str(beside) if is_there else "redis-cli"


def is_readable(file, within=0):
    """Whether there is something to read, or the end, within so many seconds."""
    poll = select.poll()  # and not select(), which knows no descriptors above 1023
    poll.register(file, select.POLLIN)
    return bool(poll.poll(within * 1000))


def free_port():
    """Below those that the kernel gives to outgoing connections, so that none of these takes it
    before the server does or while it restarts; and not one that another process has been given, or
    that this one has been given lately."""
    global _ports
    if _ports is None or _ports.owner != os.getpid():
        _ports = _Ports()
    return _ports.next()


class _Ports:
    """A block of ports that is ours as long as this process lives, and is used in turn."""

    def __init__(self):
        self.owner = os.getpid()
        blocks = list(PORTS[::BLOCK])
        random.SystemRandom().shuffle(blocks)
        self.first = next(block for block in blocks if self._claim(block))
        self.given = 0

    def _claim(self, block):
        """By a name that only one process of this machine can have at a time."""
        self.claim = socket.socket(socket.AF_UNIX)
        try:
            self.claim.bind(f"\0dlock-test-ports-{block}")
            return True
        except OSError:
            self.claim.close()
            return False

    def next(self):
        for _ in range(BLOCK):
            port = self.first + self.given % BLOCK
            self.given += 1
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does
                with contextlib.suppress(OSError):
                    probe.bind((HOST, port))
                    return port
        raise AssertionError(f"no port from {self.first} on is free")


@contextlib.contextmanager
def stopped(server):
    """It is silent for the body of a with statement. What it has done before is told: it sends the
    replies of one turn in any order, ours perhaps before that of the request that we look for."""
    with contextlib.suppress(redis.ResponseError):  # a replica without its master
        server.observer.ping()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextlib.contextmanager
def running(deployment):
    """A server, a cluster or servers with sentinels, for the body of a with statement. Nothing is
    left of it even if it does not start."""
    try:
        yield deployment.start()
    finally:
        deployment.destroy()


def with_all(things, action):
    """Does this with every one of them; then raises the first complaint, if there is one."""
    failures = []
    for each in things:
        try:
            action(each)
        except AssertionError as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


def destroy_all(servers):
    """What was killed before has a log to look at all the same."""
    def destroy(server):
        try:
            server.check_log()
            server.destroy()
        except AssertionError:
            server.kill()
            raise
    with_all(servers, destroy)


class Server:
    """One server process. start() it, stop() it, start() it again on the same data."""

    def __init__(self, *options, module=MODULE, module_args=(), wrapper=(), program=None,
                 has_clock=False, host=HOST):
        """wrapper: a command to run the server under, which must follow exec(); program: the
        server, if not REDIS_SERVER; has_clock: a test can set its clocks; host: the address on
        which it listens and from which it connects to others."""
        self.options = [str(o) for o in options]
        self.module_args = [str(a) for a in module_args]
        self.wrapper = list(wrapper)
        self.program = program
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dlock-test-"))
        self.clock = Clock(self) if has_clock else None
        self.modules = []
        if module is not None:
            self.add_module(module)
        self.host = host
        self.process = None
        self.port = None
        self.tls_port = None
        self._clients = []
        self._observer = None
        self.kept = []

    def add_module(self, path):
        """Load this one too from the next start on; by a link, as its path may have blanks."""
        link = self.dir / pathlib.Path(path).name
        link.symlink_to(path)
        self.modules.append(link)

    # -- life ----------------------------------------------------------------------------------

    def start(self, port=None):
        """On a free port, unless it must be this one."""
        for _ in range(5):
            self.port = port or free_port()
            self._spawn()
            if self._is_ready():
                return self
            self.kill()
            if "Address already in use" not in self.log():
                break
        raise AssertionError(f"the server did not start:\n{self.log()}")

    def command(self):
        command = [*DIE_WITH_PARENT, *self.wrapper, str(ROOT / "scripts/redis-server")]
        command += ["--port", str(self.port), "--bind", self.host, "--dir", str(self.dir)]
        if self.host != HOST:
            # Protected mode takes a peer other than 127.0.0.1 for a stranger.
            command += ["--bind-source-addr", self.host, "--protected-mode", "no"]
        command += ["--logfile", str(self.dir / "log"), "--save", ""]
        command += ["--enable-debug-command", "yes", "--enable-module-command", "yes"]
        command += ["--enable-protected-configs", "yes", "--shutdown-timeout", "0"]
        # A replica that was synchronized without a disk acknowledges its first write a second late.
        command += ["--repl-diskless-sync", "no", "--repl-diskless-sync-delay", "0"]
        for i, module in enumerate(self.modules):
            command += ["--loadmodule", str(module), *(self.module_args if i == 0 else [])]
        return command + self.options

    def _spawn(self):
        env = dict(os.environ)
        if self.program is not None:
            env["REDIS_SERVER"] = str(self.program)
        elif "/" in env.get("REDIS_SERVER", ""):
            env["REDIS_SERVER"] = os.path.join(LAUNCH_DIR, env["REDIS_SERVER"])
        env["LD_PRELOAD"] = env.get("DLOCK_PRELOAD", "")  # not what is preloaded into us
        if self.clock is not None:
            self.clock.prepare(env)
        with open(self.dir / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.dir, env=env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)

    def _is_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                client = self.connect(socket_timeout=START_TIMEOUT)
                client.ping()
                client.connection_pool.disconnect()
                return True
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.005)
        return False

    def stop(self, is_by_signal=False):
        """Shut down without saving and without waiting for replicas, and look for signs of a crash.
        By a signal: as an operator does it, with the saving and waiting that is configured. Redis
        looks for signals ten times a second, so this takes longer."""
        self.disconnect()
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        if is_by_signal or not self._obeys_shutdown():
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop:\n{self.log()}")
        status, self.process = self.process.returncode, None
        self.check_log()
        assert status == 0, f"the server exited with {status}:\n{self.log()}"

    def _obeys_shutdown(self):
        """Send the command. A server may refuse it, or be silent as its clients are paused."""
        try:
            with socket.create_connection((self.host, self.port), ANSWER_TIMEOUT) as connection:
                connection.sendall(b"SHUTDOWN NOSAVE NOW\r\n")
                return connection.recv(1) == b""
        except OSError:
            return False

    def kill(self):
        """SIGKILL: no farewell, no last write."""
        self.disconnect()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def crash(self):
        """Killed, and there again at the same port."""
        self.kill()
        return self.start(self.port)

    def restart(self):
        self.stop()
        return self.start()

    def destroy(self):
        """The end of a test: stop, check, and leave nothing behind."""
        try:
            self.stop()
        finally:
            self.kill()
            self.kept = []
            shutil.rmtree(self.dir, ignore_errors=True)

    def keep(self, connection):
        """Somebody's connection lives as long as the server does, unless it is closed before."""
        self.kept.append(connection)

    def disconnect(self):
        """All clients of client()."""
        for client in self._clients:
            client.close()
            client.connection_pool.disconnect()
        self._clients = []
        self._observer = None

    # -- talk ----------------------------------------------------------------------------------

    def connect(self, **options):
        """A client that is yours to close. It tries once: redis-py 6 would pause and try again."""
        options.setdefault("socket_timeout", 60)
        options.setdefault("retry", Retry(NoBackoff(), 0))
        return redis.Redis(self.host, self.port, **options)

    def client(self, **options):
        """A client that is closed with the server."""
        client = self.connect(**options)
        self._clients.append(client)
        return client

    @property
    def observer(self):
        """The same client every time, for those who look again and again: each client() stays
        connected until the server stops, and there is a limit to them."""
        if self._observer is None:
            self._observer = self.client()
        return self._observer

    def socket(self):
        """A bare connection, for tests of the protocol itself."""
        return socket.create_connection((self.host, self.port), timeout=60)

    # -- look ----------------------------------------------------------------------------------

    @property
    def known_port(self):
        """By which others of its deployment know it."""
        return self.tls_port or self.port

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        path = self.dir / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def check_log(self):
        log = self.log()
        for mark in CRASH_MARKS:
            assert mark not in log, log
