// What errors say: of which file, and never more than a person can read, whatever a stranger's file holds.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { DiskFullError, FormatError, messageOf, OptionError, UnsupportedModelError } from '#moeflux/base/errors.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked, readConfig } from '#moeflux/files/packed/openPacked.js'
import { temporaryFolder, tinySource } from './support/models/packedFiles.js'
import { tinyConfig, tinyTensors, writeSource } from './support/models/tinyModel.js'

function nested(depth: number): unknown {
  let value: unknown = 1
  for (let i = 0; i < depth; i++) value = [value]
  return value
}

describe('a message', () => {
  test('is cut where it quotes too much, its end and its beginning stay', () => {
    const { message } = new FormatError('BAD_FIELD', 'file.json', `the name ${'x'.repeat(100_000)} is not allowed`)
    expect(message.length).toBeLessThan(1000)
    expect(message).toMatch(/^file\.json: the name xxx.* … .*xxx is not allowed$/)
  })

  test('says what a value is however deep it is', () => {
    expect(new UnsupportedModelError('head_dim', nested(100_000), 'a number').message).toContain('head_dim is a list')
    expect(new UnsupportedModelError('head_dim', undefined, 'a number').message).toContain('head_dim is missing')
    expect(new UnsupportedModelError('head_dim', Number.POSITIVE_INFINITY, 'x').message).toContain('is Infinity')
    expect(new OptionError('threads', { count: 2 }, 'a number').message).toBe('threads: got an object, want a number')
    expect(new OptionError('stop', [1, 2], 'texts').message).toBe('stop: got [1,2], want texts')
  })

  test('says what a disk lacks in sizes that people read, also where both round to the same', () => {
    const lack = (needed: number | null, free: number | null, cause?: Error) =>
      new DiskFullError('/store', needed, free, { cause }).message
    expect(lack(223.01e9, 41.04e9)).toBe('/store: needs 223 GB of disk, 41.0 GB are free')
    expect(lack(15_130_000, 0)).toBe('/store: needs 15.1 MB of disk, 0 B are free')
    expect(lack(15.04e9, 15.03e9)).toBe('/store: needs 15.0 GB of disk, 10.0 MB more than are free')
    const cause = new Error('ENOSPC')
    expect(lack(5000, 20, cause)).toBe('/store: the disk is full: needs 5.00 kB more, 20 B are free')
    expect(lack(null, 20, cause)).toBe('/store: the disk is full: 20 B are free')
    expect(lack(null, null, cause)).toBe('/store: the disk is full')
  })

  test.each([
    [new Error('no room'), 'no room'],
    [new TypeError(''), 'TypeError'],
    ['a text', 'a text'],
    [{ message: 'of another realm', name: 'GPUPipelineError' }, 'of another realm'],
    [{ code: 5 }, 'an object was thrown'],
    [[1, {}], 'a list was thrown'],
    [null, 'null was thrown'],
    [undefined, 'undefined was thrown'],
    [() => 1, 'function was thrown'],
    [7, '7 was thrown'],
  ])('words for whatever was thrown: %o', (thrown, words) => {
    expect(messageOf(thrown)).toBe(words)
  })
})

describe('files', () => {
  test('that are nested too deep are refused by name, before anything goes through them', async () => {
    const folder = temporaryFolder()
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`
    const config = JSON.stringify(tinyConfig()).replace(/}$/, `,"extra":${deep}}`)
    writeFileSync(join(folder, 'config.json'), config)
    const refused = { code: 'JSON_TOO_DEEP', message: expect.stringContaining('config.json') }
    await expect(openNodeFolder(folder, { links: 'any' }).then(readConfig)).rejects.toMatchObject(refused)
    const source = writeSource(join(folder, 'source'), tinyTensors())
    writeFileSync(join(source, 'config.json'), config)
    await expect(packFolder(source, join(folder, 'packed'))).rejects.toMatchObject(refused)
  })

  test('that list or hold a wrong tensor are named', async () => {
    const folder = join(temporaryFolder(), 'packed')
    await packFolder(tinySource, folder)
    const manifest = join(folder, 'model_weights.json')
    writeFileSync(manifest, readFileSync(manifest, 'utf8').replace('"model.norm.weight"', '"model.other.weight"'))
    const opening = openNodeFolder(folder, { links: 'any' }).then(opened => openPacked(opened))
    await expect(opening).rejects.toMatchObject({ code: 'BAD_TENSOR', message: expect.stringContaining(manifest) })

    const tensors = tinyTensors()
    const norm = tensors.get('model.norm.weight')!
    tensors.set('model.norm.weight', { ...norm, shape: [norm.shape[0] / 2, 2, 1, 1] })
    tensors.set('model.layers.0.mlp.gate.weight', { ...norm })
    const source = writeSource(join(temporaryFolder(), 'source'), tensors)
    const message = expect.stringContaining(join(source, 'model.safetensors'))
    await expect(packFolder(source, join(source, 'packed'))).rejects.toMatchObject({ code: 'BAD_TENSOR', message })
  })
})
