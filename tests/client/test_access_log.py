"""The access log: what a line says, that nobody can forge one, and that it holds nobody up."""

import collections
import datetime
import os
import re
import shutil
import threading
import time

import pytest

from support.fake_server import SILENCE
from support.libdlock import LOG_FN, Background, Status
from support.program import start_python
from support.server import free_port, wait_until

NAME = "dlock-access.log"
DAY = 24 * 3600

MS = r"\d+\.\d{3}"
TEXT = r"(?:[ -\[\]-{}~]|\\x[0-9a-f]{2})*"  # printable, but neither | nor a backslash alone
ENTRY = (rf"(?:acquire\|{TEXT}\|{TEXT}\|true\|{MS}\|\d+\|{MS}\|{MS}"
         rf"|acquire\|{TEXT}\|{TEXT}\|false\|{MS}\|0\|{MS}\|{MS}\|DLOCK_[A-Z_]+\|{TEXT}"
         rf"|release\|{TEXT}\|{TEXT}\|true\|{MS}\|\d+"
         rf"|release\|{TEXT}\|{TEXT}\|false\|{MS}\|\d+\|DLOCK_[A-Z_]+\|{TEXT})")
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
LINE = re.compile(rf"{STAMP} (INFO|WARNING|ERROR) ({ENTRY}|\d+ lines were lost)")
FIELDS = {("acquire", "true"): 8, ("acquire", "false"): 10, ("release", "true"): 6,
          ("release", "false"): 8}


def check_line(line):
    """Level and fields of a line of a file."""
    found = LINE.fullmatch(line)
    assert found, line
    return found[1], check_entry(found[2])


def check_entry(entry):
    if entry.endswith(" lines were lost"):
        return [entry]
    assert re.fullmatch(ENTRY, entry), entry
    fields = entry.split("|")
    assert len(fields) == FIELDS[fields[0], fields[3]], entry
    return fields


def read_lines(folder, name=NAME):
    text = (folder / name).read_bytes().decode("ascii")
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1]

INFO, WARNING, ERROR = 0, 1, 2


@pytest.fixture
def log(connect, server):
    """log(**options): a client, and the list of (level, line) that its callback was told."""
    kept = []

    def make(to=server, **options):
        lines = []
        callback = LOG_FN(lambda _, level, line: lines.append((level, line.decode("ascii"))))
        kept.append(callback)
        return connect(to, access_log=callback, **options), lines

    return make


@pytest.fixture
def log_to(connect, server, tmp_path):
    """log_to(**options): a client that logs to tmp_path."""
    return lambda **options: connect(server, access_log_dir=str(tmp_path), **options)


def use(dlock, name="lock"):
    assert dlock.hold(name, wait_ms=20_000).release() == Status.OK


@pytest.fixture
def use_once(log_to):
    """use_once(): a lock is taken and given back, and all that is to be said is in the file."""
    def make(*name, **options):
        dlock = log_to(**options)
        use(dlock, *name)
        dlock.free()
    return make


# -- what a line says ------------------------------------------------------------------------------


def test_an_acquire_and_a_release(log):
    dlock, lines = log(prefix="p:")
    lock = dlock.hold("n", wait_ms=1000)
    token, fence, timings = lock.token.decode(), lock.fence, lock.timings
    lock.release()
    assert [level for level, _ in lines] == [INFO, INFO]
    taken, given = (check_entry(line) for _, line in lines)
    assert taken[:4] == ["acquire", "p:n", token, "true"]
    assert int(taken[5]) == fence
    total, local, remote = float(taken[4]), float(taken[6]), float(taken[7])
    assert abs(local + remote - total) < 0.002
    assert 0 < remote <= timings.remote_ms + 0.001
    assert abs(local - timings.local_ms) < 0.002
    assert given[:4] == ["release", "p:n", token, "true"]
    assert int(given[5]) == fence


def test_a_lock_that_is_busy_is_no_error(log):
    dlock, lines = log()
    dlock.hold()
    other = dlock.lock()
    assert other.acquire() == Status.BUSY
    level, line = lines[1]
    assert level == INFO
    fields = check_entry(line)
    assert fields[:4] == ["acquire", "lock", other.token.decode(), "false"]
    assert fields[5] == "0"
    assert fields[8] == "DLOCK_BUSY"


