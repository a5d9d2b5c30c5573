// `ps` and `stop` against a running server, the words with which `serve` begins, and `--open`.
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { demoModelPath } from '#moeflux/index.js'
import { type ServerProcess, startServer } from '../server/serverProcess.js'
import { MAIN, moeflux } from './moeflux.js'
import { Screen } from './screen.js'

const env = { MOEFLUX_API_KEY: 'secret' }
const folder = mkdtempSync(join(tmpdir(), 'moeflux-serve-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

describe('a server with two models', () => {
  let server: ServerProcess
  const load = (model: string) =>
    fetch(`${server.url}/api/generate`, {
      method: 'POST',
      headers: { 'x-api-key': 'secret', 'content-type': 'application/json' },
      body: JSON.stringify({ model }),
    })

  beforeAll(async () => {
    for (const name of ['first', 'second']) symlinkSync(demoModelPath(), join(folder, name))
    server = await startServer(['-m', join(folder, 'first'), '-m', join(folder, 'second'), '--pin', 'second'], env)
  })
  afterAll(() => server.stop())

  const ask = (...args: string[]) => moeflux([...args, '--url', server.url], { env })

  test('ps lists what is in memory, and stop unloads it', async () => {
    expect((await load('first')).status).toBe(200)
    const listed = await ask('ps')
    expect(listed).toMatchObject({ code: 0, stderr: '' })
    const lines = listed.stdout.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^NAME +SIZE +CONTEXT +UNTIL$/)
    expect(lines[1]).toMatch(/^first +[\d.]+ MB +4,096 +in (10m 00s|9m \d+s)$/)
    expect(lines[2]).toMatch(/^second +[\d.]+ MB +4,096 +the server stops$/)
    const json = JSON.parse((await ask('ps', '--json')).stdout)
    expect(json.map(({ name }: { name: string }) => name)).toEqual(['first', 'second'])
    expect(await ask('stop', 'first')).toEqual({ code: 0, stdout: '', stderr: 'unloaded first\n' })
    expect((await ask('ps')).stdout).not.toContain('first')
  })

  test('stop says why a model stays, and that one is not there', async () => {
    const [pinned, idle, unknown] = await Promise.all([
      ask('stop', 'second'),
      ask('stop', 'first'),
      ask('stop', 'third'),
    ])
    expect(pinned).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: second stays in memory: .*pinned/) })
    expect(idle).toMatchObject({ code: 1, stderr: 'error: first is not in memory: second is\n' })
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: .*there is no model 'third'/) })
  })

  test('an address may be short, and a key is needed', async () => {
    const address = server.url.replace('http://', '')
    expect((await moeflux(['ps', '--url', `${address}/v1/`], { env })).code).toBe(0)
    const refused = await moeflux(['ps', '--url', address], { env: { MOEFLUX_API_KEY: '' } })
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringMatching(/wants a key: give --api-key/) })
    const given = await moeflux(['ps', '--url', address, '--api-key', 'secret'], { env: { MOEFLUX_API_KEY: '' } })
    expect(given.code).toBe(0)
  })
})

describe('no such server', () => {
  test('ps says that none answers, or that it is another', async () => {
    const none = await moeflux(['ps', '--url', 'http://127.0.0.1:59874'])
    const advice = "start one with 'moeflux serve', or name another with --url"
    expect(none).toEqual({
      code: 1,
      stdout: '',
      stderr: `error: no server answers at http://127.0.0.1:59874: ${advice}\n`,
    })
    const other = createServer((_, response) => response.end('<html>'))
    await new Promise<void>(resolve => other.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
    const asked = await moeflux(['stop', 'x', '--url', url])
    expect(asked).toMatchObject({ code: 1, stderr: `error: ${url}: what answers there is not a moeflux server\n` })
    other.close()
    expect((await moeflux(['ps', '--url', 'ftp://x'])).code).toBe(2)
  })
})

test('serve shows each address in a line of its own, the page first, and how it is stopped', async () => {
  const env = { ...process.env, MOEFLUX_HOME: folder, TERM: 'xterm-256color' } as Record<string, string>
  const args = [MAIN, 'serve', '-m', 'demo', '--threads', '1', '--port', '0', '--host', '0.0.0.0']
  const screen = new Screen(spawn(process.execPath, args, { cols: 80, rows: 30, env }))
  const shown = await screen.shows(/Ctrl-C stops the server/)
  const lines = shown.slice(shown.indexOf('the page')).split('\n')
  expect(lines[0]).toMatch(/^the page is at http:\/\/127\.0\.0\.1:\d+$/)
  expect(lines[1]).toMatch(/^OpenAI: http:\/\/127\.0\.0\.1:\d+\/v1$/)
  expect(lines[2]).toMatch(/^Anthropic and Ollama: http:\/\/127\.0\.0\.1:\d+$/)
  expect(shown).toMatch(/^model: demo$/m)
  screen.type('\u0003')
  expect(await screen.exited()).toBe(130)
})

test.skipIf(process.platform !== 'linux')('serve --open opens the page, or says that it cannot', async () => {
  const seen = join(folder, 'opened')
  const opener = join(folder, 'xdg-open')
  const start = async () => {
    const env = { PATH: `${folder}:/nonexistent` }
    return await startServer(['-m', 'demo', '--open'], env)
  }
  const none = await start()
  await expect
    .poll(() => none.log())
    .toContain(`no browser could be opened (xdg-open: ENOENT); open ${none.url} yourself`)
  await none.stop()
  writeFileSync(opener, `#!/bin/sh\necho "$@" > '${seen}'\n`)
  chmodSync(opener, 0o755)
  const some = await start()
  await expect.poll(() => existsSync(seen) && readFileSync(seen, 'utf8')).toBe(`${some.url}\n`)
  await some.stop()
  expect(some.log()).not.toContain('no browser')
})
