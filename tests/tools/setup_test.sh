#!/usr/bin/env bash
# setup_test.sh SOURCE SCRATCH: runs tools/setup in made-up environments. pip is replaced by one that serves a folder, so
# that nothing is asked of a network.
set -uo pipefail
setup=$1/tools/setup
scratch=$2
failures=0
rm -rf "$scratch"
mkdir -p "$scratch/empty" "$scratch/bin"

# fake_libtorch FOLDER MINOR: what tools/setup takes for LibTorch 2.MINOR.0.
fake_libtorch() {
  mkdir -p "$1/include/torch/headeronly" "$1/lib"
  touch "$1/lib/libtorch_cpu.so"
  printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR %s\n#define TORCH_VERSION_PATCH 0\n' "$2" \
    > "$1/include/torch/headeronly/version.h"
}

# expect STATUS TEXT [NAME=VALUE…] [-- OPTION…]: runs tools/setup so, and looks for TEXT in what it prints.
expect() {
  local status=$1 text=$2 said code environment=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do environment+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  said=$(env -u LOCKSTEP_LIBTORCH -u CMAKE_PREFIX_PATH -u PYTHONPATH XDG_CACHE_HOME="$scratch/cache" PATH="$scratch/bin:$PATH" \
    ${environment[@]+"${environment[@]}"} "$setup" --cpu "$@" 2>&1)
  code=$?
  if [ "$code" != "$status" ] || [[ "$said" != *"$text"* ]]; then
    printf 'tools/setup %s (%s)\n  expected %s and "%s"\n  got %s:\n%s\n' "$*" "${environment[*]-}" "$status" "$text" "$code" "$said"
    failures=$((failures + 1))
  fi
}

# A python3 that knows no torch but that of PYTHONPATH, and whose `pip download` copies from $scratch/index.
cat > "$scratch/bin/python3" <<'PYTHON'
#!/usr/bin/env bash
if [ "${1:-}" = -m ]; then
  [ "$3" = --version ] && exit
  while [ "$1" != --dest ]; do shift; done
  wheel=$(ls "${0%/bin/*}/index/" 2>/dev/null | grep -i "^$(echo "${3%%==*}" | tr - _)-${3##*==}-") ||
    { echo "ERROR: No matching distribution found for $3" >&2; exit 1; }
  cp "${0%/bin/*}/index/$wheel" "$2"
else
  [ -z "${PYTHONPATH:-}" ] || echo "$PYTHONPATH/torch"
fi
PYTHON
chmod +x "$scratch/bin/python3"

fake_libtorch "$scratch/old/torch" 8
fake_libtorch "$scratch/new/torch" 14
fake_libtorch "$scratch/cache/lockstep/libtorch/2.11.0/torch" 11
cached=$scratch/cache/lockstep/libtorch/2.11.0/torch

expect 0 "$cached"
expect 0 "$scratch/new/torch" LOCKSTEP_LIBTORCH="$scratch/new/torch"
expect 1 "no LibTorch with include/torch" LOCKSTEP_LIBTORCH="$scratch/empty"
expect 1 "names LibTorch 2.8.0; supported are 2.11 to 2.15" LOCKSTEP_LIBTORCH="$scratch/old/torch"
expect 0 "$scratch/new/torch" CMAKE_PREFIX_PATH="$scratch/empty:$scratch/new"
expect 0 "outside the supported range" CMAKE_PREFIX_PATH="$scratch/old"
expect 0 "$cached" CMAKE_PREFIX_PATH="$scratch/old"
expect 0 "$scratch/new/torch" PYTHONPATH="$scratch/new"
expect 0 "the active Python has LibTorch 2.8.0" PYTHONPATH="$scratch/old"
expect 0 "$cached" PYTHONPATH="$scratch/new" -- --libtorch 2.11.0
expect 1 "outside the supported range" -- --libtorch 2.8.0
expect 1 "does not know LibTorch 2.11.7" -- --libtorch 2.11.7
expect 1 "--libtorch needs a version" -- --libtorch
expect 1 "Unknown option --frob" -- --frob
expect 1 "can't be written" XDG_CACHE_HOME=/proc
expect 1 "Without a network" -- --libtorch 2.13.0

