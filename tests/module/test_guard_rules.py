"""Which commands DLOCK.GUARD runs, and on which keys."""

import pytest
import redis

from support import other_module
from support.cluster import slot_of
from support.commands import Lock, plain

LEAK_BYTES = 100_000


def guard(client, *words, key="lock", token="me"):
    return plain(client, "DLOCK.GUARD", key, token, *words)


def refusal(client, *words, **lock):
    with pytest.raises(redis.ResponseError) as caught:
        guard(client, *words, **lock)
    return str(caught.value)


@pytest.fixture
def held(lock):
    lock.acquire("me")
    return lock.client


# -- what is refused -------------------------------------------------------------------------------


REFUSED = """
    BLPOP list 0; bzmpop 0 1 set MIN; WAIT 1 50; WAITAOF 1 0 50
    SELECT 1; CLIENT ID; AUTH x; SUBSCRIBE x; HELLO 3; READONLY; ASKING; QUIT; COMMAND COUNT
    MULTI; EXEC; WATCH data
    CONFIG GET *; config resetstat; SHUTDOWN; SAVE; DEBUG SLEEP 0; SLOWLOG RESET; ACL WHOAMI
    MODULE LIST; REPLICAOF no one; CLUSTER FAILOVER; CLUSTER RESET; RESTORE-ASKING data 0 x
    DLOCK.APPLY other me 1 1000; DLOCK.GUARD lock me GET data"""


@pytest.mark.parametrize("words", [line.split() for line in REFUSED.replace(";", "\n").split("\n")
                                   if line], ids=lambda words: " ".join(words[:2]))
def test_a_command_that_is_not_about_data_is_refused_by_name(held, words):
    if words[0] == "WAITAOF" and not plain(held, "COMMAND", "INFO", "WAITAOF")[0]:
        pytest.skip("this server has no WAITAOF")
    assert refusal(held, *words).startswith(f"DLOCK.GUARD cannot run {words[0]}: ")
    assert held.ping()


@pytest.mark.parametrize("words", [
    ["EVAL", "return 1", "0"], ["evalsha", "x", "0"], ["EVAL_RO", "return 1", "0"],
    ["EVALSHA_RO", "x", "0"], ["FCALL", "f", "0"], ["FCALL_RO", "f", "0"], ["SCRIPT", "FLUSH"],
    ["FUNCTION", "FLUSH"]], ids=lambda words: words[0])
def test_a_script_is_refused(held, words):
    assert "let the script call DLOCK.GUARD" in refusal(held, *words)
    with pytest.raises(redis.ResponseError, match="let the script call DLOCK.GUARD"):
        held.eval("return redis.call('DLOCK.GUARD', 'lock', 'me', unpack(ARGV))", 0, *words)


@pytest.mark.parametrize("words", [[b"SET\0x", "data", "1"], ["x" * 200], ["CONFIG", "x" * 200],
                                   [""], ["CONFIG|GET", "*"], ["CONFIG", "GET|x", "*"]],
                         ids=lambda words: str(words)[:20])
def test_a_name_that_no_command_has_is_no_command(held, words):
    assert refusal(held, *words)
    assert held.get("data") is None


def test_a_name_is_told_in_few_printable_characters(held):
    assert refusal(held, b"\xff\n" + b"x" * 200).startswith(f"DLOCK.GUARD cannot run ??{'x' * 30}:")


def test_a_command_that_is_judged_once_is_judged_alike_again(held):
    for _ in range(2):
        assert "it waits" in refusal(held, "blpop", "list", "0")
        assert "it waits" in refusal(held, "BLPOP", "list", "0")
        assert guard(held, "PING") == b"PONG"
        assert "unknown" in refusal(held, "NOSUCH")
        assert "unknown subcommand" in refusal(held, "OBJECT", "NOSUCH")


def test_without_command_info_everything_is_refused(start_server):
    client = start_server("--rename-command", "COMMAND", "").client()
    Lock(client).acquire("me")
    assert "COMMAND INFO" in refusal(client, "SET", "data", "1")
    assert client.get("data") is None


# -- what is allowed -------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [
    "PING", "ECHO x", "TIME", "PUBLISH channel x", "OBJECT HELP", "FLUSHDB", "KEYS *",
    "XREAD BLOCK 0 STREAMS stream $", "DLOCK.ACQUIRE other me PX 1000 WAIT 1000",
    "DLOCK.EXTEND lock me PX 1000"])
def test_a_command_that_does_no_harm_is_run(held, line):
    guard(held, *line.split())
    assert held.ping()


def test_a_lock_inside_is_not_waited_for(held):
    Lock(held, "other").acquire("you")
    words = ["DLOCK.ACQUIRE", "other", "me", "PX", 1000, "WAIT", 60_000]
    assert guard(held, *words) is None


def test_a_renamed_command_is_judged_as_what_it_is(start_server):
    client = start_server("--rename-command", "SET", "put", "--rename-command", "BLPOP",
                          "take").client()
    Lock(client).acquire("me")
    assert guard(client, "PUT", "data", "1") == b"OK"
    assert "it waits" in refusal(client, "TAKE", "list", "0")


# -- other modules ---------------------------------------------------------------------------------


def test_a_command_of_another_module_is_refused_even_in_a_transaction(tmp_path, start_server):
    held = start_server().client()
    Lock(held).acquire("me")
    held.execute_command("MODULE", "LOAD", str(other_module.build(tmp_path)))
    for name in "OTHER.BLOCK", "OTHER.ECHO":
        assert f"cannot run {name}: it belongs to another module" in refusal(held, name)
    with held.pipeline() as pipe:
        pipe.execute_command("DLOCK.GUARD", "lock", "me", "OTHER.BLOCK")
        [reply] = pipe.execute(raise_on_error=False)
    assert "it belongs to another module" in str(reply)
    script = "redis.call('DLOCK.GUARD', 'lock', 'me', 'PING') return redis.call('OTHER.ECHO')"
    assert held.eval(script, 0) == b"HERE"


