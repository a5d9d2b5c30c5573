// `moeflux search` against a hub look-alike: what it asks, what it makes of the answers, and that nothing of them reaches the
// terminal that it would obey.
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { searchHub } from '#moeflux/files/hub/searchHub.js'
import { type Finished, moeflux } from '../../apps/cli/moeflux.js'
import { type HubServer, startHub } from './hubServer.js'

const TOKEN = 'hf_secret'
const SAFE = ['safetensors', 'mlx']

let hub: HubServer
let asked: URLSearchParams[]

beforeEach(async () => {
  asked = []
  hub = await startHub('people/demo', new Map(), TOKEN)
})
afterEach(() => hub.close())

function answerWith(found: unknown): void {
  hub.behaviour.search = query => {
    asked.push(query)
    return found
  }
}

function search(...args: string[]): Promise<Finished> {
  return moeflux(['search', ...args], { env: { HF_ENDPOINT: hub.url, HF_TOKEN: TOKEN } })
}

const FOUND = [
  {
    id: 'mlx-community/Qwen3.5-4B-4bit',
    downloads: 1_234_567,
    tags: [...SAFE, 'qwen3_5'],
    config: { model_type: 'qwen3_5', quantization_config: { bits: 4, group_size: 64 } },
    gated: false,
  },
  { id: 'unsloth/Qwen3.5-4B-GGUF', downloads: 98_765, tags: ['gguf'], gguf: { architecture: 'qwen35' }, gated: false },
  { id: 'meta/Llama-4-8B', downloads: 900, tags: SAFE, config: { model_type: 'llama' }, gated: 'manual' },
  {
    id: 'other/Qwen3.5-4B-FP8',
    tags: SAFE,
    config: { model_type: 'qwen3_5', quantization_config: { quant_method: 'fp8' } },
  },
  {
    id: 'other/Qwen3.5-4B-5bit',
    tags: SAFE,
    config: { model_type: 'qwen3_5', quantization_config: { bits: 5, group_size: 64 } },
  },
  { id: 'other/onnx', downloads: 3, tags: ['onnx'], config: { model_type: 'qwen3_5' } },
  { id: 'other/unknown', downloads: 2, tags: ['gguf'], gated: 'auto' },
  { id: 'old/tags-only', downloads: 1, tags: ['safetensors', 'qwen3_moe'] },
]

