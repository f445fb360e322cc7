#!/usr/bin/env bash
# lockstep_setup_test.sh PREFIX SCRATCH: runs the lockstep-setup of a package in made-up environments. apt, pip and the
# compiler are replaced, so that nothing is asked of a network or of root.
set -uo pipefail
package=$1 scratch=$2 failures=0
rm -rf "$scratch"
mkdir -p "$scratch/bin" "$scratch/index" "$scratch/prefix/bin" "$scratch/prefix/lib/lockstep" "$scratch/prefix/share/lockstep"
cp "$package/bin/lockstep-setup" "$scratch/prefix/bin"
cp -r "$package/share/lockstep/setup" "$scratch/prefix/share/lockstep"
echo 2.13.7 > "$scratch/prefix/lib/lockstep/libtorch.version"
setup=$scratch/prefix/bin/lockstep-setup

# fake_libtorch FOLDER PATCH: what is taken for LibTorch 2.13.PATCH.
fake_libtorch() {
  mkdir -p "$1/include/torch/headeronly" "$1/lib"
  touch "$1/lib/libtorch_cpu.so"
  printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 13\n#define TORCH_VERSION_PATCH %s\n' "$2" \
    > "$1/include/torch/headeronly/version.h"
}

# expect STATUS TEXT [NAME=VALUE…] [-- OPTION…]: runs lockstep-setup so, and looks for TEXT in what it prints.
expect() {
  local status=$1 text=$2 said code environment=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do environment+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  said=$(env -u LOCKSTEP_LIBTORCH XDG_CACHE_HOME="$scratch/cache" PATH="$scratch/bin:/usr/bin:/bin" USER_ID=1000 LACKING= \
    ${environment[@]+"${environment[@]}"} "$setup" "$@" 2>&1)
  code=$?
  if [ "$code" != "$status" ] || [[ "$said" != *"$text"* ]]; then
    printf 'lockstep-setup %s (%s)\n  expected %s and "%s"\n  got %s:\n%s\n' "$*" "${environment[*]-}" "$status" "$text" "$code" "$said"
    failures=$((failures + 1))
  fi
}

program() { cat > "$1"; chmod +x "$1"; }
program "$scratch/bin/id" <<< $'#!/bin/sh\necho "$USER_ID"'
# Everything is installed but $LACKING.
program "$scratch/bin/dpkg-query" <<'SH'
#!/usr/bin/env bash
shift 3
for package; do [ "$package" = "${LACKING:-}" ] || echo "installed $package"; done
SH
# A machine without CUDA, wherever the test runs.
program "$scratch/bin/ls" <<< $'#!/bin/sh\ncase $* in */nvcc*) exit 2 ;; esac\nexec /bin/ls "$@"'
program "$scratch/bin/apt-get" <<< $'#!/bin/sh\necho "apt-get $*"'
program "$scratch/bin/sudo" <<< $'#!/bin/sh\necho "by sudo: $*"'
program "$scratch/prefix/bin/lockstep-compiler" <<< $'#!/bin/sh\necho "the compiler: $*" >&2'
program "$scratch/bin/python3" <<'SH'
#!/usr/bin/env bash
[ "$3" = --version ] && exit
while [ "$1" != --dest ]; do shift; done
wheel=$(ls "${0%/bin/*}/index/" | grep -i "^$(echo "${3%%==*}" | tr - _)-${3##*==}-") ||
  { echo "ERROR: No matching distribution found for $3" >&2; exit 1; }
cp "${0%/bin/*}/index/$wheel" "$2"
SH

# Packages: a user gets the line for root, root and sudo run it.
expect 1 "sudo apt-get update && sudo apt-get install -y --no-install-recommends libzmq5" LACKING=libzmq5
expect 1 "then $setup again" LACKING=libzmq5
expect 1 "by sudo: env DEBIAN_FRONTEND=noninteractive apt-get install -y -q" LACKING=libzmq5 -- --install
expect 1 "apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 libzmq5" LACKING=libzmq5 USER_ID=0
expect 1 "apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 libclang-cpp19" LACKING=libclang-cpp19 USER_ID=0
expect 1 "Unknown option --cpu" -- --cpu
expect 0 "lockstep-setup [--gpu] [--install]" -- --help

# LibTorch: from the wheel, into the cache, once.
expect 1 "libtorch.sha256 does not know LibTorch 2.13.7"
wheel=torch-2.13.7-cp311-cp311-manylinux_2_28_x86_64.whl
fake_libtorch "$scratch/wheel/torch" 7
(cd "$scratch/wheel" && /usr/bin/python3 -m zipfile -c "$scratch/index/$wheel" torch)
echo "2.13.7 cpu $(sha256sum < "$scratch/index/$wheel" | cut -d' ' -f1) $wheel" >> "$scratch/prefix/share/lockstep/setup/libtorch.sha256"
expect 0 "$scratch/cache/lockstep/libtorch/2.13.7/torch"
rm -r "$scratch/index"
expect 0 "the compiler: --prepare"
expect 0 "$scratch/cache/lockstep/libtorch/2.13.7/torch"

# The other places, in the order of the programs.
fake_libtorch "$scratch/cache/lockstep/libtorch/2.13.7-gpu/torch" 7
expect 0 "2.13.7-gpu/torch"
# With --gpu, one without CUDA will not do.
fake_libtorch "$scratch/named" 7
expect 1 "a LibTorch without CUDA" LOCKSTEP_LIBTORCH="$scratch/named" -- --gpu
touch "$scratch/cache/lockstep/libtorch/2.13.7-gpu/torch/lib/libtorch_cuda.so"
expect 0 "2.13.7-gpu/torch" -- --gpu
fake_libtorch "$scratch/recorded" 7
echo "$scratch/recorded" > "$scratch/prefix/lib/lockstep/libtorch.folder"
expect 0 "$scratch/recorded"
fake_libtorch "$scratch/named" 7
expect 0 "$scratch/named" LOCKSTEP_LIBTORCH="$scratch/named"
fake_libtorch "$scratch/other" 8
expect 1 "there is no LibTorch 2.13.7" LOCKSTEP_LIBTORCH="$scratch/other"
echo "$scratch/other" > "$scratch/prefix/lib/lockstep/libtorch.folder"
expect 0 "2.13.7-gpu/torch"

program "$scratch/prefix/bin/lockstep-compiler" <<< $'#!/bin/sh\nexit 2'
expect 1 "The precompiled header of all cells could not be built"

# Without the compiler: no header is built, and its packages are not asked for.
rm "$scratch/prefix/bin/lockstep-compiler" "$scratch/prefix/share/lockstep/setup/debian-packages-cells.txt"
expect 0 "it runs files of lockstep build" LACKING=libclang-cpp19
expect 1 "sudo apt-get update && sudo apt-get install -y --no-install-recommends libzmq5" LACKING=libzmq5

[ "$failures" -eq 0 ] && echo "lockstep-setup: all as expected"
exit "$failures"
