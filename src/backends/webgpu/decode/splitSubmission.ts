// The commands of a token in several submissions: the GPU begins with a little while the rest is submitted, in ever larger
// pieces, since each costs it a pause.
import { CommandList } from '../../../gpu/device/commandList.js'
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { type Profiler, Recorder } from '../../../gpu/device/recorder.js'

export class Pieces {
  recorder: Recorder
  private readonly gpu: GpuContext
  private readonly growth: number
  private readonly profiler: Profiler | null
  private readonly commands: GPUCommandBuffer[] = []
  private layers = 0 // in this piece
  private most: number
  private list: CommandList | null = null // of this piece
  /** All pieces as lists, where they are kept. */
  readonly lists: CommandList[] = []
  private readonly keepsLists: boolean

  /** `growth`: layers of a piece, over those of the one before; 0: all in one. `first`: of the first one. */
  constructor(gpu: GpuContext, growth: number, first: number, profiler: Profiler | null = null, keepsLists = false) {
    this.keepsLists = keepsLists
    this.gpu = gpu
    this.growth = growth
    this.profiler = profiler
    this.most = growth === 0 ? Number.POSITIVE_INFINITY : first
    this.recorder = this.begin()
  }

  /** A layer is recorded, and others follow. */
  layerDone(): void {
    if (++this.layers < this.most) return
    this.end()
    this.layers = 0
    this.most *= this.growth
    this.recorder = this.begin()
  }

  finish(): GPUCommandBuffer[] {
    this.end()
    return this.commands
  }

  private begin(): Recorder {
    this.list = this.keepsLists ? new CommandList() : null
    return new Recorder(this.gpu.device, this.profiler, this.list)
  }

  private end(): void {
    const commands = this.recorder.finish()
    if (commands === null) return
    this.commands.push(commands)
    if (this.list !== null) this.lists.push(this.list)
  }
}
