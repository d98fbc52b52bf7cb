#compdef mfu
# zsh completion of mfu; made by `mfu completion zsh`
_mfu() {
  local line
  local -a offered
  for line in "${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :files) compset -P '--*='; _files; return ;;
      :program*) shift "${line#* }" words; (( CURRENT -= ${line#* } )); _normal; return ;;
      ?*) offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  _describe -t values value offered
}
# Sourced or autoloaded: both work.
if [[ $funcstack[1] == _mfu ]]; then _mfu "$@"; else compdef _mfu mfu; fi
