"""Every fuzz target holds for its corpus and for some seconds of new inputs, a minute in all."""

import os
import pathlib
import subprocess

import fuzz
import pytest

SECONDS = int(os.environ.get("DLOCK_FUZZ_SECONDS", "12"))  # of each target


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_no_input_breaks_a_rule(target):
    line, is_good = fuzz.run(target, SECONDS)
    assert is_good, line


def test_every_target_has_a_corpus():
    sources = {path.stem for path in pathlib.Path(__file__).parent.glob("*.c")}
    assert sources == set(fuzz.TARGETS)


def test_a_codec_that_misreads_a_byte_is_found(tmp_path):
    """As the target would not be worth its time if it overlooked that."""
    codec = (fuzz.ROOT / "module/lock_codec.c").read_text()
    broken = codec.replace("LEASE_OFFSET, 4, state", "LEASE_OFFSET, 3, state")
    assert broken != codec
    (tmp_path / "broken.c").write_text(broken)
    subprocess.run(["clang", "-fsanitize=fuzzer,address", "-I", fuzz.ROOT / "module",
                    "-I", fuzz.ROOT / "tests/fuzz", "-o", tmp_path / "target",
                    fuzz.ROOT / "tests/fuzz/codec.c", tmp_path / "broken.c"], check=True)
    done = subprocess.run([tmp_path / "target", "-runs=100000", f"-artifact_prefix={tmp_path}/",
                           fuzz.CORPUS / "codec"], cwd=tmp_path, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode != 0
    assert "not so: lock_encode" in done.stdout
