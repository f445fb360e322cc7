# LibTorch out of the wheels of PyPI, into the user's cache. To be sourced after messages.sh; `setup` is the command
# that the user has run, `setup_data` the folder of libtorch.sha256.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/libtorch

# version_of FOLDER: the version of the LibTorch in it, or nothing.
version_of() {
  local header=$1/include/torch/headeronly/version.h
  [ -f "$header" ] && [ -f "$1/lib/libtorch_cpu.so" ] || return 0
  sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' "$header" | paste -sd.
}

is_supported() { case $1 in 2.11|2.11.*|2.12|2.12.*|2.13|2.13.*|2.14|2.14.*|2.15|2.15.*) ;; *) return 1 ;; esac; }

# known_version VERSION: the version that libtorch.sha256 has for a version, or for a minor version ("2.15").
known_version() {
  local version
  version=$(awk -v v="$1" '$1 == v || index($1, v ".") == 1 { print $1; exit }' "$setup_data/libtorch.sha256")
  [ -n "$version" ] ||
    fail "There is no torch $1 here." \
         "libtorch.sha256 knows $(awk '/^[0-9]/ { print $1 }' "$setup_data/libtorch.sha256" | uniq | paste -sd' ')."
  echo "$version"
}

# wheels VERSION VARIANT: its lines "checksum  wheel". CUDA's compiler is among those for GPU ranks where `builds` is set.
wheels() {
  awk -v v="$1" -v gpu="$2" -v builds="${builds:-}" \
    '$1 == v && ($2 == "cpu" || gpu == "gpu" && ($2 == "gpu" || $2 == "nvcc" && builds)) { print $3 "  " $4 }' \
    "$setup_data/libtorch.sha256"
}

# A Python that has pip: that of an active environment may lack it, Debian's has it by now.
python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then echo "$python"; return; fi
  done
  fail "No python3 here has pip." "Install it (Debian: python3-pip), or point LOCKSTEP_LIBTORCH at a LibTorch that you have."
}

