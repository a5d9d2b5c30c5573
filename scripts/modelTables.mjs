// The tables of models in README.md and docs/models.md.
import { formatBytes, threeDigits } from '../dist/apps/cli/format.js'
import { findNamed, namedModels, onCpu, onGpu, sizesOf } from './modelFigures.mjs'

const NONE = '–'

/** What the README recommends for machines: memory, or a GPU next to 32 GB of memory. */
const MACHINES = [
  { machine: '8 GB of memory', memory: 8e9, name: 'qwen3.5-4b' },
  { machine: '16 GB', memory: 16e9, name: 'qwen3.6-35b' },
  { machine: '32 GB', memory: 32e9, name: 'qwen3.6-35b' },
  { machine: '32 GB and a GPU of 8 GB', memory: 32e9, gpu: 8e9, name: 'qwen3.6-35b' },
  { machine: '32 GB and a GPU of 24 GB', memory: 32e9, gpu: 24e9, name: 'qwen3.6-35b' },
  { machine: '64 GB', memory: 64e9, name: 'gpt-oss-120b' },
  { machine: '64 GB', memory: 64e9, name: 'qwen3.5-397b' },
]

const MEMORIES = [16e9, 32e9, 64e9]
const GPUS = [8e9, 12e9, 24e9]
const MEMORY_WITH_GPU = 32e9

/** Of the original checkpoints, by their pages on the hub. */
const LICENCES = [
  [/^Qwen3\.8/, 'see its page'],
  [/^Qwen3/, 'Apache 2.0'],
  [/^gpt-oss/, 'Apache 2.0'],
  [/^GLM-4\.5/, 'MIT'],
]

export function modelTables() {
  return {
    'README.md': { machines: machinesTable() },
    'docs/models.md': { models: modelsTable(), names: namesTable() },
  }
}

function machinesTable() {
  const rows = MACHINES.map(({ machine, memory, gpu, name }) => {
    const { config, title } = findNamed(name)
    const speed = gpu === undefined ? onCpu(config, memory) : onGpu(config, gpu, memory)
    const note = speed.isStreamed ? ', experts streamed from disk' : ''
    return [
      machine,
      `${title} (\`${name}\`)`,
      `${threeDigits(speed.tokensPerSecond)} tok/s${note}`,
      formatBytes(sizesOf(config).total),
    ]
  })
  return table(['your machine', 'model', 'speed', 'download'], rows)
}

function modelsTable() {
  const gigabytes = bytes => `${bytes / 1e9} GB`
  const header = [
    ...['name', 'model', 'licence', 'download and disk', 'least memory'],
    ...MEMORIES.map(gigabytes),
    ...GPUS.map(bytes => `GPU of ${gigabytes(bytes)}`),
  ]
  const size = ({ config }) => (config === null ? Number.POSITIVE_INFINITY : sizesOf(config).total)
  const models = namedModels().sort((a, b) => (size(a) === size(b) ? 0 : size(a) - size(b)))
  const rows = models.map(({ names, title, config }) => {
    const about = [`\`${names[0]}\``, title, licenceOf(title)]
    if (config === null) return [...about, ...header.slice(about.length).map(() => '')]
    const { total, least } = sizesOf(config)
    const speeds = [
      ...MEMORIES.map(memory => onCpu(config, memory)),
      ...GPUS.map(gpu => onGpu(config, gpu, MEMORY_WITH_GPU)),
    ]
    return [...about, formatBytes(total), formatBytes(least), ...speeds.map(speedCell)]
  })
  return table(header, rows)
}

/** In italics where experts are read from disk. */
function speedCell(speed) {
  if (speed === null) return NONE
  const rate = threeDigits(speed.tokensPerSecond)
  return speed.isStreamed ? `*${rate}*` : rate
}

function licenceOf(title) {
  const found = LICENCES.find(([pattern]) => pattern.test(title))
  if (found === undefined) throw new Error(`scripts/modelTables.mjs does not know the licence of ${title}`)
  return found[1]
}

function namesTable() {
  const rows = namedModels()
    .filter(({ hub }) => hub !== null)
    .map(({ names: [name, ...others], hub }) => [
      `\`${name}\``,
      others.map(each => `\`${each}\``).join(', '),
      `[${hub}](https://huggingface.co/${hub})`,
    ])
  return table(['name', 'also', 'downloads'], rows)
}

/** A Markdown table. */
export function table(header, rows) {
  const line = cells => `| ${cells.join(' | ')} |\n`
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('')
}
