#!/usr/bin/env node
// The `moeflux` command: finds the subcommand, hands over, and leaves with its exit code. A command registers itself in
// commands/<name>.ts and loads what it needs only when it runs, so that `--help` answers at once.
import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { EXIT_USAGE, errorLine, report } from './action.js'
import { registerBench } from './commands/bench.js'
import { registerConvert } from './commands/convert.js'
import { registerEval } from './commands/eval.js'
import { registerInspect } from './commands/inspect.js'
import { registerList } from './commands/list.js'
import { registerRm } from './commands/rm.js'
import { registerRun } from './commands/run.js'
import { registerVerify } from './commands/verify.js'
import { addExamples } from './optionValues.js'
import { Terminal } from './terminal.js'

type Register = (program: Command) => void

/** How the commands are shown in the help, in this order. */
const GROUPS: readonly (readonly [title: string, registers: readonly Register[]])[] = [
  ['Talk:', [registerRun]],
  ['Models:', [registerConvert, registerList, registerInspect, registerVerify, registerRm]],
  ['Measure:', [registerBench, registerEval]],
]

export function createProgram(): Command {
  const program = new Command('moeflux')
    .description('Runs Mixture-of-Experts language models that are larger than memory.')
    .version(packageVersion(), '-V, --version', 'show the version')
    .helpOption('-h, --help', 'show help')
    .addHelpCommand(new Command('help').argument('[command]').description('show help for a command').helpGroup('Help:'))
    .configureHelp({ subcommandTerm: command => `${command.name()} ${argumentTerms(command)}`.trimEnd() })
    .configureOutput({ outputError: (text, write) => write(`${errorLine(text.replace(/^error: /, ''))}\n`) })
    .exitOverride()
  for (const [title, registers] of GROUPS) {
    program.commandsGroup(title)
    for (const register of registers) register(program)
  }
  for (const command of program.commands) {
    command.option('-q, --quiet', 'no notices and no progress').option('-v, --verbose', 'more detail; stacks of errors')
  }
  addExamples(program, [
    ['moeflux run "Tell me a story about a little dog"', 'answers with the built-in model'],
    ['moeflux inspect a3b', 'sizes of a model, and what fits this machine'],
  ])
  return program
}

function argumentTerms(command: Command): string {
  return command.registeredArguments.map(each => (each.required ? `<${each.name()}>` : `[${each.name()}]`)).join(' ')
}

function packageVersion(): string {
  const file = new URL('../../package.json', import.meta.url)
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
}

async function main(): Promise<void> {
  // Writes to a reader that left are reported by the command that made them; here they must only not be fatal.
  process.stdout.on('error', () => {})
  process.stderr.on('error', () => {})
  try {
    await createProgram().parseAsync()
  } catch (error) {
    // Commander has printed its line already. Help that was asked for is no error.
    if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE
    else process.exitCode = report(new Terminal({ quiet: false, verbose: true }), error)
  }
  // Workers or an open stdin may still hold the process; what was written must be out before it ends.
  await new Promise(resolve => process.stdout.write('', resolve))
  process.exit()
}

await main()
