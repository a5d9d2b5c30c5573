// `moeflux run`: prompts from everywhere, answers to people and to pipes.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, cpSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { spawn as spawnPty } from '@lydell/node-pty'
import { describe, expect, test } from 'vitest'
import { demoModel } from '../../support/models/models.js'
import { temporaryFolder } from '../../support/models/packedFiles.js'
import { MAIN, moeflux } from './moeflux.js'
import { plain, Screen } from './screen.js'

const STORY = 'Tell me a story about a little dog'
const SHORT = ['--seed', '1', '--max-tokens', '24']
const RUN = ['run', '--threads', '1'] // to start a second thread takes longer than these answers

/** Starts an endless answer and waits for its first words. */
async function startAnswer(...options: string[]) {
  const args = [MAIN, ...RUN, '--raw', '--seed', '1', ...options, 'Once upon a time']
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', text => (stderr += text))
  await once(child.stdout, 'data')
  return { child, stderr: () => stderr }
}

function spawnTerminal(columns: number, args: readonly string[]) {
  const env = { ...process.env, MOEFLUX_HOME: temporaryFolder(), TERM: 'xterm-256color', NO_COLOR: '' }
  return spawnPty(process.execPath, [MAIN, ...args], { cols: columns, rows: 30, env: env as Record<string, string> })
}

