// Which backend is opened, and what is said when it is not the first choice.
import { describe, expect, test } from 'vitest'
import type { Backend, BackendName } from '#moeflux/backends/backend.js'
import type { HostedOptions } from '#moeflux/backends/wasm/platform.js'
import { BackendUnavailableError, OutOfMemoryError } from '#moeflux/base/errors.js'
import { type BackendEntry, chooseBackend } from '#moeflux/engine/chooseBackend.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'

const packed = {} as PackedModel
const loaded: BackendName[] = []

function entry(name: BackendName, open: (options: HostedOptions) => void = () => {}): BackendEntry {
  return {
    name,
    load: async () => {
      loaded.push(name)
      return async (_, options) => {
        open(options)
        return { name } as Backend
      }
    },
  }
}

function choose(choice: BackendName | 'auto', entries: readonly BackendEntry[], signal?: AbortSignal) {
  loaded.length = 0
  const notices: string[] = []
  const options = {
    precision: 'fast',
    expertsPerToken: 1,
    signal,
    onNotice: (line: string) => notices.push(line),
  } as const
  return chooseBackend(choice, packed, options, entries).then(backend => ({ name: backend.name, notices }))
}

const noGpu = entry('webgpu', () => {
  throw new BackendUnavailableError('webgpu', 'fails its self-test')
})

describe('choosing a backend', () => {
  test('auto takes the first that runs, says why not the others, and loads no more', async () => {
    const all = [noGpu, entry('wasm'), entry('reference')]
    expect(await choose('auto', all)).toEqual({
      name: 'wasm',
      notices: ['not used: backend webgpu: fails its self-test'],
    })
    expect(loaded).toEqual(['webgpu', 'wasm'])
    const absent = entry('webgpu', () => {
      throw new BackendUnavailableError('webgpu', 'no adapter', { absent: true })
    })
    expect(await choose('auto', [absent, entry('wasm')])).toEqual({ name: 'wasm', notices: [] })
    expect(await choose('auto', [entry('webgpu'), entry('wasm')])).toEqual({ name: 'webgpu', notices: [] })
  })

  test('one that was asked for is taken or fails; nothing else is tried', async () => {
    const all = [noGpu, entry('wasm'), entry('reference')]
    expect(await choose('reference', all)).toEqual({ name: 'reference', notices: [] })
    await expect(choose('webgpu', all)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    expect(loaded).toEqual(['webgpu'])
    await expect(choose('webgpu', [entry('wasm')])).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
  })

  test('a backend is told when auto chose it', async () => {
    const told: (boolean | undefined)[] = []
    const gpu = entry('webgpu', options => told.push(options.automatic))
    await choose('auto', [gpu])
    await choose('webgpu', [gpu])
    expect(told).toEqual([true, false])
  })

  test('other failures are not hidden by a fallback', async () => {
    const full = entry('webgpu', () => {
      throw new OutOfMemoryError('GPU buffers', 1, 'refused')
    })
    await expect(choose('auto', [full, entry('wasm')])).rejects.toMatchObject({ code: 'OUT_OF_MEMORY' })
    await expect(choose('auto', [noGpu])).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    const stopped = AbortSignal.abort(new Error('stopped'))
    await expect(choose('auto', [entry('wasm')], stopped)).rejects.toThrow('stopped')
  })
})
