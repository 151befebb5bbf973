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

# Sets place: what the word at the cursor is. "value": of the option before it; "name": of a lock;
# "behind": something behind the name.
_dlock_find_place() {
    local i letters word
    local valued=" $(dlock ${words[2]} --help 2>/dev/null |
        sed -n 's/^  \(-[a-zA-Z]\|  \),\{0,1\} *\(--[a-z-]*\) [A-Z][A-Z]* .*/\1 \2/p' | tr '\n' ' ')"
    place=name
    for ((i = 3; i < CURRENT; i++)); do
        word=${words[i]}
        if [[ $word == --* ]]; then
            [[ $valued == *" $word "* ]] && ((i++))
        elif [[ $word == -?* ]]; then
            # Of -qw the last letter may want a value; in -w5s the value is there.
            for ((letters = 2; letters <= $#word; letters++)); do
                [[ $valued == *" -${word[letters]} "* ]] || continue
                ((letters == $#word)) && ((i++))
                break
            done
        else
            place=behind
            return
        fi
    done
    ((i == CURRENT)) || place=value
}

_dlock() {
    local -a found
    local command=${words[2]} separator=${words[(i)--]} place
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
    _dlock_find_place
    case $place:$command in
    behind:run)
        _command_names
        ;;
    name:run | name:acquire | name:extend | name:release | name:wait | name:info | name:watch)
        _dlock_names
        ;;
    esac
}

if [[ $funcstack[1] == _dlock ]]; then
    _dlock "$@"
else
    compdef _dlock dlock
fi
