// `moeflux stop`: lets a running server unload a model.
import type { Command } from 'commander'
import { MoefluxError } from '../../../base/errors.js'
import { action, type Cli } from '../action.js'
import { addExamples } from '../optionValues.js'
import { addServerOptions, askServer, loadedModels, type ServerOptions } from '../serverClient.js'

const UNLOAD_TIMEOUT_MS = 5_000
const POLL_MS = 50

export function registerStop(program: Command): void {
  const command = program
    .command('stop')
    .description('unload a model of a running server')
    .argument('<model>', "its name, as 'moeflux ps' shows it")
  addServerOptions(command).action(action(stop))
  addExamples(command, ['moeflux stop qwen3.6-35b'])
}

async function stop(cli: Cli, model: string, options: ServerOptions): Promise<void> {
  const loaded = async () => (await loadedModels(cli, options)).map(({ name }) => name)
  const before = await loaded()
  if (before.length === 0) throw new MoefluxError('NOT_LOADED', `no model is in memory at ${options.url}`)
  // Ollama's way to say it: nothing to answer, and no time to stay.
  const answer = await askServer(cli, options, '/api/generate', { model, keep_alive: 0, stream: false })
  if ((answer as { done_reason?: unknown }).done_reason !== 'unload') {
    const reason = 'it is the only one, or pinned; Ctrl-C in its terminal stops the server'
    throw new MoefluxError('NOT_UNLOADED', `${model} stays in memory: ${reason}`)
  }
  for (const deadline = Date.now() + UNLOAD_TIMEOUT_MS; Date.now() < deadline; await pause()) {
    const after = await loaded()
    const gone = before.filter(name => !after.includes(name))
    if (gone.length > 0) return cli.notice(`unloaded ${gone.join(', ')}`)
    if (!before.includes(model)) throw notLoaded(model, before)
  }
  cli.notice(`${model} is unloaded when its running answers have ended`)
}

function notLoaded(model: string, loaded: readonly string[]): MoefluxError {
  const others = loaded.length === 1 ? `${loaded[0]} is` : `these are: ${loaded.join(', ')}`
  return new MoefluxError('NOT_LOADED', `${model} is not in memory: ${others}`)
}

async function pause(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve, POLL_MS))
}
