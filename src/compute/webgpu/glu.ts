// Shader constants of glu.wgsl.
import type { Activation } from '../../model/layers.js'
import type { ShaderConstants } from './shaderSource.js'

export function gluConstants(activation: Activation): ShaderConstants {
  return activation.kind === 'silu' ? {} : { CLAMPED: true, LIMIT: activation.limit, ALPHA: activation.alpha }
}
