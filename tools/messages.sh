# How the scripts of tools/ and lockstep-setup report. To be sourced, with `set -euo pipefail` on.

# Progress goes to stderr, so that stdout stays what a script was asked to print.
say() { printf '==> %s\n' "$*" >&2; }

# fail MESSAGE MEND…: what happened, then what to do about it, one line each.
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
  exit 1
}

# Prints the comment at the top of the running script, which is its help.
print_help() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }
