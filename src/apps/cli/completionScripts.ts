// Completion scripts for bash, zsh and fish, written from the tree of commands. Names of models come from `moeflux completion
// models` at the time of the Tab. Pure.
import type { Command, Option } from 'commander'

export type Shell = 'bash' | 'zsh' | 'fish'

/** What can stand in a place: one of some words, a model, a file, or anything. */
type Place = readonly string[] | 'model' | 'file' | 'any'

interface Flag {
  readonly names: readonly string[] // '-m', '--model'
  readonly about: string
  readonly value: Place | null // null: it takes none
}

interface Entry {
  readonly names: readonly string[]
  readonly about: string
  readonly flags: readonly Flag[]
  readonly argument: Place
}

export function completionScript(shell: Shell, program: Command): string {
  const entries = program.commands.map(command => entryOf(command, program))
  return { bash, zsh, fish }[shell](entries, flagsOf(program))
}

function entryOf(command: Command, program: Command): Entry {
  const [argument] = command.registeredArguments
  const commands = program.commands.map(each => each.name())
  return {
    names: [command.name(), ...command.aliases()],
    about: command.description(),
    flags: flagsOf(command),
    argument: command.name() === 'help' ? commands : (argument?.argChoices ?? placeOf(argument?.name() ?? '')),
  }
}

function flagsOf(command: Command): Flag[] {
  return command.createHelp().visibleOptions(command).map(flagOf)
}

function flagOf({ short, long, flags, description, argChoices }: Option): Flag {
  const value = /[<[]([^\]>]*)/.exec(flags)?.[1]
  const names = [short, long].filter(name => name !== undefined)
  return { names, about: description, value: value === undefined ? null : (argChoices ?? placeOf(value)) }
}

/** By what help calls it. */
function placeOf(name: string): Place {
  if (/^(model|id)|^name\|/.test(name)) return 'model'
  return /file|folder|dir|path|source|target|trace/.test(name) ? 'file' : 'any'
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

const MODELS = 'moeflux completion models 2>/dev/null'

function bash(entries: readonly Entry[], flags: readonly Flag[]): string {
  const words = (list: readonly string[]) => `words=${quoted(list.join(' '))}`
  const fill = (place: Place) => {
    if (place === 'model') return `words=$(${MODELS})`
    return typeof place === 'string' ? ':' : words(place)
  }
  const names = (list: readonly Flag[]) => list.flatMap(flag => flag.names)
  const cases = entries.map(({ names: commands, flags, argument }) => {
    const valued = flags.filter(({ value }) => value !== null)
    const values = valued.map(({ names, value }) => `        ${names.join('|')}) ${fill(value as Place)} ;;`)
    return [
      `    ${commands.join('|')})`,
      '      case $prev in',
      ...values,
      `        *) if [[ $cur == -* ]]; then ${words(names(flags))}; else ${fill(argument)}; fi ;;`,
      '      esac ;;',
    ].join('\n')
  })
  // Without an answer readline completes names of files: -o default.
  return `# eval "$(moeflux completion bash)"
_moeflux() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} words=
  [[ $cur == = ]] && cur=
  [[ $prev == = ]] && prev=\${COMP_WORDS[COMP_CWORD-2]}
  if ((COMP_CWORD == 1)); then
    ${words([...entries.flatMap(({ names }) => names), ...names(flags)])}
  else
    case \${COMP_WORDS[1]} in
${cases.join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _moeflux moeflux
`
}

function zsh(entries: readonly Entry[], flags: readonly Flag[]): string {
  const plain = (text: string) => text.replace(/[[\]:\\]/g, '\\$&')
  const fill = (place: Place) => {
    if (place === 'model') return '_moeflux_models'
    if (place === 'file') return '_files'
    return place === 'any' ? ' ' : `(${place.join(' ')})`
  }
  const spec = ({ names, about, value }: Flag) => {
    const name = names.length > 1 ? `'*'{${names.join(',')}}` : `'*'${names[0]}`
    return `${name}${quoted(`[${plain(about)}]${value === null ? '' : `:value:${fill(value)}`}`)}`
  }
  const cases = entries.map(({ names, flags, argument }) => {
    const specs = [...flags.map(spec), quoted(`*:argument:${fill(argument)}`)]
    return `    ${names.join('|')}) _arguments ${specs.join(' \\\n      ')} ;;`
  })
  const commands = entries.flatMap(({ names, about }) => names.map(name => quoted(`${name}:${plain(about)}`)))
  return `#compdef moeflux
# eval "$(moeflux completion zsh)", after compinit
_moeflux_models() {
  local -a models; models=(\${(f)"$(${MODELS})"})
  _alternative 'models:model:(($\{models//:/\\\\:}))' 'files:file:_files'
}
_moeflux() {
  if (( CURRENT == 2 )); then
    local -a commands; commands=(
      ${commands.join('\n      ')}
    )
    _describe command commands
    _arguments ${flags.map(spec).join(' ')}
    return
  fi
  local command=$words[2]
  shift words; (( CURRENT-- ))
  case $command in
${cases.join('\n')}
  esac
}
if [ "$funcstack[1]" = _moeflux ]; then _moeflux "$@"; else compdef _moeflux moeflux; fi
`
}

function fish(entries: readonly Entry[], flags: readonly Flag[]): string {
  const fill = (place: Place) => {
    if (place === 'model') return ` -F -a ${quoted(`(${MODELS})`)}`
    if (place === 'file') return ' -F'
    return place === 'any' ? '' : ` -a ${quoted(place.join(' '))}`
  }
  const line = (condition: string, rest: string) => `complete -c moeflux -n ${quoted(condition)} ${rest}`
  const flagLine = (condition: string) => {
    return ({ names, about, value }: Flag) => {
      const which = names.map(name => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`))
      const takes = value === null ? '' : ` -r${fill(value)}`
      return line(condition, `${which.join(' ')} -d ${quoted(about)}${takes}`)
    }
  }
  const lines = entries.flatMap(({ names, about, flags, argument }) => {
    const condition = `__fish_seen_subcommand_from ${names.join(' ')}`
    const own = names.map(name => line('__fish_use_subcommand', `-a ${name} -d ${quoted(about)}`))
    const arguments_ = fill(argument) === '' ? [] : [line(condition, fill(argument).trim())]
    return [...own, ...flags.map(flagLine(condition)), ...arguments_]
  })
  const opening = flags.map(flagLine('__fish_use_subcommand'))
  return `# moeflux completion fish | source
complete -c moeflux -f
${[...opening, ...lines].join('\n')}
`
}
