"""scripts/check-docs notices it when a page and what it tells of are not the same any more."""

import pathlib

import pytest

from support.docs import checker

HEADER = """
/* DLOCK_GHOST is in a comment only. */
typedef enum dlock_mood { DLOCK_GOOD = 0, DLOCK_BAD = 7 } dlock_mood;
typedef struct dlock_facts {
    size_t struct_size;
    uint64_t won, lost;
    char cause[DLOCK_CAUSE_SIZE]; /* why */
    uint32_t pause_ms; /* default 10: between
                        * two */
    int (*tell)(void *arg, int more);
} dlock_facts;
static inline void dlock_facts_init(dlock_facts *facts) { }
DLOCK_API int dlock_ask(const char *name,
                        size_t size);
DLOCK_API int dlock_version(void);
"""
LIBRARY = """
| function | |
|---|---|
| `dlock_ask(name, size)`, `dlock_version()` | |
| `dlock_facts_init(facts)` | |

| `dlock_mood` | |
|---|---|
| 0 `DLOCK_GOOD` | |
| 7 `DLOCK_BAD` | |

| `dlock_facts` | default | |
|---|---|---|
| `won`, `lost` | | |
| `cause`, `tell` | | `DLOCK_CAUSE_SIZE` bytes |
| `pause_ms` | 10 | |
"""
MODULE = """
## Settings

| setting | default | range | meaning |
|---|---|---|---|
| `dlock.limit` | 5 | 1 to 9 | |

## INFO dlock

| field | meaning |
|---|---|
| `dlock_held` | |
"""
TAKE = [{"name": "key", "type": "key"},
        {"name": "lease-ms", "type": "integer", "token": "PX"},
        {"name": "wait-ms", "type": "integer", "token": "WAIT", "optional": True},
        {"name": "now", "type": "pure-token", "token": "NOW", "optional": True},
        {"name": "more", "type": "string", "optional": True, "multiple": True}]
TAKE_PAGE = """# DLOCK.TAKE

    DLOCK.TAKE key PX lease-ms [WAIT wait-ms]
               [NOW] [more ...]

- **Available since:** 1.0.0
- **Time complexity:** O(1)
- **ACL categories:** `@fast`, `@write`

## Arguments

## Replies

| RESP2 | RESP3 | meaning |
|---|---|---|
| integer | integer | |

## Examples

    > DLOCK.TAKE
"""
DESCRIBED = {"DLOCK.TAKE": {"arguments": TAKE, "since": "1.0.0", "complexity": "O(1)",
                            "acl_categories": ["@fast", "@write"]}}
TOOL = """
## The command line

| command | |
|---|---|
| `dlock top [option...] NAME` | |
| `dlock run [option...] NAME` | |

| option | of | |
|---|---|---|
| `-w, --wait TIME` | `run` | default 5s |
| `--sort KEY` | all but `run` | |
| `-h, --help` | all | |
"""
MANUAL = r"""
.SH COMMANDS
.TP
.B top
.TP
.B run
.SH OPTIONS
.TP
.BR \-w ", " \-\-wait " " \fITIME\fR
.TP
.BR \-\-sort " " \fIKEY\fR
.TP
.BR \-h ", " \-\-help
.SH THE COMMAND AND ITS LOCK
"""
COMPLETION = """
    --sort)
        compgen -W "age name" -- "$word"
    --wa*) ;;
"""
HELP = "  -h, --help                    show this\n"
HELPS = {"top": "usage: dlock top [option...] NAME\n\n"
                "      --sort KEY                age (default) or name\n" + HELP,
         "run": "usage: dlock run [option...] NAME\n\n"
                "  -w, --wait TIME               how long; default 5s\n" + HELP}


def check_module(page):
    return (checker.check_command_names({"page": page}, ["dlock.take"]) +
            checker.check_settings(page, {"dlock.limit": "5"}) +
            checker.check_fields("INFO dlock", page, "INFO dlock", ["dlock_held"]))


def check_command(page):
    return checker.check_commands({"take": page}, DESCRIBED)


def check_library(page):
    return checker.check_library(page, HEADER)


def check_tool(page):
    return checker.check_tool(page, HELPS)


def check_manual(page):
    return checker.check_manual(page, HELPS)


def check_completion(script):
    return checker.check_completion(script, HELPS)


