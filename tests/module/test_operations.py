"""What an operator sees and sets."""

import pytest
import redis

from support.commands import Lock, as_map, fence_at, plain, stats
from support.crowd import hold_many
from support.files import by_rdb, by_rewritten_aof
from support.server import MODULE, wait_until
from support.session import Session
from support.turn import Bare, sleep_then
from support.waiting import Waiting, queue_up

EVICTING = ["allkeys-lru", "allkeys-lfu", "allkeys-random"]
HARMLESS = ["noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"]
EVICTION_WARNING = "maxmemory-policy can evict locks"
COMMANDS = ["dlock.acquire", "dlock.release", "dlock.extend", "dlock.info", "dlock.apply"]


# -- INFO and events ------------------------------------------------------------------------------


def test_info_dlock_has_every_field(client):
    fence = Lock(client).acquire("me")
    assert set(stats(client)) == {
        "version", "held", "held_shared", "holders", "sessions", "sessions_away", "session_holds",
        "session_waiters", "watches", "events_unacknowledged", "waiters", "queues", "max_blocked",
        "session_timeouts", "heartbeats", "events", "granted", "handed_over", "reacquired",
        "contended", "released",
        "expired", "forced", "extended", "refused", "wait_timeouts", "queue_full",
        "session_releases", "guarded", "guards_refused", "wait_us", "hold_us", "wait_sum_us",
        "hold_sum_us", "last_fence", "fence_clock", "locks_evictable", "sessions_unlisted"}
    assert stats(client)["last_fence"] == fence
    assert "dlock_held" in client.info("everything")


def test_held_locks_are_counted_off_when_they_end(client, clock):
    for i in range(100):
        Lock(client, f"lock:{i}").acquire("me", 60_000)
    client.set("lock:0", "overwritten")
    assert (stats(client)["held"], stats(client)["holders"]) == (99, 99)
    clock.advance(61)
    wait_until(lambda: stats(client)["held"] == 0, "all leases to end")
    assert (stats(client)["holders"], stats(client)["expired"]) == (0, 99)


FORCED = {
    "del": lambda c: c.delete("lock"),
    "unlink": lambda c: c.unlink("lock"),
    "flushdb": lambda c: c.flushdb(),
    "flushall async": lambda c: c.execute_command("FLUSHALL", "ASYNC"),
    "set": lambda c: c.set("lock", "other"),
    "rename over it": lambda c: (c.set("other", "x"), c.rename("other", "lock")),
    "pexpire 0": lambda c: c.pexpire("lock", 0),
    "expire": lambda c: c.pexpire("lock", 20),
}


@pytest.mark.parametrize("end", FORCED.values(), ids=FORCED.keys())
def test_a_lock_that_is_forced_open_is_counted_as_such(lock, end):
    lock.acquire("me", 600_000)
    end(lock.client)
    wait_until(lambda: stats(lock.client)["forced"] == 1, "it to be counted")
    wait_until(lambda: stats(lock.client)["held"] == 0, "it to be counted off")
    assert (stats(lock.client)["expired"], stats(lock.client)["released"]) == (0, 0)


def test_neither_a_release_nor_a_session_nor_a_lease_that_ends_is_forced(server, lock, clock):
    lock.acquire("me")
    lock.release("me")
    holder = Waiting(server, "holder", options=["SESSION"])
    holder.answer()
    holder.close()
    wait_until(lambda: lock.info() is None, "the session to end")
    lock.acquire("me", 60_000)
    clock.advance(61)
    counted = stats(lock.client)
    assert [counted[name] for name in ("forced", "released", "session_releases", "expired")] == [
        0, 1, 1, 1]


def test_locks_that_are_flushed_when_their_leases_are_over_are_counted(server, client):
    """None of them is lost between the two: each has expired or was forced."""
    count = 20_000
    bare = Bare(server)
    hold_many(bare, count, 60_000)
    assert sleep_then(server, 61, "FLUSHALL") == [b"+OK"]
    wait_until(lambda: stats(client)["expired"] + stats(client)["forced"] == count, "every end")
    bare.close()


def test_every_change_is_a_keyspace_event(lock, events):
    lock.acquire("me")
    lock.acquire("you")
    lock.acquire("me", 1)
    lock.extend("me", 1)
    lock.acquire("me", 90_000)
    lock.extend("me", 120_000)
    lock.extend("you")
    lock.release("you")
    lock.release("me")
    lock.client.set("lock", "other", px=10_000)
    lock.extend("other", 1)
    lock.extend("other", 60_000)
    lock.release("other")
    assert events.take() == ["acquire", "extend", "extend", "release", "extend", "release"]


# -- settings -------------------------------------------------------------------------------------


def test_the_longest_lease_can_be_set_while_running(lock):
    lock.client.config_set("dlock.max-lease", 5000)
    with pytest.raises(redis.ResponseError, match="from 1 to 5000"):
        lock.acquire("me", 5001)
    assert lock.acquire("me", 5000) > 0
    with pytest.raises(redis.ResponseError, match="from 1 to 5000"):
        lock.extend("me", 5001)


def test_the_longest_possible_lease_works(lock):
    longest = 2**32 - 1
    lock.client.config_set("dlock.max-lease", longest)
    assert lock.acquire("me", longest) > 0
    assert lock.info()["lease"] == longest
    lock.client.execute_command("DEBUG", "RELOAD")
    assert lock.info()["lease"] == longest


def test_a_session_lives_on_with_a_timeout_above_a_new_longest_lease(server):
    session = Session(server, 60_000)
    session.hold("me")
    server.observer.config_set("dlock.max-lease", 10_000)
    assert session.come_back() == []
    with pytest.raises(redis.ResponseError, match="PX must be .* to 10000 .dlock.max-lease"):
        Session(server, 60_000)
    assert Session(server, 10_000).call()[1] == []


@pytest.mark.parametrize("value", ["0", "-1", "4294967296", "ten", ""])
def test_a_bad_value_is_refused_by_config_set(client, value):
    with pytest.raises(redis.ResponseError):
        client.config_set("dlock.max-lease", value)
    assert client.config_get("dlock.max-lease")["dlock.max-lease"] == "86400000"


def test_settings_come_from_the_loadmodule_line_and_the_configuration_goes_over_it(start_server):
    client = start_server("--dlock.max-holders", 7, module_args=[
        "max-lease", 5000, "REQUIRE-NOEVICTION", "yes", "max-holders", 8]).client()
    assert client.config_get("dlock.*") == {
        "dlock.max-lease": "5000", "dlock.max-holders": "7", "dlock.max-waiters": "10000",
        "dlock.max-waiters-in-all": "1000000", "dlock.max-sessions": "1000000",
        "dlock.max-watches": "1000000", "dlock.max-events": "100000",
        "dlock.require-noeviction": "yes", "dlock.drain": "no"}


@pytest.mark.parametrize("arguments, message", [
    (["max-lease", "0"], "bad value '0' for 'max-lease': it is a number from 1 to 4294967295"),
    (["max-lease", "x"], "bad value 'x' for 'max-lease': it is a number from 1 to 4294967295"),
    (["max-lease", "4294967296"], "bad value '4294967296' for 'max-lease'"),
    (["max-lease"], "'max-lease' needs a value"),
    (["require-noeviction", "1"], "bad value '1' for 'require-noeviction': it is yes or no"),
    (["min-lease", "5"], "no setting is called 'min-lease'"),
])
def test_a_bad_loadmodule_argument_stops_the_start_and_says_why(start_server, arguments, message):
    with pytest.raises(AssertionError) as caught:
        start_server(module_args=arguments)
    assert message in str(caught.value)


