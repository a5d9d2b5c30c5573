// The lock of a folder, by real processes: killed while they hold it, suspended and woken up again, many at once. At most
// one may hold it, and what a former holder writes never mixes with what the next one does.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { isDead, type LockPace, lockFolder, ownerName, parseOwner, thisOwner } from '#moeflux/files/folderLock.js'
import { removeModel } from '#moeflux/files/models/modelStore.js'
import { demoSource, hashFolder, temporaryFolder, tinySource } from '../support/models/packedFiles.js'
import { folderOfThisFile } from '../support/temporaryFolders.js'

const dist = new URL('../../dist/', import.meta.url).href
const pace: LockPace = { touchMs: 20, pollMs: 10, silentPolls: 30 }
/** Windows has no signals that suspend a process. What they would show is then not shown there. */
const canSuspend = process.platform !== 'win32'

/** A process that runs a program and can be spoken with; killed when the test ends. */
function start(program: string): ChildProcess {
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

async function message(child: ChildProcess): Promise<unknown> {
  const [value] = await once(child, 'message')
  return value
}

describe('the lock of a folder', () => {
  test('is held by one process at a time, whatever dies while it holds it', async () => {
    const folder = temporaryFolder()
    const log = join(folder, 'log')
    writeFileSync(log, '')
    const program = `
      import { appendFileSync } from 'node:fs'
      import { setTimeout as sleep } from 'node:timers/promises'
      import { lockFolder } from '${dist}files/folderLock.js'
      const note = what => appendFileSync(${JSON.stringify(log)}, what + ' ' + process.pid + '\\n')
      process.on('message', async ({ dies }) => {
        const lock = await lockFolder(${JSON.stringify(join(folder, 'lock'))}, { pace: { pollMs: 3 } })
        note('in')
        await sleep(3)
        note(dies ? 'dies' : 'out')
        if (dies) process.kill(process.pid, 'SIGKILL')
        await lock.release()
        process.send('done')
      })
      process.send('ready')`
    const startReady = async () => {
      const child = start(program)
      await message(child)
      return child
    }
    const team = await Promise.all(Array.from({ length: 4 }, startReady))
    const rounds = 16
    for (let round = 0; round < rounds; round++) {
      const ends = team.map(child => Promise.race([message(child), once(child, 'exit')]))
      const dying = round % team.length
      team.forEach((child, index) => void child.send({ dies: index === dying }))
      await Promise.all(ends)
      team[dying] = await startReady()
    }
    const lines = readFileSync(log, 'utf8').trim().split('\n')
    expect(lines.filter(line => line.startsWith('in'))).toHaveLength(rounds * team.length)
    let holder: string | null = null
    for (const line of lines) {
      const [what, pid] = line.split(' ')
      expect(what === 'in' ? holder : pid, `${line} while ${holder} holds it`).toBe(what === 'in' ? null : holder)
      holder = what === 'in' ? pid : null
    }
    // What the last of the dead left is removed by who comes next, who leaves nothing.
    await (await lockFolder(join(folder, 'lock'))).release()
    expect(readdirSync(folder)).toEqual(['log'])
  })

  test('is not taken from a holder that lives, however long that takes', async () => {
    const path = join(temporaryFolder(), 'lock')
    const lock = await lockFolder(path, { pace })
    const waiting = new AbortController()
    let waits = 0
    const second = lockFolder(path, { pace, signal: waiting.signal, onWait: () => waits++ })
    await sleep(4 * pace.pollMs * pace.silentPolls)
    expect([waits, lock.signal.aborted, existsSync(lock.folder)]).toEqual([1, false, true])
    await expect(lockFolder(path, { wait: false })).rejects.toMatchObject({ code: 'LOCKED' })
    await lock.release()
    await (await second).release()
    expect(existsSync(path)).toBe(false)
  })

  test('is waited for until the signal says no', async () => {
    const path = join(temporaryFolder(), 'lock')
    const lock = await lockFolder(path)
    const waiting = new AbortController()
    const second = lockFolder(path, { signal: waiting.signal, onWait: () => waiting.abort() })
    await expect(second).rejects.toThrow(/abort/)
    await lock.release()
  })

  test('of another machine is taken when it is silent, and not while it is touched', async () => {
    const path = join(temporaryFolder(), 'lock')
    const claim = join(path, `held-${ownerName({ pid: 1, started: '1', machine: '0123456789abcdef' })}abc`)
    mkdirSync(claim, { recursive: true })
    writeFileSync(join(claim, 'half'), '')
    const touch = setInterval(() => utimesSync(claim, new Date(), new Date()), pace.touchMs)
    const inherited: [string[], boolean][] = []
    const inherit = async (folder: string, dead: boolean) => void inherited.push([readdirSync(folder), dead])
    let isHeld = false
    const second = lockFolder(path, { pace, inherit }).finally(() => (isHeld = true))
    await sleep(3 * pace.pollMs * pace.silentPolls)
    expect(isHeld).toBe(false)
    clearInterval(touch)
    const lock = await second
    expect(inherited).toEqual([[['half'], false]])
    expect(readdirSync(path)).toHaveLength(1)
    await lock.release()
  })

  test('says what is in its way', async () => {
    const path = join(temporaryFolder(), 'lock')
    writeFileSync(path, 'a lock of other times')
    await expect(lockFolder(path)).rejects.toMatchObject({ code: 'BAD_TARGET' })
  })
})

describe('who owns a lock', () => {
  test('is in its name', () => {
    expect(parseOwner(`${ownerName(thisOwner())}0011`)).toEqual(thisOwner())
    const elsewhere = { pid: 7, started: null, machine: '0123456789abcdef' }
    expect(parseOwner(`${ownerName(elsewhere)}0011`)).toEqual(elsewhere)
    for (const name of ['', 'x', '1-2-3-4', '-1-x-0123456789abcdef-']) expect(parseOwner(name)).toBeNull()
  })

  test('is dead only where that is certain', async () => {
    const self = thisOwner()
    expect(isDead(self)).toBe(false)
    expect(isDead({ ...self, pid: process.ppid, started: null })).toBe(false)
    const child = spawn(process.execPath, ['-e', ''])
    await once(child, 'exit')
    const gone = { ...self, pid: child.pid as number, started: null }
    expect(isDead(gone)).toBe(true)
    expect(isDead({ ...gone, machine: '0123456789abcdef' })).toBe(false)
    // Another program got the id. Only Linux tells.
    if (process.platform === 'linux') expect(isDead({ ...self, started: '1' })).toBe(true)
  })
})

describe.skipIf(!canSuspend)('a holder that was suspended', () => {
  test('cannot write any more when it wakes up, and is told why', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'lock')
    mkdirSync(join(folder, 'out'))
    const child = start(`
      import { rename, writeFile } from 'node:fs/promises'
      import { lockFolder } from '${dist}files/folderLock.js'
      const lock = await lockFolder(${JSON.stringify(path)}, { pace: ${JSON.stringify(pace)} })
      process.send('held')
      let noticed = null
      lock.signal.addEventListener('abort', () => (noticed = lock.signal.reason.code))
      try {
        for (let i = 0; ; i++) {
          await writeFile(lock.folder + '/' + i, 'first')
          await rename(lock.folder + '/' + i, ${JSON.stringify(`${folder}/out/`)} + i)
        }
      } catch (error) {
        const { code, message } = await lock.explain(error)
        await lock.release()
        process.send({ raw: error.code, code, message, noticed })
      }`)
    await message(child)
    await expect.poll(() => readdirSync(join(folder, 'out')).length).toBeGreaterThan(0)
    child.kill('SIGSTOP')
    let dead: boolean | null = null
    const lock = await lockFolder(path, { pace, inherit: async (_, isDead) => void (dead = isDead) })
    const before = readdirSync(join(folder, 'out')).length
    expect(before).toBeGreaterThan(0)
    for (const name of readdirSync(join(folder, 'out'))) writeFileSync(join(folder, 'out', name), 'second')
    const told = message(child)
    child.kill('SIGCONT')
    expect(await told).toEqual({
      raw: 'ENOENT',
      code: 'LOCK_LOST',
      message: expect.stringContaining('the lock was taken away'),
      noticed: 'LOCK_LOST',
    })
    expect(dead).toBe(false)
    // Its release did not take away what is not its own.
    expect(existsSync(lock.folder)).toBe(true)
    await lock.release()
    const names = readdirSync(join(folder, 'out'))
    expect(names).toHaveLength(before)
    for (const name of names) expect(readFileSync(join(folder, 'out', name), 'utf8')).toBe('second')
  })

  const whole = folderOfThisFile('whole')
  beforeAll(() => packFolder(demoSource, whole))

  test.each([0.02, 0.5, 0.97])('at %f of a conversion stops, and the other one ends whole', async share => {
    const target = temporaryFolder()
    const child = start(`
      import { packFolder } from '${dist}files/convert/packFolder.js'
      let stopped = false
      const onProgress = ({ loaded, total }) => {
        if (stopped || loaded < total * ${share}) return
        stopped = true
        process.send('stopping', () => process.kill(process.pid, 'SIGSTOP'))
      }
      await packFolder(${JSON.stringify(demoSource)}, ${JSON.stringify(target)}, { onProgress }).then(
        () => process.send('finished'),
        error => process.send(error.code ?? String(error)),
      )`)
    expect(await message(child)).toBe('stopping')
    await suspended(child)
    // A third one waits from the start.
    const both = await Promise.all([1, 2].map(() => packFolder(demoSource, target, { lockPace: pace })))
    expect(both.map(({ bytesReused, bytes }) => bytesReused === bytes).sort()).toEqual([false, true])
    const files = statSync(join(target, 'packed_experts/layer_00.bin'))
    const told = message(child)
    child.kill('SIGCONT')
    expect(await told).toBe('LOCK_LOST')
    expect(hashFolder(target)).toEqual(hashFolder(whole))
    expect(statSync(join(target, 'packed_experts/layer_00.bin'))).toMatchObject({
      ino: files.ino,
      mtimeMs: files.mtimeMs,
    })
  })
})

describe('a model of the store', () => {
  test('is not removed while it is written', async () => {
    const root = temporaryFolder()
    const target = join(root, 'models', 'tiny')
    let refused: unknown = null
    await packFolder(tinySource, target, {
      onProgress: ({ loaded, total }) => {
        if (refused === null && loaded > total / 2) refused = removeModel('tiny', root).catch(error => error)
      },
    })
    expect(await refused).toMatchObject({ code: 'LOCKED' })
    await removeModel('tiny-bf16', root)
    expect(readdirSync(join(root, 'models'))).toEqual([])
    rmSync(root, { recursive: true })
  })
})

/** A signal is delivered when the system comes to it. */
async function suspended(child: ChildProcess): Promise<void> {
  if (process.platform !== 'linux') return await sleep(500)
  const state = () => /\) (\S)/.exec(readFileSync(`/proc/${child.pid}/stat`, 'utf8'))?.[1]
  while (state() !== 'T') await sleep(5)
}
