// Reads and writes the two JSON files that describe a packed folder: model_weights.json (where each resident tensor
// lies) and moeflux.json (where the model came from, checksums, and the layout of experts). Checks the files' own form;
// whether tensors fit a model is checked where the tables are resolved.
import { FormatError } from '../../base/errors.js'
import type { ExpertPart, ExpertTables, PartKind, Projection } from '../../model/expertLayout.js'
import type { StoredTensor, StoredTensors } from '../../model/resolveTensors.js'
import { asArray, asCount, asObject, asString, type JsonObject, parseStrictJson, show } from '../strictJson.js'
import type { ExpertSetName } from './packedNames.js'

const FORMAT_VERSION = 1

export interface Manifest {
  readonly model: string
  readonly tensors: StoredTensors
}

export interface FileChecksum {
  readonly size: number
  readonly sha256: string
}

export interface PackedSource {
  readonly name: string
  readonly layout: 'mlx' | 'hf' | 'gguf' | 'synthetic'
  /** A hash over config, headers and samples of the source: see sourceIdentity.ts. */
  readonly identity: string
}

export interface PackedOptions {
  readonly bits: number | null // null: as the source had them
  readonly groupSize: number | null
  readonly experts2bit: boolean
}

/** What moeflux.json says. */
export interface Metadata {
  readonly model: string
  readonly source: PackedSource
  readonly options: PackedOptions
  readonly files: ReadonlyMap<string, FileChecksum>
  readonly experts: ReadonlyMap<ExpertSetName, ExpertTables>
}

export function parseManifest(text: string, file: string): Manifest {
  const root = asObject(parseStrictJson(text, file), file, 'the manifest')
  const tensors = new Map<string, StoredTensor>()
  for (const [name, value] of asObject(root.get('tensors'), file, 'tensors')) {
    const fields = asObject(value, file, `tensor ${name}`)
    const optional = (field: string) =>
      fields.has(field) ? asCount(fields.get(field), file, `${field} of tensor ${name}`) : undefined
    tensors.set(name, {
      offset: asCount(fields.get('offset'), file, `offset of tensor ${name}`),
      size: asCount(fields.get('size'), file, `size of tensor ${name}`),
      shape: parseShape(fields, file, `shape of tensor ${name}`),
      dtype: asString(fields.get('dtype'), file, `dtype of tensor ${name}`),
      bits: optional('bits'),
      groupSize: optional('group_size'),
      ...blockFields(fields, file, `tensor ${name}`),
    })
  }
  const model = root.get('model')
  return { model: typeof model === 'string' ? model : '', tensors }
}

export function formatManifest(model: string, tensors: StoredTensors, config: unknown): string {
  const entries = [...tensors].map(([name, tensor]): [string, unknown] => {
    const { offset, size, shape, dtype, bits, groupSize, block, span } = tensor
    const quantization = dtype === 'U32' ? { bits, ...(groupSize === 64 ? {} : { group_size: groupSize }) } : {}
    return [name, { offset, size, shape, dtype, ...quantization, block, span }]
  })
  return formatJson({ model, num_tensors: tensors.size, tensors: Object.fromEntries(entries), config })
}

export function parseMetadata(text: string, file: string): Metadata {
  const root = asObject(parseStrictJson(text, file), file, 'moeflux.json')
  const version = root.get('format')
  if (version !== FORMAT_VERSION) {
    throw new FormatError('UNKNOWN_VERSION', file, `format is ${show(version)}, want ${FORMAT_VERSION}`)
  }
  const source = asObject(root.get('source'), file, 'source')
  const layout = source.get('layout')
  if (layout !== 'mlx' && layout !== 'hf' && layout !== 'gguf' && layout !== 'synthetic') {
    throw new FormatError(
      'BAD_FIELD',
      file,
      `source.layout is ${show(layout)}, want "mlx", "hf", "gguf" or "synthetic"`,
    )
  }
  const options = asObject(root.get('options'), file, 'options')
  const countOrNull = (field: string) => {
    const value = options.get(field)
    return value === null || value === undefined ? null : asCount(value, file, `options.${field}`)
  }
  const files = new Map<string, FileChecksum>()
  for (const [name, value] of asObject(root.get('files'), file, 'files')) {
    const fields = asObject(value, file, `files.${name}`)
    const sha256 = asString(fields.get('sha256'), file, `files.${name}.sha256`)
    if (!/^[0-9a-f]{64}$/.test(sha256)) {
      throw new FormatError('BAD_FIELD', file, `files.${name}.sha256 is ${show(sha256)}, want 64 hex digits`)
    }
    files.set(name, { size: asCount(fields.get('size'), file, `files.${name}.size`), sha256 })
  }
  const experts = new Map<ExpertSetName, ExpertTables>()
  for (const [set, value] of asObject(root.get('experts'), file, 'experts')) {
    if (set !== 'packed_experts' && set !== 'packed_experts_2bit') {
      throw new FormatError('BAD_FIELD', file, `experts.${set} is not a known set`)
    }
    experts.set(set, parseTables(asObject(value, file, `experts.${set}`), file, `experts.${set}`))
  }
  return {
    model: asString(root.get('model'), file, 'model'),
    source: {
      name: asString(source.get('name'), file, 'source.name'),
      layout,
      identity: asString(source.get('identity'), file, 'source.identity'),
    },
    options: {
      bits: countOrNull('bits'),
      groupSize: countOrNull('group_size'),
      experts2bit: options.get('experts_2bit') === true,
    },
    files,
    experts,
  }
}

