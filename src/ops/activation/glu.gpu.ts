// Shader constants of glu.wgsl.
import type { ShaderConstants } from '../../gpu/device/shaderSource.js'
import type { Activation } from '../../model/layers.js'

export function gluConstants(activation: Activation): ShaderConstants {
  return activation.kind === 'silu' ? {} : { CLAMPED: true, LIMIT: activation.limit, ALPHA: activation.alpha }
}
