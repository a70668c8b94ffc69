#!/bin/sh
set -e
# Programs must not be led to libraries that go; an upgrade leaves them where they are.
if [ "$1" = remove ] && [ -e /etc/ld.so.conf.d/000-mlx5-verbs.conf ]; then
    mlx5-verbs-switch c >/dev/null
fi
