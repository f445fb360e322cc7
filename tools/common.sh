# What the scripts of tools/ share: how they report, and how they build. To be sourced, with `set -euo pipefail` on.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/tools/messages.sh"
default_libtorch=2.11.0

# build_folder PRESET VERSION: where a build goes; another LibTorch than the default has a folder of its own.
build_folder() {
  if [ "$2" = "$default_libtorch" ] || [ -z "$2" ]; then echo "$root/build/$1"; else echo "$root/build/$1-libtorch-$2"; fi
}

# configure_tree PRESET FOLDER LIBTORCH_FOLDER [CMAKE_OPTION…]: configures only when its arguments have changed, so that
# a build with nothing to do takes no time.
configure_tree() {
  local preset=$1 folder=$2 libtorch=$3
  shift 3
  local arguments="$preset $libtorch $*"
  if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/.configured" 2>/dev/null)" != "$arguments" ]; then
    say "Configuring ${folder#"$root"/}"
    (cd "$root" && cmake --preset "$preset" -B "$folder" -DLOCKSTEP_LIBTORCH="$libtorch" "$@") >&2
    printf '%s' "$arguments" > "$folder/.configured"
  fi
}

# build_tree FOLDER [TARGET…]: builds everything, or the targets.
build_tree() {
  local folder=$1
  shift
  say "Building ${folder#"$root"/}"
  # One job per core, not ninja's two more: each source with LibTorch takes 1.4 GB of memory.
  cmake --build "$folder" --parallel "$(nproc)" ${1:+--target "$@"} >&2
}

# Prints the C++ sources of the project, one a line, relative to its root. Cells and session scripts are not among them:
# they are C++ with magics, which a formatter would break.
sources() {
  (cd "$root" && find . -path ./build -prune -o -path './.*' -prune -o -name '*.h' -print -o -name '*.cpp' -print) |
    sed 's|^\./||' | sort |
    grep -v -E '^(scripts|benchmarks/cells|tests/(docs/scripts|faults|sessions|worker/cells))/'
}
