"""What an operator sees and sets."""

import pytest
import redis

from support.commands import Lock, plain, stats
from support.server import MODULE, wait_until

POLICIES = ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru",
            "allkeys-lfu", "allkeys-random"]
EVICTION_WARNING = "maxmemory-policy can evict locks"
COMMANDS = ["dlock.acquire", "dlock.release", "dlock.extend", "dlock.info", "dlock.apply"]


# -- INFO and events ------------------------------------------------------------------------------


def test_info_dlock_has_every_field(client):
    fence = Lock(client).acquire("me")
    assert set(stats(client)) == {
        "version", "held", "sessions", "waiters", "queues", "acquired", "handed_over", "reacquired",
        "contended", "released", "extended", "refused", "wait_timeouts", "queue_full",
        "session_releases", "wait_us", "hold_us", "last_fence", "locks_evictable"}
    assert stats(client)["last_fence"] == fence
    assert "dlock_held" in client.info("everything")


def test_held_locks_are_counted_off_when_they_end(client):
    for i in range(100):
        Lock(client, f"lock:{i}").acquire("me", 60_000)
    client.set("lock:0", "overwritten")
    assert stats(client)["held"] == 99
    for i in range(1, 100):
        Lock(client, f"lock:{i}").extend("me", 20)
    wait_until(lambda: stats(client)["held"] == 0, "all leases to end")


def test_every_change_is_a_keyspace_event(server, lock):
    lock.client.config_set("notify-keyspace-events", "Kd")
    events = server.client().pubsub()
    events.psubscribe("__keyspace@0__:*")
    assert events.get_message(timeout=10)["type"] == "psubscribe"
    lock.acquire("me")
    lock.acquire("you")
    lock.acquire("me", 1)
    lock.acquire("me", 90_000)
    lock.extend("me")
    lock.extend("you")
    lock.release("you")
    lock.release("me")
    lock.client.set("lock", "other")
    lock.extend("other")
    lock.release("other")
    got = [events.get_message(timeout=10)["data"] for _ in range(6)]
    assert got == [b"dlock.acquire", b"dlock.extend", b"dlock.extend", b"dlock.release",
                   b"dlock.extend", b"dlock.release"]
    assert events.get_message(timeout=0.05) is None


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


@pytest.mark.parametrize("value", ["0", "-1", "4294967296", "ten", ""])
def test_a_bad_value_is_refused_by_config_set(client, value):
    with pytest.raises(redis.ResponseError):
        client.config_set("dlock.max-lease", value)
    assert client.config_get("dlock.max-lease")["dlock.max-lease"] == "86400000"


def test_settings_come_from_the_loadmodule_line(start_server):
    client = start_server(module_args=["max-lease", 5000, "REQUIRE-NOEVICTION", "yes"]).client()
    settings = client.config_get("dlock.*")
    assert settings == {"dlock.max-lease": "5000", "dlock.max-waiters": "10000",
                        "dlock.require-noeviction": "yes"}


def test_the_configuration_goes_over_the_loadmodule_line(start_server):
    server = start_server("--dlock.max-lease", 7000, module_args=["max-lease", 5000])
    assert server.client().config_get("dlock.max-lease")["dlock.max-lease"] == "7000"


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
    assert b"Replies with" in docs[b"summary"]
    assert docs[b"complexity"] == b"O(1)"
    assert docs[b"since"] and docs[b"module"] == b"dlock"
    arguments = [dict(zip(a[::2], a[1::2])) for a in docs[b"arguments"]]
    assert arguments[0][b"name"] == b"key"
    assert all(a[b"type"] for a in arguments)


def test_the_lease_argument_is_documented_with_its_word(client):
    [_, fields] = plain(client, "COMMAND", "DOCS", "dlock.acquire")
    docs = dict(zip(fields[::2], fields[1::2]))
    lease = dict(zip(docs[b"arguments"][2][::2], docs[b"arguments"][2][1::2]))
    assert (lease[b"token"], lease[b"type"]) == (b"PX", b"integer")


def test_the_first_word_is_the_only_key(client):
    for command in COMMANDS:
        words = ["lock"] if command == "dlock.info" else ["lock", "me"]
        assert plain(client, "COMMAND", "GETKEYS", command, *words) == [b"lock"]


def test_a_user_can_be_held_to_one_command_and_one_prefix(server, client):
    client.execute_command("ACL", "SETUSER", "alice", "on", "nopass", "+dlock.acquire", "~lock:*")
    alice = server.client(username="alice", password="any")
    assert Lock(alice, "lock:1").acquire("me") > 0
    with pytest.raises(redis.ResponseError, match="(?i)key"):
        Lock(alice, "other").acquire("me")
    for call in (Lock(alice, "lock:1").release, Lock(alice, "lock:1").extend):
        with pytest.raises(redis.ResponseError, match="(?i)permission"):
            call("me")
    with pytest.raises(redis.ResponseError, match="(?i)permission"):
        alice.execute_command("DLOCK.APPLY", "lock:1", "x")


def test_info_needs_only_read_permission(server, client):
    Lock(client, "lock:1").acquire("me")
    client.execute_command("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "%R~lock:*")
    bob = Lock(server.client(username="bob", password="any"), "lock:1")
    assert bob.info()["token"] == b"me"
    with pytest.raises(redis.ResponseError, match="(?i)key"):
        bob.release("me")


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_can_evict_locks_is_warned_of_at_load(start_server, policy):
    server = start_server("--maxmemory", "100mb", "--maxmemory-policy", policy)
    assert server.log().count(EVICTION_WARNING) == 1
    assert stats(server.client())["locks_evictable"] == 1


@pytest.mark.parametrize("options", [
    (), ("--maxmemory", "100mb"), ("--maxmemory-policy", "allkeys-lru"),
])
def test_without_danger_there_is_no_warning(start_server, options):
    server = start_server(*options)
    assert EVICTION_WARNING not in server.log()
    assert stats(server.client())["locks_evictable"] == 0


def test_danger_by_config_set_is_warned_of_once(server, client):
    client.config_set("maxmemory-policy", "volatile-ttl")
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
    lock.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(redis.ResponseError, match="dlock.require-noeviction is yes"):
        Lock(lock.client, "third").acquire("me")
    assert lock.extend("me") == 1
    assert lock.release("me") == 1


def test_at_maxmemory_a_lock_can_be_given_back_but_not_taken(lock):
    lock.acquire("me")
    lock.client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="OOM|maxmemory"):
        Lock(lock.client, "other").acquire("me")
    assert lock.extend("me") == 1
    assert lock.release("me") == 1
