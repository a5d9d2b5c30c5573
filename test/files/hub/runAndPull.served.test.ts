// The way from an empty home to an answer, at a terminal: a short name is enough, what it takes is said first, and who
// stops it on the way loses nothing. The hub holds the bytes back at a given place, where Ctrl-C comes then.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { findWellKnown, SUGGESTED_MODEL } from '#moeflux/model/wellKnownModels.js'
import { MAIN, moeflux } from '../../apps/cli/moeflux.js'
import { Screen } from '../../apps/cli/screen.js'
import { demoSource, hashFolder, temporaryFolder } from '../../support/models/packedFiles.js'
import { type HubServer, startHub } from './hubServer.js'

const SHORT = 'qwen3.6-35b'
const ID = findWellKnown(SHORT)?.hub ?? ''
const CTRL_C = '\u0003'
const QUESTION = ['Who are you?', '--temp', '0', '-n', '12']
const files = new Map(readdirSync(demoSource).map(name => [name, readFileSync(join(demoSource, name))]))
const weights = [...files].reduce((sum, [name, { length }]) => sum + (name.endsWith('.safetensors') ? length : 0), 0)

let hub: HubServer
let home: string

beforeEach(async () => {
  // Weights in a folder are another form of the same, and nobody's download.
  hub = await startHub(ID, new Map([...files, ['original/model.safetensors', Buffer.alloc(3_000_000)]]))
  home = temporaryFolder()
})
afterEach(() => hub.close())

const environment = () => ({ MOEFLUX_HOME: home, HF_ENDPOINT: hub.url, HF_TOKEN: '' })

function atTerminal(...args: string[]): Screen {
  const env = { ...process.env, ...environment(), TERM: 'xterm-256color', NO_COLOR: '' } as Record<string, string>
  return new Screen(spawn(process.execPath, [MAIN, ...args], { cols: 100, rows: 30, cwd: home, env }))
}

/** Lets the hub send so much more and then nothing, for ever; resolves when all of that has arrived. */
async function holdAfter(bytes: number): Promise<void> {
  const before = hub.sent()
  await new Promise<void>(resolve => {
    hub.behaviour.hold = sent => {
      if (sent - before < bytes) return null
      resolve()
      return new Promise(() => {})
    }
  })
  // A busy machine may let the one who writes wait for longer than this looks away.
  for (let seen = -1, now = writtenBytes(); now !== seen || now < 0.5 * bytes; now = writtenBytes()) {
    seen = now
    await new Promise(resolve => setTimeout(resolve, 700)) // what is on its way
  }
}

