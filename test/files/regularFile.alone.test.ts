// Named pipes, sockets, devices and folders in place of files: opening a pipe waits for ever, a device may never end. Each
// is refused in words that name it, wherever a file of a model, a store or a user is opened.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { dirname, join, relative } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { writeSite } from '#moeflux/apps/cli/writeSite.js'
import { readRegular } from '#moeflux/base/regularFile.js'
import { ExpertReaderPool } from '#moeflux/experts/readers/nodeReaderPool.js'
import { readMemory } from '#moeflux/experts/readers/nodeReaders.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { verifyModel } from '#moeflux/files/verify/verify.js'
import { openModel } from '#moeflux/index.js'
import { FolderStore } from '#moeflux/stores/folderStore.js'
import { moeflux } from '../apps/cli/moeflux.js'
import { demoModel, packTiny } from '../support/models/models.js'
import { temporaryFolder, tinySource } from '../support/models/packedFiles.js'

const isPosix = process.platform !== 'win32' // Windows has no such things in folders
const refused = expect.objectContaining({
  code: 'NOT_A_FILE',
  message: expect.stringMatching(/: is a (pipe|socket|device|folder), not a file$/),
})

type Kind = 'pipe' | 'socket' | 'device' | 'folder'
const KINDS: readonly Kind[] = ['pipe', 'socket', 'device', 'folder']

async function make(kind: Kind, path: string): Promise<void> {
  rmSync(path, { recursive: true, force: true })
  if (kind === 'pipe') execFileSync('mkfifo', [path])
  else if (kind === 'device') symlinkSync('/dev/zero', path)
  else if (kind === 'folder') mkdirSync(path)
  else {
    const server = createServer()
    await new Promise<Server>(resolve => server.listen(path, () => resolve(server)))
    onTestFinished(() => void server.close())
  }
}

function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => relative(folder, join(entry.parentPath, entry.name)))
}

describe.skipIf(!isPosix)('in place of a file', () => {
  test.each(KINDS)('a %s is told from one', async kind => {
    const path = join(temporaryFolder(), 'x')
    await make(kind, path)
    await expect(readRegular(path)).rejects.toEqual(refused)
    await expect(readRegular(path)).rejects.toThrow(`${path}: is a ${kind}, not a file`)
  })

  test.each(KINDS)('a %s of a packed model is refused, whichever file it stands for', async kind => {
    const folder = temporaryFolder()
    const names = filesOf(demoModel)
    for (const name of names) {
      mkdirSync(dirname(join(folder, name)), { recursive: true })
      symlinkSync(join(demoModel, name), join(folder, name))
    }
    await (await openModel(folder, { backend: 'reference' })).close()
    for (const name of names) {
      await make(kind, join(folder, name))
      await expect(openModel(folder, { backend: 'reference' }), name).rejects.toEqual(refused)
      rmSync(join(folder, name), { recursive: true })
      symlinkSync(join(demoModel, name), join(folder, name))
    }
  })

  test('a pipe of a source is refused', async () => {
    for (const name of ['config.json', 'generation_config.json', 'model.safetensors']) {
      const folder = temporaryFolder()
      cpSync(tinySource, folder, { recursive: true })
      await make('pipe', join(folder, name))
      const target = join(temporaryFolder(), 'packed')
      await expect(packFolder(folder, target), name).rejects.toEqual(refused)
    }
  })

  test('a pipe is refused by who looks at a model without opening it', async () => {
    const folder = await packTiny()
    await make('pipe', join(folder, 'packed_experts/layer_00.bin'))
    const { problems } = await verifyModel(await openNodeFolder(folder, { links: 'any' }))
    expect(problems.map(({ message }) => message)).toEqual([
      expect.stringMatching(/layer_00.bin: is a pipe, not a file/),
    ])
    await expect(writeSite(temporaryFolder(), [folder], temporaryFolder())).rejects.toEqual(refused)
    const open = () =>
      new ExpertReaderPool({
        files: [join(folder, 'packed_experts/layer_00.bin')],
        expertSize: 4096,
        banks: [readMemory(4096)],
        slotBytes: 0,
        threads: 1,
        depth: 1,
      })
    expect(open).toThrow(/is a pipe, not a file/)
  })

  test('a pipe in the folder store is trouble with the store', async () => {
    const folder = temporaryFolder()
    const store = new FolderStore(folder)
    const name = `test/kv-${'0'.repeat(64)}`
    await store.put(name, Uint8Array.of(1))
    await make('pipe', join(folder, name))
    await expect(store.get([name])).rejects.toEqual(refused)
  })

  test('a pipe that a user names is refused, and stdin is there for pipes', async () => {
    const path = join(temporaryFolder(), 'pipe')
    await make('pipe', path)
    const finished = await Promise.all([
      moeflux(['simulate', path]),
      moeflux(['eval', '--text-file', path]),
      moeflux(['trace', '--prompt-file', path, '-o', join(temporaryFolder(), 'trace')]),
      moeflux(['run', '--json-schema', path, 'Hi']),
      moeflux(['chat'], { input: `/load ${path}\n` }),
    ])
    for (const { stderr } of finished) expect(stderr).toContain(`${path}: is a pipe, not a file`)
    expect(finished.map(({ code }) => code)).toEqual([1, 1, 1, 2, 0])
  })
})
