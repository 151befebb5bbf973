"""A client from its URL alone. The table of client/REFERENCE.md is what these tests go by."""

import os
import re

import pytest

from support.commands import Lock as Commands
from support.commands import info_of
from support.libdlock import Client, Status
from support.server import ROOT, wait_until

SECTION = "## In the URL"
WAIT_MS = 20_000  # the I/O timeout is the default, which is short


def read_table():
    """(parameter, values) of each row of the table in client/REFERENCE.md."""
    text = (ROOT / "client/REFERENCE.md").read_text().split(SECTION + "\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.M)


TABLE = read_table()
NUMBERS = [(name, *map(int, re.fullmatch(r"(\d+) to (\d+)", values).groups()))
           for name, values in TABLE if " to " in values]
WORDS = [(name, values.replace("`", "").split(", "))
         for name, values in TABLE if " to " not in values and "`" in values]
TEXTS = [name for name, values in TABLE if values == "text"]


@pytest.fixture
def of_url(server):
    """of_url(url): a client that ends with the test."""
    made = []

    def make(url):
        made.append(Client.of_url(url))
        return made[-1]

    yield make
    for each in made:
        each.free()


def refusal_of(url):
    with pytest.raises(ValueError) as refusal:
        Client.of_url(url)
    status, words = refusal.value.args
    assert status == Status.INVALID
    return words


def info(client, name):
    return info_of(client.execute_command("DLOCK.INFO", name))


# -- the table ------------------------------------------------------------------------------------


def test_the_table_has_every_parameter_of_the_code():
    code = (ROOT / "client/src/api/option_table.c").read_text()
    assert {name for name, _ in TABLE} == set(re.findall(r"\{(?:CLIENT|LOCK)\((\w+)\)", code))
    assert len(TABLE) == len(NUMBERS) + len(WORDS) + len(TEXTS)


@pytest.mark.parametrize("name, least, most", NUMBERS)
def test_a_number_is_taken_within_its_limits_and_refused_by_name_beyond(of_url, name, least, most):
    renew = {"renew_every_ms": "&lease_ms=4294967295"}.get(name, "")
    of_url(f"redis://h?{name}={least}{renew}")
    if name != "renew_every_ms":
        of_url(f"redis://h?{name}={most}")
    for value in least - 1, most + 1, 10**30, "", "x", f"{least}x", "-1", "+1", "%201":
        words = refusal_of(f"redis://h?{name}={value}")
        assert words == f"the URL: {name}: not {least} to {most}"


@pytest.mark.parametrize("name, words", WORDS)
def test_a_word_is_one_of_those_in_the_table(of_url, name, words):
    for word in words:
        of_url(f"redis://h?{name}={word}")
    for word in "", "maybe", words[0] + "x", words[0].upper():
        assert refusal_of(f"redis://h?{name}={word}").startswith(f"the URL: {name}: not ")


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_not_empty_and_correctly_encoded(name):
    assert refusal_of(f"rediss://h?{name}=") == f"the URL: {name}: the value is missing"
    assert refusal_of(f"rediss://h?{name}=a%2") == f"the URL: {name}: badly encoded"
    assert refusal_of(f"rediss://h?{name}={'x' * 5000}") == f"the URL: {name}: too long"


@pytest.mark.parametrize("name", ["leese_ms", "mode", "max_holders", "urls", "password", "lease"])
def test_an_unknown_parameter_is_refused_by_name(name):
    assert refusal_of(f"redis://h?lease_ms=1000&{name}=1") == \
        f"the URL: there is no parameter {name}"


# -- what parameters do ---------------------------------------------------------------------------


def test_a_whole_set_up_is_one_line(of_url, server, client):
    dlock = of_url(f"redis://127.0.0.1:{server.port}"
                   "?lease_ms=5000&renew=yes&prefix=shop%3A&owner=me")
    lock = dlock.hold("lock", wait_ms=WAIT_MS)
    assert info(client, "shop:lock")["lease"] == 5000
    assert b":me:" in lock.token


def test_renewal_is_in_the_url(of_url, server):
    dlock = of_url(f"redis://127.0.0.1:{server.port}?lease_ms=4000&renew=yes")
    dlock.hold("lock", wait_ms=WAIT_MS)
    wait_until(lambda: dlock.stats().renewed >= 2, "two renewals")


def test_the_options_of_a_lock_go_before_the_url(of_url, server, client):
    of_url(f"redis://127.0.0.1:{server.port}?lease_ms=5000").hold("lock", lease_ms=70_000,
                                                                  wait_ms=WAIT_MS)
    assert info(client, "lock")["lease"] == 70_000


def test_the_defaults_of_the_program_go_before_the_url(connect, server, client):
    dlock = connect(f"redis://127.0.0.1:{server.port}?lease_ms=5000&owner=me",
                    lock_defaults={"lease_ms": 70_000})
    lock = dlock.hold("lock", wait_ms=WAIT_MS)
    assert info(client, "lock")["lease"] == 70_000
    assert b":me:" in lock.token


def test_the_texts_of_defaults_are_copied(of_url, server):
    """The library has read the URL into memory that is gone by now."""
    dlock = of_url(f"redis://127.0.0.1:{server.port}?owner=me")
    for _ in range(20):
        of_url("redis://h?owner=you&prefix=yours:")
    lock = dlock.lock("lock")
    assert lock.acquire(WAIT_MS) == Status.OK and b":me:" in lock.token


# -- several URLs, and the environment ------------------------------------------------------------


def test_several_urls_stand_in_one_text(of_url, lend):
    servers = lend(3)
    text = " \t".join(f"redis://127.0.0.1:{server.port}" for server in servers)
    of_url(f" {text}?lease_ms=5000\n").hold("lock", wait_ms=WAIT_MS)
    for server in servers:
        seen = wait_until(Commands(server.observer).info, "the slowest server to have the lock")
        assert seen["lease"] == 5000


def test_several_urls_may_say_the_same_and_must_not_contradict(of_url):
    of_url("redis://a?lease_ms=5000 redis://b?lease_ms=5000 redis://c")
    assert refusal_of("redis://a?lease_ms=5000 redis://b redis://c?lease_ms=6000") == \
        "URL 3: lease_ms: given twice, with different values"
    assert refusal_of("redis://a?prefix=a redis://b?prefix=b") == \
        "URL 2: prefix: given twice, with different values"


def test_there_are_at_most_15_urls():
    text = " ".join(f"redis://h{n}" for n in range(40))
    assert refusal_of(text) == "URL 1: there are more than 15 of them"


def test_the_url_may_come_from_the_environment(of_url, server, client):
    os.environ["DLOCK_URL"] = f"redis://127.0.0.1:{server.port}?lease_ms=5000"
    try:
        of_url(None).hold("lock", wait_ms=WAIT_MS)
    finally:
        del os.environ["DLOCK_URL"]
    assert info(client, "lock")["lease"] == 5000


def test_without_a_url_the_reason_names_the_variable():
    assert refusal_of(None) == "DLOCK_URL is not set"
    assert refusal_of(" ") == "no URL is given"


@pytest.mark.parametrize("url", [
    "redis://:geheim@h?lease_ms=1", "redis://:a?geheim=1@h", "redis://:a?b=1&geheim=2@h",
    "redis://h?password=geheim", "redis://h?prefix=geheim%", "redis://h?wait_mode=geheim",
    "redis+sentinel://h/m?sentinel_password=a&geheim=b", "redis://h?GEHEIM=geheim",
    "redis+sentinel://h/m?sentinel_password=&geheim=b"])
def test_no_reason_contains_a_secret(url):
    assert "geheim" not in refusal_of(url).lower()
