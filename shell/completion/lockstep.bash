# bash completion of lockstep. Commands and options come from `lockstep [COMMAND] --help`, so they are those of the
# program that is installed. Only words that are files are marked as such: bash appends a / to those that name a folder,
# such as a folder run/.
_lockstep_files() {
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$1"))
}
_lockstep_ids() {
  "$1" sessions list --all --json 2>/dev/null | sed -n 's/^ *"id": "\(.*\)",$/\1/p'
}
_lockstep() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local commands command='' word help
  commands=$("$program" --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z]\{1,\}\) .*/\1/p')
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $'\n'$commands$'\n' == *$'\n'"$word"$'\n'* ]]; then command=$word; break; fi
  done
  case $previous in
    --backend) COMPREPLY=($(compgen -W 'auto gloo nccl' -- "$current")); return ;;
    --check-collectives) COMPREPLY=($(compgen -W 'on off' -- "$current")); return ;;
    --json | --junit | --write | --export | -o | --output | -I | --include-dir) _lockstep_files "$current"; return ;;
    --journal | --resume) COMPREPLY=($(compgen -W "last $(_lockstep_ids "$program")" -- "$current")); return ;;
    -n | --num-processes | --journal-size | --gpu-ids | --arg | --*-timeout | --rtol | --atol) return ;;
  esac
  if [[ $current == -* ]]; then
    help=$("$program" $command --help 2>/dev/null)
    COMPREPLY=($(compgen -W "$(grep -oE '(^ +|,)--?[a-zA-Z][a-z-]*' <<< "$help" | tr -d ' ,')" -- "$current"))
  elif [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  elif [[ $command == sessions && ($previous == show || $previous == clean) ]]; then
    COMPREPLY=($(compgen -W "$(_lockstep_ids "$program")" -- "$current"))
  elif [[ $command == sessions ]]; then
    COMPREPLY=($(compgen -W "$("$program" sessions --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z]\{1,\}\) .*/\1/p')" -- "$current"))
  else
    _lockstep_files "$current"
  fi
}
complete -F _lockstep lockstep
