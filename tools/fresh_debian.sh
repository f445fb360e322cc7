# Fresh Debian systems in which something is tried. To be sourced after common.sh, with `keep` set: a folder in which the
# systems stay, or nothing for a temporary one. Needs root and debootstrap.
# pip's settings in the environment (PIP_CERT, PIP_INDEX_URL) hold in the fresh systems as well.

[ "$(id -u)" -eq 0 ] || fail "Only root can set up another Debian." "Run this as root, or in a container of yours."
command -v debootstrap >/dev/null || fail "debootstrap is missing." "apt-get install debootstrap"

if [ -n "$keep" ]; then
  mkdir -p "$keep"
  work=$(cd "$keep" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
fi
lent=()  # FOLDER:PLACE: folders of this machine that the systems have at the absolute path PLACE, not to be written
report=

# inside SYSTEM USER COMMAND: runs COMMAND there by bash. All mounts and processes of it end with it.
inside() {
  LENT=$(printf '%s\n' "${lent[@]}") unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount -t tmpfs tmpfs "$0/run"
    while IFS=: read -r folder place; do
      [ -n "$folder" ] || continue
      mkdir -p "$0$place"
      mount --bind -o ro "$folder" "$0$place"
    done <<< "$LENT"
    home=/root
    [ "$1" = root ] || home=/home/$1
    exec chroot --userspec="$1" "$0" /usr/bin/env -i HOME="$home" PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
      ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} ${PIP_CERT:+PIP_CERT=/etc/certificates-of-host.crt} \
      DEBIAN_FRONTEND=noninteractive bash -c "cd && $2"' "$1" "$2" "$3"
}

# step NAME COMMAND…: runs it, puts the time before each line of its output, and keeps in `report` how long it took.
step() {
  local name=$1 begin end line
  shift
  say "$name"
  begin=$(date +%s.%N)
  "$@" 2>&1 | while IFS= read -r line; do printf '%(%T)T %s\n' -1 "$line"; done >&2
  end=$(date +%s.%N)
  report+=$(printf '%7.1f s  %s' "$(echo "$end $begin" | awk '{ print $1 - $2 }')" "$name")$'\n'
}

# fresh_system SUITE SYSTEM: a minimal Debian with a user `person`, in the folder SYSTEM.
fresh_system() {
  if [ ! -e "$work/$1.complete" ]; then
    say "Making a minimal Debian ($1)"
    rm -rf --one-file-system "${work:?}/$1"
    debootstrap --variant=minbase "$1" "$work/$1" http://deb.debian.org/debian >&2
    touch "$work/$1.complete"
  fi
  rm -rf --one-file-system "$2"
  cp -a --reflink=auto "$work/$1" "$2"
  cp /etc/resolv.conf "$2/etc/resolv.conf"
  echo "127.0.0.1 localhost $(hostname)" > "$2/etc/hosts"
  [ -z "${PIP_CERT:-}" ] || cp "$PIP_CERT" "$2/etc/certificates-of-host.crt"
  inside "$2" root 'useradd --create-home person'
}