# A wheel that is not the one named is refused and not kept.
mkdir -p "$scratch/index"
echo "not the wheel" > "$scratch/index/$(awk '$1 == "2.13.0" { print $4; exit }' "$1/tools/libtorch.sha256")"
expect 1 "checksum differs" -- --libtorch 2.13.0
[ -z "$(find "$scratch/cache" -name '*.whl')" ] || { echo "a wheel with a wrong checksum was kept"; failures=$((failures + 1)); }

# From wheels to a LibTorch, with a table of its own: only what C++ needs is unpacked, and nothing else stays.
copy=$scratch/checkout
mkdir -p "$copy"
cp -r "$1/tools" "$copy/tools"
wheel=torch-2.12.9-cp311-cp311-manylinux_2_28_x86_64.whl
fake_libtorch "$scratch/wheel/torch" 12
touch "$scratch/wheel/torch/lib/libtorch_python.so" "$scratch/wheel/torch/lib/libtorch_cuda.so" "$scratch/wheel/torch/__init__.py"
(cd "$scratch/wheel" && /usr/bin/python3 -m zipfile -c "$scratch/index/$wheel" torch)
echo "2.12.9 cpu $(sha256sum < "$scratch/index/$wheel" | cut -d' ' -f1) $wheel" >> "$copy/tools/libtorch.sha256"
setup=$copy/tools/setup
expect 0 "$scratch/cache/lockstep/libtorch/2.12.9/torch" -- --libtorch 2.12.9
rm -r "$scratch/index"
expect 0 "$scratch/cache/lockstep/libtorch/2.12.9/torch" -- --libtorch 2.12.9
found=$(cd "$scratch/cache/lockstep/libtorch" && find 2.12.9 downloads/2.12.9 .unpacking* -type f 2>/dev/null | sort | paste -sd' ')
[ "$found" = "2.12.9/torch/include/torch/headeronly/version.h 2.12.9/torch/lib/libtorch_cpu.so" ] ||
  { echo "unpacked: $found"; failures=$((failures + 1)); }

# With --gpu, a LibTorch for GPU ranks that is there gets CUDA's compiler, once; with --cpu, none does.
nvcc=nvidia_cuda_nvcc-13.9.1-py3-none-any.whl
fake_libtorch "$scratch/cache/lockstep/libtorch/2.12.9-gpu/torch" 12
mkdir -p "$scratch/wheel/nvidia/cu13/bin" "$scratch/index"
touch "$scratch/wheel/nvidia/cu13/bin/nvcc"
(cd "$scratch/wheel" && /usr/bin/python3 -m zipfile -c "$scratch/index/$nvcc" nvidia)
echo "2.12.9 nvcc $(sha256sum < "$scratch/index/$nvcc" | cut -d' ' -f1) $nvcc" >> "$copy/tools/libtorch.sha256"
expect 0 "$scratch/cache/lockstep/libtorch/2.12.9/torch" -- --libtorch 2.12.9
[ -z "$(find "$scratch/cache" -name nvcc)" ] || { echo "--cpu brought a compiler"; failures=$((failures + 1)); }
expect 0 "CUDA's compiler goes to $scratch/cache/lockstep/libtorch/2.12.9-gpu" -- --gpu --libtorch 2.12.9
[ -f "$scratch/cache/lockstep/libtorch/2.12.9-gpu/nvidia/cu13/bin/nvcc" ] || { echo "--gpu brought no compiler"; failures=$((failures + 1)); }
rm -r "$scratch/index"
expect 0 "$scratch/cache/lockstep/libtorch/2.12.9-gpu/torch" -- --gpu --libtorch 2.12.9

[ "$failures" -eq 0 ] && echo "tools/setup: all as expected"
exit "$failures"
