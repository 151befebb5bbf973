"""Random commands against a model of the keyspace: every reply is checked.

The steps follow from a seed, which a failure shows. Environment:
    DLOCK_SEED    the seed to use (default: a new one each run)
    DLOCK_STEPS   how many steps (default 50000)

Leases are so long that none ends by itself: a lock ends by RELEASE, DEL, PEXPIRE 0, SET and so on.
So the model needs to know the time only as well as two readings of the clock around each batch of
commands tell it, and of a lease only when it ends at the earliest: a lock that was renamed, loaded
or replicated may have it anew. Locks that do end by themselves have a test of their own at the
end.
"""

import collections
import dataclasses
import os
import random
import time

import pytest
import redis

from support.commands import details_of, info_of
from support.stream import digest

STEPS = int(os.environ.get("DLOCK_STEPS", 50_000))
SEED = int(os.environ.get("DLOCK_SEED", random.SystemRandom().randrange(2**32)))
BATCH = 300
SHOWN_STEPS = 20

MINUTE = 60_000
DATABASES = [0, 1]
KEYS = [b"one", b"two", b"three", b"four\x00\r\n", b""]
TOKENS = [b"me", b"my", b"m", b"12345", b"\x00\xff\r\n", b"t" * 256, b"t" * 255 + b"u"]
VALUES = [*TOKENS, b"", b"t" * 257, b"t" * 1000]
# All of them are further apart than a run is long, so the model always knows which is the longer.
LEASES = [60 * MINUTE, 120 * MINUTE, 1440 * MINUTE]
TTLS = [30 * MINUTE, 90 * MINUTE, 600 * MINUTE]

FENCES = [7, 1 << 40, 10**15]
RUNS = [1, 2, 1000]
LIMITS = [1, 2, 3, 5, 100]
MAX_HOLDERS = 6  # one less than there are tokens
JUMP_US = 10 * MINUTE * 1000
SLEW_MS = 1000  # the wall clock may be set meanwhile, which fences and leases do not follow
SLEW_US = SLEW_MS * 1000
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class Span(collections.namedtuple("Span", "first last")):
    """A time known only within bounds, in unix ms, both included."""

    def after(self, duration):
        return Span(self.first + duration, self.last + duration)


@dataclasses.dataclass
class Holder:
    fence: int
    lease: int
    ends: Span  # of the lease


@dataclasses.dataclass
class Lock:
    holders: dict         # token -> Holder
    is_shared: bool
    expires: Span = None  # of the key: somebody has called PEXPIRE
    type = b"dlock-key"


@dataclasses.dataclass
class String:
    value: bytes
    expires: Span = None
    type = b"string"


@dataclasses.dataclass
class Other:
    type: bytes
    size: int
    expires: Span = None


def require(is_true, text):
    """As assert, without pytest's own explanation, which would drown the story of the steps."""
    if not is_true:
        raise AssertionError(text)


def same(reply, expected):
    require(reply == expected and isinstance(reply, type(expected)), f"{reply!r}, not {expected!r}")


def error(reply, start):
    """redis-py has cut off an ERR at the start."""
    is_error = isinstance(reply, redis.ResponseError)
    require(is_error and str(reply).startswith(start), f"{reply!r}, not the error {start!r}")


def within(value, first, last, what):
    require(isinstance(value, int), f"{what} is {value!r}, not an integer")
    require(first <= value <= last, f"{what} is {value}, not within {first}..{last}")


