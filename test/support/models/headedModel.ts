// The tiny model with a head for drafts, which it does not have of its own: a layer of full attention once more, with other values.
import { floatTensor, type Tensors, valuesOf } from './tinyModel.js'

/** Adds it as Hugging Face names it; `layer`: whose tensors it gets, each value doubled. */
export function addHead(tensors: Tensors, layer: number): Tensors {
  const at = `model.layers.${layer}.`
  for (const [name, tensor] of [...tensors]) {
    if (!name.startsWith(at)) continue
    const doubled = valuesOf(tensor).map(value => 2 * value)
    tensors.set(name.replace(at, 'mtp.layers.0.'), floatTensor('BF16', tensor.shape, doubled))
  }
  const ramp = (count: number, from: number) => Float32Array.from({ length: count }, (_, i) => from + (i % 32) / 64)
  tensors.set('mtp.fc.weight', floatTensor('BF16', [128, 256], ramp(128 * 256, -0.25)))
  for (const [i, name] of ['pre_fc_norm_embedding', 'pre_fc_norm_hidden', 'norm'].entries()) {
    tensors.set(`mtp.${name}.weight`, floatTensor('BF16', [128], ramp(128, i / 4)))
  }
  return tensors
}