def test_a_module_loaded_by_hand_with_a_bad_argument_leaves_the_server_alone(start_server):
    server = start_server(module=None)
    client = server.client()
    with pytest.raises(redis.ResponseError):
        plain(client, "MODULE", "LOAD", str(MODULE), "max-lease", "0")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        Lock(client).acquire("me")
    assert plain(client, "MODULE", "LOAD", str(MODULE), "max-lease", "9000") == b"OK"
    assert Lock(client).acquire("me", 9000) > 0


def test_the_module_cannot_be_unloaded_under_its_locks(client):
    with pytest.raises(redis.ResponseError, match="data type"):
        plain(client, "MODULE", "UNLOAD", "dlock")


# -- documentation and permission -----------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_command_docs_are_complete(client, command):
    [_, fields] = plain(client, "COMMAND", "DOCS", command)
    docs = dict(zip(fields[::2], fields[1::2]))
    assert b"reply is" in docs[b"summary"]
    assert docs[b"complexity"].startswith(b"O(N)" if command == "dlock.info" else b"O(1)")
    assert docs[b"since"] and docs[b"module"] == b"dlock"
    arguments = [dict(zip(a[::2], a[1::2])) for a in docs[b"arguments"]]
    assert arguments[0][b"name"] == b"key"
    assert all(a[b"type"] for a in arguments)


ACQUIRE = [("key", "key", None, False), ("token", "string", None, False),
           ("lease-ms", "integer", "PX", True), ("wait-ms", "integer", "WAIT", True),
           ("session", "string", "VIA", True), ("holding", "block", None, True),
           ("sharing", "block", None, True),
           ("fence", "integer", "FENCE", True), ("count", "integer", "FENCES", True)]
SHARING = [("shared", "pure-token", "SHARED", False), ("n", "integer", "MAX", True)]
ARGUMENTS = {
    "dlock.acquire": ACQUIRE,
    "dlock.release": ACQUIRE[:2],
    "dlock.extend": [*ACQUIRE[:2], ("lease-ms", "integer", "PX", False)],
    "dlock.info": [ACQUIRE[0], ("count", "integer", "WAITERS", True)],
}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_every_argument_is_documented_with_its_name_type_and_word(client, command):
    """Servers differ in what an argument is made of: one that reads more than the module gives
    takes it from the next argument."""
    [_, fields] = plain(client, "COMMAND", "DOCS", command)
    arguments = as_map(fields)["arguments"]
    assert documented_arguments(arguments) == ARGUMENTS[command]
    for each in map(as_map, arguments):
        if each["name"] == b"sharing":
            assert documented_arguments(each["arguments"]) == SHARING


def documented_arguments(arguments):
    documented = []
    for each in arguments:
        words = {name: value.decode() for name, value in as_map(each).items()
                 if isinstance(value, bytes)}
        is_optional = b"optional" in as_map(each).get("flags", [])
        assert words.get("display_text", words["name"]) == words["name"]
        documented.append((words["name"], words["type"], words.get("token"), is_optional))
    return documented


def test_the_first_word_is_the_only_key(client):
    for command in COMMANDS:
        words = {"dlock.info": ["lock"], "dlock.apply": ["lock", "me", 5, 1000]}.get(
            command, ["lock", "me"])
        assert plain(client, "COMMAND", "GETKEYS", command, *words) == [b"lock"]


ALICE, BOB = ["+dlock.acquire", "~lock:*"], ["+@all", "%R~lock:*"]


