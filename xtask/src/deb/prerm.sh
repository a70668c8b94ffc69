#!/bin/sh
set -e
# Programs must not find libraries that are removed. An upgrade leaves the switch as it is.
if [ "$1" = remove ]; then
    mlx5-verbs-switch c >/dev/null
fi
