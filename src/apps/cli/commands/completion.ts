// `moeflux completion`: completion for a shell, written from the commands of this program.
import { Argument, type Command, InvalidArgumentError } from 'commander'
import { action, type Cli } from '../action.js'
import type { Shell } from '../completionScripts.js'
import { addExamples } from '../optionValues.js'

const SHELLS: readonly Shell[] = ['bash', 'zsh', 'fish']

export function registerCompletion(program: Command): void {
  const command = program
    .command('completion')
    .description('print completion for bash, zsh or fish')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS).argParser(parseShell))
    .action(
      action(async (cli: Cli, what: Shell | 'models') => {
        await cli.print(what === 'models' ? await modelNames() : await script(what, program))
      }),
    )
  addExamples(command, [
    ['eval "$(moeflux completion bash)"', 'in ~/.bashrc; zsh the same in ~/.zshrc, after compinit'],
    ['moeflux completion fish > ~/.config/fish/completions/moeflux.fish', 'for fish'],
  ])
}

async function script(shell: Shell, program: Command): Promise<string> {
  const { completionScript } = await import('../completionScripts.js')
  return completionScript(shell, program)
}

/** 'models' is what the scripts ask for. */
function parseShell(text: string): Shell | 'models' {
  const value = ([...SHELLS, 'models'] as const).find(each => each === text)
  if (value === undefined) throw new InvalidArgumentError(`Want one of ${SHELLS.join(', ')}.`)
  return value
}

async function modelNames(): Promise<string> {
  const [{ listModels }, { DEMO_NAME, WELL_KNOWN_MODELS }] = await Promise.all([
    import('../../../index.js'),
    import('../../../internal.js'),
  ])
  const stored = (await listModels()).map(({ name }) => name)
  const names = new Set([...stored, DEMO_NAME, ...WELL_KNOWN_MODELS.map(({ names }) => names[0])])
  return [...names].map(name => `${name}\n`).join('')
}