# The requirement that a wheel's file name fulfils: nvidia_cuda_cupti-13.0.85-py3-….whl → nvidia-cuda-cupti==13.0.85
requirement_of() { local name=${1%%-*} rest=${1#*-}; echo "${name//_/-}==${rest%%-*}"; }

refuse() { rm -rf scratch; fail "$@"; }

# download CHECKSUM WHEEL: brings the wheel into the current folder, unless it is there whole.
# pip's own scratch folder is inside, too, so that only this file system must have room, and nothing is left elsewhere.
download() {
  local line="$1  $2" attempt
  [ -f "$2" ] && sha256sum --status -c <<< "$line" && return
  for attempt in 1 2 3; do
    rm -rf scratch "$2"
    mkdir scratch
    if TMPDIR=$PWD/scratch "$python" -m pip download --no-deps --no-cache-dir --only-binary=:all: --python-version 3.11 \
        --disable-pip-version-check --dest scratch "$(requirement_of "$2")" 2> >(tee pip-errors >&2) >&2; then
      [ -f "scratch/$2" ] || refuse "PyPI gave $(cd scratch && ls) where $2 was asked for." \
                                    "Lockstep's LibTorch needs an x86_64 Linux with glibc 2.28 or later."
      (cd scratch && sha256sum --status -c <<< "$line") ||
        refuse "$2 is not the file that libtorch.sha256 names: its checksum differs, so it was deleted." \
             "Run this again; if it happens again, the package index that pip uses serves another file (pip config list)."
      mv "scratch/$2" "$2"
      rm -rf scratch pip-errors
      return
    fi
    rm -rf scratch
    # pip itself tries again to connect, but not when a download breaks off midway.
    grep -q 'No matching distribution' pip-errors && break
    grep -qiE 'incomplete|broken|reset|timed out' pip-errors || break
    [ "$attempt" = 3 ] || say "The download broke off; trying again"
  done
  fail "pip could not download $2 (its own words are above)." \
       "Is the network up, and is there room on $(df --output=target . | tail -n 1)? Run this again: what has been downloaded is kept." \
       "Without a network, point LOCKSTEP_LIBTORCH at a LibTorch that you have."
}

# unpack WHEEL VARIANT FOLDER: the parts that C++ needs. Python's half is left out, and for CPU ranks the CUDA libraries, too.
unpack() {
  local without=('*/libtorch_python*')
  [ "$2" = gpu ] || without+=('*/libtorch_cuda*' '*/libtorch_nvshmem*' '*/libnvperf*' '*.a')
  unzip -q -o "$1" 'torch/include/*' 'torch/lib/*' 'nvidia/*' '*.dist-info/*' -x "${without[@]}" -d "$3" 2>/dev/null ||
    [ $? -eq 11 ] || return 1  # 11: a wheel that lacks one of the patterns
}

# add_compiler VERSION VARIANT: CUDA's compiler, beside a LibTorch for GPU ranks that was set up without it.
add_compiler() {
  local folder checksum wheel python compiler
  folder=$(dirname "$libtorch")
  [ "$2" = gpu ] && [ -n "${builds:-}" ] || return 0
  compiler=$(wheels "$1" gpu | grep -E '  nvidia_(cuda_nvcc|cuda_crt|nvvm)-' || true)
  [ -n "$compiler" ] || return 0
  compgen -G "$folder/nvidia/cu*/bin/nvcc" >/dev/null && return 0
  say "CUDA's compiler goes to $folder"
  python=$(python_with_pip)
  mkdir -p "$cache/downloads/nvcc-$1"
  while read -r checksum wheel; do
    (cd "$cache/downloads/nvcc-$1" && download "$checksum" "$wheel")
    unpack "$cache/downloads/nvcc-$1/$wheel" gpu "$folder" || fail "$wheel could not be unpacked into $folder." "Is there room on the disk?"
  done <<< "$compiler"
  rm -rf "$cache/downloads/nvcc-$1"
}

# has_nccl_header FOLDER VERSION
has_nccl_header() {
  [ -f "$1/nccl.h" ] &&
    [ "$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' "$1/nccl.h" | paste -sd.)" = "$2" ]
}

# add_nccl_header VERSION VARIANT: beside a LibTorch for CPU ranks, on a machine whose nvcc builds the plug-in for GPUs. Of
# the wheel of NCCL (200 MB) only the headers are kept. Without them the plug-in is built without NCCL, so this may fail.
add_nccl_header() {
  local folder nvcc checksum wheel nccl
  folder=$(dirname "$libtorch")
  nvcc=$(command -v nvcc || ls "${CUDACXX:-}" "${CUDA_PATH:-}/bin/nvcc" /usr/local/cuda/bin/nvcc 2>/dev/null | head -n 1 || true)
  [ "$2" = cpu ] && [ -n "${builds:-}" ] && [ -n "$nvcc" ] || return 0
  read -r checksum wheel < <(wheels "$1" gpu | grep -E '  nvidia_nccl_cu') || return 0
  nccl=$(requirement_of "$wheel"); nccl=${nccl##*==}
  has_nccl_header "$folder/nvidia/nccl/include" "$nccl" && return
  has_nccl_header "$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include" "$nccl" && return
  say "The headers of NCCL $nccl go to $folder (out of a wheel of 200 MB), for the plug-in for GPUs"
  (
    python=$(python_with_pip)
    mkdir -p "$cache/downloads/nccl-$1"
    cd "$cache/downloads/nccl-$1"
    download "$checksum" "$wheel"
    unzip -q -o "$wheel" 'nvidia/nccl/include/*' -d "$folder"
  ) || say "They could not be brought here: the plug-in for GPUs is built without NCCL"
  rm -rf "$cache/downloads/nccl-$1"
}

megabytes_free() { df --output=avail -BM "$1" | tail -n 1 | tr -dc 0-9; }

# Sets `libtorch` to the cache's folder for this version and variant, and fills it if need be.
get_libtorch() {
  local version=$1 variant=$2 name=$1 needed=1300
  [ "$variant" = cpu ] || { name=$1-gpu; needed=9000; }
  libtorch=$cache/$name/torch
  [ -z "$(version_of "$libtorch")" ] ||
    { add_compiler "$version" "$variant"; add_nccl_header "$version" "$variant"; return 0; }
  if [ "$variant" = cpu ] && [ -d "$cache/$version-gpu/torch" ]; then libtorch=$cache/$version-gpu/torch; return; fi
  is_supported "$version" || fail "LibTorch $version is outside the supported range 2.11 to 2.15."
  [ -n "$(wheels "$version" cpu)" ] ||
    fail "libtorch.sha256 does not know LibTorch $version." \
         "It knows $(awk '/^[0-9]/ { print $1 }' "$setup_data/libtorch.sha256" | uniq | paste -sd' '); for another, point LOCKSTEP_LIBTORCH at it."
  [ "$(uname -sm)" = "Linux x86_64" ] || fail "$setup has LibTorch for x86_64 Linux only." "Point LOCKSTEP_LIBTORCH at a LibTorch for $(uname -sm)."

  mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] ||
    fail "The cache $cache can't be written." "Set XDG_CACHE_HOME to a folder of yours, or LOCKSTEP_LIBTORCH to a LibTorch that you have."
  exec 9> "$cache/.lock"
  flock -n 9 || { say "Another $setup is at work; waiting for it"; flock 9; }
  [ -z "$(version_of "$libtorch")" ] || return 0

  local downloads=$cache/downloads/$name staging=$cache/.unpacking-$name
  mkdir -p "$downloads"
  rm -rf "$staging"
  local have
  have=$(du -sm "$downloads" | cut -f1)
  [ "$(($(megabytes_free "$cache") + have))" -ge "$needed" ] ||
    fail "LibTorch needs $needed MB in $cache while it is set up, and $(megabytes_free "$cache") MB are free." \
         "Make room, or set XDG_CACHE_HOME to a folder on a larger disk."
  say "LibTorch $version for $variant ranks goes to $cache/$name"
  local checksum wheel python
  python=$(python_with_pip)
  while read -r checksum wheel; do (cd "$downloads" && download "$checksum" "$wheel"); done < <(wheels "$version" "$variant")
  say "Unpacking"
  while read -r checksum wheel; do
    unpack "$downloads/$wheel" "$variant" "$staging" ||
      fail "$wheel could not be unpacked into $staging." "Is there room on the disk? Run this again: what has been downloaded is kept."
  done < <(wheels "$version" "$variant")
  rm -rf "${cache:?}/$name"  # only there when somebody has taken files out of it
  mv "$staging" "$cache/$name"
  rm -rf "$downloads"
  rmdir "$cache/downloads" 2>/dev/null || true
  say "LibTorch $version is in place ($(du -sm "$cache/$name" | cut -f1) MB)"
  add_nccl_header "$version" "$variant"
}
