"""Shared locks on the command line: readers, slots, and how they are shown."""

import json

import pytest

from support.commands import details_of
from support.waiting import Waiting, wait_for_waiters

BUSY, USAGE, LEASE_MS = 1, 64, 600_000


def share(client, *tokens, name="lock"):
    """The fences."""
    return [client.execute_command("DLOCK.ACQUIRE", name, token, "PX", LEASE_MS, "SHARED")
            for token in tokens]


def holders(client, name="lock"):
    details = details_of(client.execute_command("DLOCK.INFO", name))
    return details["holders"] if details else []


# -- run and acquire -------------------------------------------------------------------------------


def test_commands_share_a_lock_and_a_writer_waits(tool, client):
    runs = [tool.start_group("--shared") for _ in range(2)]
    assert len(holders(client)) == 2
    assert tool.run("run", "-n", "lock", "--", "true") == (BUSY, "", "")
    assert tool.run("run", "-n", "--shared", "lock", "--", "true") == (0, "", "")
    writer = tool.start("run", "lock", "--", "echo", "written")
    wait_for_waiters(client, 1)
    assert tool.run("run", "-n", "--shared", "lock", "--", "true") == (BUSY, "", "")
    for process, _ in runs:
        process.terminate()
        process.wait(50)
    assert writer.communicate(timeout=300) == ("written\n", "")
    assert client.dbsize() == 0


def test_slots_are_counted(tool, client):
    for _ in range(2):
        tool.start_group("--slots", "2")
    assert tool.run("run", "-n", "--slots", "2", "lock", "--", "true") == (BUSY, "", "")
    assert tool.run("run", "-n", "--slots", "3", "lock", "--", "true") == (0, "", "")
    code, _, complaints = tool.run("run", "-w", "100ms", "--slots", "2", "lock", "--", "true")
    assert code == BUSY and " and 1 more for " in complaints
    assert len(holders(client)) == 2


def test_a_slot_is_free_at_once_when_its_machine_dies(tool, client):
    tool.start_group("--slots", "1", "--session")
    late = tool.start("run", "--slots", "1", "lock", "--", "echo", "late")
    wait_for_waiters(client, 1)
    client.execute_command("CLIENT", "KILL", "ID", holders(client)[0]["session"])
    assert late.communicate(timeout=300) == ("late\n", "")


def test_a_script_takes_a_slot_and_gives_it_back(tool, client):
    tokens = [tool.run("acquire", "-n", "--slots", "2", "lock")[1].strip() for _ in range(2)]
    assert {each["token"].decode() for each in holders(client)} == set(tokens)
    assert tool.run("acquire", "-n", "--slots", "2", "lock") == (BUSY, "", "")
    assert tool.run("extend", "--lease", "5m", "lock", tokens[0]) == (0, "", "")
    assert tool.run("release", "lock", tokens[0]) == (0, "", "")
    assert [each["token"].decode() for each in holders(client)] == [tokens[1]]


def test_force_takes_the_lock_from_all_who_hold_it(tool, client):
    share(client, "a", "b", "c")
    assert tool.run("release", "--force", "--yes", "lock") == (0, "", "")
    assert client.dbsize() == 0


@pytest.mark.parametrize("slots", ["0", "2147483648", "-1", "many"])
def test_slots_that_are_no_number_of_holders(tool, slots):
    code, out, complaints = tool.run("run", f"--slots={slots}", "lock", "--", "true")
    assert (code, out) == (USAGE, "") and "--slots" in complaints


@pytest.mark.parametrize("words", [["run", "lock", "--", "true"], ["acquire", "lock"]],
                         ids=lambda words: words[0])
def test_several_servers_cannot_count(several, words):
    tool, _ = several
    code, out, complaints = tool.run(words[0], "--slots", "2", *words[1:])
    assert (code, out) == (USAGE, "") and "nobody can count the holders" in complaints
    assert tool.run(words[0], "--shared", *words[1:])[0] == 0


# -- info, list, top -------------------------------------------------------------------------------


def test_info_shows_every_holder(tool, server, client):
    fences = share(client, "a", "b")
    waiter = Waiting(server, "c")
    wait_for_waiters(client, 1)
    code, out, complaints = tool.run("info", "lock")
    assert (code, complaints) == (0, "")
    assert out.startswith("name     lock\nmode     shared, 2 hold it\nholder   ")
    for token, fence in zip("ab", fences):
        assert f"holder   {token}\nfence    {fence}\n" in out
    assert out.count("waiters  1\n      1  c, waits for ") == 1
    decoder, objects, rest = json.JSONDecoder(), [], tool.run("info", "--json", "lock")[1]
    while rest.strip():
        got, end = decoder.raw_decode(rest.lstrip())
        objects.append(got)
        rest = rest.lstrip()[end:]
    assert {(each["token"], each["fence"]) for each in objects} == set(zip("ab", fences))
    assert {(each["mode"], each["holders"], each["queue"][0]["mode"]) for each in objects} == {
        ("shared", 2, "exclusive")}
    waiter.close()


def test_list_and_top_show_a_lock_once_with_the_number_of_its_holders(tool, client):
    share(client, "first", "second", "third")
    client.execute_command("DLOCK.ACQUIRE", "alone", "token", "PX", LEASE_MS)
    assert tool.run("list", "--names")[1] == "alone\nlock\n"
    out = tool.run("list")[1]
    assert [line.split()[:4] for line in out.splitlines() if line.startswith("lock ")] == [
        ["lock", "3", "share:", "first"]]
    assert "alone" in out and "token" in out
    got = {each["name"]: each for each in json.loads(tool.run("list", "--json")[1])}
    assert [(got[name]["mode"], got[name]["holders"], got[name]["token"])
            for name in ("alone", "lock")] == [("exclusive", 1, "token"), ("shared", 3, "first")]
    assert "3 share: first" in tool.run("top", "--interval", "50ms")[1]


def test_a_token_of_any_length_is_shown(tool, client):
    share(client, "x" * 256)
    for words in ["list"], ["top", "--interval", "50ms"], ["info", "lock"]:
        code, out, complaints = tool.run(*words)
        assert (code, complaints) == (0, "") and "xxx" in out