class Model:
    """What the keyspace must be. A method per command takes the reply and the command's arguments,
    checks the one and applies the other."""

    def __init__(self):
        self.databases = [{}, {}]
        self.selected = 0
        self.last_fence = 0
        self.is_loaded = False  # since the last new fence: the counter may have jumped ahead
        self.now = None

    @property
    def keys(self):
        return self.databases[self.selected]

    # -- dlock ---------------------------------------------------------------------------------

    def acquire(self, reply, key, token, _px, lease, *options):
        """FENCE n: a new holder gets no smaller one, and the holder a new one if it is larger.
        FENCES n: the holder gets a new run; the reply is its first fence, the lock has its last."""
        fence = options[options.index("FENCE") + 1] if "FENCE" in options else 0
        run = options[options.index("FENCES") + 1] if "FENCES" in options else 0
        limit = options[options.index("MAX") + 1] if "MAX" in options else MAX_HOLDERS
        is_shared = "SHARED" in options
        lock = self.keys.get(key)
        if isinstance(lock, Other):
            error(reply, WRONG_TYPE)
        elif isinstance(lock, String):
            same(reply, None)
        elif lock is not None and token in lock.holders:
            if is_shared != lock.is_shared:
                return error(reply, "token holds this lock")
            holder = lock.holders[token]
            if run or fence > holder.fence:
                self.check_new_fence(reply, fence, run)
                holder.fence = self.last_fence
            else:
                same(reply, holder.fence)
            self.renew(holder, lease)
        elif lock is None or (is_shared and lock.is_shared
                              and len(lock.holders) < min(limit, MAX_HOLDERS)):
            self.check_new_fence(reply, fence, run)
            lock = self.keys.setdefault(key, Lock({}, is_shared))
            lock.holders[token] = Holder(self.last_fence, lease, self.now.after(lease))
        else:
            same(reply, None)

    def acquire_all(self, reply, count, *words):
        """All or none, with one fence: a token that holds some of them, or all with different
        fences, gets a new one for all."""
        keys, token, lease, options = (words[:count], words[count], words[count + 2],
                                        words[count + 3:])
        fence = options[options.index("FENCE") + 1] if "FENCE" in options else 0
        run = options[options.index("FENCES") + 1] if "FENCES" in options else 0
        limit = options[options.index("MAX") + 1] if "MAX" in options else MAX_HOLDERS
        is_shared = "SHARED" in options
        if len(set(keys)) < count:
            return error(reply, "the name '")
        locks = [self.keys.get(key) for key in keys]
        if any(isinstance(lock, Other) for lock in locks):
            return error(reply, WRONG_TYPE)
        held = [lock.holders[token] for lock in locks
                if isinstance(lock, Lock) and token in lock.holders]
        if any(isinstance(lock, Lock) and token in lock.holders and lock.is_shared != is_shared
               for lock in locks):
            return error(reply, "token holds this lock")
        if not all(lock is None or isinstance(lock, Lock) and (
                token in lock.holders or is_shared and lock.is_shared
                and len(lock.holders) < min(limit, MAX_HOLDERS)) for lock in locks):
            return same(reply, None)
        fences = {holder.fence for holder in held}
        if len(held) == count and len(fences) == 1 and not run and fence <= max(fences):
            same(reply, max(fences))
        else:
            self.check_new_fence(reply, fence, run)
            fences = {self.last_fence}
        for key in keys:
            lock = self.keys.setdefault(key, Lock({}, is_shared))
            if token in lock.holders:
                lock.holders[token].fence = max(fences)
                self.renew(lock.holders[token], lease)
            else:
                lock.holders[token] = Holder(max(fences), lease, self.now.after(lease))

    def release_all(self, reply, count, *words):
        keys, token = words[:count], words[count]
        if len(set(keys)) < count:
            return error(reply, "the name '")
        if any(isinstance(self.keys.get(key), Other) for key in keys):
            return error(reply, WRONG_TYPE)
        held = [key for key in keys if self.has(key, token)]
        same(reply, len(held))
        for key in held:
            self.release(1, key, token)

    def renew(self, holder, lease):
        asked = self.now.after(lease)
        if holder.ends < asked:
            holder.lease, holder.ends = lease, asked

    def bad_max(self, reply, *_words):
        error(reply, "MAX ")

    def bad_px(self, reply, *_words):
        error(reply, "PX ")

    def bad_token(self, reply, *_words):
        error(reply, "token ")

    def release(self, reply, key, token):
        if self.is_held_by(reply, key, token):
            held = self.keys[key]
            if isinstance(held, Lock):
                del held.holders[token]
            if isinstance(held, String) or not held.holders:
                del self.keys[key]

    def extend(self, reply, key, token, _px, lease):
        if self.is_held_by(reply, key, token):
            held = self.keys[key]
            if isinstance(held, Lock):
                self.renew(held.holders[token], lease)
            elif held.expires is not None:
                held.expires = max(held.expires, self.now.after(lease))

    def info(self, reply, key):
        held = self.keys.get(key)
        if held is None:
            return same(reply, None)
        if isinstance(held, Other):
            return error(reply, WRONG_TYPE)
        require(isinstance(reply, list), f"INFO of {held} is {reply!r}")
        if isinstance(held, Lock):
            return self.check_lock(details_of(reply), held)
        info = info_of(reply)
        same([info["mode"], info["waiters"], info["session"]], [b"exclusive", 0, 0])
        same([info["kind"], info["token"]], [b"string", held.value[:257]])
        same([info["fence"], info["lease"], info["since"]], [0, 0, 0])
        self.check_ttl(info["ttl"], held)

    def check_lock(self, info, lock):
        mode = b"shared" if lock.is_shared else b"exclusive"
        same([info["kind"], info["mode"], info["waiters"]], [b"lock", mode, 0])
        same(sorted(shown["token"] for shown in info["holders"]), sorted(lock.holders))
        for shown in info["holders"]:
            holder = lock.holders[shown["token"]]
            same([shown["fence"], shown["lease"], shown["session"]],
                 [holder.fence, holder.lease, 0])
            earliest = min(holder.ends, lock.expires or holder.ends)
            within(shown["ttl"], earliest.first - self.now.last - SLEW_MS, holder.lease, "ttl")

    def apply(self, reply, *_words):
        error(reply, "")

    def is_held_by(self, reply, key, token):
        """The common part of RELEASE and EXTEND."""
        held = self.keys.get(key)
        if isinstance(held, Other):
            error(reply, WRONG_TYPE)
            return False
        same(reply, int(self.has(key, token)))
        return self.has(key, token)

    def has(self, key, token):
        held = self.keys.get(key)
        return held is not None and (token in held.holders if isinstance(held, Lock)
                                     else held.value == token)

    def check_new_fence(self, fence, asked=0, run=0):
        first = max(self.last_fence + 1, self.now.first * 1000, asked)
        last = max(self.last_fence + 1, self.now.last * 1000 + 999 + SLEW_US, asked)
        is_led = self.is_loaded or self.last_fence > self.now.first * 1000
        within(fence, first, last + is_led * JUMP_US, "fence")
        self.last_fence, self.is_loaded = fence + max(run - 1, 0), False

    def check_ttl(self, ttl, value):
        if value.expires is None:
            return same(ttl, -1)
        within(ttl, value.expires.first - self.now.last - SLEW_MS,
               value.expires.last - self.now.first + SLEW_MS, "ttl")

    # -- Redis ---------------------------------------------------------------------------------

    def set(self, reply, key, value, *options):
        old = self.keys.get(key)
        if "GET" in options and old is not None and not isinstance(old, String):
            return error(reply, WRONG_TYPE)
        if (old is not None) if "NX" in options else (old is None and "XX" in options):
            return same(reply, None)
        same(reply, (old and old.value) if "GET" in options else b"OK")
        new = String(value)
        if "PX" in options:
            new.expires = self.now.after(options[-1])
        elif "KEEPTTL" in options and old is not None:
            new.expires = old.expires
        self.keys[key] = new

    def get(self, reply, key):
        value = self.keys.get(key)
        if value is not None and not isinstance(value, String):
            error(reply, WRONG_TYPE)
            return False
        same(reply, value and value.value)
        return True

    def getdel(self, reply, key):
        if self.get(reply, key):
            self.keys.pop(key, None)

    def delete(self, reply, key):
        same(reply, int(self.keys.pop(key, None) is not None))

    def exists(self, reply, key):
        same(reply, int(key in self.keys))

    def type(self, reply, key):
        same(reply, self.keys[key].type if key in self.keys else b"none")

    def pttl(self, reply, key):
        if key not in self.keys:
            return same(reply, -2)
        self.check_ttl(reply, self.keys[key])

    def pexpire(self, reply, key, ttl):
        same(reply, int(key in self.keys))
        if ttl <= 0:
            self.keys.pop(key, None)
        elif key in self.keys:
            self.keys[key].expires = self.now.after(ttl)

    def pexpireat_past(self, reply, key, _when):
        self.pexpire(reply, key, 0)

    def persist(self, reply, key):
        value = self.keys.get(key)
        same(reply, int(value is not None and value.expires is not None))
        if value is not None:
            value.expires = None

    def rename(self, reply, key, new):
        if key not in self.keys:
            return error(reply, "no such key")
        same(reply, b"OK")
        self.keys[new] = self.keys.pop(key)

    def renamenx(self, reply, key, new):
        if key not in self.keys:
            return error(reply, "no such key")
        same(reply, int(new not in self.keys))
        if reply == 1:
            self.keys[new] = self.keys.pop(key)

    def copy(self, reply, key, new):
        value = self.keys.get(key)
        if key == new:
            error(reply, "source and destination objects are the same")
        elif value is None or new in self.keys:
            same(reply, 0)
        elif isinstance(value, Lock):
            error(reply, "not supported for this module key")
        else:
            same(reply, 1)
            self.keys[new] = dataclasses.replace(value)

    def move(self, reply, key, database):
        if database == self.selected:
            return error(reply, "source and destination objects are the same")
        target = self.databases[database]
        same(reply, int(key in self.keys and key not in target))
        if reply == 1:
            target[key] = self.keys.pop(key)

    def rpush(self, reply, key, _value):
        value = self.keys.setdefault(key, Other(b"list", 0))
        if value.type != b"list":
            return error(reply, WRONG_TYPE)
        value.size += 1
        same(reply, value.size)

    def hset(self, reply, key, _field, _value):
        is_new = key not in self.keys
        value = self.keys.setdefault(key, Other(b"hash", 1))
        if value.type != b"hash":
            return error(reply, WRONG_TYPE)
        same(reply, int(is_new))

    def select(self, reply, database):
        same(reply, b"OK")
        self.selected = database

    def swapdb(self, reply, *_databases):
        same(reply, b"OK")
        self.databases.reverse()

    def flushdb(self, reply):
        same(reply, b"OK")
        self.keys.clear()

    def dbsize(self, reply):
        same(reply, len(self.keys))


