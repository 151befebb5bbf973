"""The pages say what a server and the tool say of themselves. See scripts/check-docs, and
test_check_docs.py for whether it would notice."""

import json
import re
import subprocess

import pytest
import redis

from support.commands import details_of
from support.docs import checker, commands_json
from support.server import ROOT
from support.tool import TOOL
from support.waiting import queue_up

MODULE_PAGE = (ROOT / "module/README.md").read_text()
TOOL_PAGE = (ROOT / "client/cli/README.md").read_text()


def as_map(flat):
    """What RESP2 has as a flat list, at every depth."""
    words = [word.decode() if isinstance(word, bytes) else word for word in flat]
    return dict(zip(words[::2], words[1::2]))


@pytest.fixture(scope="module")
def helps():
    """What --help prints, by command."""
    def ask(*words):
        return subprocess.run([TOOL, *words, "--help"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout

    return {name: ask(name) for name in re.findall(r"^  ([a-z]+) ", ask(), re.M)}


def test_no_page_names_a_command_that_is_not_there(client):
    names = client.execute_command("COMMAND LIST", "FILTERBY", "MODULE", "dlock")
    names = [name.decode() for name in names]
    assert "dlock.acquire" in names
    assert checker.check_command_names(checker.read_pages(), names) == []


def test_commands_json_is_what_the_module_says(client):
    """make commands-json writes it anew."""
    told = (ROOT / "module/commands.json").read_text()
    assert told == commands_json.printed(commands_json.described(client))
    assert "must be new for every acquisition" in json.loads(told)["DLOCK.ACQUIRE"]["summary"]


def test_the_maps_of_dlock_info(server, lock):
    lock.acquire("me")
    queue_up(server, ["waiter"])
    whole, with_queue = (details_of(lock.client.execute_command("DLOCK.INFO", "lock", *options))
                         for options in ((), ("WAITERS", 1)))
    text = (ROOT / "module/commands/info.md").read_text()
    assert checker.named(text, "field") == list(whole)
    assert checker.named(text, "of a holder") == list(whole["holders"][0])
    assert checker.named(text, "of a waiter") == list(with_queue["queue"][0])
    assert set(with_queue) - set(whole) == {"queue"}


def test_settings(client):
    assert checker.check_settings(MODULE_PAGE, client.config_get("dlock.*")) == []


def test_ranges_of_settings(client):
    ranges = checker.ranges(MODULE_PAGE)
    assert set(ranges) == {"dlock.max-lease", "dlock.max-holders", "dlock.max-waiters",
                           "dlock.max-waiters-in-all", "dlock.max-sessions",
                           "dlock.max-watches", "dlock.max-events"}
    for name, (first, last) in ranges.items():
        for value in first, last:
            client.config_set(name, value)
        for value in first - 1, last + 1:
            with pytest.raises(redis.ResponseError):
                client.config_set(name, value)


def test_keyspace_events():
    """That each is sent is in tests/module/test_operations.py."""
    sent = re.findall(r'"(dlock\.\w+)"', (ROOT / "module/transition.c").read_text())
    told = re.findall(r"`(dlock\.\w+)`", checker.section(MODULE_PAGE, "Keyspace events"))
    assert set(sent) == set(told)


def test_info_fields(client):
    fields = list(client.info("dlock"))
    assert checker.check_fields("INFO dlock", MODULE_PAGE, "INFO dlock", fields) == []


def test_the_readme_names_only_what_is_there(client):
    """Fields, options, functions and settings, in code."""
    header = checker.without_comments(checker.read_headers())
    known = set(client.info("dlock")) | checker.public_names(header) | set(
        field for _, fields in checker.structs(header) for field in fields)
    readme = (ROOT / "README.md").read_text()
    told = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", readme))
    assert {"min_replicas"} <= told <= known
    settings = set(re.findall(r"`(dlock\.[a-z]+-[a-z-]+)", readme))
    assert settings and settings <= set(client.config_get("dlock.*"))


def test_the_tool(helps):
    assert checker.check_tool(TOOL_PAGE, helps) == []


def test_the_manual(helps):
    assert checker.check_manual((ROOT / "client/cli/dlock.1").read_text(), helps) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion(helps, shell):
    name = f"dlock.{shell}"
    script = (ROOT / "client/cli" / name).read_text()
    assert checker.check_completion(script, helps, name) == []


def test_the_lines_for_go_need_no_new_go():
    """Everything that they use of Go was there in Go 1.13, and errors.Is not before."""
    page = (ROOT / "module/LANGUAGES.md").read_text()
    blocks = re.findall(r"^```go\n(.*?)^```", page, re.M | re.S)
    used = set(re.findall(r"\b(?:context|rand|hex|errors|time|redis)\.\w+", "".join(blocks)))
    assert used == {"context.WithTimeout", "context.Background", "rand.Read", "errors.Is",
                    "hex.EncodeToString", "time.Second", "time.Millisecond", "time.Sleep",
                    "redis.Nil"}
    assert not re.search(r"\bany\b", "".join(blocks)), "of Go 1.18"
