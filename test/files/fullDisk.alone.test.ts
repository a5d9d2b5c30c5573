// Disks that are full: whoever writes says which file it was, and what can go on later goes on.
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { LogitsFile } from '#moeflux/lab/eval/evaluateTokens.js'
import { moeflux } from '../apps/cli/moeflux.js'
import { onSmallDisk, smallDiskMissing } from '../support/faults/smallDisk.js'
import { demoSource, hashFolder, temporaryFolder, tinySource } from '../support/models/packedFiles.js'
import { startHub } from './hub/hubServer.js'

const dist = new URL('../../dist/', import.meta.url).href
const MB = 2 ** 20

describe.skipIf(process.platform !== 'linux')('the device that is always full', () => {
  test('is named by logits, traces and chats', async () => {
    const file = await LogitsFile.create('/dev/full')
    const error = await file.write(new Float32Array(1000)).catch(error => error)
    await file.discard()
    expect(error).toMatchObject({ code: 'DISK_FULL', path: '/dev/full' })
    const [trace, chat] = await Promise.all([
      moeflux(['trace', 'Once', '--tokens', '1', '-o', '/dev/full']),
      moeflux(['chat'], { input: '/save /dev/full\n' }),
    ])
    expect(trace).toMatchObject({ code: 1, stderr: expect.stringMatching(/error: \/dev\/full: the disk is full/) })
    expect(chat.stderr).toMatch(/error: \/dev\/full: the disk is full/)
  })
})

describe('a small disk', () => {
  const onDisk = (name: string, bytes: number, program: string, check: (told: unknown) => void) =>
    test(name, async context => {
      if (smallDiskMissing !== null) context.skip(smallDiskMissing)
      check(await onSmallDisk(bytes, program))
    })

  onDisk(
    'names the object of the folder store, which keeps nothing half-written',
    1 * MB,
    `import { readdirSync } from 'node:fs'
     import { FolderStore } from '${dist}stores/folderStore.js'
     const store = new FolderStore(disk)
     const write = (number, bytes) => store.put('test/kv-' + String(number).padStart(64, '0'), new Uint8Array(bytes))
     await write(1, 1000)
     const error = await write(2, 2 * 2 ** 20).catch(error => error)
     tell({ code: error.code, path: error.path, names: readdirSync(disk + '/test'), parts: readdirSync(disk) })`,
    told => {
      const names = [expect.stringMatching(/-0+1$/)]
      expect(told).toEqual({ code: 'DISK_FULL', path: expect.stringMatching(/-0+2$/), names, parts: ['test'] })
    },
  )

  onDisk(
    'names the file of a conversion, which goes on when there is room again',
    24 * MB,
    `import { readdirSync, rmSync } from 'node:fs'
     import { packFolder } from '${dist}files/convert/packFolder.js'
     let full = false
     const onProgress = ({ loaded, total }) => {
       if (full || loaded < total / 3) return
       full = true
       fill()
     }
     const error = await packFolder(${JSON.stringify(demoSource)}, disk + '/model', { onProgress }).catch(error => error)
     for (const name of readdirSync(disk)) if (name.startsWith('filler')) rmSync(disk + '/' + name)
     const { bytesReused } = await packFolder(${JSON.stringify(demoSource)}, disk + '/model')
     tell({ code: error.code, path: error.path.slice(disk.length), message: error.message, bytesReused })`,
    told =>
      expect(told).toEqual({
        code: 'DISK_FULL',
        path: expect.stringMatching(/^\/model\/packed_experts\/layer_0\d.bin$/),
        message: expect.stringMatching(/layer_0\d.bin: the disk is full: needs [\d.]+ MB more, [\d.]+ \w+ are free$/),
        bytesReused: expect.toSatisfy(bytes => bytes > 0),
      }),
  )

  test('names the file of a download, which goes on when there is room again', async context => {
    if (smallDiskMissing !== null) context.skip(smallDiskMissing)
    const names = readdirSync(tinySource).filter(name => /\.(json|safetensors|jinja)$/.test(name))
    const files = new Map(names.map(name => [name, readFileSync(join(tinySource, name))]))
    const hub = await startHub('people/tiny', files)
    hub.behaviour.pieceBytes = 16 * 1024
    const told = await onSmallDisk(
      32 * MB,
      `import { readdirSync, rmSync } from 'node:fs'
       import { pullModel } from '${dist}files/hub/pullModel.js'
       let full = false
       const onProgress = ({ loaded, total }) => {
         if (full || loaded < total / 3) return
         full = true
         fill()
       }
       const options = { root: disk, endpoint: '${hub.url}', bits: 16, download: { retryMs: 1 } }
       const started = performance.now()
       const error = await pullModel('people/tiny', { ...options, onProgress }).catch(error => error)
       for (const name of readdirSync(disk)) if (name.startsWith('filler')) rmSync(disk + '/' + name)
       const { folder } = await pullModel('people/tiny', options)
       tell({ code: error.code, file: error.path?.split('/').at(-1), left: readdirSync(disk + '/downloads'), folder: folder.slice(disk.length) })`,
    ).finally(() => hub.close())
    expect(told).toEqual({
      code: 'DISK_FULL',
      file: expect.stringMatching(/\.safetensors(\.ranges)?$/),
      left: [],
      folder: '/models/people--tiny',
    })
    expect(hub.requests.length).toBeLessThan(60)
  })

  onDisk(
    'is too small for a synthetic model, and keeps nothing of it',
    4 * MB,
    `import { readdirSync } from 'node:fs'
     import { ensureSyntheticModel } from '${dist}lab/synthetic/syntheticModel.js'
     import { parseSyntheticSpec } from '${dist}lab/synthetic/syntheticSpec.js'
     const error = await ensureSyntheticModel(parseSyntheticSpec('a3b:1'), disk).catch(error => error)
     tell({ code: error.code, names: readdirSync(disk, { recursive: true }) })`,
    told => expect(told).toEqual({ code: 'DISK_FULL', names: ['synthetic'] }),
  )
})

