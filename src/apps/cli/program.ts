// The commands of `moeflux` and how they are shown. A command registers itself in commands/<name>.ts and loads what it
// needs only when it runs, so that `--help` answers at once.
import { readFileSync } from 'node:fs'
import { Command } from 'commander'
import { registerBench } from '../../lab/commands/bench.js'
import { registerEval } from '../../lab/commands/eval.js'
import { registerSimulate } from '../../lab/commands/simulate.js'
import { registerTrace } from '../../lab/commands/trace.js'
import { errorLine } from './action.js'
import { registerChat } from './commands/chat.js'
import { registerCompletion } from './commands/completion.js'
import { registerConvert } from './commands/convert.js'
import { registerDoctor } from './commands/doctor.js'
import { registerInspect } from './commands/inspect.js'
import { registerList } from './commands/list.js'
import { registerPs } from './commands/ps.js'
import { registerPull } from './commands/pull.js'
import { registerRm } from './commands/rm.js'
import { registerRun } from './commands/run.js'
import { registerSearch } from './commands/search.js'
import { registerServe } from './commands/serve.js'
import { registerStop } from './commands/stop.js'
import { registerVerify } from './commands/verify.js'
import { registerWeb } from './commands/web.js'
import { formatFields, wrapWords } from './format.js'
import { addExamples } from './optionValues.js'
import { columnsOf } from './terminal.js'

type Register = (program: Command) => void

/** How the commands are shown in the help, in this order. */
const GROUPS: readonly (readonly [title: string, registers: readonly Register[]])[] = [
  ['Talk:', [registerRun, registerChat, registerServe, registerPs, registerStop, registerWeb]],
  [
    'Models:',
    [registerSearch, registerPull, registerConvert, registerList, registerInspect, registerVerify, registerRm],
  ],
  ['Measure:', [registerBench, registerEval, registerTrace, registerSimulate, registerDoctor]],
  ['Help:', [registerCompletion]],
]

const ENVIRONMENT = [
  ['MOEFLUX_HOME', 'where models are kept (default: ~/.cache/moeflux)'],
  ['MOEFLUX_API_KEY', 'key of a server, for serve, ps and stop'],
  ['HF_TOKEN', 'opens private and gated models of the hub'],
  ['HF_ENDPOINT', 'another hub (default: https://huggingface.co)'],
  ['AWS_…', 'access to s3:// addresses: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION'],
  ['NO_COLOR', 'no colours'],
] as const

export function createProgram(): Command {
  const program = new Command('moeflux')
    .description('Runs Mixture-of-Experts language models that are larger than memory.')
    .version(packageVersion(), '-V') // of older versions
    .version(packageVersion(), '-v, --version', 'show the version')
    .enablePositionalOptions() // -v is the version before a command, and --verbose behind it
    .helpOption('-h, --help', 'show help')
    .helpCommand(false)
    .configureHelp({ subcommandTerm: command => `${command.name()} ${argumentTerms(command)}`.trimEnd() })
    .configureOutput({
      outputError: (text, write) =>
        write(`${wrapWords(errorLine(text.replace(/^error: /, '')), columnsOf(process.stderr)).join('\n')}\n`),
    })
    .exitOverride()
  program.options.find(({ short }) => short === '-V')?.hideHelp()
  for (const [title, registers] of GROUPS) {
    program.commandsGroup(title)
    for (const register of registers) register(program)
  }
  for (const command of program.commands) {
    command
      .optionsGroup('Output:')
      .option('-q, --quiet', 'hide notices and progress')
      .option('-v, --verbose', 'show more detail, and the stacks of errors')
      .addHelpOption(command.createOption('-h, --help', 'show help').helpGroup('Output:'))
  }
  program
    .command('help')
    .argument('[command]', 'the command')
    .description('show help for a command')
    .helpGroup('Help:')
    .action((name?: string) => {
      const command = program.commands.find(each => each.name() === name)
      if (name !== undefined && command === undefined) program.error(`error: unknown command '${name}'`)
      ;(command ?? program).outputHelp()
    })
  program.addHelpText(
    'after',
    () => `\nEnvironment:\n${formatFields(ENVIRONMENT, columnsOf(process.stdout)).trimEnd()}`,
  )
  addExamples(program, [
    ['moeflux run "Tell me a story about a girl named Mia"', 'answers with the built-in model'],
    ['moeflux inspect a3b', 'sizes of a model, and what fits this machine'],
  ])
  return program
}

function argumentTerms(command: Command): string {
  return command.registeredArguments.map(each => (each.required ? `<${each.name()}>` : `[${each.name()}]`)).join(' ')
}

function packageVersion(): string {
  const file = new URL('../../../package.json', import.meta.url)
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
}