def test_a_wait_in_vain(log):
    dlock, lines = log()
    dlock.hold()
    assert dlock.lock().acquire(300) == Status.TIMEOUT
    fields = check_entry(lines[1][1])
    assert not lines[1][0]
    assert fields[8] == "DLOCK_TIMEOUT"
    total, local, remote = float(fields[4]), float(fields[6]), float(fields[7])
    assert total >= 300 and remote > local


def test_a_wait_in_the_local_line_is_local_time(log):
    dlock, lines = log()
    dlock.hotspot_add()
    dlock.hold()
    assert dlock.lock().acquire(50) == Status.TIMEOUT
    fields = check_entry(lines[1][1])
    assert float(fields[6]) >= 50 and float(fields[7]) == 0
    assert fields[9] != ""


def test_a_canceled_wait(log):
    dlock, lines = log()
    dlock.hold()
    lock = dlock.lock()
    lock.cancel()
    assert lock.acquire(1000) == Status.CANCELED
    assert not lines[1][0]
    assert check_entry(lines[1][1])[8] == "DLOCK_CANCELED"


def test_a_lost_lock_is_a_warning_and_has_its_fence(log, client):
    dlock, lines = log()
    lock = dlock.hold()
    fence = lock.fence
    client.delete("lock")
    assert lock.release() == Status.LOST
    level, line = lines[1]
    fields = check_entry(line)
    assert level == WARNING
    assert fields[:4] == ["release", "lock", lock.token.decode(), "false"]
    assert int(fields[5]) == fence
    assert fields[6] == "DLOCK_LOST"


def test_a_service_that_cannot_be_asked_is_an_error_with_its_cause(log):
    address = f"127.0.0.1:{free_port()}"
    dlock, lines = log(f"redis://{address}")
    lock = dlock.lock()
    assert lock.acquire() == Status.UNREACHABLE
    level, line = lines[0]
    fields = check_entry(line)
    assert level == ERROR
    assert fields[8] == "DLOCK_UNREACHABLE"
    assert address in fields[9]
    assert fields[9] == lock.error
    assert line.endswith(lock.error)


def test_a_release_without_an_answer_is_an_error(log, fake_server):
    dlock, lines = log(fake_server(
        lambda words: SILENCE if words[0] == b"DLOCK.RELEASE" else b":7\r\n"), io_timeout_ms=50)
    lock = dlock.hold(wait_ms=20_000)  # so long it may take to answer
    assert lock.release() == Status.IN_DOUBT
    assert [level for level, _ in lines] == [INFO, ERROR]
    fields = check_entry(lines[1][1])
    assert (fields[5], fields[6]) == ("7", "DLOCK_IN_DOUBT")
    assert fields[7] != ""


def test_an_extend_a_second_level_and_a_refused_call_are_no_lines(log):
    dlock, lines = log()
    lock = dlock.lock()
    assert lock.release() == Status.NOT_HELD
    lock.acquire()
    lock.acquire()
    lock.extend(5000)
    lock.release()
    assert len(lines) == 1
    lock.release()
    assert len(lines) == 2


def test_a_handed_on_lock_is_logged_with_its_token_and_each_fence(log):
    dlock, lines = log(hotspot_hand_on=5)
    dlock.hotspot_add()
    one, two = dlock.hold(), dlock.lock()
    token, fence = one.token.decode(), one.fence
    waiting = dlock.wait_in_line(two)
    one.release()
    assert waiting.result() == Status.OK
    entries = [check_entry(line) for _, line in lines]
    assert {entry[2] for entry in entries} == {token}
    assert sorted((entry[0], int(entry[5])) for entry in entries) == [
        ("acquire", fence), ("acquire", two.fence), ("release", fence)]
    assert two.fence > fence
    _, handed_on = (entry for entry in entries if entry[0] == "acquire")
    assert float(handed_on[7]) == 0  # nobody was asked


# -- the file --------------------------------------------------------------------------------------


def test_lines_of_a_file_have_time_and_level(log_to, tmp_path):
    dlock = log_to()
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(milliseconds=1)
    lock = dlock.hold()
    dlock.lock().acquire()
    lock.release()
    dlock.free()
    after = datetime.datetime.now(datetime.timezone.utc)
    lines = read_lines(tmp_path)
    checked = [check_line(line) for line in lines]
    assert [level for level, _ in checked] == ["INFO"] * 3
    assert [fields[0] for _, fields in checked] == ["acquire", "acquire", "release"]
    for line in lines:
        assert before <= datetime.datetime.fromisoformat(line[:23] + "+00:00") <= after