/** Blocks and not lengths: a file that is being downloaded is as long as it will be. */
function writtenBytes(): number {
  const files = readdirSync(home, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  return files.reduce((sum, { parentPath, name }) => {
    return sum + (statSync(join(parentPath, name), { throwIfNoEntry: false })?.blocks ?? 0) * 512
  }, 0)
}

async function listed(): Promise<{ name: string; bytes: number; state: string }[]> {
  return JSON.parse((await moeflux(['list', '--json'], { env: environment() })).stdout)
}

function bytesBelow(folder: string): number {
  if (!existsSync(folder)) return 0
  return [...hashFolder(folder).keys()].length
}

describe('a model that is not here', () => {
  test('is offered, pulled, packed and answers, though it was stopped three times', async () => {
    const declined = atTerminal('run', '-m', SHORT, ...QUESTION)
    const offer = await declined.shows(/\[Y\/n\] $/)
    expect(offer).toContain(`${SHORT} is ${ID}, which is not downloaded yet`)
    expect(offer).toMatch(/download +20\.4 MB, 1\.6 s at 100 Mbit\/s/)
    expect(offer).toMatch(/disk +40\.7 MB at most, 20\.4 MB packed; [\d.]+ [GT]B free in /)
    expect(offer).toMatch(/here +fits in memory: up to [\d.]+ tok\/s/)
    declined.type('n\r')
    const refused = await declined.shows(/error: [\s\S]* downloads it/)
    expect(refused).toContain(`'moeflux pull ${ID}' downloads it`)
    expect(await declined.exited()).toBe(1)
    expect(await listed()).toEqual([])

    for (const [share, ...more] of [[0.1], [0.4, '--yes'], [0.3, '--yes']] as [number, ...string[]][]) {
      const held = holdAfter(share * weights)
      const screen = atTerminal('run', '-m', SHORT, ...QUESTION, ...more)
      if (more.length === 0) {
        await screen.shows(/\[Y\/n\] $/)
        screen.type('y\r')
      }
      await held
      screen.type(CTRL_C)
      expect(await screen.shows(/resumes\s+it/)).toContain(`'moeflux pull ${ID}'`)
      expect(await screen.exited()).toBe(130)
      const [model, ...others] = await listed()
      expect(others).toEqual([])
      expect(model).toMatchObject({ name: ID, state: 'unfinished' })
      expect(model.bytes).toBeGreaterThan(0)
      expect(model.bytes).toBeLessThan(1.5 * weights)
    }

    hub.behaviour.hold = () => null
    const before = hub.sent()
    const last = atTerminal('run', '-m', SHORT, ...QUESTION, '--yes')
    const seen = await last.shows(/I am [\s\S]*tok\/s/)
    expect(seen).toContain('is partly downloaded')
    expect(seen).toMatch(/download +[\d.]+ [kM]B more/)
    expect(await last.exited()).toBe(0)
    expect(hub.sent() - before).toBeLessThan(0.5 * weights) // it went on

    const packed = join(temporaryFolder(), 'packed')
    await packFolder(demoSource, packed, { name: ID })
    const [pulled, wanted] = [hashFolder(join(home, 'models', ID.replace('/', '--'))), hashFolder(packed)]
    for (const hashes of [pulled, wanted]) hashes.delete('moeflux.json') // names its source
    expect(pulled).toEqual(wanted)
    expect(readdirSync(join(home, 'downloads'))).toEqual([])
    const requests = hub.requests.length
    const again = await moeflux(['run', '-q', '-m', 'Qwen3.6-35B-A3B-4bit', ...QUESTION], { env: environment() })
    expect(again.stdout).toMatch(/^I am /)
    expect(hub.requests).toHaveLength(requests) // the last part of its name is enough, and nobody asks the hub
  }, 120_000)

  test('is not downloaded without a terminal and without --yes', async () => {
    const { code, stderr } = await moeflux(['run', '-m', SHORT, 'Hi'], { env: environment() })
    expect(code).toBe(1)
    expect(stderr).toBe(
      `error: ${SHORT}: no such folder or file, and the store has no model of this name ` +
        `('moeflux pull ${ID}' or --yes downloads it, 'moeflux list' shows those you have)\n`,
    )
    expect(hub.requests).toEqual([])
  })

  test('is pulled by the address of its page, in a command that says what comes next', async () => {
    const pulled = await moeflux(['pull', `https://huggingface.co/${ID}/tree/main`], { env: environment() })
    expect(pulled.code).toBe(0)
    expect(pulled.stderr).toContain(`next: moeflux run -m ${ID} "Hello"`)
    const removed = await moeflux(['rm', 'a3b'], { env: environment() })
    expect(removed).toMatchObject({ code: 0, stderr: expect.stringMatching(/^removed .*Qwen3\.6.* \(20\.\d MB\)\n$/) })
    const empty = await moeflux(['list'], { env: environment() })
    expect(empty.stderr).toContain(`next: moeflux pull ${SUGGESTED_MODEL}`)
  })

  test('leaves nothing when its unfinished pull is removed', async () => {
    const held = holdAfter(0.3 * weights) // within the first shard: nothing is packed yet
    const screen = atTerminal('pull', SHORT)
    await held
    screen.type(CTRL_C)
    await screen.shows(/resumes\s+it/)
    expect(await screen.exited()).toBe(130)
    const [{ bytes }] = await listed()
    expect(bytes).toBeGreaterThan(0.1 * weights)
    expect(bytes).toBeLessThan(0.5 * weights) // and not what it would have been
    const text = await moeflux(['list'], { env: environment() })
    expect(text.stdout).toMatch(/unfinished/)
    expect(text.stderr).toContain(`'moeflux pull ${ID}' resumes an unfinished download`)
    expect((await moeflux(['rm', SHORT], { env: environment() })).code).toBe(0)
    expect(bytesBelow(home)).toBe(0)
    expect(await listed()).toEqual([])
  })

  test('is not listed when it was refused', async () => {
    await hub.close()
    const config = JSON.parse(String(files.get('config.json')))
    const odd = { ...config, model_type: 'odd_moe', text_config: { ...config.text_config, model_type: 'odd_moe' } }
    hub = await startHub(ID, new Map([...files, ['config.json', Buffer.from(JSON.stringify(odd))]]))
    const { code, stderr } = await moeflux(['pull', SHORT], { env: environment() })
    expect(code).toBe(1)
    expect(stderr).toMatch(/odd_moe/)
    expect(await listed()).toEqual([])
    expect(bytesBelow(home)).toBe(0)
  })
})
