// What `inspect` says of a model, as text for people and as JSON for programs. Pure.

import { diskLack } from '../../base/formatBytes.js'
import type { ModelConfig } from '../../index.js'
import {
  type Estimate,
  expertBytes,
  FOUR_BIT,
  fullLayerCount,
  headResidentBytes,
  kvBytesPerToken,
  type MachineRates,
  MOST_GUESSES,
  type ModelBytes,
  type RelayCost,
  recurrentBytes,
  residentBytes,
} from '../../internal.js'
import { formatBytes, formatFields, formatInteger, formatPercent, threeDigits, wrapWords } from './format.js'
import type { GpuEstimate } from './gpuEstimate.js'
import type { Machine } from './machine.js'

/** What there is to say of a model, from a preset or from a folder's own tables. */
export interface ModelSubject {
  readonly name: string
  readonly source: string
  readonly config: ModelConfig
  readonly bytes: ModelBytes
  readonly expert2Bit: number
  readonly absent?: { readonly name: string; readonly diskBytes: number } // where it is not here: to pull it, what it takes
  readonly expertFiles?: readonly string[] // where there are any
  readonly relaid?: readonly RelayCost[] // what packing a GGUF file does to its types
}

export interface ModelReport {
  readonly subject: ModelSubject
  readonly machine: Machine
  readonly totalMemory: number // of this machine, or of the one that was asked about
  readonly disk: { readonly folder: string; readonly free: number | null } // of the store
  readonly isThisMachine: boolean // and not one that was described
  readonly rates: MachineRates
  readonly readSpeedFrom: 'given' | 'measured' | 'assumed'
  readonly estimate: Estimate
  readonly gpu: GpuEstimate | null // where one was asked about
  readonly expertsPerToken: number
}

function parameterCounts(config: ModelConfig): { total: number; active: number } {
  const resident = residentBytes(config, null) / 2
  const expert = expertBytes(config, null) / 2
  return {
    total: Math.round(resident + config.expertLayers.length * config.numExperts * expert),
    active: Math.round(resident + config.moeLayers.length * config.expertsPerToken * expert),
  }
}

/** Of the head for drafts, experts included; the resident part as most are packed. */
function headBytes({ config, bytes }: ModelSubject): number {
  const experts = config.draftHead?.feedForward.kind === 'moe' ? config.numExperts : 0
  return experts * bytes.expert + headResidentBytes(config, FOUR_BIT)
}

/** Recurrent states that a step with guesses keeps besides: one for each. */
function guessStates(config: ModelConfig): number {
  return MOST_GUESSES * recurrentBytes(config)
}

export function reportJson(report: ModelReport): unknown {
  const { subject, machine, rates, estimate, expertsPerToken } = report
  const { config, bytes } = subject
  const full = fullLayerCount(config)
  return {
    name: subject.name,
    source: subject.source,
    ...(subject.relaid === undefined ? {} : { relaid: subject.relaid }),
    config,
    parameters: parameterCounts(config),
    layers: { total: config.numLayers, linearAttention: config.numLayers - full, fullAttention: full },
    bytes: {
      expert: bytes.expert,
      expert2Bit: subject.expert2Bit,
      allExperts: bytes.allExperts,
      resident: bytes.resident,
      kvPerToken: kvBytesPerToken(config),
      recurrentState: recurrentBytes(config),
      ...(config.draftHead === null ? {} : { draftHead: headBytes(subject), draftStates: guessStates(config) }),
    },
    machine,
    disk: { ...report.disk, needed: subject.absent?.diskBytes ?? null },
    assumptions: {
      ...rates,
      readSpeedFrom: report.readSpeedFrom,
      expertsPerToken,
      routing: 'uniform',
      overlap: 'reading and computing',
    },
    estimate,
    ...(report.gpu === null ? {} : { gpu: report.gpu }),
  }
}