describe('a conversion that is refused', () => {
  test('before it has begun leaves nothing, neither folders nor files', async () => {
    const home = temporaryFolder()
    const { code, stderr } = await moeflux(['convert', join(tinySource, '..'), join(home, 'a/b/c')])
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^error: .*\n$/)])
    expect(readdirSync(home)).toEqual([])
  })

  test('in the middle, for what the weights are, leaves nothing either', async () => {
    const home = temporaryFolder()
    const source = join(home, 'source')
    cpSync(tinySource, source, { recursive: true })
    const shard = join(source, 'model.safetensors')
    const bytes = readFileSync(shard)
    for (let at = bytes.length - 4096; at < bytes.length; at += 2) bytes.writeUInt16LE(0x7fc0, at)
    writeFileSync(shard, bytes)
    const target = join(home, 'a/b')
    const progress: number[] = []
    const refused = packFolder(source, target, { onProgress: ({ loaded, total }) => progress.push(loaded / total) })
    await expect(refused).rejects.toMatchObject({ code: 'BAD_TENSOR' })
    expect(Math.max(...progress)).toBeGreaterThan(0.5) // files were finished before
    expect(readdirSync(home)).toEqual(['source'])
  })

  test('keeps what an earlier one had done', async () => {
    const target = join(temporaryFolder(), 'packed')
    const stop = new AbortController()
    const onProgress = ({ loaded, total }: { loaded: number; total: number }) => {
      if (loaded > 0.7 * total) stop.abort()
    }
    await expect(packFolder(demoSource, target, { onProgress, signal: stop.signal })).rejects.toThrow(/abort/)
    const before = hashFolder(target)
    expect(before.size).toBeGreaterThan(3)
    await expect(packFolder(join(demoSource, '..'), target)).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
    expect(hashFolder(target)).toEqual(before)
  })
})
