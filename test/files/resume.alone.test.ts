// Conversions that do not run to their end: killed, aborted, out of disk space. A later run must end with the same bytes.
import { spawn } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { DiskFullError } from '#moeflux/base/errors.js'
import { convert } from '#moeflux/files/convert/convert.js'
import { preparePacked } from '#moeflux/files/convert/nodePreparePacked.js'
import { type OutputFolder, openOutputFolder } from '#moeflux/files/convert/outputFolder.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import { isPackedName } from '#moeflux/files/packed/packedNames.js'
import { demoSource, hashFolder, temporaryFolder, tinySource } from '../support/models/packedFiles.js'
import { folderOfThisFile } from '../support/temporaryFolders.js'

const dist = new URL('../../dist/', import.meta.url).href

/** Converts in a process of its own that is killed with SIGKILL when so much is written. */
function convertAndDie(source: string, target: string, share: number): Promise<NodeJS.Signals | null> {
  const program = `
    import { packFolder } from '${dist}files/convert/packFolder.js'
    const onProgress = ({ loaded, total }) => { if (loaded >= total * ${share}) process.kill(process.pid, 'SIGKILL') }
    await packFolder(${JSON.stringify(source)}, ${JSON.stringify(target)}, { onProgress })`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' })
  return new Promise(resolve => child.on('close', (_, signal) => resolve(signal)))
}

/** A disk that is full after so many bytes. */
function smallDisk(output: OutputFolder, capacity: number): OutputFolder {
  let left = capacity
  return {
    location: output.location,
    freeBytes: async () => Number.MAX_SAFE_INTEGER, // the check before is tested by itself
    names: () => output.names(),
    sizeOf: name => output.sizeOf(name),
    readText: name => output.readText(name),
    remove: name => output.remove(name),
    async create(name) {
      const file = await output.create(name)
      return {
        async append(bytes) {
          left -= bytes.byteLength
          if (left < 0) throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
          await file.append(bytes)
        },
        finish: () => file.finish(),
        discard: () => file.discard(),
      }
    },
  }
}

/** Files that are no part of a packed folder. */
const leftovers = (folder: string) =>
  [...hashFolder(folder).keys()].filter(name => !isPackedName(name) && name !== 'converting.json')

/** A folder to convert into, without a lock. */
function outputFolder(target: string): OutputFolder {
  return openOutputFolder(target, temporaryFolder())
}

/** The demo model, converted without a stop. */
const whole = folderOfThisFile('whole')
beforeAll(() => packFolder(demoSource, whole))

describe('a conversion that was stopped', () => {
  test.each([0.1, 0.45, 0.8])('killed at %f of its way goes on and ends the same', async share => {
    const target = temporaryFolder()
    expect(await convertAndDie(demoSource, target, share)).toBe('SIGKILL')

    expect(existsSync(join(target, 'moeflux.json'))).toBe(false)
    const folder = await openNodeFolder(target, { links: 'any' })
    await expect(openPacked(folder)).rejects.toMatchObject({ code: 'UNFINISHED' })
    await expect(preparePacked(target)).rejects.toMatchObject({ code: 'UNFINISHED' })
    const finished = new Map(
      readdirSync(join(target, 'packed_experts'))
        .filter(name => name.endsWith('.bin'))
        .map(name => [name, statSync(join(target, 'packed_experts', name)).mtimeMs]),
    )
    // What stands under its name is whole.
    for (const name of finished.keys()) {
      const path = join('packed_experts', name)
      expect(readFileSync(join(target, path)).equals(readFileSync(join(whole, path)))).toBe(true)
    }
    expect(finished.size).toBeGreaterThanOrEqual(Math.floor(share * 9))

    const result = await packFolder(demoSource, target)
    expect(result.bytesReused).toBe(finished.size * 1_769_472)
    for (const [name, time] of finished) expect(statSync(join(target, 'packed_experts', name)).mtimeMs).toBe(time)
    expect(hashFolder(target)).toEqual(hashFolder(whole))
  })

  test('with other options starts anew and leaves nothing of the first', async () => {
    const [target, fresh] = [temporaryFolder(), temporaryFolder()]
    const controller = new AbortController()
    const onProgress = ({ loaded, total }: { loaded: number; total: number }) => {
      if (loaded > total * 0.7) controller.abort()
    }
    const stopped = packFolder(tinySource, target, { experts2bit: true, onProgress, signal: controller.signal })
    await expect(stopped).rejects.toThrow(/abort/)
    expect(existsSync(join(target, 'packed_experts/layer_00.bin'))).toBe(true)
    expect(leftovers(target)).toEqual([])
    const result = await packFolder(tinySource, target, { bits: 8 })
    expect(result.bytesReused).toBe(0)
    await packFolder(tinySource, fresh, { bits: 8 })
    expect(hashFolder(target)).toEqual(hashFolder(fresh))
  })

  test('trusts neither a broken journal nor a file of another size', async () => {
    const [target, fresh] = [temporaryFolder(), temporaryFolder()]
    await packFolder(tinySource, fresh)
    await convertAndDie(tinySource, target, 0.5)
    writeFileSync(join(target, 'packed_experts/layer_00.bin'), 'short')
    const result = await packFolder(tinySource, target)
    expect(result.bytesReused).toBeGreaterThan(0)
    expect(hashFolder(target)).toEqual(hashFolder(fresh))

    const other = temporaryFolder()
    await convertAndDie(tinySource, other, 0.5)
    writeFileSync(join(other, 'converting.json'), '{"key":')
    expect((await packFolder(tinySource, other)).bytesReused).toBe(0)
    expect(hashFolder(other)).toEqual(hashFolder(fresh))

    // A journal from before files had checksums of their blocks: nobody knows them, so the files are made again.
    const old = temporaryFolder()
    await convertAndDie(tinySource, old, 0.5)
    const journal = JSON.parse(readFileSync(join(old, 'converting.json'), 'utf8'))
    expect(Object.keys(journal.files).length).toBeGreaterThan(0)
    for (const file of Object.values(journal.files) as { sums?: string }[]) delete file.sums
    writeFileSync(join(old, 'converting.json'), JSON.stringify(journal))
    expect((await packFolder(tinySource, old)).bytesReused).toBe(0)
    expect(hashFolder(old)).toEqual(hashFolder(fresh))

    // One that lacks some of them is no better.
    const short = temporaryFolder()
    await convertAndDie(tinySource, short, 0.5)
    const some = JSON.parse(readFileSync(join(short, 'converting.json'), 'utf8'))
    for (const file of Object.values(some.files) as { sums: string }[]) file.sums = file.sums.slice(16)
    writeFileSync(join(short, 'converting.json'), JSON.stringify(some))
    expect((await packFolder(tinySource, short)).bytesReused).toBe(0)
    expect(hashFolder(short)).toEqual(hashFolder(fresh))
  })
})