export function reportText(report: ModelReport, bold: (text: string) => string, width?: number): string {
  const { subject, machine, rates, estimate, disk } = report
  const { config: c, bytes } = subject
  const full = fullLayerCount(c)
  const count = parameterCounts(c)
  const hasExperts = c.moeLayers.length > 0
  const takes = subject.absent === undefined ? '' : `; takes ${formatBytes(subject.absent.diskBytes)}`
  const exact = (value: number) => `${formatInteger(value).padStart(15)} B  ${formatBytes(value)}`
  const sections: [title: string, fields: [string, string][]][] = [
    [
      'Shape',
      [
        [
          'parameters',
          parameters(count.total) + (hasExperts ? `, of which a token uses ${parameters(count.active)}` : ''),
        ],
        ['family', c.family],
        ['layers', layersText(c, full)],
        ['hidden size', `${c.hiddenSize}; vocabulary ${formatInteger(c.vocabSize)}`],
        ...shapeFields(c),
        ['context limit', `${formatInteger(c.maxPositionEmbeddings)} tokens`],
      ],
    ],
    [
      'Sizes',
      [
        ...given(hasExperts, [
          ['one expert', exact(bytes.expert)],
          ['one expert in 2 bit', exact(subject.expert2Bit)],
          ['all experts', exact(bytes.allExperts)],
        ]),
        [hasExperts ? 'resident part' : 'weights', exact(bytes.resident)],
        ['K/V per token', exact(kvBytesPerToken(c))],
        ...given(full < c.numLayers, [['recurrent state', `${exact(recurrentBytes(c))} a sequence`]]),
        ...given(c.draftHead !== null, [
          [
            'head for drafts',
            `${exact(headBytes(subject))}, and ${formatBytes(guessStates(c))} of states a sequence (--drafts)`,
          ],
        ]),
      ],
    ],
    [
      'This machine',
      [
        ['processor', `${machine.processor}, ${machine.threads} threads`],
        ['memory', `${formatBytes(report.totalMemory)}; planned with ${formatBytes(rates.memory)}`],
        ...given(disk.free !== null, [['disk', `${formatBytes(disk.free ?? 0)} free in ${disk.folder}${takes}`]]),
        ['verdict', verdictText(report)],
        [
          'needs',
          `${formatBytes(bytes.resident)} resident, ${formatBytes(estimate.stateBytes)} for ${formatInteger(estimate.contextTokens)} tokens`,
        ],
        ...given(hasExperts, [
          ['experts cached', `${formatBytes(estimate.expertMemory)}, ${formatPercent(estimate.cachedShare)} of all`],
        ]),
        ['expected', speed(estimate)],
      ],
    ],
    ...(report.gpu === null ? [] : [gpuSection(report.gpu)]),
  ]
  if (subject.relaid?.length) sections.splice(2, 0, ['Types of the file', subject.relaid.map(relaidField)])
  const body = sections.map(([title, fields]) => `${bold(title)}\n${formatFields(fields, width)}`).join('\n')
  return `${bold(subject.name)} (${subject.source})\n\n${body}\n${assumptions(report, width)}`
}

type Field = [name: string, text: string]

function given(isThere: boolean, fields: Field[]): Field[] {
  return isThere ? fields : []
}

function layersText(c: ModelConfig, full: number): string {
  const windowed = c.layers.filter(({ mixer }) => mixer.kind === 'full_attention' && mixer.window !== null).length
  const dense = c.numLayers - c.moeLayers.length
  const kinds = [
    [c.numLayers - full, 'linear attention'],
    [full - windowed, 'full attention'],
    [windowed, 'attention within a window'],
    [c.moeLayers.length > 0 ? dense : 0, 'of them without experts'],
  ] as const
  const named = kinds.filter(([count]) => count > 0).map(([count, kind]) => `${count} ${kind}`)
  return `${c.numLayers}: ${named.join(', ')}`
}

function shapeFields(c: ModelConfig): Field[] {
  const moe = c.layers[c.moeLayers[0]]?.feedForward
  const shared = moe?.kind === 'moe' && moe.shared !== 'none' ? ', and a shared one' : ''
  const dense = c.layers.map(({ feedForward }) => feedForward).find(({ kind }) => kind === 'dense')
  const attention = `${c.numHeads} heads of ${c.headDim}, ${c.numKvHeads} for K/V; ${c.rope.dims} channels rotate`
  const heads = `${c.linearValueHeads} value heads of ${c.linearValueDim}`
  const experts = `${c.numExperts} a layer, ${c.expertsPerToken} a token${shared}; ${c.moeIntermediateSize} wide`
  return [
    ...given(fullLayerCount(c) > 0, [['full attention', attention]]),
    ...given(c.linearKeyHeads > 0, [
      ['linear attention', `${heads}, ${c.linearKeyHeads} key heads of ${c.linearKeyDim}`],
    ]),
    ...given(moe !== undefined, [['experts', experts]]),
    ...(dense?.kind === 'dense' ? given(true, [['dense block', `${dense.width} wide`]]) : []),
  ]
}