def test_a_command_goes_and_comes_with_its_module(tmp_path, held):
    path = str(other_module.build(tmp_path))
    for _ in range(2):
        held.execute_command("MODULE", "LOAD", path)
        assert "it belongs to another module" in refusal(held, "OTHER.ECHO")
        held.execute_command("MODULE", "UNLOAD", "other")
        assert "unknown command" in refusal(held, "OTHER.ECHO")


@pytest.mark.parametrize("words", [["VSIM", "v", "ELE", "e"],
                                   ["VADD", "v", "VALUES", "3", "1", "2", "3", "e", "CAS"]],
                         ids=lambda words: words[0])
def test_vector_sets_are_commands_of_another_module(held, words):
    if not plain(held, "COMMAND", "INFO", words[0])[0]:
        pytest.skip("this server has no vector sets")
    plain(held, "VADD", "v", "VALUES", "3", "1", "2", "3", "e")
    assert "it belongs to another module" in refusal(held, *words)


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["me", "stranger"])
def test_many_keys_leave_nothing_behind(server, held, token):
    held.acl_setuser("user", enabled=True, nopass=True, keys=["k*", "lock"], commands=["+@all"])
    user = server.client(username="user", password="any")
    assert_nothing_is_left(user, held, "lock", [f"k{i}" for i in range(1000)], token)


def assert_nothing_is_left(client, observer, lock, keys, token):
    def call(times):
        for _ in range(times):
            if token == "me":
                assert guard(client, "EXISTS", *keys, key=lock) == 0
            else:
                assert refusal(client, "EXISTS", *keys, key=lock, token=token).startswith("NOTHELD")
        return observer.info("memory")["used_memory"]
    before = call(10)
    calls = 200
    assert call(calls) - before < LEAK_BYTES < calls * len(keys)


@pytest.fixture
def node(cluster):
    """That of {shop}, with a held lock."""
    node = cluster.owner("{shop}lock").client()
    Lock(node, "{shop}lock").acquire("me")
    return node


def test_in_a_cluster_lock_and_data_share_a_slot(cluster, node):
    assert guard(node, "SET", "{shop}data", "1", key="{shop}lock") == b"OK"
    assert guard(node, "MSET", "{shop}a", "1", "{shop}b", "2", key="{shop}lock") == b"OK"
    here = next(f"other:{i}" for i in range(10_000)
                if cluster.owner(f"other:{i}") is cluster.owner("{shop}lock"))
    away = next(f"other:{i}" for i in range(10_000)
                if cluster.owner(f"other:{i}") is not cluster.owner("{shop}lock"))
    for words in (["SET", here, "1"], ["SET", away, "1"], ["MSET", "{shop}a", "3", here, "3"],
                  ["DLOCK.ACQUIRE", here, "me", "PX", "1000"]):
        assert refusal(node, *words, key="{shop}lock").startswith("CROSSSLOT ")
        with pytest.raises(redis.ResponseError, match="CROSSSLOT "):
            node.eval("return redis.call('DLOCK.GUARD', KEYS[1], 'me', unpack(ARGV))", 1,
                      "{shop}lock", *words)
    assert node.get(here) is None
    assert node.dbsize() == 4


@pytest.mark.parametrize("line", ["RANDOMKEY", "SCAN 0", "KEYS *", "DBSIZE", "FLUSHALL",
                                  "SPUBLISH {shop}channel x", "XREAD STREAMS {shop}x"])
def test_in_a_cluster_a_command_for_data_names_its_keys(node, line):
    assert refusal(node, *line.split(), key="{shop}lock")
    assert node.exists("{shop}lock")


@pytest.mark.parametrize("line", ["PING", "TIME", "PUBLISH channel x"])
def test_in_a_cluster_a_command_without_data_needs_no_key(node, line):
    guard(node, *line.split(), key="{shop}lock")


@pytest.mark.parametrize("token", ["me", "stranger"])
def test_in_a_cluster_many_keys_leave_nothing_behind(node, token):
    assert_nothing_is_left(node, node, "{shop}lock", [f"{{shop}}{i}" for i in range(1000)], token)


@pytest.fixture
def moving(cluster, node):
    """The slot of {shop} begins to move, with the lock and {shop}data in it."""
    slot = slot_of("{shop}lock")
    node.set("{shop}data", "5")
    target = (cluster.owners[slot] + 1) % 3
    cluster.begin_move(slot, target)
    return cluster.nodes[target].client()


def migrate(node, target, key):
    port = target.connection_pool.connection_kwargs["port"]
    plain(node, "MIGRATE", "127.0.0.1", port, key, "0", "5000")


def guard_asking(target, *words):
    plain(target, "ASKING")  # on the same connection
    return guard(target, *words, key="{shop}lock")


def test_data_that_has_moved_is_not_written_beside_the_lock(node, moving):
    assert guard(node, "INCR", "{shop}data", key="{shop}lock") == 6
    migrate(node, moving, "{shop}data")
    assert refusal(node, "INCR", "{shop}data", key="{shop}lock").startswith("TRYAGAIN ")


def test_data_that_has_not_moved_is_not_made_anew_beside_the_lock(node, moving):
    migrate(node, moving, "{shop}lock")
    assert refusal(node, "INCR", "{shop}data", key="{shop}lock").startswith("ASK ")
    with pytest.raises(redis.ResponseError, match="^TRYAGAIN "):
        guard_asking(moving, "INCR", "{shop}data")
    migrate(node, moving, "{shop}data")
    assert guard_asking(moving, "INCR", "{shop}data") == 6
