# bash completion of mfu; made by `mfu completion bash`
# `--option=value` is three words to bash.
_mfu() {
  local cur=${COMP_WORDS[COMP_CWORD]} line
  [[ $cur == = ]] && cur=
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
      ":program $COMP_CWORD") mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
      :program*)
        if declare -F _command_offset >/dev/null; then
          _command_offset "${line#* }"
        else
          mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _mfu mfu
