# What the scripts of tools/ share: how they report, and how they build. To be sourced, with `set -euo pipefail` on.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/tools/messages.sh"
default_libtorch=2.11.0

# build_folder PRESET VERSION: where a build goes; another LibTorch than the default has a folder of its own.
build_folder() {
  if [ "$2" = "$default_libtorch" ] || [ -z "$2" ]; then echo "$root/build/$1"; else echo "$root/build/$1-libtorch-$2"; fi
}

# build_tree PRESET FOLDER LIBTORCH_FOLDER [CMAKE_OPTION…]: builds `targets` if that is set, everything otherwise.
# Configures only when something that CMake was told has changed, so that a build with nothing to do takes no time.
build_tree() {
  local preset=$1 folder=$2 libtorch=$3
  shift 3
  local told="$preset $libtorch $*"
  if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/.configured" 2>/dev/null)" != "$told" ]; then
    say "Configuring ${folder#"$root"/}"
    (cd "$root" && cmake --preset "$preset" -B "$folder" -DLOCKSTEP_LIBTORCH="$libtorch" "$@") >&2
    printf '%s' "$told" > "$folder/.configured"
  fi
  say "Building ${folder#"$root"/}"
  # One job per core, not ninja's two more: each source with LibTorch takes 1.4 GB of memory.
  cmake --build "$folder" --parallel "$(nproc)" ${targets:+--target $targets} >&2
}

# Prints the C++ sources of the project, one a line, relative to its root. Cells are no plain C++: a formatter
# would break their magics.
sources() {
  (cd "$root" && find benchmarks collectives compiler ddp inspectors lockstep protocol shell tests worker \
    -name '*.h' -o -name '*.cpp' | grep -v -E '^(benchmarks|tests)/(.*/)?(cells|scripts|transcripts|faults)/' | sort)
}