/** What a type of a GGUF file became: the type, and the rest in words. */
export function relaidField({ type, storedAs, weights, bits, storedBits, largestError }: RelayCost): [string, string] {
  const cost =
    largestError === 0 ? 'no loss' : `largest error ${(largestError * 100).toPrecision(2)}% of a group's largest`
  const size = `${threeDigits(bits)} bits each, stored as ${storedAs} in ${threeDigits(storedBits)}`
  return [type, `${parameters(weights)} weights; ${size}; ${cost}`]
}

/** What the disk has no room for cannot run either; on another machine the disk is another one, too. */
function verdictText(report: ModelReport): string {
  const { subject, estimate, rates, isThisMachine } = report
  const memory = verdict(estimate, rates, subject.bytes)
  const lack = lackOf(report)
  return lack === null || !isThisMachine ? memory : `${lack}; with more disk: ${memory}`
}

/** Null where the disk has room, or the model is there. */
function lackOf({ subject: { absent }, disk: { free } }: ModelReport): string | null {
  return absent === undefined || free === null || free >= absent.diskBytes ? null : diskLack(absent.diskBytes, free)
}

function verdict(estimate: Estimate, { memory }: MachineRates, { resident, allExperts }: ModelBytes): string {
  if (estimate.fits === 'everything') {
    return `fits in memory${allExperts > 0 ? ': after a first pass nothing is read from disk' : ''}`
  }
  if (estimate.fits === 'streaming') return 'runs by streaming experts from disk'
  const { leastMemory, contextTokens } = estimate
  if (leastMemory === estimate.stateBytes + resident) {
    const room = Math.max(0, memory - estimate.stateBytes)
    return `too small by ${formatBytes(leastMemory - memory)}: without experts all weights must fit; ${formatBytes(room)} of weights would`
  }
  const parts = `the resident part, ${formatInteger(contextTokens)} tokens and a token's experts of two layers`
  return `too small by ${formatBytes(leastMemory - memory)}: ${parts} take ${formatBytes(leastMemory)}`
}

function gpuSection(gpu: GpuEstimate): [title: string, fields: [string, string][]] {
  return [`With a GPU of ${formatBytes(gpu.gpuBytes)}`, gpuFields(gpu)]
}

/** Where experts go with a GPU, and what that gives. */
export function gpuFields({ tokensPerSecond, experts, line }: GpuEstimate): [string, string][] {
  if (tokensPerSecond === null) return [['plan', line]]
  const all = experts.gpu + experts.memory + experts.disk
  const part = (count: number) => `${formatInteger(count)} experts, ${formatPercent(count / all)}`
  return [
    ['plan', line],
    ['on the GPU', part(Math.min(all, experts.gpu))],
    ['in memory', `${part(experts.memory)}, computed by the CPU`],
    ['on disk', part(experts.disk)],
    ['expected', `${threeDigits(tokensPerSecond)} tok/s with even routing, the worst case`],
  ]
}

function speed(estimate: Estimate): string {
  if (estimate.fits === 'no') return 'nothing'
  const why = estimate.readSeconds > estimate.computeSeconds ? 'the disk is the limit' : 'the CPU is the limit'
  return `up to ${threeDigits(estimate.tokensPerSecond)} tok/s on the wasm backend; ${why}`
}

function assumptions(report: ModelReport, width?: number): string {
  const { subject, rates, readSpeedFrom, estimate, expertsPerToken } = report
  const lines = [
    `Assumed: ${formatBytes(estimate.bytesPerToken)} of weights a token${expertsPerToken === 0 ? '' : ` (${expertsPerToken} experts a layer)`}, computed at ${formatBytes(rates.weightsPerSecond)}/s.`,
  ]
  if (estimate.fits === 'streaming') {
    lines.push(
      `${formatBytes(estimate.readPerToken)} a token read at ${formatBytes(rates.readsPerSecond)}/s (${readSpeedFrom}) while others compute; even routing, the worst case.`,
    )
  }
  lines.push('`moeflux doctor` measures the disk and `moeflux bench` the real speed.')
  const { absent } = subject
  if (absent !== undefined && lackOf(report) === null) {
    lines.push(`\`moeflux run -m ${absent.name} "Hello"\` downloads it and answers.`)
  }
  return `${lines.flatMap(line => wrapWords(line, width ?? line.length)).join('\n')}\n`
}

function parameters(count: number): string {
  return count < 1e9 ? `${threeDigits(count / 1e6)} million` : `${threeDigits(count / 1e9)} billion`
}
