"""scripts/check-figures notices when a page says something else than was measured."""

import json
import re
import subprocess

import pytest

from support.server import ROOT

README = """\
# A title

## What it costs

<!-- figures
given: 7.0
-->
`make bench 5` measures it with Redis 7.0:

<!-- figures
columns: ours | theirs
cost > Instructions > * > median
rate > Pairs > theirs > ratio | given
wait > Waits > * > p50 ms / max ms
size > Held > * > 1,000 > bytes
-->
| a lock | ours | theirs |
|---|---|---|
| instructions | 15,354 | 31,092 |
| relative | 1.74 | 1 |
| wait, ms | 0.20 / 8.3 | 0.10 / 40 |
| bytes | 193 | |

<!-- figures
2 % = load > Renewal > share of a core
0.51 = cost > Instructions > ours > median over cost > Instructions > theirs > median
given: 10
-->
It renews 10 locks on 2 % of a core, at 0.51 times the cost of theirs.

    with --figures 1000

![a plot of 30 points](plot.svg)

## Another section

| no figures | 99 |
|---|---|
| here | 77 |
"""
RESULTS = {
    "cost": [{"title": "Instructions per pair", "unit": "instructions", "rows": [
        {"name": "ours", "median": 15400, "dlock_ratio": 1},
        {"name": "theirs", "median": 31000.5, "dlock_ratio": 0.5}]}],
    "rate": [{"title": "Pairs per second", "unit": "pairs/s", "rows": [
        {"name": "theirs", "median": 100, "dlock_ratio": 1.6}]}],
    "wait": [{"title": "Waits", "rows": [
        {"name": "ours", "figures": {"p50 ms": 0.25, "max ms": 20}},
        {"name": "theirs", "figures": {"p50 ms": 0.11, "max ms": 50}}]}],
    "size": [{"title": "Held", "lines": [
        {"name": "ours", "points": [{"number": 1000, "figures": {"bytes": 192.8}}]}]}],
    "load": [{"title": "Renewal", "rows": [], "promises": [
        {"sentence": "share of a core", "value": 0.0161}]}],
}


@pytest.fixture
def check(tmp_path):
    """check(readme, results): its exit status and what it says."""

    def run(readme=README, results=None):
        (tmp_path / "README.md").write_text(readme)
        (tmp_path / "results.json").write_text(json.dumps({"scenarios": results or RESULTS}))
        done = subprocess.run(
            [ROOT / "scripts/check-figures", "--results", tmp_path / "results.json",
             tmp_path / "README.md"],
            capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return run


def without(name):
    return {scenario: tables for scenario, tables in RESULTS.items() if scenario != name}


def test_figures_as_measured_are_accepted(check):
    assert check() == (0, "check-figures: the figures of the pages are as measured\n")


@pytest.mark.parametrize("right, wrong, complaint", [
    ("15,354", "14,900", "14,900, but measured is 15400"),
    ("1.74", "2.10", "2.10, but measured is 1.6"),
    ("0.10 / 40", "0.18 / 40", "0.18, but measured is 0.11"),
    ("0.20 / 8.3", "0.20 / 6.1", "6.1, but measured is 20"),
    ("193", "200", "200, but measured is 192.8"),
    ("2 %", "3 %", "3 %, but measured is 0.0161"),
    ("0.51", "0.80", "0.80, but measured is 0.496766"),
])
def test_a_wrong_figure_is_named_with_what_was_measured(check, right, wrong, complaint):
    status, said = check(README.replace(right, wrong))
    assert status == 1 and complaint in said and said.count("\n") == 1, said


@pytest.mark.parametrize("readme, complaint", [
    (README.replace("cost > Instructions > * > median\n", ""), "4 rows have 3 sources"),
    (README.replace("| bytes |", "| other | 1 | 2 |\n| bytes |"), "5 rows have 4 sources"),
    (README.replace("> theirs > ratio", "> nobody > ratio"), 'no row "nobody" is measured'),
    (README.replace("1,000 > bytes", "1,000 > pounds"), 'no column "pounds" is measured'),
    (README.replace("1,000 > bytes", "10 > bytes"), 'no row "10" is measured'),
    (README.replace("193 | |", "193 | 161 |"), 'no row "theirs" is measured'),
    (README.replace("ratio | given", "ratio"), "relative: 1 has no source"),
    (README.replace("p50 ms / max ms", "p50 ms"), "2 figures in"),
    (README.replace("It renews 10", "It renews 12"), "12 has no source"),
    (README.replace("on 2 %", "on some"), "2 % has a source, but is not there"),
    (README.replace("<!-- figures\ncolumns", "<!-- columns"), "a table has no comment"),
    (README.replace("What it costs", "What it is worth"), "there is no section"),
])
def test_a_figure_without_a_source_is_named(check, readme, complaint):
    assert readme != README
    status, said = check(readme)
    assert status == 1 and complaint in said, said


@pytest.mark.parametrize("scenario", RESULTS)
def test_a_scenario_that_was_not_run_is_named(check, scenario):
    status, said = check(results=without(scenario))
    assert status == 1 and f'scenario "{scenario}" was not run' in said, said


def test_no_results_at_all(tmp_path):
    done = subprocess.run([ROOT / "scripts/check-figures", "--results", tmp_path / "none"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "make bench" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "tests/bench/README.md"])
def test_every_figure_of_the_pages_names_a_scenario(tmp_path, page):
    """Without any result, all complaints are that a scenario of the benchmark was not run."""
    (tmp_path / "results.json").write_text('{"scenarios": {}}')
    done = subprocess.run([ROOT / "scripts/check-figures", "--results", tmp_path / "results.json",
                           ROOT / page], capture_output=True, text=True, timeout=300)
    bench = subprocess.run([ROOT / "scripts/python", ROOT / "tests/bench/bench.py", "--list"],
                           capture_output=True, text=True, timeout=300, check=True)
    scenarios = {line.split()[0] for line in bench.stdout.splitlines()}
    told = [re.search(r'scenario "(\w+)" was not run', line) for line in
            done.stderr.splitlines()]
    assert told and None not in told, done.stderr
    assert {each[1] for each in told} <= scenarios
