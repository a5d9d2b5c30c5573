// What the system refuses comes as one line in words, with the path that it is about.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { listenAddresses } from '#moeflux/apps/cli/commands/serve.js'
import { encodeTrace } from '#moeflux/lab/traces/routingTrace.js'
import { demoSource, temporaryFolder } from '../../support/models/packedFiles.js'
import { MAIN, moeflux } from './moeflux.js'

describe('in words', () => {
  test.each([
    [['convert', demoSource, 'a-file'], /a-file: is a file, and a folder would be written there$/],
    [['convert', demoSource, 'a-file/below'], /below: a part of this path is a file, not a folder$/],
    [['web', '--out', 'a-file'], /a-file: is a file, and a folder would be written there$/],
    [['simulate', 'nothing.trace'], /^error: nothing\.trace: no such file or folder$/],
    [['eval', '--text-file', 'nothing.txt'], /^error: nothing\.txt: no such file or folder$/],
    [['chat', '--load', 'nothing.json'], /^error: nothing\.json: no such file or folder$/],
    [['run', '-m', 'nothing.gguf', 'Hi'], /^error: nothing\.gguf: no such folder or file/],
    [['trace', '-o', 'nowhere/a.trace', 'Hi'], /^error: nowhere\/a\.trace: no such file or folder$/],
    [['run', '-m', 'a-file', 'Hi'], /^error: a-file: is a file, and neither a folder nor a GGUF file$/],
  ])('%j', async (args, line) => {
    const cwd = temporaryFolder()
    writeFileSync(join(cwd, 'a-file'), 'x')
    const { code, stdout, stderr } = await moeflux(args, { cwd, env: { MOEFLUX_HOME: join(cwd, 'home') } })
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr.trimEnd()).toMatch(line)
    expect(stderr.replaceAll(cwd, '')).not.toMatch(/E[A-Z]{4,}/) // the folder's own name is random
  })
})

test.each([
  ['http://hub.invalid:8080', 'hub.invalid cannot be reached: are you offline?'],
  ['http://127.0.0.1:59873', '127.0.0.1:59873 cannot be reached (ECONNREFUSED)'],
])('a hub that cannot be reached: %s', async (endpoint, reason) => {
  const env = { MOEFLUX_HOME: temporaryFolder(), HF_ENDPOINT: endpoint }
  for (const args of [
    ['pull', 'acme/tiny'],
    ['run', '--yes', '-m', 'acme/tiny', 'Hi'],
  ]) {
    const { code, stdout, stderr } = await moeflux(args, { env })
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(/^error: acme\/tiny: [^\n]*\n$/)
    expect(stderr).toContain(reason)
  }
})

test('a folder that is gone', () => {
  const script = 'rmdir "$PWD" && exec "$@"'
  const command = ['-c', script, 'sh', process.execPath, MAIN, 'run', 'Hi']
  const { status, stdout, stderr } = spawnSync('sh', command, { cwd: temporaryFolder(), encoding: 'utf8' })
  const line = 'error: the folder that this was started in is gone: start it in another one\n'
  expect({ status, stdout, stderr }).toEqual({ status: 1, stdout: '', stderr: line })
})

test('simulate refuses a budget that the engine would refuse', async () => {
  const engine = { backend: 'wasm', policy: 'lrfu', slots: 8, hits: 1, misses: 1, computeSecondsPerToken: 0.01 }
  const steps = [{ tokens: 1, experts: Uint16Array.of(0, 1, 2, 3) }]
  const facts = { model: 'm', layers: 2, experts: 8, expertsPerToken: 2, expertBytes: 1000 }
  const file = join(temporaryFolder(), 'a.trace')
  writeFileSync(file, encodeTrace({ ...facts, engine, steps }))
  const { code, stderr } = await moeflux(['simulate', file, '--disk', '1GB', '--budgets', '1KB'])
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: 'error: --budgets: got 1000, want at least 4000 bytes (4 experts of 1000)\n',
  })
})

test('names addresses that can be opened, wherever it listens', () => {
  const address = (family: 'IPv4' | 'IPv6', address: string, internal = false) =>
    ({ family, address, internal, netmask: '', mac: '', cidr: null, scopeid: 0 }) as never
  const interfaces = {
    lo: [address('IPv4', '127.0.0.1', true)],
    eth0: [address('IPv4', '192.168.1.7'), address('IPv6', 'fe80::1')],
  }
  expect(listenAddresses('0.0.0.0', 80, interfaces)).toEqual(['http://127.0.0.1:80', 'http://192.168.1.7:80'])
  expect(listenAddresses('::', 80, interfaces)).toEqual(['http://127.0.0.1:80', 'http://192.168.1.7:80'])
  expect(listenAddresses('::1', 80, interfaces)).toEqual(['http://[::1]:80'])
  expect(listenAddresses('box.local', 80, interfaces)).toEqual(['http://box.local:80'])
})