def test_a_failure_is_an_error_in_the_file(connect, tmp_path):
    dlock = connect(f"redis://127.0.0.1:{free_port()}", access_log_dir=str(tmp_path))
    dlock.lock().acquire()
    dlock.free()
    (level, fields), = map(check_line, read_lines(tmp_path))
    assert (level, fields[8]) == ("ERROR", "DLOCK_UNREACHABLE")


def test_a_line_is_soon_in_the_file(log_to, tmp_path):
    dlock = log_to()
    dlock.hold()
    wait_until(lambda: read_lines(tmp_path), "a line")


def test_what_is_there_is_kept(log_to, tmp_path):
    for count in 1, 2, 3:
        dlock = log_to()
        dlock.hold(f"lock {count}")
        dlock.free()
        assert len(read_lines(tmp_path)) == 2 * count  # the release by free


def test_others_of_the_machine_cannot_read_it(log_to, tmp_path):
    log_to()
    assert (tmp_path / NAME).stat().st_mode & 0o007 == 0


def test_without_a_log_there_is_no_file(connect, server, tmp_path):
    connect(server).hold()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["none", "a file", "x" * 5000])
def test_a_folder_that_cannot_be_used_is_refused(connect, server, tmp_path, folder):
    (tmp_path / "a file").touch()
    with pytest.raises(ValueError):
        connect(server, access_log_dir=str(tmp_path / folder))


def test_a_file_that_cannot_be_written_to_is_refused(connect, server, tmp_path):
    """A pipe that nobody reads would hold up whoever opens it."""
    (tmp_path / "folder" / NAME).mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / NAME)
    for folder, why in ("folder", "Is a directory"), ("pipe", "a pipe without a reader"):
        with pytest.raises(ValueError) as refusal:
            connect(server, access_log_dir=str(tmp_path / folder))
        words = f"access_log_dir: dlock-access.log cannot be opened: {why}"
        assert refusal.value.args == (Status.INVALID, words)


def test_a_file_and_a_callback_are_too_much(log, tmp_path):
    with pytest.raises(ValueError, match="both access_log_dir and access_log"):
        log(access_log_dir=str(tmp_path))


# -- hostile names ---------------------------------------------------------------------------------

FORGED = "2026-01-01T00:00:00.000Z INFO acquire|other|token|true|0.001|1|0.000|0.001"
HOSTILE = {
    "a newline": f"x\n{FORGED}\n".encode(), "a return": f"x\r{FORGED}".encode(),
    "bars": b"x|y|true|1.000|1", "backslashes": b"\\x0a\\|\\", "a terminal": b"\x1b[2J\x07\x7f",
    "not ASCII": "Größe\u2028\u0085".encode(), "not UTF-8": b"\xff\xfe\x80\n",
    "long": b"a" * 10_240, "long and bad": b"\n" * 10_240, "bars, long": b"|" * 300,
    "percent": b"%s%n%1000d", "blanks": b"  ", "one too long": b"b" * 257,
    "every byte": bytes(range(1, 256))}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_cannot_forge_a_line(log_to, tmp_path, kind):
    dlock = log_to()
    lock = dlock.hold(HOSTILE[kind])
    dlock.lock(HOSTILE[kind]).acquire()
    lock.release()
    dlock.free()
    checked = [check_line(line) for line in read_lines(tmp_path)]
    assert [fields[0] for _, fields in checked] == ["acquire", "acquire", "release"]
    assert {unescape(fields[1]) for _, fields in checked} == {cut(HOSTILE[kind])}


def test_a_prefix_cannot_forge_a_line(use_once, tmp_path):
    prefix = f"a|b\n{FORGED}\n\x1b"
    use_once("n", prefix=prefix)
    checked = [check_line(line) for line in read_lines(tmp_path)]
    assert [unescape(fields[1]) for _, fields in checked] == [prefix.encode() + b"n"] * 2


def test_a_token_in_the_log_has_its_owner(log_to, tmp_path):
    dlock = log_to()
    lock = dlock.hold("n", owner="job|7\\")
    token = lock.token
    lock.release()
    dlock.free()
    checked = [check_line(line) for line in read_lines(tmp_path)]
    assert [unescape(fields[2]) for _, fields in checked] == [token] * 2


