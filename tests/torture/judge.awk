#!/usr/bin/awk -f
# judge.awk: a second judge of the torture, for exclusion and fences.
#
#     scripts/python tests/torture/export.py FOLDER | awk -f tests/torture/judge.awk
#
# The judge knows the export and nothing else: JSON lines, in the order in which operations returned.
# So the holds of a name are in the order of their begins without being sorted. A hold is certain
# from the return of its acquire until the latest certain_until that its thread was told, or until
# its release was called. The counts have the names that checker.py gives them. POSIX awk.

# The value of a key in the line; "" if there is none, or null.
function value(key,    at, rest) {
    at = index($0, "\"" key "\":")
    if (at == 0) return ""
    rest = substr($0, at + length(key) + 3)
    sub(/^ */, "", rest)
    if (substr(rest, 1, 1) == "\"") {
        rest = substr(rest, 2)
        sub(/".*/, "", rest)
    } else {
        sub(/[,}].*/, "", rest)
    }
    return rest == "null" ? "" : rest
}

# One hold for each name of the lock: a lock of two names has them with a blank between.
function begin_holds(who,    k, words) {
    held[who] = split(value("name"), words, " ")
    for (k = 1; k <= held[who]; k++) hold[who, k] = begin_hold(words[k])
    grants++
}

function begin_hold(name,    id) {
    if (!(name in count)) names[++name_count] = name
    count[name]++
    id = name SUBSEP count[name]
    process[id] = value("process")
    asked[id] = value("begin") + 0
    granted[id] = value("end") + 0
    fence[id] = value("fence") + 0
    is_shared[id] = value("shared") == "true"
    limit[id] = value("max_holders") + 0
    is_promised[id] = value("exclusion") == "true"
    has_fences[id] = value("fences") == "true"
    end[id] = 0
    return id
}

function say(what, id, other) {
    printf "    %s: %s of process %s with fence %.0f, after fence %.0f of process %s\n", what,
        substr(id, 1, index(id, SUBSEP) - 1), process[id], fence[id], fence[other], process[other]
}

# Who else holds the lock when it is granted? alive[]: those whose time was not over before.
function judge_exclusion(name,    i, k, id, kept, clash, exclusive) {
    alive_count = 0
    for (i = 1; i <= count[name]; i++) {
        id = name SUBSEP i
        if (end[id] <= granted[id]) continue
        kept = exclusive = 0
        for (k = 1; k <= alive_count; k++)
            if (end[alive[k]] > granted[id]) {
                alive[++kept] = alive[k]
                if (!is_shared[alive[k]]) exclusive = alive[k]
            }
        clash = is_shared[id] ? exclusive : kept > 0 ? alive[1] : 0
        if (!clash && is_shared[id] && limit[id] > 0 && kept >= limit[id]) clash = alive[1]
        if (clash && is_promised[id]) {
            say("held twice", id, clash)
            twice++
        } else if (clash) {
            twice_not_promised++
        }
        alive_count = kept + 1
        alive[alive_count] = id
    }
}

# top[i]: of the first i holds, that with the highest fence. is_all: of shared holds too.
function find_tops(name, is_all,    i, id) {
    top[0] = ""
    for (i = 1; i <= count[name]; i++) {
        id = name SUBSEP i
        top[i] = top[i - 1]
        if (is_shared[id] && !is_all) continue
        if (top[i] == "" || fence[id] > fence[top[i]]) top[i] = id
    }
}

# Whoever asked after another one was granted the lock has the higher fence. Shared holders are
# compared with exclusive ones only.
function judge_fences(name, is_all,    i, id, low, high, middle, before, back) {
    find_tops(name, is_all)
    for (i = 1; i <= count[name]; i++) {
        id = name SUBSEP i
        if (is_shared[id] == is_all) continue
        low = 0
        high = count[name]
        while (low < high) {
            middle = int((low + high + 1) / 2)
            if (granted[name SUBSEP middle] <= asked[id]) low = middle
            else high = middle - 1
        }
        before = top[low]
        if (before == "" || fence[before] < fence[id]) continue
        back = fence[before] - fence[id]
        if (has_fences[id] && back >= slack) {
            say("fence", id, before)
            fences++
        } else {
            fences_not_promised++
        }
    }
}

{ call = value("call"); who = value("process") " " value("thread") }
call == "run" { slack = value("fence_slack") + 0 }
call == "acquire" && value("status") == "0" { begin_holds(who) }
(who in held) && call != "release" {
    until = value("certain_until") + 0
    for (k = 1; k <= held[who]; k++)
        if (until > end[hold[who, k]]) end[hold[who, k]] = until
}
call == "release" && (who in held) {
    for (k = 1; k <= held[who]; k++)
        if (value("begin") + 0 < end[hold[who, k]]) end[hold[who, k]] = value("begin") + 0
    delete held[who]
}
END {
    for (n = 1; n <= name_count; n++) {
        judge_exclusion(names[n])
        judge_fences(names[n], 0)
        judge_fences(names[n], 1)
    }
    printf "grants: %d\nheld twice: %d\nheld twice, not promised: %d\n", grants, twice,
        twice_not_promised
    printf "fences back: %d\nfences back, not promised: %d\n", fences, fences_not_promised
    exit twice + fences > 0
}