describe('moeflux search', () => {
  test('asks the hub, lists what it found, and says what comes next', async () => {
    answerWith(FOUND)
    const { code, stdout, stderr } = await search('Qwen3.5', '4b', '--limit', '50', '--filter', 'mlx', '--filter', 'en')
    expect(code, stderr).toBe(0)
    const [query] = asked
    expect([query.get('search'), query.get('sort'), query.get('limit')]).toEqual(['Qwen3.5 4b', 'downloads', '50'])
    expect(query.getAll('filter')).toEqual(['mlx', 'en'])
    expect(hub.requests.map(({ authorization }) => authorization)).toEqual([`Bearer ${TOKEN}`])
    expect(stdout).toBe(`\
MODEL                          DOWNLOADS  RUNS
mlx-community/Qwen3.5-4B-4bit  1,234,567  yes
unsloth/Qwen3.5-4B-GGUF           98,765  yes, GGUF
meta/Llama-4-8B                      900  no: llama
other/Qwen3.5-4B-FP8                   -  no: fp8
other/Qwen3.5-4B-5bit                  -  no: 5 bits
other/onnx                             3  no: neither safetensors nor GGUF
other/unknown                          2  not known, GGUF, needs a token
old/tags-only                          1  yes
`)
    expect(stderr).toBe('short names: qwen3.5-4b\nnext: moeflux pull mlx-community/Qwen3.5-4B-4bit\n')
  })

  test('tells programs the same as JSON', async () => {
    answerWith(FOUND.slice(1, 3))
    const { stdout } = await search('4b', '--json')
    expect(JSON.parse(stdout)).toEqual([
      {
        id: 'unsloth/Qwen3.5-4B-GGUF',
        downloads: 98_765,
        isGguf: true,
        family: 'qwen35',
        runs: true,
        reason: null,
        needsToken: false,
      },
      expect.objectContaining({ id: 'meta/Llama-4-8B', runs: false, reason: 'llama', needsToken: true }),
    ])
  })

  test('says so where nothing is found, nothing runs, or the best one is a GGUF file', async () => {
    answerWith([])
    expect(await search('no such thing')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'the hub has no model with all of these words in its name\n',
    })
    answerWith(FOUND.slice(2, 3))
    expect((await search('llama')).stderr).toBe('')
    answerWith(FOUND.slice(1, 2))
    expect((await search('gguf')).stderr).toContain('next: moeflux pull unsloth/Qwen3.5-4B-GGUF:Q4_K_M, or another')
  })

  test('shows nothing of a hub that a terminal would obey, and survives any answer', async () => {
    const evil = '\u001b]0;owned\u0007\u009b2J\u202e'
    answerWith([
      { id: `a/${evil}`, tags: SAFE },
      { id: '../../etc', tags: SAFE },
      { id: `a/${'b'.repeat(5000)}`, tags: SAFE },
      { id: 'a/type', tags: [evil, 7, null], config: { model_type: evil } },
      { id: 'a/method', tags: SAFE, config: { model_type: 'qwen3_5', quantization_config: { quant_method: evil } } },
      { id: 'a/arch', tags: ['gguf'], gguf: { architecture: evil }, downloads: evil, gated: evil },
      { id: 'a/mode', tags: SAFE, config: { model_type: 'qwen3_5', quantization_config: [[[evil]]] } },
      null,
      7,
      'text',
      [],
    ])
    const all = [await search('x'), await search('x', '--json')]
    for (const { code, stdout, stderr } of all) {
      expect(code, stderr).toBe(0)
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
      expect(stdout + stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
    }
    expect(JSON.parse(all[1].stdout).map(({ id }: { id: string }) => id)).toEqual([
      'a/type',
      'a/method',
      'a/arch',
      'a/mode',
    ])
    for (const answer of [{}, null, 'x', { error: evil }]) {
      answerWith(answer)
      const { code, stderr } = await search('x')
      expect([code, stderr]).toEqual([
        1,
        `error: search: ${hub.url}/api/models: did not answer with a list of models\n`,
      ])
    }
  })

  test('lists no more than was asked for, whatever the hub sends', async () => {
    answerWith(Array.from({ length: 5000 }, (_, i) => ({ id: `a/m${i}` })))
    expect((await search('m', '--limit', '3')).stdout.split('\n')).toHaveLength(5)
  })

  test('says in one sentence that the hub is down, or that there is none', async () => {
    const { url } = hub
    await hub.close()
    const down = await search('x')
    expect([down.code, down.stdout]).toEqual([1, ''])
    expect(down.stderr).toMatch(/^error: search: [^\n]*ECONNREFUSED[^\n]*\n$/)
    const offline = await moeflux(['search', 'x'], { env: { HF_ENDPOINT: 'http://no-such-host.invalid' } })
    expect(offline.stderr).toBe('error: search: no-such-host.invalid cannot be reached: are you offline?\n')
    hub = await startHub('people/demo', new Map(), TOKEN)
    const other = await moeflux(['search', 'x', '--endpoint', hub.url], {
      env: { HF_ENDPOINT: url, HF_TOKEN: 'hf_other' },
    })
    expect(other.stderr).toBe(`error: search: ${hub.url}/api/models: the token has no access (401)\n`)
    expect(await search(' ')).toMatchObject({ code: 2, stderr: 'error: give words to search for\n' })
  })

  test('gives the library the same', async () => {
    answerWith(FOUND)
    const found = await searchHub('4b', { endpoint: hub.url, token: TOKEN, limit: 2 })
    expect(found.map(({ id, runs }) => [id, runs])).toEqual([
      ['mlx-community/Qwen3.5-4B-4bit', true],
      ['unsloth/Qwen3.5-4B-GGUF', true],
    ])
  })
})
