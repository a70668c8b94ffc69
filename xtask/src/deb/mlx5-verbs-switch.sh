#!/bin/sh
# mlx5-verbs-switch: selects the libibverbs and libmlx5 that this system's programs get. See its man
# page.
set -eu

usage='usage: mlx5-verbs-switch [--root FOLDER] rust|c|status'
# Folder of this package's libraries, and the prefix of this architecture's libraries in the
# loader's cache.
libraries=/usr/lib/mlx5
abi='libc6,@ABI@'
# Names that programs are linked with, and names that programs look up first if they load the
# libraries themselves.
names='libibverbs.so.1 libmlx5.so.1 libibverbs.so libmlx5.so'
# The loader reads this file before the others in its folder, so its libraries come first.
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
    # Some systems have a wrapper that postpones the work while packages are installed.
    LDCONFIG_NOTRIGGER=y /sbin/ldconfig ${root:+-r "$root"} "$@"
}

fail() {
    echo "mlx5-verbs-switch: $*" >&2
    exit 1
}

# Prints the libraries of a name that the loader knows, in the order in which it takes them.
known() {
    ldconfig -p | sed -n "s|^[[:space:]]*$1 ($abi[^)]*) => ||p"
}

# Prints the library of a name that a program gets.
taken() {
    known "$1" | sed -n 1p
}

# Prints the version nodes of a library.
nodes() {
    grep -aoE '(IBVERBS|MLX5)_1\.[0-9]+' "$root$1" | sort -u
}

status() {
    for name in $names; do
        path=$(taken "$name")
        case $path in
        # C's run-time packages have no such name.
        '') case $name in *.1) echo "$name: none" ;; esac ;;
        "$libraries"/*) echo "$name: rust: $path" ;;
        *) echo "$name: c: $path" ;;
        esac
    done
}

# Warns of version nodes of C's libraries that ours lack: a program that was linked with one of them
# does not start with ours.
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
    # Otherwise the next package that calls ldconfig would complete the switch.
    ldconfig || { rm -f "$root$entry"; fail 'ldconfig failed; nothing is switched'; }
    # All names, since a program must not get one of our libraries with one of C's.
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