def several(chance):
    """A number of names, and the names, which are sometimes not all different."""
    count = chance.randint(1, 4)
    names = chance.sample(KEYS, count) if chance.random() < 0.95 else chance.choices(KEYS, k=count)
    return [count, *names]


# How often, what the model says to it, and the words; one of each list is taken.
COMMANDS = [
    (100, Model.acquire_all, ["DLOCK.ACQUIREALL", several, TOKENS, "PX", LEASES]),
    (80, Model.acquire_all, ["DLOCK.ACQUIREALL", several, TOKENS, "PX", LEASES, "SHARED"]),
    (20, Model.acquire_all, ["DLOCK.ACQUIREALL", several, TOKENS, "PX", LEASES, "SHARED", "MAX",
                             LIMITS]),
    (10, Model.acquire_all, ["DLOCK.ACQUIREALL", several, TOKENS, "PX", LEASES, "FENCE", FENCES]),
    (10, Model.acquire_all, ["DLOCK.ACQUIREALL", several, TOKENS, "PX", LEASES, "FENCES", RUNS]),
    (150, Model.release_all, ["DLOCK.RELEASEALL", several, TOKENS]),
    (5, Model.apply, ["DLOCK.APPLYALL", several, TOKENS, FENCES, LEASES]),
    (300, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES]),
    (150, Model.release, ["DLOCK.RELEASE", KEYS, TOKENS]),
    (150, Model.extend, ["DLOCK.EXTEND", KEYS, TOKENS, "PX", LEASES]),
    (100, Model.info, ["DLOCK.INFO", KEYS]),
    (30, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "FENCE", FENCES]),
    (300, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "SHARED"]),
    (150, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "SHARED", "MAX", LIMITS]),
    (30, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "SHARED", "FENCE", FENCES]),
    (30, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "FENCES", RUNS]),
    (30, Model.acquire, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "FENCES", RUNS,
                         "FENCE", FENCES]),
    (5, Model.bad_max, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "MAX", LIMITS]),
    (5, Model.bad_max, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "SHARED", "MAX", 0]),
    (10, Model.apply, ["DLOCK.APPLY", KEYS, TOKENS, FENCES, LEASES]),
    (10, Model.apply, ["DLOCK.APPLY", KEYS, TOKENS, FENCES, LEASES, "SHARED"]),
    (5, Model.bad_px, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", 0]),
    (5, Model.bad_px, ["DLOCK.ACQUIRE", KEYS, TOKENS, "PX", LEASES, "PX", LEASES]),
    (5, Model.bad_px, ["DLOCK.EXTEND", KEYS, TOKENS, "PX", 1440 * MINUTE + 1]),
    (5, Model.bad_token, ["DLOCK.RELEASE", KEYS, ""]),
    (5, Model.set, ["SET", KEYS, VALUES]),
    (15, Model.set, ["SET", KEYS, VALUES, "NX", "PX", TTLS]),
    (15, Model.set, ["SET", KEYS, TOKENS, "PX", TTLS]),
    (5, Model.set, ["SET", KEYS, VALUES, "XX"]),
    (5, Model.set, ["SET", KEYS, VALUES, "KEEPTTL"]),
    (5, Model.set, ["SET", KEYS, VALUES, "GET"]),
    (10, Model.get, ["GET", KEYS]),
    (10, Model.getdel, ["GETDEL", KEYS]),
    (20, Model.delete, ["DEL", KEYS]),
    (20, Model.delete, ["UNLINK", KEYS]),
    (10, Model.exists, ["EXISTS", KEYS]),
    (20, Model.type, ["TYPE", KEYS]),
    (20, Model.pttl, ["PTTL", KEYS]),
    (20, Model.pexpire, ["PEXPIRE", KEYS, TTLS]),
    (15, Model.pexpire, ["PEXPIRE", KEYS, 0]),
    (15, Model.pexpireat_past, ["PEXPIREAT", KEYS, 1]),
    (20, Model.persist, ["PERSIST", KEYS]),
    (20, Model.rename, ["RENAME", KEYS, KEYS]),
    (20, Model.renamenx, ["RENAMENX", KEYS, KEYS]),
    (10, Model.copy, ["COPY", KEYS, KEYS]),
    (15, Model.move, ["MOVE", KEYS, DATABASES]),
    (5, Model.rpush, ["RPUSH", KEYS, VALUES]),
    (5, Model.hset, ["HSET", KEYS, "field", VALUES]),
    (15, Model.select, ["SELECT", DATABASES]),
    (3, Model.swapdb, ["SWAPDB", 0, 1]),
    (2, Model.flushdb, ["FLUSHDB"]),
    (5, Model.dbsize, ["DBSIZE"]),
]
WEIGHTS = [weight for weight, _, _ in COMMANDS]


