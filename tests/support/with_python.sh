#!/usr/bin/env bash
# with_python.sh PYTHON TEST: runs the test, or exits with 77 where there is no such Python.
[ -x "$1" ] || { echo "$1 is not there: tools/python sets it up, and tools/test does so"; exit 77; }
exec "$@"
