"""make dist: the tarball, and what is made of it. "make test-all" makes a whole release twice."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

import pytest

from support.docs import load_script
from support.server import ROOT


DIST = load_script("make-dist")
WHEN = 1_800_000_000


def make_source(tree, folder, **env):
    """The tarball of this tree, in a folder; the umask differs each time."""
    subprocess.run([tree / "scripts/make-dist", "--source", folder], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={**os.environ, **env}, umask=0o077 if env else 0o022)
    return folder / f"{DIST.NAME}.tar.gz"


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    return make_source(ROOT, tmp_path_factory.mktemp("dist") / "first")


@pytest.fixture(scope="module")
def unpacked(tarball, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(tarball) as archive:
        archive.extractall(folder)
    return folder / DIST.NAME


def test_the_same_tree_gives_the_same_bytes_wherever_it_is(tarball, unpacked, tmp_path):
    """From a checkout, with another umask and time zone; and from its own tarball, without git."""
    again = make_source(ROOT, tmp_path / "again", TZ="Asia/Tokyo")
    from_tarball = make_source(unpacked, tmp_path / "third")
    assert tarball.read_bytes() == again.read_bytes() == from_tarball.read_bytes()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "mine").touch()
    done = subprocess.run([ROOT / "scripts/make-dist", "--source", tmp_path], text=True,
                          stderr=subprocess.PIPE)
    assert done.returncode == 1 and "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("words", [["--help"], ["one", "two"]])
def test_wrong_use_makes_nothing(tmp_path, words):
    done = subprocess.run([ROOT / "scripts/make-dist", "--source", *words], text=True, cwd=tmp_path,
                          stderr=subprocess.PIPE)
    assert done.returncode == 1 and "usage" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_checksums_are_right(tarball):
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=tarball.parent, check=True)


def test_the_tarball_builds_with_a_given_header_and_nothing_fetched(unpacked):
    header = ROOT / "build/include/redismodule.h"
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("MAKE", "MFLAGS", "SANITIZE", "CFLAGS"))}
    made = ["build/dlock.so", "build/client/src/net/connection.o", "build/client/cli/main.o"]
    subprocess.run(["make", "-j2", "CFLAGS=-O0", f"REDISMODULE_H={header}", *made], cwd=unpacked,
                   env=env, check=True, stdout=subprocess.DEVNULL)
    assert not (unpacked / "build/include").exists()


def test_the_pages_of_an_unpacked_release_can_be_checked(unpacked):
    subprocess.run([unpacked / "scripts/check-docs"], check=True)


@pytest.fixture
def described(tmp_path):
    """The module.json of a bundle with the module as built."""
    module = (ROOT / "build/dlock.so").read_bytes()
    paths = [tmp_path / "first.zip", tmp_path / "second.zip"]
    for path in paths:
        DIST.make_bundle(path, module, WHEN)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with zipfile.ZipFile(paths[0]) as archive:
        told = json.load(io.TextIOWrapper(archive.open("module.json")))
        assert sorted(archive.namelist()) == ["dlock.so", "module.json"]
        assert archive.read(told["module_file"]) == module
    assert told["sha256"] == hashlib.sha256(module).hexdigest()
    return told


def test_the_bundle_has_what_redis_software_reads(described):
    """What its documentation asks of a package, and no capability that its list does not have."""
    assert described.keys() >= {"module_name", "version", "semantic_version", "min_redis_version",
                                "commands", "capabilities"}
    assert described["semantic_version"] == DIST.VERSION
    assert set(described["capabilities"]) <= {
        "types", "no_multi_key", "replica_of", "backup_restore", "eviction_expiry",
        "reshard_rebalance", "failover_migrate", "persistence_aof", "persistence_rdb",
        "hash_policy", "flash", "crdb", "clustering", "intershard_tls"}


def test_the_bundle_says_what_the_module_says(described, client):
    """Every command of the module as built: those that a master sends to a replica, too."""
    [loaded] = [each for each in client.module_list() if each[b"name"] == b"dlock"]
    assert (described["module_name"], described["version"]) == ("dlock", loaded[b"ver"])
    names = client.execute_command("COMMAND LIST", "FILTERBY", "MODULE", "dlock")
    told = {each["command_name"]: each for each in described["commands"]}
    assert sorted(told) == sorted(name.decode() for name in names)
    connection = client.connection_pool.get_connection("COMMAND")
    for name, each in told.items():
        connection.send_command("COMMAND INFO", name)
        _, arity, flags, first, last, step, *_ = connection.read_response()[0]
        assert (each["command_arity"], each["first_key"], each["last_key"], each["step"]) == \
            (arity, first, last, step)
        assert each["flags"] == sorted(flag.decode() for flag in flags)
    client.connection_pool.release(connection)


def test_the_bill_of_materials_names_the_release_and_its_needs(tarball):
    told = DIST.sbom(tarball, WHEN)
    packages = {each["SPDXID"]: each for each in told["packages"]}
    assert packages["SPDXRef-dlock"]["checksums"][0]["checksumValue"] == \
        hashlib.sha256(tarball.read_bytes()).hexdigest()
    header = ROOT / "build/include/redismodule.h"
    assert packages["SPDXRef-redismodule.h"]["checksums"][0]["checksumValue"] == \
        hashlib.sha256(header.read_bytes()).hexdigest()
    for relation in told["relationships"][1:]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= set(packages)