def unix_ms():
    return time.time_ns() // 1_000_000


def boot_ms():
    """By the clock that leases are on."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def raw_client(server):
    """A client that gives replies as they come."""
    client = server.client()
    client.response_callbacks.clear()
    return client


class Run:
    """Random steps on a client and on the model."""

    def __init__(self, client, model, seed):
        self.client = client
        self.model = model
        self.random = random.Random(seed)
        self.count = 0
        self.history = collections.deque(maxlen=SHOWN_STEPS)

    def step(self):
        _, method, template = self.random.choices(COMMANDS, WEIGHTS)[0]
        words = []
        for each in template:
            if callable(each):
                words += each(self.random)
            else:
                words.append(self.random.choice(each) if isinstance(each, list) else each)
        return method, words

    def batch(self, steps, transaction):
        pipeline = self.client.pipeline(transaction)
        for _, words in steps:
            pipeline.execute_command(*words)
        before = unix_ms()
        replies = pipeline.execute(raise_on_error=False)
        self.model.now = Span(before, unix_ms())
        assert len(replies) == len(steps)
        for (method, words), reply in zip(steps, replies):
            self.count += 1
            self.history.append((self.model.selected, words, reply))
            self.check(method, self.model, reply, *words[1:])

    def check(self, function, *arguments):
        try:
            function(*arguments)
        except AssertionError as failure:
            raise AssertionError(self.story(failure)) from None

    def story(self, failure):
        lines = [f"step {self.count}: {failure}", f"again: DLOCK_SEED={SEED}", "the last steps:"]
        for database, words, reply in self.history:
            lines.append(f"    [{database}] {' '.join(map(shown, words))} -> {shown(reply)}")
        return "\n".join(lines)


def shown(value):
    text = str(value) if isinstance(value, (int, str)) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_keyspace(client, model):
    """The server has what the model has, and nothing else."""
    selected = model.selected
    for database in DATABASES:
        model.select(client.execute_command("SELECT", database), database)
        same(sorted(client.execute_command("KEYS", "*")), sorted(model.keys))
        for key in model.keys:
            pipeline = client.pipeline(transaction=False)
            for command in "TYPE", "PTTL", "DLOCK.INFO":
                pipeline.execute_command(command, key)
            before = unix_ms()
            type_name, ttl, info = pipeline.execute(raise_on_error=False)
            model.now = Span(before, unix_ms())
            model.type(type_name, key)
            model.pttl(ttl, key)
            model.info(info, key)
    model.select(client.execute_command("SELECT", selected), selected)


def check_replica(client, replica, model):
    same(client.execute_command("WAIT", 1, 20_000), 1)
    same(digest(replica), digest(client))
    check_keyspace(replica, model)


def check_reload(client, how, model):
    before = digest(client)
    same(client.execute_command("DEBUG", how), b"OK")
    same(digest(client), before)
    model.is_loaded = True
    check_keyspace(client, model)


def fence_ahead():
    """Steps after which fences are ahead of the clock."""
    key, ahead_us = KEYS[0], (unix_ms() + 4 * MINUTE) * 1000
    return [(Model.delete, ["DEL", key]),
            (Model.acquire,
             ["DLOCK.ACQUIRE", key, b"me", "PX", LEASES[0], "FENCE", ahead_us])]


@pytest.mark.limit(300, "makes as many steps as it is told to")
def test_random_commands_do_what_the_model_does(start_server, start_replica):
    print(f"DLOCK_SEED={SEED}")
    master = start_server("--appendonly", "yes", "--appendfsync", "no")
    client, replica = raw_client(master), raw_client(start_replica(master))
    client.execute_command("CONFIG", "SET", "dlock.max-holders", MAX_HOLDERS)
    model = Model()
    run = Run(client, model, SEED)
    is_ahead = False
    while run.count < STEPS:
        if run.count > STEPS // 2 and not is_ahead:
            is_ahead = True
            run.batch(fence_ahead(), transaction=False)
        steps = [run.step() for _ in range(run.random.randint(1, 2 * BATCH))]
        run.batch(steps, transaction=run.random.random() < 0.3)
        if run.random.random() < 0.2:
            run.check(check_replica, client, replica, model)
        if run.random.random() < 0.02:
            run.check(check_reload, client, "RELOAD", model)

    run.check(check_keyspace, client, model)
    run.check(check_replica, client, replica, model)
    run.check(check_reload, client, "RELOAD", model)
    run.check(check_reload, client, "LOADAOF", model)


class ShortLease:
    """One lock that ends by itself. Around its end the model cannot know whether it is held; what
    the server then answers must fit to one of the two, and is believed."""

    CLOCK_MS = 2  # readings are whole milliseconds, and the server reads its clock more than once

    def __init__(self):
        self.token = None
        self.fence = 0
        self.expires = None

    def may_be_held(self, now):
        return self.token is not None and now.first <= self.expires.last + self.CLOCK_MS

    def may_be_free(self, now):
        return self.token is None or now.last >= self.expires.first - self.CLOCK_MS

    def acquire(self, reply, now, token, lease):
        if reply is None:
            require(self.may_be_held(now) and self.token != token, "null, though it was free")
        elif reply == self.fence:
            require(self.may_be_held(now) and self.token == token, "an old fence for a new holder")
            self.expires = Span(*map(max, self.expires, now.after(lease)))
        else:
            require(self.may_be_free(now), "granted, though it was held")
            require(reply > self.fence, f"fence {reply} after {self.fence}")
            self.token, self.fence, self.expires = token, reply, now.after(lease)

    def release(self, reply, now, token):
        self.check_holder(reply, now, token)
        if reply == 1:
            self.token = None

    def extend(self, reply, now, token, lease):
        self.check_holder(reply, now, token)
        if reply == 1:
            self.expires = Span(*map(max, self.expires, now.after(lease)))

    def info(self, reply, now):
        is_possible = self.may_be_free(now) if reply is None else self.may_be_held(now)
        require(is_possible, "INFO does not know whether it is held")
        if reply is not None:
            info = info_of(reply)
            same([info["token"], info["fence"]], [self.token, self.fence])

    def check_holder(self, reply, now, token):
        if reply == 1:
            require(self.may_be_held(now) and self.token == token, "1, though it was not held")
        else:
            same(reply, 0)
            require(self.may_be_free(now) or self.token != token, "0, though it was held")


def test_locks_that_end_by_themselves_do_what_the_model_does(server):
    print(f"DLOCK_SEED={SEED}")
    client, model, choose = raw_client(server), ShortLease(), random.Random(SEED)
    history = collections.deque(maxlen=SHOWN_STEPS)
    for _ in range(4000):
        token, lease = choose.choice([b"me", b"my"]), choose.randint(1, 8)
        method, words, arguments = choose.choice([
            (model.acquire, ["DLOCK.ACQUIRE", "lock", token, "PX", lease], [token, lease]),
            (model.acquire, ["DLOCK.ACQUIRE", "lock", token, "PX", lease], [token, lease]),
            (model.release, ["DLOCK.RELEASE", "lock", token], [token]),
            (model.extend, ["DLOCK.EXTEND", "lock", token, "PX", lease], [token, lease]),
            (model.info, ["DLOCK.INFO", "lock"], []),
        ])
        if choose.random() < 0.1:
            time.sleep(choose.random() * 0.01)
        before = boot_ms()
        reply = client.execute_command(*words)
        now = Span(before, boot_ms())
        history.append((now, words, reply))
        try:
            method(reply, now, *arguments)
        except AssertionError as failure:
            steps = "\n".join(f"    {now} {words} -> {reply!r}" for now, words, reply in history)
            raise AssertionError(f"{failure}\nagain: DLOCK_SEED={SEED}\n{steps}") from None
