# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# bash completion for dlock(1). What can be given is asked of the tool itself, by --help.

_dlock() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(
            dlock --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p'
        ) --help --version" -- "$word")
        return
    fi
    # Behind the name, "dlock run" has a command line of another program.
    if [[ $command == run ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} == -- ]] || continue
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            fi
            return
        done
    fi
    case $before in
    --password-file | --tls-*-file)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --sort)
        mapfile -t COMPREPLY < <(compgen -W "waiters age ttl name" -- "$word")
        return
        ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(
            dlock "$command" --help 2>/dev/null | grep -o -- '--[a-z-]*'
        )" -- "$word")
    fi
}
complete -o default -F _dlock dlock
