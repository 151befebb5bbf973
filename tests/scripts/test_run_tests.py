"""scripts/run-tests: nothing is forgotten or repeated, long files begin first, all has a limit."""

import pathlib
import sys

import pytest

from support.server import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import run_tests  # noqa: E402
import test_parts  # noqa: E402
from test_parts import Part  # noqa: E402


@pytest.fixture
def run(tmp_path):
    """run(parts, scope): what was run, and whether all is well."""
    def run_all(parts, scope="test"):
        run = run_tests.Run(parts, run_tests.Plan(parts, scope, [], tmp_path), tmp_path)
        run.all()
        return run, run.summary(0)
    return run_all


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_every_file_of_tests_is_in_a_part():
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    parts = list(test_parts.parts())
    assert {file for part in parts for file in part.test + part.rest
            if file.endswith(".py")} == there
    rest = there - {file for part in parts for file in part.test}
    assert {pathlib.Path(file).parts[1] for file in rest} == {"client", "fuzz", "model", "module"}
    assert [file for file in sorted(rest) if "failover" not in file] == [
        "tests/fuzz/test_targets.py", "tests/model/test_model.py"]


def test_a_program_that_fails_is_run_once_and_named(run, tmp_path, capsys):
    program = script(tmp_path, "fails", f"echo once >>{tmp_path}/log; echo why; exit 3")
    _, is_good = run([Part("a part", [program], needs=())])
    said = capsys.readouterr().out
    assert not is_good
    assert (tmp_path / "log").read_text() == "once\n"
    assert "why\nexit status 3" in said and "FAILED a part" in said and "fails" in said


def test_a_program_that_does_not_end_is_killed(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_tests, "PROGRAM_LIMIT_S", 0.2)
    _, is_good = run([Part("a part", [script(tmp_path, "hangs", "exec sleep 100")], needs=())])
    assert not is_good
    assert "killed after 0.2 s" in capsys.readouterr().out


def test_a_part_begins_when_its_build_is_done(run, tmp_path, monkeypatch):
    built = tmp_path / "built"
    build = script(tmp_path, "build", f"sleep 0.3; touch {built}")
    monkeypatch.setattr(test_parts, "BUILDS", {"other": ["false"], "slow": [build]})
    uses = script(tmp_path, "uses", f"[ -e {built} ]")
    _, is_good = run([Part("a part", [uses], needs=["slow"])])
    assert is_good


def test_what_cannot_be_built_is_a_failure(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(test_parts, "BUILDS", {"broken": ["false"]})
    _, is_good = run([Part("a part", [script(tmp_path, "never", "")], needs=["broken"])])
    assert not is_good
    assert "skip   a part: it needs the build \"broken\", which failed" in capsys.readouterr().out


def test_long_files_begin_first_and_short_ones_share_a_job(tmp_path, monkeypatch):
    seconds = {"tests/docs/test_docs.py": 1, "tests/docs/test_readme.py": 2,
               "tests/docs/test_check_docs.py": 50, "tests/docs/test_shell_blocks.py": 28}
    monkeypatch.setattr(run_tests, "read_durations", lambda: seconds)
    plan = run_tests.Plan([Part("pages", list(seconds))], "test", [], tmp_path)
    assert [[seconds[file] for file in job.files] for job in plan.beside] == [[50], [28, 2], [1]]


def test_long_tests_and_the_rest_are_left_to_test_all(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "has_mark", lambda file, mark:
                        (file, mark) in (("one.py", "long"), ("one.py", "alone")))
    part = Part("a part", ["one.py", "two.py"], ["three.py"])

    def jobs(scope):
        plan = run_tests.Plan([part], scope, [], tmp_path)
        return [(job.files, job.command[job.command.index("-m", 3) + 1])
                for job in plan.beside + plan.alone]
    assert jobs("test") == [(["one.py", "two.py"], "not alone and not long"),
                            (["one.py"], "alone and not long")]
    assert jobs("rest") == [(["one.py"], "not alone and long"),
                            (["three.py"], "not alone and not long"),
                            (["one.py"], "alone and long")]
    assert jobs("all") == [(["one.py", "two.py"], "not alone"),
                           (["three.py"], "not alone and not long"), (["one.py"], "alone")]
