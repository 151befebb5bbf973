#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dlock-module enable|disable|status [CONFIG...]: whether servers load the module. See the manual
# page, dlock-module(8).
#
# The loadmodule line stands in the server's own configuration file, not in a file of ours that is
# included there. CONFIG REWRITE, which Sentinel also sends, copies an included loadmodule line into
# the main file, and a server that is told to load a module twice does not start.
#
# disable turns our lines into comments that begin with the mark; enable turns them back.
set -eu

module=/usr/lib/redis/modules/dlock.so
mark='# dlock-module: '
blank='[[:space:]]'
load="loadmodule$blank+\"?[^[:space:]]*/dlock\\.so\"?($blank.*)?"
setting="dlock\\.[a-z-]+$blank.*"
main_files='/etc/redis/redis.conf /etc/valkey/valkey.conf'
all_files='/etc/redis/*.conf /etc/valkey/*.conf'

fail() {
    echo "dlock-module: $*" >&2
    exit 1
}

usage() {
    cat <<'END'
usage: dlock-module enable|disable|status [CONFIG...]

  enable    make servers load the module: /etc/redis/redis.conf, /etc/valkey/valkey.conf
  disable   make servers not load the module: all files in /etc/redis and /etc/valkey
  status    list the configuration files that load the module; exit status 1: none does

CONFIG: the configuration files of other servers. A change takes effect at the next restart.
END
}

existing() { # existing FILE...: those that are there
    for file; do
        if [ -f "$file" ]; then echo "$file"; fi
    done
}

look() { # a folder that is closed to us is not the same as one without servers
    for folder in /etc/redis /etc/valkey; do
        [ ! -d $folder ] || ls $folder/. >/dev/null 2>&1 ||
            fail "$folder cannot be read; are you root?"
    done
}

with_included() { # with_included CONFIG [DEPTH]: the file, and what it includes, down to a depth
    echo "$1"
    [ "${2:-0}" -lt 8 ] || return 0
    sed -nE "s/^$blank*include$blank+\"?([^\"]*[^\"[:space:]])\"?$blank*\$/\\1/Ip" "$1" |
        while read -r pattern; do
            # shellcheck disable=SC2086  # a pattern
            for included in $(existing $pattern); do
                with_included "$included" $((${2:-0} + 1))
            done
        done
}

loading() { # loading CONFIG: FILE:LINE of each line that loads the module
    # shellcheck disable=SC2046  # the paths of configuration files have no blanks
    grep -iHE "^$blank*$load\$" $(with_included "$1") || :
}

edit() { # edit CONFIG SED-ARGUMENT...: sed keeps owner and mode, and replaces the file in one step
    file=$(readlink -f "$1")
    shift
    sed -E -i "$@" "$file"
}

enable_in() { # enable_in CONFIG
    if [ -n "$(loading "$1")" ]; then
        echo "$1: enabled already"
        return
    fi
    edit "$1" -e "0,\\~^$mark($load)\$~I s~~\\1~" -e "s~^$mark($setting)\$~\\1~I"
    [ -n "$(loading "$1")" ] || edit "$1" -e "\$a loadmodule $module"
    [ -n "$(loading "$1")" ] || fail "$1 cannot be changed"
    echo "$1: enabled; restart its server"
}

disable_in() { # disable_in CONFIG
    for file in $(with_included "$1"); do
        edit "$file" -e "/^$blank*dlock\\.drain$blank/Id" \
            -e "s~^$blank*($load|$setting)\$~$mark\\1~I"
    done
    [ -z "$(loading "$1")" ] || fail "$1 cannot be changed"
    echo "$1: disabled"
}

advise() {
    cat <<'END'
The servers keep the module until they are restarted. A server without the module cannot load an RDB
or AOF file that has locks in it, and does not start. So before you restart a server:

    redis-cli CONFIG SET dlock.drain yes    # no new locks; those who hold or wait finish
    redis-cli INFO dlock                    # until dlock_held is 0; to cut it short, delete the
                                            # locks: redis-cli --scan --type dlock-key
    redis-cli SAVE                          # and BGREWRITEAOF, if appendonly is yes
END
}

[ $# -gt 0 ] || {
    usage >&2
    exit 2
}
action=$1
shift
# shellcheck disable=SC2046,SC2086  # patterns and paths, without blanks
case $action in
enable) [ $# -gt 0 ] || { look && set -- $(existing $main_files); } ;;
disable | status) [ $# -gt 0 ] || { look && set -- $(existing $all_files); } ;;
--help) usage && exit ;;
*) usage >&2 && exit 2 ;;
esac

for config; do
    [ -r "$config" ] || fail "$config cannot be read; are you root?"
done
case $action in
status)
    lines=$(for config; do loading "$config"; done | sort -u)
    [ -n "$lines" ] || exit 1
    echo "$lines"
    ;;
enable)
    [ -e "$module" ] || fail "there is no $module"
    [ $# -gt 0 ] || fail "no configuration of Redis or Valkey in /etc; name one, or be root"
    for config; do enable_in "$config"; done
    ;;
disable)
    disabled=
    for config; do
        if [ -n "$(loading "$config")" ]; then disable_in "$config" && disabled=yes; fi
    done
    if [ -n "$disabled" ]; then advise; else echo "no configuration loads the module"; fi
    ;;
esac