def test_an_answer_of_the_server_cannot_forge_a_line(log, fake_server):
    dlock, lines = log(fake_server(lambda _: b"-ERR a|b \\ \x1b \xff " + b"|" * 400 + b"\r\n"))
    dlock.lock(b"|" * 300).acquire()
    fields = check_entry(lines[0][1])
    assert lines[0][0]
    assert "a\\x7cb" in fields[9]


def unescape(text):
    return re.sub(rb"\\x(..)", lambda found: bytes([int(found[1], 16)]), text.encode())


def cut(name):
    return name if len(name) <= 256 else name[:256] + b"..."


# -- day by day ------------------------------------------------------------------------------------


def day(ago):
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago * DAY))


def old_file(folder, ago, text="old\n"):
    path = folder / NAME
    path.write_text(text)
    os.utime(path, (time.time() - ago * DAY,) * 2)


def test_the_file_of_a_past_day_gets_its_date(use_once, tmp_path):
    old_file(tmp_path, 3)
    use_once()
    assert {path.name for path in tmp_path.iterdir()} == {NAME, f"{NAME}.{day(3)}"}
    assert read_lines(tmp_path, f"{NAME}.{day(3)}") == ["old"]
    assert len([check_line(line) for line in read_lines(tmp_path)]) == 2


def test_an_empty_file_is_not_kept_as_a_day(use_once, tmp_path):
    old_file(tmp_path, 3, "")
    use_once()
    assert {path.name for path in tmp_path.iterdir()} == {NAME}


def test_a_day_that_is_kept_already_is_not_written_over(use_once, tmp_path):
    old_file(tmp_path, 1)
    (tmp_path / f"{NAME}.{day(1)}").write_text("of that day\n")
    use_once()
    assert read_lines(tmp_path, f"{NAME}.{day(1)}") == ["of that day"]
    assert len(read_lines(tmp_path)) == 3


def test_a_file_that_somebody_else_has_moved_away_is_left_to_them(log_to, tmp_path):
    old_file(tmp_path, 1)
    dlock = log_to()
    (tmp_path / NAME).rename(tmp_path / "moved")
    (tmp_path / NAME).write_text("by another process, today\n")
    use(dlock)
    dlock.free()
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "moved"}
    assert len(read_lines(tmp_path)) == 3


@pytest.mark.parametrize("keep, kept", [(1, 1), (3, 3), (0, 7), (100, 10)])
def test_so_many_past_days_are_kept(use_once, tmp_path, keep, kept):
    for ago in range(2, 11):
        (tmp_path / f"{NAME}.{day(ago)}").write_text("older\n")
    others = {"dlock-access", f"{NAME}.gz", "notes.txt", f"{NAME}.{day(5)}.gz"}
    for name in others:
        (tmp_path / name).touch()
    old_file(tmp_path, 1)
    use_once(access_log_keep=keep)
    assert {path.name for path in tmp_path.iterdir()} - others == \
        {NAME} | {f"{NAME}.{day(ago)}" for ago in range(1, kept + 1)}
    assert all((tmp_path / name).exists() for name in others)


def test_whoever_comes_first_renames_it_and_no_line_is_lost(log_to, tmp_path):
    for _ in range(10):
        for path in tmp_path.iterdir():
            path.unlink()
        old_file(tmp_path, 1)
        clients = [log_to() for _ in range(4)]
        calls = [Background(use, dlock, f"lock {i}") for i, dlock in enumerate(clients)]
        for call in calls:
            call.result()
        for dlock in clients:
            dlock.free()
        assert read_lines(tmp_path, f"{NAME}.{day(1)}") == ["old"]
        assert len([check_line(line) for line in read_lines(tmp_path)]) == 8


# -- many at once, and a disk that is not there ----------------------------------------------------

PROGRAM = """
import sys, threading
from support.libdlock import Client, Status
dlock = Client(sys.argv[1], access_log_dir=sys.argv[2], io_timeout_ms=20000)
def work(number):
    lock = dlock.lock(f"{sys.argv[3]} {number} " + "x" * 40 * number)
    for _ in range(200):
        assert lock.acquire(20000) == Status.OK
        assert lock.release() == Status.OK
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
dlock.free()
"""


