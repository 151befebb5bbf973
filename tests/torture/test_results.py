"""The tables of many runs: what was not judged is said, and does not count as judged. And every
mutant still finds the text that it changes."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import mutants  # noqa: E402
import results  # noqa: E402


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    monkeypatch.setattr(results, "FILE", path)
    return path


def add_run(path, scenario="single", seed=1, grants=10):
    with open(path, "a") as file:
        file.write(json.dumps({"scenario": scenario, "server": "s", "seconds": 5, "seed": seed,
                               "counts": {"grants": grants}, "faults": {}, "command": "again",
                               "violations": {}}) + "\n")


def add_missing(how, scenario="single", seed=1):
    results.add_missing(how, "no reason", scenario, "s", seed, "")


def test_a_skipped_run_is_said_and_not_counted(file, capsys):
    add_run(file)
    add_missing("skipped", "partition", seed=2)
    rows = list(results.table(results.read(file), "scenario"))
    assert any("`partition` | 0 runs, 0 s, 1 skipped |" in row for row in rows)
    assert any("| all | 1 runs, 5 s, 1 skipped | 10 |" in row for row in rows)
    results.print_all(results.read(file))
    assert "Skipped: partition on s: no reason" in capsys.readouterr().out


def test_a_run_that_failed_and_was_tried_again_counts_once(file):
    add_missing("failed")
    add_missing("failed", seed=2)
    assert [run["seed"] for run in results.read(file) if "failed" in run] == [1, 2]
    add_run(file)
    add_missing("failed", seed=2)
    assert [(run["seed"], "failed" in run) for run in results.read(file)] == [(1, False), (2, True)]


def test_a_line_that_is_not_whole_is_left_out(file):
    add_run(file)
    with open(file, "a") as end:
        end.write('{"scenario": "sin')
    assert len(results.read(file)) == 1


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_the_text_of_a_mutant_is_in_the_source(name):
    path, old, *_ = mutants.MUTANTS[name]
    assert old in (mutants.ROOT / path).read_text()
