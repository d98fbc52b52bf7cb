# fish completion of mfu; made by `mfu completion fish`
function __mfu_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    switch $line
      case ':files'
        set -l option (string match -r -- '^--[^=]*=' "$current")
        printf "$option%s\n" (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$current"))
      case ':program *'
        set -l at (math (string replace ':program ' '' $line) + 1)
        complete -C (string join ' ' -- (string escape -- $words[$at..-1]) "$current")
      case '*'
        echo $line
    end
  end
end
complete -c mfu -f -a '(__mfu_complete)'