def test_lines_of_several_processes_do_not_mix(server, tmp_path):
    url = f"redis://127.0.0.1:{server.port}"
    processes = [start_python(PROGRAM, url, tmp_path, f"process {number}") for number in range(3)]
    assert [process.wait(120) for process in processes] == [0] * 3
    lines = [check_line(line)[1] for line in read_lines(tmp_path)]
    names = collections.Counter(fields[1] for fields in lines if len(fields) > 1)
    # A disk that is too slow for the buffer costs lines, which are counted.
    lost = sum(int(fields[0].split()[0]) for fields in lines if len(fields) == 1)
    assert len(names) == 12 and max(names.values()) <= 400
    assert names.total() + lost == 12 * 400


@pytest.fixture
def slow_disk(tmp_path):
    """slow_disk(): reads what is there; before, nobody does."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / NAME).symlink_to(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    text, is_over = [], threading.Event()

    def drain():
        while not is_over.is_set():
            try:
                text.append(os.read(reader, 65536).decode("ascii"))
            except BlockingIOError:
                time.sleep(0.001)
        os.close(reader)

    def start():
        threading.Thread(target=drain, daemon=True).start()
        return lambda: "".join(text)

    yield start
    is_over.set()


def test_a_disk_that_takes_nothing_holds_nobody_up(slow_disk, log_to):
    """Nobody reads from the pipe before all locks are taken and given back."""
    rounds = 4000
    dlock = log_to()
    for _ in range(rounds):
        use(dlock, "n" * 100)
    written = slow_disk()
    wait_until(lambda: " lines were lost\n" in written(), "the disk to have taken all lines")
    use(dlock, "afterwards")
    dlock.free()
    wait_until(lambda: "release|afterwards" in written() and written().endswith("\n"), "the rest")
    checked = [check_line(line) for line in written().split("\n")[:-1]]
    told = [entry for entry in checked if len(entry[1]) == 1]
    lost = sum(int(text.split()[0]) for _, (text,) in told)
    assert {level for level, _ in told} == {"ERROR"}
    assert lost > rounds / 2
    assert len(checked) - len(told) + lost == 2 * rounds + 2


def test_a_disk_that_is_full_holds_nobody_up(log_to, tmp_path):
    (tmp_path / NAME).symlink_to("/dev/full")
    dlock = log_to()
    for _ in range(1000):
        use(dlock)
    dlock.free()


def test_a_disk_that_is_full_does_not_keep_the_processor_busy(log_to, tmp_path):
    """What cannot be written is not tried again and again."""
    (tmp_path / NAME).symlink_to("/dev/full")
    dlock = log_to()
    for _ in range(100):
        use(dlock)
    begin = time.process_time()
    time.sleep(1)  # nothing is to be done meanwhile
    assert time.process_time() - begin < 0.3
    dlock.free()


def test_a_reader_that_goes_away_harms_nobody(server, tmp_path):
    """A signal would end a program that does not expect one: Python ignores it, this one not."""
    os.mkfifo(tmp_path / NAME)
    reader = os.open(tmp_path / NAME, os.O_RDONLY | os.O_NONBLOCK)
    process = start_python(READER_GONE, f"redis://127.0.0.1:{server.port}", tmp_path)
    assert process.stdout.readline() == "used\n"
    wait_until(lambda: has_lines(reader), "the first lines")
    os.close(reader)
    out, _ = process.communicate("go on\n", timeout=300)
    assert (process.returncode, out) == (0, "used\n")


READER_GONE = """
import signal, sys
from support.libdlock import Client, Status
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
dlock = Client(sys.argv[1], access_log_dir=sys.argv[2], io_timeout_ms=20000)
lock = dlock.lock()
def use():
    for _ in range(100):
        assert lock.acquire(20000) == Status.OK and lock.release() == Status.OK
    print("used", flush=True)
use()
sys.stdin.readline()
use()
dlock.free()
"""


def has_lines(reader):
    try:
        return os.read(reader, 65536)
    except BlockingIOError:
        return False


def test_a_folder_that_goes_away_harms_nobody(connect, server, tmp_path):
    """What is said after that is written nowhere else."""
    folder = tmp_path / "folder"
    folder.mkdir()
    dlock = connect(server, access_log_dir=str(folder))
    use(dlock)
    wait_until(lambda: len(read_lines(folder)) == 2, "the first lines")
    with open(folder / NAME, "rb") as file:
        shutil.rmtree(folder)
        use(dlock)
        dlock.free()
        assert len([check_line(line) for line in file.read().decode().splitlines()]) == 4
    assert list(tmp_path.iterdir()) == []