export function formatMetadata(metadata: Metadata): string {
  const { model, source, options, files, experts } = metadata
  return formatJson({
    format: FORMAT_VERSION,
    model,
    source,
    options: { bits: options.bits, group_size: options.groupSize, experts_2bit: options.experts2bit },
    files: Object.fromEntries(files),
    experts: Object.fromEntries([...experts].map(([set, tables]) => [set, formatTables(tables)])),
  })
}

/** `parts` of every expert or, where precision is mixed, `layers` with parts of their own. */
function parseTables(fields: JsonObject, file: string, what: string): ExpertTables {
  const table = (of: JsonObject, name: string) =>
    asArray(of.get('parts'), file, `${name}.parts`).map((part, i) => {
      const place = `${name}.parts[${i}]`
      return parsePart(asObject(part, file, place), file, place)
    })
  if (!fields.has('layers')) return [table(fields, what)]
  return asArray(fields.get('layers'), file, `${what}.layers`).map((layer, i) => {
    const place = `${what}.layers[${i}]`
    return table(asObject(layer, file, place), place)
  })
}

function formatTables(tables: ExpertTables): unknown {
  return tables.length === 1 ? { parts: tables[0] } : { layers: tables.map(parts => ({ parts })) }
}

/** What only weights in blocks have. */
function blockFields(fields: JsonObject, file: string, what: string): { block?: string; span?: number } {
  if (!fields.has('block')) return {}
  return {
    block: asString(fields.get('block'), file, `block of ${what}`),
    span: fields.has('span') ? asCount(fields.get('span'), file, `span of ${what}`) : 0,
  }
}

function parsePart(fields: JsonObject, file: string, what: string): ExpertPart {
  const projection = fields.get('projection')
  if (projection !== 'gate' && projection !== 'up' && projection !== 'down') {
    throw new FormatError('BAD_FIELD', file, `${what}.projection is ${show(projection)}, want gate, up or down`)
  }
  const kind = fields.get('kind')
  if (kind !== 'weight' && kind !== 'scales' && kind !== 'biases' && kind !== 'bias') {
    throw new FormatError('BAD_FIELD', file, `${what}.kind is ${show(kind)}, want weight, scales, biases or bias`)
  }
  return {
    projection: projection satisfies Projection,
    kind: kind satisfies PartKind,
    dtype: asString(fields.get('dtype'), file, `${what}.dtype`),
    bits: asCount(fields.get('bits'), file, `${what}.bits`),
    group: asCount(fields.get('group'), file, `${what}.group`),
    shape: parseShape(fields, file, `${what}.shape`),
    offset: asCount(fields.get('offset'), file, `${what}.offset`),
    size: asCount(fields.get('size'), file, `${what}.size`),
    ...blockFields(fields, file, what),
  }
}

function parseShape(fields: JsonObject, file: string, what: string): number[] {
  return asArray(fields.get('shape'), file, what).map(dim => asCount(dim, file, what))
}

/** Two spaces, and lists of plain values on one line. */
function formatJson(value: unknown): string {
  const text = JSON.stringify(value, null, 2)
  return `${text.replace(/\[\s+([^[\]{}]*?)\s+\]/g, (_, inner: string) => `[${inner.replace(/,\s+/g, ', ')}]`)}\n`
}
