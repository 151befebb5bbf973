# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# bash completion for dlock(1). The tool itself says what can be given: --help has the subcommands
# and options, "list --names" the locks.

# Sets words: the words of the line up to the cursor. bash has also split them at ':', '=' and '@'
# (COMP_WORDBREAKS). What follows without a blank belongs to the same word.
_dlock_join_words() {
    local line=${COMP_LINE:0:COMP_POINT} blanks part i
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blanks=${line%%[![:space:]]*}
        line=${line#"$blanks"}
        part=${COMP_WORDS[i]}
        [[ $line == "$part"* ]] || part=$line # the cursor is inside the word
        line=${line#"$part"}
        if ((i == 0)) || [[ $blanks ]]; then
            words+=("$part")
        else
            words[-1]+=$part
        fi
    done
}

# The names of locks, of the service that the options on the line name.
_dlock_names() {
    local i where=()
    for ((i = 2; i < ${#words[@]} - 1; i++)); do
        case ${words[i]} in
        -u | --url | --prefix | --password-file | --tls-*-file)
            where+=("${words[i]}" "${words[i + 1]//[\"\'\\]/}")
            ;;
        -u?* | --url=* | --prefix=* | --password-file=* | --tls-*-file=*)
            where+=("${words[i]//[\"\'\\]/}")
            ;;
        esac
    done
    dlock list --names --connect-timeout 300ms --io-timeout 300ms "${where[@]}" 2>/dev/null
}

# Sets place: what the word at the cursor is. "value": of the option before it; "name": of a lock;
# "behind": something behind the name.
_dlock_find_place() {
    local i letters word valued
    valued=" $(dlock "${words[1]}" --help 2>/dev/null |
        sed -n 's/^  \(-[a-zA-Z]\|  \),\{0,1\} *\(--[a-z-]*\) [A-Z][A-Z]* .*/\1 \2/p' | tr '\n' ' ')"
    place=name
    for ((i = 2; i < ${#words[@]} - 1; i++)); do
        word=${words[i]}
        case $word in
        --*) [[ $valued == *" $word "* ]] && ((i++)) ;;
        -?*)
            # Of -qw the last letter may want a value; in -w5s the value is there.
            for ((letters = 1; letters < ${#word}; letters++)); do
                [[ $valued == *" -${word:letters:1} "* ]] || continue
                ((letters == ${#word} - 1)) && ((i++))
                break
            done
            ;;
        *)
            place=behind
            return
            ;;
        esac
    done
    ((i == ${#words[@]} - 1)) || place=value
}

# Sets COMPREPLY to whole words.
_dlock_offer() {
    local command=${words[1]} name place
    if ((${#words[@]} == 2)); then
        mapfile -t COMPREPLY < <(compgen -W "$(
            dlock --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p'
        ) --help --version" -- "$word")
        return
    fi
    case $before in
    --password-file | --tls-*-file | --output | -o)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --sort)
        mapfile -t COMPREPLY < <(compgen -W "waiters age ttl name" -- "$word")
        return
        ;;
    --format)
        mapfile -t COMPREPLY < <(compgen -W "openmetrics prometheus" -- "$word")
        return
        ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(
            dlock "$command" --help 2>/dev/null | grep -o -- '--[a-z-]*'
        )" -- "$word")
        return
    fi
    _dlock_find_place
    case $place:$command in
    behind:run)
        mapfile -t COMPREPLY < <(compgen -c -- "$word")
        ;;
    behind:*)
        compopt +o default 2>/dev/null # a token is neither a lock nor a file
        ;;
    name:run | name:acquire | name:extend | name:release | name:wait | name:info | name:watch)
        while IFS= read -r name; do
            [[ $name == "$word"* && $name != *[[:space:]\\\'\"\$\`]* ]] && COMPREPLY+=("$name")
        done < <(_dlock_names)
        ;;
    esac
}

# $2: the part of the word that bash replaces, behind the last ':', '=' or '@'.
_dlock() {
    local words word before i
    COMPREPLY=()
    _dlock_join_words
    # Behind the name, "dlock run" has a command line of another program.
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${words[1]} == run && ${COMP_WORDS[i]} == -- ]] || continue
        if declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        else
            mapfile -t COMPREPLY < <(compgen -c -- "$2")
        fi
        return
    done
    word=${words[-1]#[\"\']}
    before=${words[-2]}
    if [[ $word == --*=* ]]; then
        before=${word%%=*}
        word=${word#*=}
    fi
    _dlock_offer
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
}
complete -o default -F _dlock dlock
