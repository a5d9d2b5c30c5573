// `moeflux eval`: logits and perplexity of token files, written and compared.
import { readFileSync } from 'node:fs'
import { stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { readFloatTensors, repository, temporaryFolder, tinySource } from '../../support/models/packedFiles.js'
import { EXACT_LOGITS, expectClose, FAST_LOGITS } from '../../support/ops/bands.js'
import { moeflux } from './moeflux.js'

const VOCABULARY = 8192
const manifest = JSON.parse(readFileSync(join(repository, 'test/data/goldens/goldens.json'), 'utf8'))
const ids: readonly number[] = manifest.demo.prompts[0].input_ids

function readFloats(file: string): Float32Array {
  return new Float32Array(new Uint8Array(readFileSync(file)).buffer)
}

describe('moeflux eval', () => {
  let goldens: Map<string, Float32Array>

  beforeAll(async () => {
    goldens = await readFloatTensors(join(repository, 'test/data/goldens/demo.safetensors'))
  })

  test.each([
    ['exact', EXACT_LOGITS],
    ['fast', FAST_LOGITS],
  ] as const)('writes the logits of the last position in %s precision', async (precision, band) => {
    const file = join(temporaryFolder(), 'out.bin')
    const args = ['eval', '--tokens', ids.join(','), '--logits', file, '--precision', precision]
    const { code, stdout } = await moeflux(args)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^ {2}tokens +\d+, [\d.]+ tok\/s on \w+\n {2}next /)
    expectClose(readFloats(file), goldens.get('p0.last_logits')!, band)
  })

  test('writes one row per position with --all-logits', async () => {
    const file = join(temporaryFolder(), 'out.bin')
    const options = ['--precision', 'exact', '--all-logits', '--json']
    const { stdout } = await moeflux(['eval', '--tokens', ids.join(' '), '--logits', file, ...options])
    expectClose(readFloats(file), goldens.get('p0.logits')!, EXACT_LOGITS)
    expect(JSON.parse(stdout)).toMatchObject({ tokens: ids.length, scored: ids.length - 1, windows: 1 })
  })

  test('gives the perplexity of a text, in windows where it is longer than the context', async () => {
    const folder = temporaryFolder()
    const text = manifest.demo.nll.text[0].slice(0, 240)
    await writeFile(join(folder, 'text.txt'), text)
    const args = ['eval', '--text-file', join(folder, 'text.txt'), '--precision', 'exact', '--json']
    const whole = JSON.parse((await moeflux(args)).stdout)
    // The golden's first row begins with this text: the same tokens from the same empty state.
    const logprobs = goldens.get('nll.token_logprobs')!.subarray(0, whole.scored)
    const mean = -logprobs.reduce((sum, value) => sum + value, 0) / whole.scored
    expect(whole.scored).toBe(whole.tokens - 1)
    expect(whole.perplexity / Math.exp(mean)).toBeCloseTo(1, 3)

    const cut = await moeflux([...args, '--context', '32'])
    const windows = Math.ceil(whole.tokens / 32)
    expect(JSON.parse(cut.stdout)).toMatchObject({ windows, scored: whole.tokens - windows })
    expect(cut.stderr).toContain(`${windows} windows of 32`)
  })

  test('packs a raw folder once and says so', async () => {
    const folder = temporaryFolder()
    const env = { MOEFLUX_HOME: join(folder, 'home') }
    const args = ['eval', '--model', tinySource, '--tokens', '1,2,3', '--logits', join(folder, 'out.bin'), '--json']
    const first = await moeflux(args, { env })
    expect(first.stderr).toContain('is packed once, into')
    const { size } = await stat(join(folder, 'out.bin'))
    const second = await moeflux(args, { env })
    expect(second.code).toBe(0)
    expect(second.stderr).toBe('')
    expect(size).toBe(4 * 512)
    expect(JSON.parse(second.stdout).next).toEqual(JSON.parse(first.stdout).next)
    const inspected = await moeflux(['inspect', tinySource, '--json'], { env })
    expect(JSON.parse(inspected.stdout)).toMatchObject({ config: { vocabSize: 512 }, estimate: { fits: 'everything' } })
    expect(inspected.stderr).toBe('')
  })

  test.each([
    [[], /either --tokens or --text-file/],
    [['--tokens', '1', '--text-file', 'x'], /either --tokens or --text-file/],
    [['--tokens', '1,two'], /'two' is not a token id/],
    [['--tokens', '1,-2'], /'-2' is not a token id/],
    [['--tokens', ','], /at least one id/],
    [['--tokens', `1,${VOCABULARY}`], /id 8192 at 1 is outside the vocabulary of 8192/],
    [['--tokens', '1', '--all-logits'], /--logits FILE/],
  ])('refuses %j with exit code 2', async (args, line) => {
    const { code, stdout, stderr } = await moeflux(['eval', ...args])
    expect(stderr).toMatch(line)
    expect(stderr).toMatch(/^error: [^\n]*\n$/)
    expect(stdout).toBe('')
    expect(code).toBe(2)
  })

  test('fails where the logits cannot be written, before anything is evaluated', async () => {
    const { code, stderr } = await moeflux(['eval', '--tokens', '1', '--logits', join('no', 'such', 'folder', 'x')])
    expect(code).toBe(1)
    expect(stderr).toMatch(/^error: .*no.such.folder.x.*\n$/)
  })
})
