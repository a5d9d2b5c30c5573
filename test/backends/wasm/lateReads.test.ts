// Reads of experts that end long after the step that asked for them was given up, well or not: what they write must lie
// where nobody else is, and must not be taken for an expert before it is whole. On threads, and where nothing is shared.
import { rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { unsharedKernels } from '#moeflux/apps/browser/browserPlatform.js'
import type { LayerState, SequenceState } from '#moeflux/backends/backend.js'
import { kernelUrl } from '#moeflux/backends/wasm/kernels.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import type { WasmHost } from '#moeflux/backends/wasm/platform.js'
import { startAsyncReaders } from '#moeflux/experts/readers/asyncReaders.js'
import type { ByteSource } from '#moeflux/files/source.js'
import { packTwoLayers } from '../../support/models/twoLayerModel.js'
import { expectSameBits } from '../../support/ops/bands.js'
import { openGated } from '../../support/wasm/gatedWasm.js'
import type { GatedWasm } from '../../support/wasm/stepPositions.js'

const prompt = [3, 141, 59, 26, 5]
const tokens = Array.from({ length: 24 }, (_, i) => 7 + i * 20) // one of them at a time, beside the prompt
const layers = 2

let folder: string
beforeAll(async () => {
  folder = await packTwoLayers()
})
afterAll(() => rmSync(dirname(folder), { recursive: true, force: true }))

/** Files of experts of which one read is held back, or fails in the end, half of its bytes having come. */
class SlowFiles {
  held = '' // layer and expert
  private countdown = 0
  private reach = () => {}
  private let: (fails: boolean) => void = () => {}

  /** The n-th read from now on; resolves when it is asked for. */
  hold(n: number): Promise<void> {
    this.countdown = n
    return new Promise(resolve => {
      this.reach = resolve
    })
  }

  end(fails: boolean): void {
    this.countdown = 0
    this.let(fails)
  }

  of(source: ByteSource, layer: number): ByteSource {
    return {
      name: source.name,
      size: source.size,
      close: () => source.close(),
      read: async (offset, target) => {
        if (--this.countdown === 0) {
          const half = target.length >> 1
          target.fill(255, 0, half)
          const held = new Promise<boolean>(resolve => {
            this.let = resolve
          })
          this.held = `${layer} ${offset / target.length}`
          this.reach()
          const fails = await held
          target.fill(254, half)
          if (fails) throw Object.assign(new Error('gone'), { code: 'EIO' })
        }
        await source.read(offset, target)
      },
    }
  }
}

const hosts: [string, (files: SlowFiles) => WasmHost][] = [
  [
    'on threads',
    slow => ({
      ...nodeHost(),
      startReaders: request =>
        startAsyncReaders({ ...request, files: request.files.map((file, i) => slow.of(file, i)), shared: true }),
    }),
  ],
  [
    'where nothing is shared',
    slow => ({
      ...nodeHost(),
      shared: false,
      async loadKernels() {
        const bytes = await readFile(kernelUrl('baseline'))
        return { module: await WebAssembly.compile(unsharedKernels(bytes)), simd: 'baseline' }
      },
      startReaders: request =>
        startAsyncReaders({ ...request, files: request.files.map((file, i) => slow.of(file, i)), shared: false }),
    }),
  ],
]

interface Evaluated {
  readonly logits: Float32Array
  readonly used: ReadonlySet<string> // layers and experts
}

describe.each(hosts)('%s', (_, hostOf) => {
  const slow = new SlowFiles()
  let opened: GatedWasm
  let sequence: SequenceState
  let want: Evaluated
  const wantOf = new Map<number, Evaluated>() // by token
  beforeAll(async () => {
    opened = await openGated(folder, 2, {}, hostOf(slow))
    sequence = opened.backend.createSequence()
    want = await evaluate(prompt)
    for (const token of tokens) wantOf.set(token, await evaluate([token]))
  })
  afterAll(() => opened.close())

  async function evaluate(tokens: readonly number[], signal?: AbortSignal): Promise<Evaluated> {
    await sequence.clear()
    const run = { sequence, tokens, phase: 'prompt', output: 'last' } as const
    const [{ logits, routing }] = await opened.backend.step([run], { signal, routing: true })
    const perLayer = (routing as Uint16Array).length / layers
    const used = Array.from(routing as Uint16Array, (expert, i) => `${Math.floor(i / perLayer)} ${expert}`)
    return { logits: logits as Float32Array, used: new Set(used) }
  }

  async function expectRight(tokens: readonly number[]): Promise<void> {
    const { logits } = tokens === prompt ? want : (wantOf.get(tokens[0]) as Evaluated)
    expectSameBits((await evaluate(tokens)).logits, logits)
  }

  test.each([
    ['that ends well', false],
    ['that fails', true],
  ])('every read of a step that is given up, %s', async (_, fails) => {
    let held = 0
    for (let n = 1; ; n++) {
      for (const token of tokens.slice(0, 4)) await expectRight([token]) // other experts are in memory then
      const controller = new AbortController()
      const reached = slow.hold(n).then(() => 'held')
      const running = evaluate(prompt, controller.signal).catch(error => error as Error)
      if ((await Promise.race([reached, running])) !== 'held') break
      held++
      controller.abort(new Error('enough'))
      expect(await running).toMatchObject({ message: 'enough' })
      // Three slots are left, for whoever does not want the expert on its way.
      const without = tokens.filter(token => !wantOf.get(token)?.used.has(slow.held))
      expect(without.length).toBeGreaterThan(3)
      for (const token of without) await expectRight([token])
      slow.end(fails)
      await new Promise(resolve => setTimeout(resolve))
      await expectRight(prompt)
      for (const token of tokens.slice(0, 4)) await expectRight([token])
    }
    slow.end(false) // there were no more
    expect(held).toBeGreaterThan(5)
  })

  test('a sequence that grows the memory while a step of another waits for its experts', async () => {
    const { backend } = opened
    const { vocabSize, numLayers } = backend.config
    const long = backend.createSequence()
    const tokens = Array.from({ length: 600 }, (_, i) => (i * 7) % vocabSize)
    for (let at = 0; at < tokens.length; at += 30) {
      const run = { sequence: long, tokens: tokens.slice(at, at + 30), phase: 'prompt', output: 'none' } as const
      await backend.step([run])
    }
    const layers: LayerState[] = []
    for (let layer = 0; layer < numLayers; layer++) layers.push(await long.exportLayer(layer))
    const reached = slow.hold(2)
    const running = evaluate(prompt)
    await reached
    const grown: SequenceState[] = []
    const imports = Array.from({ length: 20 }, async () => {
      const sequence = backend.createSequence()
      grown.push(sequence)
      await sequence.importLayers(tokens.length, layers)
    })
    await new Promise(resolve => setTimeout(resolve, 5))
    slow.end(false)
    expectSameBits((await running).logits, want.logits)
    await Promise.all(imports)
    expectSameBits((await evaluate(prompt)).logits, want.logits)
    for (const sequence of [long, ...grown]) sequence.release()
  })
})
