"""The commands as Python calls, on top of an ordinary redis-py client."""

import re

TOKEN_MAX = 256


def acquire_words(keys, token):
    """DLOCK.ACQUIRE for one key, DLOCK.ACQUIREALL for a list of them, without options."""
    if isinstance(keys, (list, tuple)):
        return ["DLOCK.ACQUIREALL", len(keys), *keys, token]
    return ["DLOCK.ACQUIRE", keys, token]


class Locks:
    """DLOCK.ACQUIREALL and DLOCK.RELEASEALL on several keys."""

    def __init__(self, client, *keys):
        self.client, self.keys = client, keys

    def acquire(self, token, lease_ms=60_000, *options):
        words = [*acquire_words(self.keys, token), "PX", lease_ms, *options]
        return self.client.execute_command(*words)

    def release(self, token):
        words = ["DLOCK.RELEASEALL", len(self.keys), *self.keys, token]
        return self.client.execute_command(*words)

    def holders(self):
        """The tokens of each lock."""
        return {key: tokens_at(self.client, key) for key in self.keys}


def tokens_at(client, key):
    """Of all holders of the lock, in their order by name."""
    info = details_of(client.execute_command("DLOCK.INFO", key))
    return sorted(holder["token"].decode() for holder in info["holders"]) if info else []


def line_at(client, key):
    """The tokens in line for the lock, the first one first."""
    info = details_of(client.execute_command("DLOCK.INFO", key, "WAITERS", 100))
    return [waiter["token"].decode() for waiter in info["queue"]] if info else []


class Lock:
    """DLOCK.* on one key."""

    def __init__(self, client, key="lock"):
        self.client = client
        self.key = key

    def acquire(self, token, lease_ms=60_000, *options):
        words = ["DLOCK.ACQUIRE", self.key, token, "PX", lease_ms, *options]
        return self.client.execute_command(*words)

    def release(self, token):
        return self.client.execute_command("DLOCK.RELEASE", self.key, token)

    def extend(self, token, lease_ms=60_000):
        return self.client.execute_command("DLOCK.EXTEND", self.key, token, "PX", lease_ms)

    def info(self, *options):
        """See info_of()."""
        return info_of(self.client.execute_command("DLOCK.INFO", self.key, *options))

    def queue(self, count=10_000):
        """The first waiters, each a dict."""
        info = self.info("WAITERS", count)
        return info and info["queue"]

    def ttl(self):
        """How many milliseconds of the lease are left, or None when the lock is free."""
        info = self.info()
        return info and info["ttl"]


def as_map(reply):
    """A map as a dict with text keys; RESP2 has it as a flat array of names and values."""
    if isinstance(reply, dict):  # RESP3, which new releases of redis-py speak
        return {name.decode(): value for name, value in reply.items()}
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2])}


def details_of(reply):
    """The reply of DLOCK.INFO with all its maps as dicts, or None when the lock is free."""
    if reply is None:
        return None
    details = as_map(reply)
    for name in {"holders", "queue"} & set(details):
        details[name] = [as_map(each) for each in details[name]]
    return details


def info_of(reply):
    """The same of a lock with one holder, whose fields are among the others."""
    details = details_of(reply)
    if details is None:
        return None
    [holder] = details.pop("holders")
    return {**details, **holder}


def plain(client, *words):
    """A command without redis-py's own reading of its reply."""
    connection = client.connection_pool.get_connection(words[0])
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


GAUGES = {"version", "held", "held_shared", "holders", "sessions", "sessions_away",
          "session_holds", "session_waiters", "watches", "events_unacknowledged", "waiters",
          "queues", "max_blocked", "last_fence", "fence_clock", "locks_evictable",
          "sessions_unlisted"}
LISTED_SESSION = re.compile(r"dlock_session_\d+")
_before = {}  # run_id of a server -> what was counted before


def count_from_now(client):
    """stats() of this server leaves out what it has counted so far."""
    run_id, fields = _all_stats(client)
    _before[run_id] = fields


def stats(client):
    """INFO dlock without the prefix and the list of sessions; histograms as dicts of bound to
    count. Counters are from the begin of the test if it shares its server with others."""
    run_id, fields = _all_stats(client)
    before = _before.get(run_id, {})
    for name in set(before) - GAUGES:
        if isinstance(fields[name], dict):
            counts = {bound: count - before[name].get(bound, 0)
                      for bound, count in fields[name].items()}
            fields[name] = {bound: count for bound, count in counts.items() if count}
        else:
            fields[name] -= before[name]
    return fields


def _all_stats(client):
    info = client.info("server", "dlock")
    fields = {k[len("dlock_"):]: v for k, v in info.items()
              if k.startswith("dlock_") and not LISTED_SESSION.fullmatch(k)}
    for name in ("wait_us", "hold_us"):
        if not isinstance(fields[name], dict):  # redis-py reads a dict only from two entries on
            fields[name] = dict(pair.split("=") for pair in fields[name].split(",") if pair)
        fields[name] = {int(bound): int(count) for bound, count in fields[name].items()}
    return info["run_id"], fields


def served(client, command):
    """How many of these commands the server has served since it was given to the test."""
    counts = client.info("commandstats")
    return counts.get(f"cmdstat_dlock.{command}", {"calls": 0})["calls"]


def fence_at(client, key="lock"):
    """None: nobody has it."""
    info = Lock(client, key).info()
    return info and info["fence"]
