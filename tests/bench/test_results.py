"""What a run of the benchmark leaves in its file, and what it says of its bars."""

import json

import pytest
from report import Bar, Curves, Table
from results import Results

ABOUT = {"machine": {"cores": 2}, "versions": {"server": "redis 7.0.15", "commit": "a"}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bench/results.json"


def table(samples, bar):
    made_up = Table("Made up", "by hand", "us", bars={"theirs": bar})
    made_up.add("ours", samples)
    made_up.add("theirs", [10] * len(samples))
    return made_up


def curves(value, bar):
    made_up = Curves("Made up", "by hand", "threads", {"us": ".0f", "bytes": ".0f"})
    made_up.add("ours", 1, {"us": [1]})
    made_up.add("ours", 1, {"bytes": [2]})
    made_up.add("theirs", 8, {"us": [3]})
    made_up.promise("the promise", value, bar)
    return made_up


def scenarios_in(path):
    return json.loads(path.read_text())["scenarios"].keys()


def test_a_run_of_some_keeps_the_results_of_the_others(path):
    first = Results(path, ABOUT)
    first.add("slow", [table([5], Bar("<=", 1))], commit="a")
    first.add("other", [table([5], Bar("<=", 1))], commit="a")
    second = Results(path, {**ABOUT, "versions": {"server": "redis 7.0.15", "commit": "b"}})
    second.add("slow", [table([6], Bar("<=", 1))], commit="b")
    data = json.loads(path.read_text())
    assert second.kept() == ["other"]
    assert data["scenarios"]["slow"][0]["rows"][0]["median"] == 6
    assert data["scenarios"]["other"][0]["rows"][0]["median"] == 5
    assert {name: taken["commit"] for name, taken in data["taken"].items()} == {
        "slow": "b", "other": "a"}


@pytest.mark.parametrize("other", [
    {**ABOUT, "machine": {"cores": 4}},
    {**ABOUT, "versions": {"server": "redis 8.0.2"}},
])
def test_results_of_another_machine_or_server_are_not_kept(path, other):
    Results(path, ABOUT).add("slow", [table([5], Bar("<=", 1))])
    found = Results(path, other)
    found.add("fast", [table([5], Bar("<=", 1))])
    assert found.dropped == ["slow"] and scenarios_in(path) == {"fast"}


@pytest.mark.parametrize("limit, value, is_met", [(0.5, 1, True), (0.4, 1, False), (0.5, 3, False)])
def test_every_bar_is_in_the_list_with_its_verdict(path, capsys, limit, value, is_met):
    found = Results(path, ABOUT)
    found.add("cost", [table([4, 5, 6], Bar("<=", limit))])
    found.add("wait", [curves(value, Bar("<=", 2))])
    assert found.show_bars() == is_met
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1].strip() for line in lines] == [
        "cost: us, dlock / theirs", "wait: the promise"]
    assert [line.endswith("PASS") for line in lines] == [limit >= 0.5, value <= 2]
    assert any(line.endswith("FALLS SHORT") for line in lines) != is_met


def test_curves_may_lack_a_column_at_a_point(capsys):
    curves(1, Bar("<=", 2)).show()
    text = capsys.readouterr().out
    assert text.count("theirs") == 1 and text.count("ours") == 2
