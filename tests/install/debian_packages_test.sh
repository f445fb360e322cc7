#!/usr/bin/env bash
# debian_packages_test.sh PREFIX: every library that the programs of a package link, but for LibTorch's, is in a Debian
# package of its lists, and so are the headers that cells include. Shell and worker need the first list only.
set -uo pipefail
prefix=$1 failures=0
lists=$prefix/share/lockstep/setup
command -v dpkg-query >/dev/null || { echo "no Debian here"; exit 77; }

files=(/usr/lib/llvm-19/lib/clang/19/include/stddef.h /usr/include/c++/12/vector /usr/include/stdio.h /usr/include/nlohmann/json.hpp)
of_run=0
libraries=$(/sbin/ldconfig -p)
for program in lockstep-compiler lockstep lockstep-worker; do
  [ "$program" = lockstep ] && of_run=${#files[@]}
  for library in $(readelf -d "$prefix/bin/$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $library in libtorch*|libc10*|liblockstep*) continue ;; esac
    path=$(sed -n "s|^\s*$library (.*x86-64.*) => ||p" <<< "$libraries" | head -n 1)
    files+=("$(readlink -f "${path:-$library}")")
  done
done

# One look into Debian's database, which may have a path without /usr.
owners=$(dpkg-query -S "${files[@]}" "${files[@]#/usr}" 2>/dev/null)
index=0
for file in "${files[@]}"; do
  list=("$lists"/debian-packages-run.txt)
  [ "$((index++))" -ge "$of_run" ] || list+=("$lists"/debian-packages-cells.txt)
  package=$(sed -n "s|^\([^:]*\):.* \(/usr\)\?${file#/usr}$|\1|p" <<< "$owners" | head -n 1)
  grep -qx "${package:-none}" "${list[@]}" && continue
  echo "$file is of the package ${package:-that nobody knows}, which is not in ${list[*]}"
  failures=$((failures + 1))
done
echo "${#files[@]} files, $failures of packages that are not in the lists"
exit "$failures"