describe('a full disk', () => {
  test('is found before anything is written', async () => {
    const output = outputFolder(temporaryFolder())
    const full: OutputFolder = Object.assign(Object.create(output), { freeBytes: async () => 1000 })
    const source = await openNodeFolder(demoSource, { links: 'inside' })
    const error = await convert(source, full).catch(error => error)
    expect(error).toBeInstanceOf(DiskFullError)
    expect(error).toMatchObject({ code: 'DISK_FULL', needed: 20_310_656, free: 1000 })
    expect(readdirSync(output.location)).toEqual([])
  })

  test('in the middle is a typed error, and when there is space again the conversion goes on', async () => {
    const target = temporaryFolder()
    const source = await openNodeFolder(demoSource, { links: 'inside' })
    for (const capacity of [4_000_000, 8_000_000]) {
      const output = smallDisk(outputFolder(target), capacity)
      await expect(convert(source, output)).rejects.toMatchObject({ code: 'DISK_FULL' })
      expect(leftovers(target)).toEqual([])
      expect(existsSync(join(target, 'moeflux.json'))).toBe(false)
    }
    const result = await packFolder(demoSource, target)
    expect(result.bytesReused).toBe(6 * 1_769_472)
    expect(hashFolder(target)).toEqual(hashFolder(whole))
  })
})

describe('raw folders', () => {
  test('are packed once, also when several ask at the same time', async () => {
    const root = temporaryFolder()
    const notices: string[] = []
    const ask = () => preparePacked(tinySource, { root, onNotice: line => notices.push(line) })
    const folders = await Promise.all([ask(), ask(), ask()])
    expect(new Set(folders).size).toBe(1)
    expect(readdirSync(join(root, 'packed'))).toHaveLength(1)
    const before = hashFolder(root)
    const model = await openPacked(await openNodeFolder(folders[0], { links: 'any' }))
    expect(model.name).toBe('tiny-bf16')
    await model.close()
    notices.length = 0
    expect(await ask()).toBe(folders[0])
    expect(notices).toEqual([])
    expect(hashFolder(root)).toEqual(before)
    expect(await preparePacked(folders[0], { root })).toBe(folders[0])
  })

  test('whose small files changed are not packed again: those files alone are copied', async () => {
    const [root, raw, fresh] = [temporaryFolder(), join(temporaryFolder(), 'demo'), temporaryFolder()]
    cpSync(demoSource, raw, { recursive: true })
    const notices: string[] = []
    const ask = () => preparePacked(raw, { root, onNotice: line => notices.push(line) })
    const packed = await ask()
    const written = statSync(join(packed, 'packed_experts/layer_00.bin')).mtimeMs

    writeFileSync(join(raw, 'chat_template.jinja'), 'changed')
    writeFileSync(join(raw, 'chat_template.json'), '{}')
    rmSync(join(raw, 'generation_config.json'))
    notices.length = 0
    expect(await ask()).toBe(packed)
    expect(notices).toEqual([
      `generation_config.json, chat_template.jinja, chat_template.json changed in ${raw}: copied to ${packed}`,
    ])
    expect(statSync(join(packed, 'packed_experts/layer_00.bin')).mtimeMs).toBe(written)
    await packFolder(raw, fresh)
    expect(hashFolder(packed)).toEqual(hashFolder(fresh))
    expect(await ask()).toBe(packed)
    expect(notices).toHaveLength(1)

    // A refresh that was cut off: the file is new, its checksum is not.
    writeFileSync(join(raw, 'chat_template.jinja'), 'changed again')
    writeFileSync(join(packed, 'chat_template.jinja'), 'changed again')
    const result = await packFolder(raw, packed)
    expect(result.bytesReused).toBe(result.bytes)
    await packFolder(raw, fresh)
    expect(hashFolder(packed)).toEqual(hashFolder(fresh))
  })

  test('a lock that a killed process left does not hold anyone up', async () => {
    const target = temporaryFolder()
    mkdirSync(target, { recursive: true })
    await convertAndDie(tinySource, target, 0.3)
    expect(existsSync(join(target, 'converting.lock'))).toBe(true)
    const started = Date.now()
    await packFolder(tinySource, target)
    expect(Date.now() - started).toBeLessThan(20_000)
    expect(existsSync(join(target, 'converting.lock'))).toBe(false)
  })

  test('folders that are no models say so', async () => {
    await expect(preparePacked(temporaryFolder())).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
    await expect(preparePacked('/nowhere')).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
  })
})
