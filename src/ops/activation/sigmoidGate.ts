// x * sigmoid(gate), the attention output's gate.
import { sigmoid } from './reference.js'

export function sigmoidGate(x: Float32Array, gate: Float32Array): Float32Array {
  return x.map((value, i) => value * sigmoid(gate[i]))
}
