// The last two layers of the tiny model, one of each kind, as a model of its own: small enough to be evaluated thousands of
// times, with all that a step has.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { addHead } from './headedModel.js'
import { type Tensors, tinyConfig, tinyTensors, writeSource } from './tinyModel.js'

const FIRST_LAYER = 2

/** Packs it with 4 bits into a new folder, on request with a head for drafts. The caller removes that. */
export async function packTwoLayers(hasHead = false): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-two-'))
  const tensors: Tensors = new Map()
  for (const [name, tensor] of tinyTensors()) {
    const [, layer, rest] = /^model\.layers\.(\d+)\.(.*)$/.exec(name) ?? []
    if (layer === undefined) tensors.set(name, tensor)
    else if (Number(layer) >= FIRST_LAYER) tensors.set(`model.layers.${Number(layer) - FIRST_LAYER}.${rest}`, tensor)
  }
  if (hasHead) addHead(tensors, 1)
  const layer_types = ['linear_attention', 'full_attention']
  const config = {
    ...tinyConfig(),
    num_hidden_layers: 2,
    layer_types,
    full_attention_interval: 2,
    mtp_num_hidden_layers: hasHead ? 1 : 0,
  }
  const source = writeSource(join(folder, 'source'), tensors, { config })
  await packFolder(source, join(folder, 'packed'), { bits: 4 })
  rmSync(source, { recursive: true })
  return join(folder, 'packed')
}
