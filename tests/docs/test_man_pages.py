"""dlock(3) and dlock(7): they can be read, and name what is there. See tests/cli for dlock(1)."""

import re
import shutil
import subprocess

import pytest

from support.docs import checker
from support.installed import make
from support.server import ROOT
from support.tool import BUILD

PAGES = ["man1/dlock.1", "man3/dlock.3", "man7/dlock.7"]


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    """The folder of the installed pages."""
    folder = tmp_path_factory.mktemp("manual")
    make("install-client", "install-cli", f"PREFIX={folder}")
    return folder / "share/man"


@pytest.mark.skipif(shutil.which("man") is None, reason="no man")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_nothing_to_warn_of(manual, page):
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", manual / page],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANROFFSEQ": "",
                               "MANWIDTH": "80"})
    assert done.returncode == 0 and done.stderr == ""
    assert not re.search(r"@[A-Z_]+@", (manual / page).read_text()), "a name to replace"


def test_the_page_of_the_library_has_all_functions_and_statuses(manual):
    text = (manual / "man3/dlock.3").read_text().replace("\\-", "-")
    header = checker.without_comments(checker.read_headers())
    names = {call.split("(")[0] for call in checker.functions(header)}
    told = set(re.findall(r"^\\fB(dlock_\w+)\\fR\(|, \\fB(dlock_\w+)\\fR\(", text, re.M))
    assert {name for each in told for name in each if name} == names
    statuses = dict(checker.enums(header))["dlock_status"]
    assert re.findall(r'^\.BR (DLOCK_\w+) " \((\d+)\)"$', text, re.M) == statuses


def test_every_function_leads_to_its_page(manual):
    for name in re.findall(r"^ +(dlock_\w+);$", (ROOT / "client/libdlock.map").read_text(),
                           re.M):
        assert (manual / f"man3/{name}.3").resolve() == (manual / "man3/dlock.3").resolve()


def test_the_example_of_the_page_works_and_says_why_when_there_is_no_server(manual, server,
                                                                            tmp_path):
    text = (manual / "man3/dlock.3").read_text()
    source = re.search(r"^\.SH EXAMPLES\n\.nf\n(.*?)^\.fi", text, re.M | re.S)[1]
    source = source.replace("\\-", "-").replace("\\en", "\\n")
    for name, port, code in ("yes", server.port, 0), ("no", 1, 1):
        path = tmp_path / f"{name}.c"
        path.write_text(source.replace("127.0.0.1", f"127.0.0.1:{port}"))
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / name, path,
                        f"-I{ROOT}/client/include", BUILD / "libdlock.a", "-lssl", "-lcrypto",
                        "-pthread"], check=True)
        done = subprocess.run([tmp_path / name], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        assert done.returncode == code
        assert ("held, fence" in done.stdout) == (code == 0)
        assert ("refused" in done.stderr) == (code != 0)


def test_the_concepts_name_only_commands_that_are_there(client):
    names = client.execute_command("COMMAND LIST", "FILTERBY", "MODULE", "dlock")
    page = (ROOT / "client/dlock.7").read_text()
    assert checker.check_command_names({"dlock.7": page}, [name.decode() for name in names]) == []
    assert "must be new for every acquisition" in page
