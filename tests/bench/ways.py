"""The ways to lock that are compared, as commands, and the fixed requests made of them.

The same requests come out on every run. No two pairs that may run at the same time share a key, so
every acquire must be granted and every release must find its own token.
"""

import copy
import hashlib
import random

from support.server import ROOT, Server

LEASE_MS = 30_000
PIPELINE = 16  # commands
BACKGROUND = 1000  # locks held throughout: a lookup in an empty database would be free of charge
BACKGROUND_LEASE_MS = 3_600_000

VALKEY = ROOT / "build/servers/valkey-9.1-server"  # see scripts/get-servers
WITHOUT_VALKEY = ("Not measured: SET NX PX + DELIFEQ, as there is no Valkey 9.1 "
                  "(scripts/get-servers valkey-9.1).")

# The script that everybody uses: https://redis.io/docs/latest/commands/set/
COMPARE_AND_DELETE = """\
if redis.call("get",KEYS[1]) == ARGV[1]
then
    return redis.call("del",KEYS[1])
else
    return 0
end"""


class Way:
    """One way to take a lock and give it back: two functions from key and token to a command."""

    def __init__(self, name, acquire, release, needs_module=False):
        self.name = name
        self.acquire = acquire
        self.release = release
        self.needs_module = needs_module
        self.program = None

    def on(self, program):
        """The same way with another server."""
        other = copy.copy(self)
        other.program = program
        return other

    def server(self, *options, wrapper=()):
        """A server for it. The module is loaded only where it is used."""
        module = {} if self.needs_module else {"module": None}
        return Server(*options, wrapper=wrapper, program=self.program, **module)


def _set_nx(key, token, lease_ms=LEASE_MS):
    return "SET", key, token, "NX", "PX", lease_ms


DLOCK = Way(
    "DLOCK.ACQUIRE + DLOCK.RELEASE",
    lambda key, token, lease_ms=LEASE_MS: ("DLOCK.ACQUIRE", key, token, "PX", lease_ms),
    lambda key, token: ("DLOCK.RELEASE", key, token),
    needs_module=True)

TWO_NAMES = Way(
    "DLOCK.ACQUIREALL + DLOCK.RELEASEALL of two names",
    lambda key, token, lease_ms=LEASE_MS: (
        "DLOCK.ACQUIREALL", 2, key, f"{key}:2", token, "PX", lease_ms),
    lambda key, token: ("DLOCK.RELEASEALL", 2, key, f"{key}:2", token),
    needs_module=True)

SCRIPT_SHA = hashlib.sha1(COMPARE_AND_DELETE.encode()).hexdigest()
SET_EVALSHA = Way(
    "SET NX PX + EVALSHA", _set_nx, lambda key, token: ("EVALSHA", SCRIPT_SHA, 1, key, token))

SET_DEL = Way("SET NX PX + DEL", _set_nx, lambda key, token: ("DEL", key))

BARE_SET_DEL = Way(
    "SET + DEL",
    lambda key, token, lease_ms=None: ("SET", key, token),
    lambda key, token: ("DEL", key))

SET_DELIFEQ = Way(
    "SET NX PX + DELIFEQ", _set_nx, lambda key, token: ("DELIFEQ", key, token))

WAYS = [DLOCK, SET_EVALSHA, SET_DEL, BARE_SET_DEL]
VALKEY_WAYS = [way.on(VALKEY) for way in (DLOCK, SET_DELIFEQ, SET_EVALSHA)]


def encode(command):
    """A command as Redis reads it."""
    words = [str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def names(count, prefix="lock"):
    """count keys with their tokens, which are 36 bytes long and look like UUIDs."""
    chance = random.Random(prefix)
    for i in range(count):
        digits = f"{chance.getrandbits(128):032x}"
        token = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        yield f"{prefix}:{i:08d}", token


def pairs(way, count):
    """count acquires, each followed by its release, as a list of encoded commands."""
    commands = []
    for key, token in names(count):
        commands += [encode(way.acquire(key, token)), encode(way.release(key, token))]
    return commands


def pipelines(commands, length=PIPELINE):
    """The commands in portions: one is sent when the answers to the one before it have come."""
    return [b"".join(commands[i:i + length]) for i in range(0, len(commands), length)]


def check(replies):
    """Replies of one line each: raise unless every acquire and every release was a success."""
    for reply in replies:
        if reply in (b"$-1", b"_", b":0") or reply.startswith(b"-"):
            raise AssertionError(f"a request was refused: {reply.decode()}")


def prepare(way, client):
    """Make a server ready for requests made this way."""
    client.script_load(COMPARE_AND_DELETE)
    pipeline = client.pipeline(transaction=False)
    for key, token in names(BACKGROUND, "background"):
        pipeline.execute_command(*way.acquire(key, token, BACKGROUND_LEASE_MS))
    pipeline.execute()
