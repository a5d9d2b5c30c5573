// The options of `moeflux simulate`, of one tier and of three.
import type { SizeOrShare } from '../../apps/cli/optionValues.js'

export interface SimulateCommandOptions {
  readonly budgets?: readonly number[]
  readonly gpu?: readonly SizeOrShare[]
  readonly memory?: readonly SizeOrShare[]
  readonly disk?: number
  readonly computeMs?: number
  readonly cpu?: number
  readonly upload?: number
  readonly waitUs?: number
  readonly promote?: number
  readonly csv?: boolean
  readonly json?: boolean
}
