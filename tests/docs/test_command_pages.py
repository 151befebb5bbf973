"""The examples of module/commands: each is typed into redis-cli, and the reply is as shown."""

import re
import subprocess

import pytest

from support.server import ROOT, cli

PAGES = sorted((ROOT / "module/commands").glob("*.md"))
PROMPT = "    127.0.0.1:7379> "


def examples(page):
    """(words of redis-cli, what is typed, the lines of the reply) of each."""
    found, options = [], []
    for block in re.split(r"\n\n", page):
        if not block.startswith(PROMPT):
            options = ["-3"] if "redis-cli -3" in block else []
            continue
        for example in block.split(PROMPT)[1:]:
            typed, *reply = example.rstrip("\n").split("\n")
            found.append((options, typed, [line[4:] for line in reply]))
    return found


BORN = 1794800441600001  # in the pages, of every session


def as_said(typed, born):
    """Events are numbered from the number that the session was born with."""
    return re.sub(r"(?<=ACK )\d{4,}", lambda shown: str(int(shown[0]) - BORN + born), typed)


def without_numbers(lines):
    """Fences, times, and how old an event is."""
    return [re.sub(r"\(integer\) \d{4,}|(?<=6\) )\(integer\) \d+", "(integer) N", line).rstrip()
            for line in lines]


class Terminal:
    """redis-cli, one connection for all that is typed, as with a person."""

    def __init__(self, server, options):
        words = ["stdbuf", "-oL", cli(), "--no-raw", *options, "-p", str(server.port)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def type(self, line):
        """The lines of the reply."""
        self.process.stdin.write(f"{line}\nECHO the-end\n")
        return list(iter(lambda: self.process.stdout.readline().rstrip("\n"), '"the-end"'))

    def close(self):
        self.process.communicate()


@pytest.fixture
def terminals(server):
    """terminals(options): a terminal that was opened with these options of redis-cli."""
    opened = {}

    def terminal(options):
        key = tuple(options)
        if key not in opened:
            opened[key] = Terminal(server, options)
        return opened[key]

    yield terminal
    for each in opened.values():
        each.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_command(server, terminals, page):
    found = examples(page.read_text())
    assert found
    sessions, born = set(), 0
    for options, typed, wanted in found:
        reply = terminals(options).type(as_said(typed, born))
        assert without_numbers(reply) == without_numbers(wanted), typed
        if "DLOCK.SESSION" in typed and "END" not in typed:
            sessions.add(typed.split()[1])
            born = int(reply[0].split()[-1])
    for session in sessions:
        server.observer.execute_command("DLOCK.SESSION", session, "END")


def test_equal_fences_are_shown_as_equal():
    """A token that asks again gets the same fence; the pages say so by the same number."""
    first, _, again, *_ = examples((ROOT / "module/commands/acquire.md").read_text())
    assert first[1] == again[1] and first[2] == again[2]
