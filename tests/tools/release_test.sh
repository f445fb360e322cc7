#!/usr/bin/env bash
# tools/release without its builds: what it refuses, what it takes out of the changelog, and what it leaves behind.
#
#   release_test.sh TREE SCRATCH
set -euo pipefail
tree=$1 scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/tree/tools"
cd "$scratch/tree"
cp "$tree"/tools/{release,common.sh,messages.sh} tools/
echo 'project(Lockstep VERSION 1.2.3 LANGUAGES CXX)' > CMakeLists.txt
printf '# Changelog\n\n## [Unreleased]\n\n### Added\n- new\n\n## [1.2.2] - 2026-01-01\n\n- old\n' > CHANGELOG.md
# Each makes its files in the clone, and says so in them.
cat > tools/package <<'SCRIPT'
#!/usr/bin/env bash
name=lockstep
[ "$1" != --run-only ] || { name=lockstep-run; shift; }
pwd > "$2/$name-1.2.3-linux-x86_64.tar.gz"
pwd > "$2/${name}_1.2.3_amd64.deb"
SCRIPT
cat > tools/wheel <<'SCRIPT'
#!/usr/bin/env bash
name=lockstep
[ "$1" != --cells ] || name=lockstep_cells
while [ "$1" != --out ]; do shift; done
pwd > "$2/$name-1.2.3-py3-none-manylinux_2_28_x86_64.whl"
SCRIPT
chmod +x tools/*
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null
git init --quiet
git add -A
git commit --quiet -m first

refuses() { # WORDS COMMAND…
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then echo "$* was not refused: $said"; exit 1; fi
  grep -qF "$words" <<< "$said" || { echo "$*: expected '$words' in: $said"; exit 1; }
}

echo >> CHANGELOG.md
refuses "not committed" tools/release --dry-run --out ../out
git checkout --quiet CHANGELOG.md
refuses "has no section [1.2.3]" tools/release --out ../out
tools/release --dry-run --torch 2.11 --torch 2.15 --out ../out > ../files 2>/dev/null
cd ../out
[ "$(grep -c . SHA256SUMS)" = 7 ] || { echo "not all files are in SHA256SUMS:"; cat SHA256SUMS; exit 1; }
sha256sum --quiet --check SHA256SUMS
[ "$(cat CHANGES.md)" = $'### Added\n- new' ] || { echo "the changes:"; cat CHANGES.md; exit 1; }
! grep -qx "$scratch/tree" ./*.whl || { echo "the wheel was not made in a clone"; exit 1; }
cd ../tree
[ -z "$(git tag)" ] || { echo "a dry run has tagged"; exit 1; }
refuses "has files of a version already" tools/release --dry-run --out ../out
sed -i 's/Unreleased\]/1.2.3] - 2026-02-02/' CHANGELOG.md
git commit --quiet -am 1.2.3
tools/release --out ../released > /dev/null 2>&1
[ "$(git tag)" = v1.2.3 ] || { echo "no tag"; exit 1; }
refuses "is there already" tools/release --out ../again
