#!/bin/sh
# mlx5-verbs-switch: whose libibverbs and libmlx5 the programs of this system get. See its man page.
set -eu

usage='usage: mlx5-verbs-switch [--root FOLDER] rust|c|status'
# Where the libraries of this package are, and what the loader's cache says of libraries of this architecture.
libraries=/usr/lib/mlx5
abi='libc6,@ABI@'
# What programs are linked with, and what those ask for first that load the libraries themselves.
names='libibverbs.so.1 libmlx5.so.1 libibverbs.so libmlx5.so'
# Read before the other files of that folder, so that its libraries come first.
entry=/etc/ld.so.conf.d/000-mlx5-verbs.conf

root=
if [ "${1-}" = --root ]; then
    root=${2:?"$usage"}
    shift 2
fi
if [ $# -ne 1 ]; then
    echo "$usage" >&2
    exit 2
fi

ldconfig() {
    # Some systems have a wrapper that puts the work off while packages are installed.
    LDCONFIG_NOTRIGGER=y /sbin/ldconfig ${root:+-r "$root"} "$@"
}

fail() {
    echo "mlx5-verbs-switch: $*" >&2
    exit 1
}

# The libraries of a name that the loader knows, in the order in which it takes them.
known() {
    ldconfig -p | sed -n "s|^[[:space:]]*$1 ($abi[^)]*) => ||p"
}

# The library of a name that a program gets.
taken() {
    known "$1" | sed -n 1p
}

# The version nodes of a library.
nodes() {
    grep -aoE '(IBVERBS|MLX5)_1\.[0-9]+' "$root$1" | sort -u
}

status() {
    for name in $names; do
        path=$(taken "$name")
        case $path in
        # C's packages for programs that run have no such name.
        '') case $name in *.1) echo "$name: none" ;; esac ;;
        "$libraries"/*) echo "$name: rust: $path" ;;
        *) echo "$name: c: $path" ;;
        esac
    done
}

# Says which version nodes of C's libraries ours lack: a program that was linked with one of them does not
# start with ours.
warn_of_nodes() {
    own=$(nodes "$libraries/libibverbs.so.1")
    for name in libibverbs.so.1 libmlx5.so.1; do
        path=$(known "$name" | grep -v "^$libraries/" | sed -n 1p)
        [ -n "$path" ] || continue
        for node in $(nodes "$path"); do
            echo "$own" | grep -qx "$node" ||
                echo "warning: programs that need $node of $path will not start" >&2
        done
    done
}

writable() {
    [ -w "$root/etc/ld.so.conf.d" ] || fail "cannot write $root/etc/ld.so.conf.d: run it as root"
}

to_rust() {
    writable
    [ -e "$root$libraries/libibverbs.so.1" ] || fail "$root$libraries has no libibverbs.so.1"
    printf '# Written by mlx5-verbs-switch, which also removes it.\n%s\n' "$libraries" >"$root$entry.new"
    mv "$root$entry.new" "$root$entry"
    # Or the next package that calls it would switch.
    ldconfig || { rm -f "$root$entry"; fail 'ldconfig failed; nothing is switched'; }
    # All, or a program would get one of ours with one of C's.
    for name in $names; do
        path=$(taken "$name")
        [ "$path" = "$libraries/$name" ] && continue
        rm -f "$root$entry"
        ldconfig
        fail "the loader takes ${path:-nothing} as $name: does /etc/ld.so.conf include ld.so.conf.d/*.conf," \
            "and is no folder with another $name named before ${entry##*/} there?"
    done
    warn_of_nodes
}

to_c() {
    writable
    rm -f "$root$entry"
    ldconfig
}

case $1 in
rust) to_rust ;;
c) to_c ;;
status) ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
status