@pytest.mark.parametrize("rules, words, error", [
    (ALICE, ("DLOCK.ACQUIRE", "lock:1", "me", "PX", 1000), None),
    (ALICE, ("DLOCK.ACQUIRE", "other", "me", "PX", 1000), "key"),
    (ALICE, ("DLOCK.RELEASE", "lock:1", "me"), "permission"),
    (ALICE, ("DLOCK.EXTEND", "lock:1", "me", "PX", 1000), "permission"),
    (ALICE, ("DLOCK.APPLY", "lock:1", "me", 5, 1000), "permission"),
    (BOB, ("DLOCK.INFO", "lock:1"), None),
    (BOB, ("DLOCK.RELEASE", "lock:1", "me"), "key"),
], ids=str)
def test_a_user_can_be_held_to_commands_to_a_prefix_and_to_reading(
        server, client, rules, words, error):
    Lock(client, "lock:1").acquire("me")
    client.execute_command("ACL", "SETUSER", "user", "on", "nopass", *rules)
    user = server.client(username="user", password="any")
    if error is None:
        assert user.execute_command(*words) is not None
    else:
        with pytest.raises(redis.ResponseError, match=f"(?i){error}"):
            user.execute_command(*words)


# -- what the module does by itself does not disturb ----------------------------------------------

RENAMED = ["PEXPIREAT", "PEXPIRE", "EXISTS", "GETRANGE", "GET", "PTTL", "TYPE"]


@pytest.fixture
def hardened(start_server, start_replica):
    """A master and a replica of it, on which some ordinary commands have other names."""
    options = [word for name in RENAMED
               for word in ("--rename-command", name, f"hidden-{name}")]
    master = start_server(*options)
    return master, start_replica(master, *options)


def test_a_string_is_a_lock_where_commands_are_renamed(hardened):
    """Its TTL as well, also at the replica."""
    server, replica = hardened
    lock = Lock(server.client())
    lock.client.set("lock", "other", px=10_000)
    assert lock.extend("other", 60_000) == 1
    assert lock.client.execute_command("hidden-PTTL", "lock") > 50_000
    wait_until(lambda: replica.observer.execute_command("hidden-PTTL", "lock") > 50_000, "it")
    assert lock.acquire("me") is None
    assert (lock.info()["kind"], lock.info()["token"]) == (b"string", b"other")
    [waiter] = queue_up(server, ["waiter"])
    assert lock.release("other") == 1
    assert waiter.answer() == lock.info()["fence"]
    wait_until(lambda: fence_at(replica.observer) == lock.info()["fence"], "the replica to follow")
    lock.client.set("lock", "other", px=300)
    assert Waiting(server, "another").answer() == lock.info()["fence"]


def test_too_few_replicas_stop_a_hand_over_where_commands_are_renamed(hardened):
    server, replica = hardened
    lock = Lock(server.client())
    fence = lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    replica.client().execute_command("REPLICAOF", "NO", "ONE")
    lock.client.config_set("min-replicas-to-write", 1)
    for _ in range(3):
        server.clock.advance(61)
    assert not waiter.is_answered()
    lock.client.config_set("min-replicas-to-write", 0)
    assert waiter.answer() > fence


def hand_over_in_every_way(server, client):
    """Leases, sessions, DEL and strings: what the module does by itself."""
    ends = {"lease": lambda holder, lock: server.clock.advance(61),
            "session": lambda holder, lock: holder.close(),
            "del": lambda holder, lock: client.delete(lock.key),
            "string": lambda holder, lock: client.pexpire(lock.key, 20),
            "release": lambda holder, lock: lock.release("holder")}
    for key, end in ends.items():
        holder = Waiting(server, "holder", key=key, lease_ms=60_000,
                         options=["SESSION"] if key == "session" else [])
        holder.answer()
        if key == "string":
            client.set(key, "other")
        [waiter] = queue_up(server, ["waiter"], key=key)
        end(holder, Lock(client, key))
        waiter.answer()


def test_monitor_shows_no_probe_of_the_module(server, client):
    """Nobody who looks at the commands of a server wonders about a key without a name."""
    monitor = Bare(server)
    assert monitor.call("MONITOR") == b"+OK"
    hand_over_in_every_way(server, client)
    client.echo("the end")
    lines = []
    while not lines or b'"the end"' not in lines[-1]:
        lines += monitor.read()
    assert not [line for line in lines if b' ""' in line]