/** What a terminal of so many columns shows in the end, but for the line that no GPU is used. */
function atTerminal(columns: number, args: readonly string[]): Promise<string> {
  const terminal = spawnTerminal(columns, args)
  let text = ''
  terminal.onData(part => (text += part))
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a progress bar is erased before it is drawn again
  const bars = /\r\u001b\[2K[^\r\n]*(?=\r\u001b\[2K)/g
  const noGpu = /^computing without[^']*'moeflux\s+doctor'\s+says\s+more\n/
  return new Promise(resolve => {
    terminal.onExit(() => resolve(plain(text.replace(bars, '')).replace(noGpu, '')))
  })
}

describe('moeflux run', () => {
  test('writes the answer alone to stdout and the speed to stderr; a seed gives the same text', async () => {
    const [first, second] = await Promise.all([
      moeflux(['run', ...SHORT, STORY]),
      moeflux(['run', ...SHORT, '--quiet', STORY]),
    ])
    expect(first.code).toBe(0)
    expect(first.stdout).toMatch(/^[A-Z][\w\s.,!?'"]{40,}\n$/)
    expect(first.stderr).toMatch(/^[\d.]+ tok\/s · 24 tokens\n$/m)
    expect(first.stderr).not.toContain('prompt')
    expect(first.stderr).toContain('stopped after 24 tokens')
    expect(second).toEqual({ code: 0, stdout: first.stdout, stderr: '' })
  })

  test('reads the prompt from a pipe, asked for or not, and answers like to an argument', async () => {
    const question = 'Who are you?'
    const options = [...RUN, '--temp', '0', '--max-tokens', '12', '-q']
    const [argument, piped, dash] = await Promise.all([
      moeflux([...options, question]),
      moeflux(options, { input: `${question}\n` }),
      moeflux([...options, '-'], { input: question }),
    ])
    expect(argument.stdout).toMatch(/^I am /)
    expect(piped.stdout).toBe(argument.stdout)
    expect(dash.stdout).toBe(argument.stdout)
  })

  test('shows the model what is piped in, files and unquoted words together', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'a.md'), 'alpha\n')
    writeFileSync(join(folder, 'b.md'), 'beta\r\n')
    writeFileSync(join(folder, 'c.png'), Buffer.from([0x89, 0x50, 0, 1]))
    const options = [...RUN, '-v', '--raw', '--temp', '0', '-n', '6']
    const files = ['-f', join(folder, 'a.md'), '-f', join(folder, 'b.md')]
    const shown = ['a', 'b'].map(
      (name, i) => `<file name="${join(folder, `${name}.md`)}">\n${['alpha', 'beta'][i]}\n</file>`,
    )
    const whole = [...shown, 'piped text', 'Once upon a time'].join('\n\n')
    const [together, asOne, alone, binary, missing] = await Promise.all([
      moeflux([...options, ...files, 'Once', 'upon', 'a time'], { input: 'piped text\n' }),
      moeflux([...options, whole]),
      moeflux([...options, 'Once upon a time']),
      moeflux([...RUN, '-f', join(folder, 'c.png'), 'x']),
      moeflux([...RUN, '-f', join(folder, 'd.md'), 'x']),
    ])
    const promptTokens = ({ stderr }: { stderr: string }) => Number(/prompt (\d+) tokens/.exec(stderr)?.[1])
    expect(together).toMatchObject({ code: 0, stdout: asOne.stdout })
    expect(promptTokens(together)).toBe(promptTokens(asOne))
    expect(promptTokens(together)).toBeGreaterThan(promptTokens(alone) + 20)
    expect(binary).toMatchObject({ code: 2, stderr: expect.stringMatching(/^error: .*c\.png: is not a text file\n$/) })
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error: .*d\.md: no such file or folder\n$/),
    })
  })

  test('shows prompt, cache and experts with --verbose alone', async () => {
    const { stderr } = await moeflux([...RUN, '-v', '-n', '4', 'Who are you?'])
    expect(stderr).toMatch(/^[\d.]+ tok\/s · 4 tokens\nprompt \d+ tokens, [\d.]+ tok\/s · [\d.]+% of experts/m)
  })

  test('breaks answers, thoughts and errors between words on a terminal', async () => {
    const answer = ['-n', '60', '--temp', '0', '-q', 'Tell me a story']
    const [shown, piped, raw, thought, error] = await Promise.all([
      atTerminal(30, [...RUN, ...answer]),
      moeflux([...RUN, ...answer]),
      atTerminal(30, [...RUN, '--raw', ...answer]),
      atTerminal(30, [...RUN, '--think', '-n', '40', '--temp', '0', 'Tell me a story']),
      atTerminal(30, ['run', '-m', 'nowhere/of this name', 'Hi']),
    ])
    for (const text of [shown, raw, thought, error]) {
      const lines = text.trimEnd().split('\n')
      expect(lines.length).toBeGreaterThan(2)
      for (const line of lines) expect(line.length, text).toBeLessThanOrEqual(30)
    }
    expect(shown.split(/\s+/)).toEqual(piped.stdout.split(/\s+/))
    expect(piped.stdout).toMatch(/.{60}/)
    expect(thought).toMatch(/^The user /)
  })

  test('prints text, thinking, tokens and speeds as JSON', async () => {
    const options = [...RUN, '--temp', '0', '-n', '40', 'Tell me a story']
    const [json, plain, failed] = await Promise.all([
      moeflux([...options, '--json', '--think']),
      moeflux([...options, '--think', '-q']),
      moeflux([...RUN, '--json', '--context', '8', STORY]),
    ])
    expect(json).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(json.stdout)).toEqual({
      model: 'demo',
      backend: 'wasm',
      text: plain.stdout.trimEnd(),
      thinking: expect.stringMatching(/^The user /),
      reason: 'length',
      usage: expect.objectContaining({ cachedTokens: 0, answerTokens: 40, promptSeconds: expect.any(Number) }),
      promptTokensPerSecond: expect.any(Number),
      answerTokensPerSecond: expect.any(Number),
    })
    expect(failed).toMatchObject({ code: 1, stdout: '' })
  })

  test('without a prompt opens a chat at a terminal, and nowhere else', async () => {
    const screen = new Screen(spawnTerminal(80, [...RUN, '-n', '4', '--system', 'Be brief.']))
    await screen.shows(/\/help shows the commands[\s\S]*> $/)
    screen.type('/system\r')
    await screen.shows(/system prompt: Be brief\.[\s\S]*> $/)
    screen.type('/bye\r')
    expect(await screen.exited()).toBe(0)
    expect(await moeflux(['run', '--raw'])).toMatchObject({ code: 2, stderr: 'error: the prompt is empty\n' })
    expect(await atTerminal(80, ['run', '--raw'])).toBe('error: no prompt: give one, or pipe it in\n')
  })

  test('thinks on stderr and answers on stdout', async () => {
    const { code, stdout, stderr } = await moeflux([...RUN, '--temp', '0', '-n', '32', '--think', STORY])
    expect(code).toBe(0)
    expect(stderr).toMatch(/^The user /)
    expect(stdout).toMatch(/^[A-Z]/)
    expect(stdout + stderr).not.toContain('think>')
    expect(stdout).not.toContain('The user')
  })

  test('lets a system prompt change the answer', async () => {
    const options = [...RUN, '--temp', '0', '-n', '24', '-q']
    const [without, withSystem] = await Promise.all([
      moeflux([...options, 'Tell me a story']),
      moeflux([...options, '--system', 'All stories are about a girl named Zoe.', 'Tell me a story']),
    ])
    expect(withSystem.code).toBe(0)
    expect(withSystem.stdout).not.toBe(without.stdout)
  })

  test('completes raw text, and stops before a given text', async () => {
    const options = [...RUN, '--raw', '--temp', '0', '-n', '24', '-q', 'Once upon a time, there was a little']
    const [whole, stopped] = await Promise.all([moeflux(options), moeflux([...options, '--stop', ' She'])])
    expect(whole.stdout).toMatch(/^ \w+.* She/)
    expect(stopped.stdout).toBe(`${whole.stdout.slice(0, whole.stdout.indexOf(' She'))}\n`)
  })

  test('answers in JSON of a given schema', async () => {
    const schema = {
      type: 'object',
      properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 0, maximum: 99 } },
      required: ['name', 'age'],
      additionalProperties: false,
    }
    const args = [...RUN, '--seed', '1', '--json-schema', JSON.stringify(schema), 'Who are you?']
    const { code, stdout } = await moeflux(args)
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({ name: expect.any(String), age: expect.any(Number) })
  })

  test.each([
    [['run', '--json-schema', 'nowhere.json', 'x'], /--json-schema.*nowhere\.json.*no such file/],
    [['run', '--json-schema', '{"not":{}}', 'x'], /JSON schema at .*not is not supported/],
    [['run', '--temp', 'warm', 'x'], /--temp <t>.*'warm'.*number from 0 to 100/],
    [['run', '--backend', 'abacus', 'x'], /--backend <name>.*'abacus'.*wasm/],
    [['run', '--expert-memory', '1kB', 'x'], /--expert-memory: got 1000, want at least/],
    [['run', '--threads', '0', 'x'], /--threads <n>.*'0'/],
    [['run', '--backend', 'reference', '--precision', 'fast', 'x'], /--precision fast.*reference/],
    [['run', '--raw', '--system', 'a', 'x'], /--raw .*--system/],
    [['run', '   '], /the prompt is empty/],
    [['run'], /the prompt is empty/],
    [['run', '--experts-per-token', '99', 'x'], /--experts-per-token: got 99, want an integer from 1 to 4/],
    [['run', '--context', '99999', 'x'], /--context: got 99999, want an integer from 1 to 4096/],
  ])('refuses %j with exit code 2', async (args, line) => {
    const { code, stdout, stderr } = await moeflux(args)
    expect(stderr).toMatch(line)
    expect(stderr).toMatch(/^error: [^\n]*\n$/)
    expect(stdout).toBe('')
    expect(code).toBe(2)
  })

  // Windows opens no folder as a file.
  test.skipIf(process.platform === 'win32')('goes on without a stdin that another program left open', async () => {
    const args = [...RUN, '--temp', '0', '-n', '4', 'Who are you?']
    const [open, closed] = await Promise.all([moeflux(args, { leavesOpen: true }), moeflux(args)])
    expect(open).toMatchObject({ code: 0, stdout: closed.stdout })
    expect(open.stderr).toContain('nothing came through stdin')
    expect(closed.stderr).not.toContain('stdin')
  })

  test.skipIf(process.platform === 'win32')('says that stdin is a folder', async () => {
    const folder = openSync(import.meta.dirname, 'r')
    for (const args of [['run'], ['eval', '--text-file', '-']]) {
      const child = spawn(process.execPath, [MAIN, ...args], { stdio: [folder, 'ignore', 'pipe'] })
      let stderr = ''
      child.stderr?.setEncoding('utf8').on('data', text => (stderr += text))
      const [code] = await once(child, 'close')
      expect({ code, stderr }).toEqual({ code: 2, stderr: 'error: stdin is a folder\n' })
    }
    closeSync(folder)
  })

  test('fails with one line for a model that is not there, and with a stack when asked', async () => {
    const [short, long] = await Promise.all([
      moeflux(['run', '--model', 'nowhere/model', 'x']),
      moeflux(['run', '--model', 'nowhere/model', '--verbose', 'x']),
    ])
    expect(short.code).toBe(1)
    expect(short.stderr).toMatch(/^error: nowhere\/model: [^\n]*\n$/)
    expect(long.code).toBe(1)
    expect(long.stderr).toMatch(/\n {4}at /)
  })

  test('refuses weights that do not match their checksums, unless it is told not to look', async () => {
    const folder = temporaryFolder()
    cpSync(demoModel, folder, { recursive: true })
    const file = join(folder, 'packed_experts/layer_00.bin')
    const bytes = readFileSync(file)
    for (let at = 100; at < bytes.length; at += 1000) bytes[at] ^= 1 // a weight's lowest bit, or one of a scale's
    writeFileSync(file, bytes)
    const options = [...RUN, '--model', folder, '--temp', '0', '-n', '4', '-q']
    const [looked, unlooked] = await Promise.all([
      moeflux([...options, STORY]),
      moeflux([...options, '--no-checksums', STORY]),
    ])
    expect(looked).toMatchObject({ code: 1, stdout: '' })
    expect(looked.stderr).toMatch(/^error: expert \d+ of layer 0: its bytes do not match their checksum.*layer_00\.bin/)
    expect(unlooked).toMatchObject({ code: 0, stderr: '' })
    expect(unlooked.stdout.trim()).not.toBe('')
  })

  test('refuses a prompt beyond the context', async () => {
    const { code, stderr } = await moeflux([...RUN, '--context', '8', STORY])
    expect(code).toBe(1)
    expect(stderr).toMatch(/^error: the prompt has 20 tokens, too long by 13 for the context limit of 8 tokens\n$/)
  })

  test('says when the context is full', async () => {
    const { code, stderr } = await moeflux([...RUN, '--context', '40', '--seed', '1', STORY])
    expect(code).toBe(0)
    expect(stderr).toContain('the context of 40 tokens is full')
  })

  // Windows has no SIGINT that one process sends to another.
  test.skipIf(process.platform === 'win32')('stops at Ctrl-C with exit code 130', async () => {
    const { child, stderr } = await startAnswer()
    child.kill('SIGINT')
    const [code] = await once(child, 'close')
    expect(code).toBe(130)
    expect(stderr()).toBe('')
  })

  test('ends quietly when its reader goes away', async () => {
    const { child, stderr } = await startAnswer()
    child.stdout.destroy()
    const [code] = await once(child, 'close')
    expect(code).toBe(0)
    expect(stderr()).toBe('')
  })
})
