# SPDX-License-Identifier: BSD-3-Clause
# fish completion for dlock(1). The tool itself says what can be given: --help has the subcommands
# and options, "list --names" the locks.

function __dlock_commands
    dlock --help 2>/dev/null | string match -r '^  [a-z]+ .*' | string replace -r '^  ([a-z]+) +(.*)' '$1\t$2'
end

function __dlock_options
    set -l words (commandline -opc)
    dlock $words[2] --help 2>/dev/null | string match -r '^  (?:-\w,|   ) --[a-z-]+.*' |
        string replace -r '^.*?(--[a-z-]+)(?: [A-Z]+)? *(.*)' '$1\t$2'
end

function __dlock_names
    set -l words (commandline -opc)
    set -l where
    for i in (seq 3 (math (count $words) - 1))
        if contains -- $words[$i] -u --url --prefix --password-file --tls-ca-file --tls-cert-file --tls-key-file
            set where $where $words[$i] $words[(math $i + 1)]
        end
    end
    dlock list --names --connect-timeout 300ms --io-timeout 300ms $where 2>/dev/null
end

# Is the word at the cursor a name, not the value of an option or something behind the name?
function __dlock_is_name
    set -l words (commandline -opc)
    set -l valued (dlock $words[2] --help 2>/dev/null |
        string match -r '^  (?:-\w,|   ) --[a-z-]+ [A-Z]+ ' | string match -ar -- '--?[a-zA-Z][a-z-]*')
    set -l is_value 0
    for word in $words[3..-1]
        if test $is_value -eq 1
            set is_value 0
        else if string match -q -- '--*' $word
            contains -- $word $valued; and set is_value 1
        else if string match -q -- '-?*' $word
            # Of -qw the last letter may want a value; in -w5s the value is there.
            set -l letters (string split '' -- (string sub -s 2 -- $word))
            for i in (seq (count $letters))
                contains -- -$letters[$i] $valued; or continue
                test $i -eq (count $letters); and set is_value 1
                break
            end
        else
            return 1
        end
    end
    test $is_value -eq 0
end

function __dlock_uses
    set -l words (commandline -opc)
    contains -- "$words[2]" $argv
end

function __dlock_is_first
    test (count (commandline -opc)) -eq 1
end

function __dlock_follows
    set -l words (commandline -opc)
    contains -- "$words[-1]" $argv
end

# Behind --, "dlock run" has a command line of another program.
function __dlock_is_behind
    contains -- -- (commandline -opc)
end

function __dlock_command
    set -l words (commandline -opc)
    set -e words[1..(contains -i -- -- $words)]
    complete -C (string join ' ' -- $words (commandline -ct))
end

complete -c dlock -f
complete -c dlock -n __dlock_is_first -a '(__dlock_commands)'
complete -c dlock -n 'not __dlock_is_first; and not __dlock_is_behind; and string match -q -- "-*" (commandline -ct)' -a '(__dlock_options)'
complete -c dlock -n '__dlock_follows --password-file --tls-ca-file --tls-cert-file --tls-key-file --output -o' -F
complete -c dlock -n '__dlock_follows --sort' -a 'waiters age ttl name'
complete -c dlock -n '__dlock_follows --format' -a 'openmetrics prometheus'
complete -c dlock -n '__dlock_uses run acquire extend release wait info watch; and not __dlock_is_behind; and not string match -q -- "-*" (commandline -ct); and __dlock_is_name' -a '(__dlock_names)'
complete -c dlock -n '__dlock_uses run; and __dlock_is_behind' -a '(__dlock_command)'