def test_the_slow_log_shows_no_probe_of_the_module(server, client):
    client.config_set("slowlog-max-len", 10_000)
    client.config_set("slowlog-log-slower-than", 0)
    hand_over_in_every_way(server, client)
    commands = [entry[3] for entry in plain(client, "SLOWLOG", "GET", 10_000)]
    assert not [words for words in commands if b"" in words]


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, is_dangerous", [
    ("", False), ("--maxmemory 100mb", False), ("--maxmemory-policy allkeys-lru", False),
    *((f"--maxmemory 100mb --maxmemory-policy {policy}", policy in EVICTING)
      for policy in EVICTING + HARMLESS)])
def test_only_a_policy_that_can_evict_locks_is_warned_of_at_load(
        start_server, options, is_dangerous):
    """A lock has no TTL, so that no policy for keys with one can evict it."""
    server = start_server(*options.split())
    assert server.log().count(EVICTION_WARNING) == is_dangerous
    assert stats(server.client())["locks_evictable"] == is_dangerous


def test_danger_by_config_set_is_warned_of_once(server, client):
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert EVICTION_WARNING not in server.log()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory", "200mb")
    assert server.log().count(EVICTION_WARNING) == 1
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory", "100mb")
    assert server.log().count(EVICTION_WARNING) == 2


def test_a_server_that_could_evict_locks_can_refuse_to_grant_them(lock):
    lock.acquire("me")
    lock.client.config_set("dlock.require-noeviction", "yes")
    lock.client.config_set("maxmemory", "100mb")
    assert Lock(lock.client, "other").acquire("me") > 0
    lock.client.config_set("maxmemory-policy", "volatile-ttl")
    assert Lock(lock.client, "another").acquire("me") > 0
    lock.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(redis.ResponseError, match="dlock.require-noeviction is yes"):
        Lock(lock.client, "third").acquire("me")
    assert lock.acquire("me") > 0  # it holds the lock already
    assert lock.extend("me") == 1
    assert lock.release("me") == 1


def test_at_maxmemory_a_lock_can_be_given_back_and_handed_over_but_not_taken(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    lock.client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="OOM|maxmemory"):
        Lock(lock.client, "other").acquire("me")
    assert lock.extend("me") == 1
    assert lock.release("me") == 1
    assert waiter.answer() == lock.info()["fence"]


# -- removing the module --------------------------------------------------------------------------


def test_a_drained_server_grants_nothing_new_and_serves_holders_and_waiters(server, lock):
    fence = lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    lock.client.config_set("dlock.drain", "yes")
    with pytest.raises(redis.ResponseError, match="dlock.drain is yes"):
        Lock(lock.client).acquire("stranger")
    assert lock.acquire("me") == fence
    assert lock.extend("me") == 1
    again = Waiting(server, "waiter")
    assert waiter.answer() is None  # the newer call has its place
    assert lock.release("me") == 1
    assert again.answer() > 0
    assert lock.release("waiter") == 1
    with pytest.raises(redis.ResponseError, match="dlock.drain is yes"):
        lock.acquire("me")
    lock.client.config_set("dlock.drain", "no")
    assert lock.acquire("stranger") > 0


@pytest.mark.parametrize("appendonly, write", [("no", by_rdb), ("yes", by_rewritten_aof)])
def test_a_server_without_the_module_loads_what_a_drained_one_has_saved(start_server, appendonly,
                                                                        write):
    server = start_server("--appendonly", appendonly)
    lock = Lock(server.client())
    lock.client.set("data", "kept")
    lock.acquire("me")
    lock.client.config_set("dlock.drain", "yes")
    lock.release("me")
    write(lock.client)
    server.modules = []
    client = server.restart().client()
    assert client.get("data") == b"kept"
    with pytest.raises(redis.ResponseError, match="unknown command"):
        Lock(client).acquire("me")
