"""dlock bench."""

import json

from support.server import wait_until
from support.tool import TOOL


def test_every_scenario_is_measured(tool, client):
    def measure():
        """Not if a machine that is busy lets the tool or the server wait for all of a scenario."""
        code, out, complaints = tool.run("bench", "--duration", "300ms", "--threads", 3, "--json")
        assert (code, complaints) == (0, "")
        got = json.loads(out)
        return all(each["pairs"] > 0 for each in got) and got

    got = wait_until(measure, "pairs of every scenario")
    assert [each["scenario"] for each in got] == ["pair", "queue", "spin"]
    assert [each["threads"] for each in got] == [1, 3, 3]
    for each in got:
        assert each["p50_ms"] <= each["p99_ms"] <= each["max_ms"]
    assert client.dbsize() == 0 and client.info("dlock")["dlock_waiters"] == 0


def test_a_table_and_a_bar(open_terminal):
    terminal = open_terminal(TOOL, "bench", "--duration", "300ms", "--threads", "2")
    terminal.wait_for("1/3 [")
    assert terminal.wait() == 0
    lines = terminal.shown.replace("\r\n", "\n").split("\r")[-1].splitlines()
    assert lines[0].split()[:2] == ["threads", "pairs/s"] and len(lines) == 9
    assert max(map(len, lines)) <= 80
