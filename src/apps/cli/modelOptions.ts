// The flags that say which model runs and on what, the same on every command that opens one.
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { BackendName, Drafts, Precision } from '../../internal.js'
import { byteSizeOption, integerOption } from './optionValues.js'

export interface ModelOptions {
  readonly model?: string
  readonly yes?: boolean
  readonly backend: 'auto' | BackendName
  readonly precision?: Precision
  readonly threads?: number
  readonly expertMemory?: number // bytes
  readonly gpuMemory?: number // bytes
  readonly expertsPerToken?: number
  readonly expertBits?: 2
  readonly context?: number
  readonly expertReads?: 'auto' | 'direct' | 'buffered'
  readonly prefetch: boolean
  readonly checksums: boolean
  readonly modelCache?: number // bytes
  readonly profile?: boolean // a flag of `bench` alone
  readonly drafts?: Drafts // of commands that decode
}

/** Adds the model flags. `model: false` for commands that take the model as an argument. */
export function addModelOptions(command: Command, options: { model?: boolean } = {}): Command {
  if (options.model !== false) {
    command
      .optionsGroup('Model:')
      .option(
        '-m, --model <name|path>',
        'a model in the local store or on the hub (qwen3.6-35b), a folder or a GGUF file (default: the built-in demo)',
      )
      .option('-y, --yes', 'download a missing model without asking')
  }
  return command
    .optionsGroup('Model:')
    .option('--context <tokens>', 'the longest sequence (default: what the model allows)', integerOption(1))
    .optionsGroup(SPEED_GROUP)
    .addOption(
      new Option('--backend <name>', 'where to compute')
        .choices(['auto', 'webgpu', 'wasm', 'reference'])
        .default('auto'),
    )
    .option('--threads <n>', 'threads that compute on the CPU (default: one per core)', integerOption(1, 1024))
    .option('--expert-memory <size>', 'memory for cached experts, like 6GB or 512MiB', byteSizeOption)
    .option('--gpu-memory <size>', 'GPU memory for experts; the CPU computes the others', byteSizeOption)
    .addOption(
      new Option('--precision <kind>', 'int8 or float32 activations (wasm, webgpu)').choices(['fast', 'exact']),
    )
    .option('--experts-per-token <n>', "fewer experts than the model's own: faster, less exact", integerOption(1, 1024))
    .option('--expert-bits <bits>', '2 uses the second set of experts, if the model has one', parseExpertBits)
    .addOption(
      new Option('--expert-reads <way>', 'read experts through the page cache or past it (default: auto)').choices([
        'auto',
        'direct',
        'buffered',
      ]),
    )
    .option('--no-prefetch', 'never read experts ahead')
    .option('--no-checksums', 'do not compare weights with their checksums as they are read')
    .option('--model-cache <size>', 'disk space for models that stay on a server (default: 20GiB)', byteSizeOption)
}

const SPEED_GROUP = 'Speed and memory:'

/** For commands that decode. */
export function addDraftsOption(command: Command): Command {
  return command
    .optionsGroup(SPEED_GROUP)
    .option(
      '--drafts <n>',
      "tokens to guess ahead with the model's own head: 0 to 3, or auto for as many as pay (default: 0)",
      parseDrafts,
    )
}

function parseDrafts(text: string): Drafts {
  const value = text === 'auto' ? text : ([0, 1, 2, 3] as const).find(count => String(count) === text)
  if (value === undefined) throw new InvalidArgumentError('Want auto, 0, 1, 2 or 3.')
  return value
}

function parseExpertBits(text: string): 2 {
  if (text !== '2') throw new InvalidArgumentError('Want 2.')
  return 2
}
