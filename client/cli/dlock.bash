# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# bash completion for dlock(1). The tool itself says what can be given: --help has the subcommands
# and options, "list --names" the locks.

# The values of options on the line that say where the locks are, for "dlock list".
_dlock_names() {
    local i where=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -u | --url | --prefix | --password-file | --tls-*-file)
            where+=("${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}")
            ;;
        esac
    done
    dlock list --names --connect-timeout 300ms --io-timeout 300ms "${where[@]}" 2>/dev/null
}

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
    case $command in
    run | acquire | extend | release | wait | info | watch)
        local name
        while IFS= read -r name; do
            [[ $name == "$word"* && $name != *[[:space:]\\\'\"\$\`]* ]] && COMPREPLY+=("$name")
        done < <(_dlock_names)
        # bash splits words at colons, and replaces only what is behind the last one.
        if declare -F __ltrim_colon_completions >/dev/null; then
            __ltrim_colon_completions "$word"
        fi
        ;;
    esac
}
complete -o default -F _dlock dlock
