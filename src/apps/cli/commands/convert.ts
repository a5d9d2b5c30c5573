// `moeflux convert`: packs a downloaded model into the folder that the engine reads.
import { type Command, Option } from 'commander'
import { action, type Cli } from '../action.js'
import { formatBytes, formatDuration } from '../format.js'
import { addExamples } from '../optionValues.js'

interface ConvertCommandOptions {
  readonly bits?: string
  readonly groupSize?: string
  readonly experts2bit?: boolean
  readonly name?: string
}

export function registerConvert(program: Command): void {
  const command = program
    .command('convert')
    .description('pack a downloaded model (MLX or Hugging Face safetensors, or GGUF) for streaming')
    .argument('<source>', 'folder with config.json and safetensors, or a GGUF file')
    .argument('<target>', 'folder to write; an unfinished conversion there is resumed')
    .addOption(
      new Option('--bits <bits>', 'how to store an unquantized source; 16 keeps it as it is (default: 4)').choices([
        '4',
        '8',
        '16',
      ]),
    )
    .addOption(new Option('--group-size <n>', 'weights that share a scale (default: 64)').choices(['32', '64', '128']))
    .option('--experts-2bit', 'write a second, smaller set of experts in 2 bits')
    .option('--name <name>', "the model's name (default: the source folder's)")
    .action(action(convertCommand))
  addExamples(command, [
    ['moeflux convert ~/Downloads/Qwen3.6-35B-A3B-4bit ~/models/a3b', 'an MLX folder; its bytes are kept'],
    ['moeflux convert ~/hf/Qwen3.6-35B-A3B ~/models/a3b-8bit --bits 8', 'a BF16 folder, quantized to 8 bits'],
    ['moeflux convert ~/Downloads/Qwen3.6-35B-A3B-Q4_K_M.gguf ~/models/a3b', 'a GGUF file, or the first of its parts'],
  ])
}

async function convertCommand(cli: Cli, source: string, target: string, options: ConvertCommandOptions): Promise<void> {
  const [{ packFolder }, { relaidField }, { costsOf }] = await Promise.all([
    import('../../../internal.js'),
    import('../modelReport.js'),
    import('../packedBytes.js'),
  ])
  const bar = cli.progressBar()
  const started = performance.now()
  const result = await packFolder(source, target, {
    bits: options.bits === undefined ? undefined : (Number(options.bits) as 4 | 8 | 16),
    groupSize: options.groupSize === undefined ? undefined : (Number(options.groupSize) as 32 | 64 | 128),
    experts2bit: options.experts2bit,
    name: options.name,
    signal: cli.signal,
    onProgress: progress => bar.update(progress),
    onNotice: line => cli.notice(line),
  }).finally(() => bar.clear())
  if (result.bytesReused === result.bytes) {
    cli.notice(`${target} already holds ${result.metadata.model}`)
    return
  }
  const seconds = (performance.now() - started) / 1000
  const { layout } = result.metadata.source
  cli.notice(
    `packed ${result.metadata.model} (${layout.toUpperCase()} layout, ${formatBytes(result.bytes)}) in ${formatDuration(seconds)}`,
  )
  for (const cost of (await costsOf(source)) ?? []) cli.notice(relaidField(cost).join(': '))
}