def check_page(page):
    here = pathlib.Path("/pages/README.md")
    return (checker.check_links({here: page}, lambda path: str(path) == "/pages/a.c") +
            checker.check_sources({here: page}, lambda path: str(path) == "/pages/src/net/b.h") +
            checker.check_targets({here: page}, "test: all\n"))


PAGE = ("# On this page\n[a](a.c) [b](#on-this-page) [c](https://x.example/y)\n"
        "`make test` `net/b.h`\n")
RIGHT = [(check_library, LIBRARY), (check_module, MODULE), (check_command, TAKE_PAGE),
         (check_tool, TOOL), (check_manual, MANUAL), (check_completion, COMPLETION),
         (check_page, PAGE)]
WRONG = [
    (check_library, LIBRARY, "`dlock_version()`", "`dlock_ask(name, size)`"),
    (check_library, LIBRARY, "(name, size)", "(name)"),
    (check_library, LIBRARY, "| 7 `", "| 8 `"),
    (check_library, LIBRARY, "`DLOCK_BAD`", "`DLOCK_WORSE`"),
    (check_library, LIBRARY, "`won`, ", ""),
    (check_library, LIBRARY, "`won`", "`won`, `drawn`"),
    (check_library, LIBRARY, "`tell`", "tell"),
    (check_library, LIBRARY, "DLOCK_CAUSE_SIZE", "DLOCK_GHOST"),
    (check_library, LIBRARY, "| 10 |", "| 20 |"),
    (check_command, TAKE_PAGE, "# DLOCK.TAKE", "# DLOCK.GRAB"),
    (check_command, TAKE_PAGE, "[WAIT wait-ms]", ""),
    (check_command, TAKE_PAGE, "[NOW]", "[LATER]"),
    (check_command, TAKE_PAGE, "1.0.0", "1.1.0"),
    (check_command, TAKE_PAGE, "O(1)", "O(N)"),
    (check_command, TAKE_PAGE, "`@fast`, ", ""),
    (check_command, TAKE_PAGE, "## Examples", "## Samples"),
    (check_command, TAKE_PAGE, "| RESP2 | RESP3 |", "| RESP2 | |"),
    (check_module, MODULE, "## Settings", "`DLOCK.GIVE`\n## Settings"),
    (check_module, MODULE, "dlock.limit", "dlock.bound"),
    (check_module, MODULE, "| 5 |", "| 6 |"),
    (check_module, MODULE, "dlock_held", "dlock_kept"),
    (check_tool, TOOL, "| `run` |", "| `top` |"),
    (check_tool, TOOL, "all but `run`", "all"),
    (check_tool, TOOL, "`-w, --wait TIME`", "`--wait TIME`"),
    (check_tool, TOOL, "--sort", "--order"),
    (check_tool, TOOL, "default 5s", "default 6s"),
    (check_tool, TOOL, "`dlock run", "`dlock ran"),
    (check_manual, MANUAL, r"\-\-wait", r"\-\-stay"),
    (check_manual, MANUAL, r"\-w ", r"\-x "),
    (check_manual, MANUAL, ".B top", ".B tip"),
    (check_completion, COMPLETION, "--wa*", "--wo*"),
    (check_completion, COMPLETION, "age name", "age"),
    (check_page, PAGE, "(a.c)", "(b.c)"),
    (check_page, PAGE, "(#on-this-page)", "(#on-that-page)"),
    (check_page, PAGE, "make test", "make tests"),
    (check_page, PAGE, "net/b.h", "net/c.h"),
]


@pytest.mark.parametrize("check, page", RIGHT)
def test_what_is_right_is_left_alone(check, page):
    assert check(page) == []


@pytest.mark.parametrize("check, page, was, becomes", WRONG)
def test_what_is_wrong_is_told(check, page, was, becomes):
    assert was in page
    assert check(page.replace(was, becomes)) != []


def test_a_command_without_a_page_and_a_page_without_a_command_are_told():
    assert checker.check_commands({}, DESCRIBED) != []
    assert checker.check_commands({"take": TAKE_PAGE, "give": "# DLOCK.GIVE\n"}, DESCRIBED) != []


def test_ranges_are_read():
    assert checker.ranges(MODULE) == {"dlock.limit": (1, 9)}
