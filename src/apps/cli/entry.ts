// The `moeflux` command: parses the command line, hands over to a command, and leaves with its exit code.
import { CommanderError } from 'commander'
import { EXIT_USAGE, report } from './action.js'
import { createProgram } from './program.js'
import { Terminal } from './terminal.js'

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
