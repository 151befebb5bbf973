#compdef dlock
# SPDX-License-Identifier: BSD-3-Clause
# zsh completion for dlock(1). The tool itself says what can be given: --help has the subcommands
# and options, "list --names" the locks.

_dlock_names() {
    local -a where names
    local i
    for ((i = 3; i < CURRENT; i++)); do
        case ${words[i]} in
        -u | --url | --prefix | --password-file | --tls-*-file)
            where+=(${words[i]} ${words[i + 1]})
            ;;
        esac
    done
    names=(${(f)"$(dlock list --names --connect-timeout 300ms --io-timeout 300ms $where 2>/dev/null)"})
    compadd -a names
}

_dlock() {
    local -a found
    local command=${words[2]} separator=${words[(i)--]}
    if ((CURRENT == 2)); then
        found=(${(f)"$(dlock --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  *\(.*\)/\1:\2/p')"})
        _describe 'command' found
        compadd -- --help --version
        return
    fi
    if [[ $command == run ]] && ((separator < CURRENT)); then
        shift $separator words
        ((CURRENT -= separator))
        _normal
        return
    fi
    case ${words[CURRENT - 1]} in
    --password-file | --tls-*-file | --output | -o)
        _files
        return
        ;;
    --sort)
        compadd waiters age ttl name
        return
        ;;
    --format)
        compadd openmetrics prometheus
        return
        ;;
    esac
    if [[ ${words[CURRENT]} == -* ]]; then
        found=(${(f)"$(dlock $command --help 2>/dev/null | grep -o -- '--[a-z-]*')"})
        compadd -a -- found
        return
    fi
    case $command in
    run | acquire | extend | release | wait | info | watch)
        _dlock_names
        ;;
    esac
}

if [[ $funcstack[1] == _dlock ]]; then
    _dlock "$@"
else
    compdef _dlock dlock
fi
