# The Debian packages that Lockstep needs. To be sourced after messages.sh; `setup` is the command that the user runs.

as_root=

# missing_packages LIST…: the packages that these files name, one a line, and that are not installed.
missing_packages() {
  local wanted installed
  wanted=$(sed '/^#/d;/^$/d' "$@" | sort)
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p' | sort)
  comm -23 <(echo "$wanted") <(echo "$installed" | uniq) | xargs
}

# install_packages LIST…: installs them, which root can and others can with `as_root` set to sudo.
install_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "This is no Debian system: apt-get is missing." \
         "Lockstep is built and tested on Debian 12. Its packages are listed in $*."
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ] && [ -z "$as_root" ]; then
    fail "Debian packages are missing, and only root can install them. Run this once, then $setup again:" "" \
         "sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing"
  fi
  say "Installing Debian packages: $missing"
  $as_root apt-get update -qq >&2 || say "apt-get update failed; going on with the package lists that are there"
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 $missing >&2 ||
    fail "apt-get could not install the packages (its own words are above)." \
         "Is the network up, and are Debian 12's main, updates and security in /etc/apt/sources.list? Then run this again."
}
