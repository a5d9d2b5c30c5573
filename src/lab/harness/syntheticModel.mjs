// A packed model that exists in memory alone: random weights of a preset's shape, no files.
const pattern = makePattern()

/** `dist`: the built package that is measured. `drafts`: with a head for drafts. `changes`: to the config.json of the preset. */
export async function syntheticModel(dist, name, layers, { drafts = false, changes = {} } = {}) {
  const load = module => import(`${dist}/${module}`)
  const { presets } = await load('model/presets.js')
  const { parseConfig, withDraftHead } = await load('model/config.js')
  const { planTensors, listSpecs } = await load('model/tensorPlan.js')
  const { resolveTensors } = await load('model/resolveTensors.js')
  const { defaultExpertFormats, expertParts, expertLayout } = await load('model/expertLayout.js')
  const json = { ...presets[name].json, num_hidden_layers: layers, ...changes }
  const plain = parseConfig(json)
  const config = drafts ? withDraftHead(plain) : plain
  const stored = new Map()
  const fills = [] // by offset
  let size = 0
  const add = (tensor, shape, dtype, bytes, fill, more = {}) => {
    stored.set(tensor, { offset: size, size: bytes, shape, dtype, ...more })
    fills.push({ offset: size, end: size + bytes, fill })
    size = Math.ceil((size + bytes) / 64) * 64
  }
  for (const spec of listSpecs(planTensors(config))) {
    if (spec.kind === 'vector') {
      const value = spec.role === 'decay' ? 0 : /dt_bias/.test(spec.name) ? 0 : /conv/.test(spec.name) ? 0.25 : 1
      add(spec.name, vectorShape(spec, config), 'F32', spec.length * 4, target => {
        new Float32Array(target.buffer, target.byteOffset, target.length / 4).fill(value)
      })
      continue
    }
    const bits = spec.isGate ? 8 : 4
    const groups = (spec.rows * spec.cols) / 64
    add(
      `${spec.name}.weight`,
      [spec.rows, (spec.cols * bits) / 32],
      'U32',
      (spec.rows * spec.cols * bits) / 8,
      randomBytes,
      { bits },
    )
    const scale = 2 / (Math.sqrt(spec.cols) * 2 ** bits)
    add(`${spec.name}.scales`, [spec.rows, spec.cols / 64], 'BF16', groups * 2, halves(scale))
    add(`${spec.name}.biases`, [spec.rows, spec.cols / 64], 'BF16', groups * 2, halves((-scale * (2 ** bits - 1)) / 2))
  }
  const weights = {
    name: 'synthetic weights',
    size,
    async read(offset, target) {
      const at = fills.find(range => offset >= range.offset && offset < range.end)
      at.fill(target)
    },
    async close() {},
  }
  const parts = expertParts(config, defaultExpertFormats(4))
  const layout = expertLayout(config, parts, 'packed_experts')
  const records = Array.from({ length: 8 }, () => {
    const record = new Uint8Array(layout.expertSize)
    for (const part of parts) {
      const range = record.subarray(part.offset, part.offset + part.size)
      const cols = part.projection === 'down' ? config.moeIntermediateSize : config.hiddenSize
      const scale = 2 / (Math.sqrt(cols) * 16)
      if (part.kind === 'weight') randomBytes(range)
      else halves(part.kind === 'scales' ? scale : -scale * 7.5)(range)
    }
    return record
  })
  const files = config.expertLayers.map(layer => ({
    name: `synthetic experts ${layer}`,
    size: config.numExperts * layout.expertSize,
    async read(offset, target) {
      target.set(records[(layer * 31 + offset / layout.expertSize) % records.length])
    },
    async close() {},
  }))
  const tensors = resolveTensors(config, stored, weights)
  return {
    name,
    config,
    tensors,
    weights,
    experts: { layout, layouts: files.map(() => layout), files, checksums: null },
    fingerprint: name,
    async close() {},
  }
}

function vectorShape(spec, config) {
  return /conv1d/.test(spec.name) ? [config.linearConvDim, 4, 1] : [spec.length]
}

function randomBytes(target) {
  for (let at = 0; at < target.length; at += pattern.length) {
    target.set(pattern.subarray(0, Math.min(pattern.length, target.length - at)), at)
  }
}

function halves(value) {
  const word = new Uint32Array(Float32Array.of(value).buffer)[0] >>> 16
  return target => new Uint16Array(target.buffer, target.byteOffset, target.length / 2).fill(word)
}

function makePattern() {
  const words = new Uint32Array(2 ** 20 + 7)
  let state = 12345
  for (let i = 0; i < words.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    words[i] = state ^ (state >>> 15)
  }
  return new Uint8Array(words.buffer)
}
