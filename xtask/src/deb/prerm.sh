#!/bin/sh
set -e
# Programs must not be led to libraries that go; an upgrade leaves them where they are.
if [ "$1" = remove ]; then
    mlx5-verbs-switch c >/dev/null
fi
