// `moeflux chat` at a real terminal and through pipes.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { MAIN, moeflux } from './moeflux.js'
import { Screen } from './screen.js'

const CTRL_C = '\u0003'
const CTRL_D = '\u0004'
const CHAT = ['chat', '--threads', '1'] // to start a second thread takes longer than these answers

describe('moeflux chat', () => {
  let home: string
  let screen: Screen

  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'moeflux-chat-'))
  })

  afterEach(() => {
    screen?.kill()
    rmSync(home, { recursive: true, force: true })
  })

  async function start(...options: string[]): Promise<void> {
    const env = { ...process.env, MOEFLUX_HOME: home, TERM: 'xterm-256color', NO_COLOR: '' } as Record<string, string>
    const args = [MAIN, ...CHAT, '--temp', '0', ...options]
    screen = new Screen(spawn(process.execPath, args, { cols: 100, rows: 30, cwd: home, env }))
    await screen.shows(/\/help shows the commands[\s\S]*> $/)
  }

  test('answers, goes on from what was said, saves, forgets and loads', async () => {
    await start('--max-tokens', '12')
    screen.type('Who are you?\r')
    const first = await screen.shows(/tok\/s · \d+ tokens\n[\s\S]*> $/)
    expect(first).toContain('I am ')
    screen.type('Thank you.\r')
    await screen.shows(/tok\/s[\s\S]*> $/)
    screen.type('/stats\r')
    expect(await screen.shows(/kept states[\s\S]*> $/)).toMatch(/last answer +.* prompt \d+ new \+ \d+ cached tokens/)
    screen.type('/save chat.json\r')
    await screen.shows(/4 messages saved/)
    const saved = JSON.parse(readFileSync(join(home, 'chat.json'), 'utf8'))
    expect(saved.turns.map((turn: { role: string }) => turn.role)).toEqual(['user', 'assistant', 'user', 'assistant'])
    expect(saved.turns[1].content).toMatch(/^I am /)
    screen.type('/clear\r')
    await screen.shows(/cleared/)
    screen.type('/stats\r')
    expect(await screen.shows(/kept states/)).toMatch(/messages +0/)
    screen.type('/load chat.json\r')
    await screen.shows(/4 messages loaded/)
    screen.type('/load nothing.json\r')
    await screen.shows(/error: .*nothing\.json[\s\S]*> $/)
    screen.type(CTRL_D)
    expect(await screen.exited()).toBe(0)
  })

  test('takes a paste of several lines as one message, also in a window that changes its size', async () => {
    await start('--max-tokens', '4')
    screen.type('Say this: \u001b[200~one\r\ntwo\u001b[201~')
    await screen.shows(/one⏎two$/)
    screen.resize(20, 10)
    screen.type(' three\r')
    await screen.shows(/tok\/s[\s\S]*> $/)
    screen.type('first \\\r')
    await screen.shows(/\. $/)
    screen.type('second\r')
    await screen.shows(/tok\/s[\s\S]*> $/)
    screen.type('/save paste.json\r')
    await screen.shows(/saved/)
    const { turns } = JSON.parse(readFileSync(join(home, 'paste.json'), 'utf8'))
    expect([turns[0].content, turns[2].content]).toEqual(['Say this: one\ntwo three', 'first \nsecond'])
  })

  test('stops an answer at Ctrl-C and goes on; Ctrl-C twice at the prompt leaves', async () => {
    await start()
    screen.type('Tell me a story about a little dog\r')
    await screen.shows(/Once upon/)
    screen.type(CTRL_C)
    await screen.shows(/stopped\n[\s\S]*> $/)
    screen.type(CTRL_C)
    await screen.shows(/Ctrl-C again leaves\n[\s\S]*> $/)
    screen.type(CTRL_C)
    expect(await screen.exited()).toBe(130)
  })

  test('shows thoughts apart and has a help and a history', async () => {
    await start('--think', '--max-tokens', '32')
    screen.type('/help\r/nonsense\r') // the second is typed before its prompt is there
    expect(await screen.shows(/there is no \/nonsense/)).toContain('/system [text]')
    screen.type('Tell me a story about Mia\r')
    expect(await screen.shows(/tok\/s[\s\S]*> $/)).toMatch(/The user [\s\S]*\n\nOnce/)
    screen.type('/exit\r')
    expect(await screen.exited()).toBe(0)
    expect(readFileSync(join(home, 'chat_history'), 'utf8')).toBe(
      '/help\n/nonsense\nTell me a story about Mia\n/exit\n',
    )
  })

  test('answers once more, takes back, changes its system prompt and its model', async () => {
    await start('--max-tokens', '8', '--seed', '1', '--temp', '1')
    screen.type('Tell me a story\r')
    await screen.shows(/tok\/s[\s\S]*> $/)
    screen.type('/retry\r')
    await screen.shows(/tok\/s[\s\S]*> $/)
    screen.type('/save one.json\r')
    await screen.shows(/2 messages saved/)
    screen.type('/undo\r')
    await screen.shows(/the last message is removed[\s\S]*> $/)
    screen.type('/undo\r')
    await screen.shows(/there is no message to remove[\s\S]*> $/)
    screen.type('/retry\r')
    await screen.shows(/no message to answer[\s\S]*> $/)
    screen.type('/system Be brief.\r')
    await screen.shows(/system prompt: Be brief\.[\s\S]*> $/)
    screen.type('/system clear\r')
    await screen.shows(/there is no system prompt[\s\S]*> $/)
    screen.type('/model nothing-of-this-name\r')
    await screen.shows(/error: nothing-of-this-name: [\s\S]*> $/)
    screen.type('/model demo\r')
    await screen.shows(/demo on [\s\S]*> $/)
    screen.type('Tell me a story\r')
    await screen.shows(/tok\/s[\s\S]*> $/)
    screen.type(CTRL_D)
    expect(await screen.exited()).toBe(0)
  })

  test('shows and changes how answers are chosen, as ollama does, and lists models', async () => {
    await start('--max-tokens', '4')
    screen.type('/set\r')
    const before = await screen.shows(/repeat-penalty[\s\S]*> $/)
    expect(before).toMatch(/system +none\n +thinking +off\n +max-tokens +4\n +temp +0\n +seed +default\n/)
    screen.type('/set parameter temperature 0.5\r')
    await screen.shows(/ temp +0\.5\n[\s\S]*> $/)
    screen.type('/set top_p 0.9\r')
    await screen.shows(/ top-p +0\.9\n[\s\S]*> $/)
    screen.type('/set num_predict 2\r')
    await screen.shows(/ max-tokens +2\n[\s\S]*> $/)
    screen.type('Hi\r')
    await screen.shows(/tok\/s · 2 tokens[\s\S]*> $/)
    screen.type('/set max_tokens default\r')
    await screen.shows(/ max-tokens +default\n[\s\S]*> $/)
    screen.type('/set temperature hot\r')
    await screen.shows(/error: \/set temperature: got 'hot'\. Want a number from 0 to 100\.[\s\S]*> $/)
    screen.type('/set warmth 1\r')
    await screen.shows(/error: \/set warmth: want one of max-tokens, temp, [\s\S]*> $/)
    screen.type('/set seed\r')
    await screen.shows(/\/set seed needs a value, or default[\s\S]*> $/)
    screen.type('/set system Be brief.\r')
    await screen.shows(/system prompt: Be brief\.[\s\S]*> $/)
    screen.type('/list\r')
    await screen.shows(/demo +built in +open[\s\S]*> $/)
    screen.type('/bye\r')
    expect(await screen.exited()).toBe(0)
  })

  test('has no warning to give after many prompts', async () => {
    await start()
    for (let i = 0; i < 12; i++) {
      screen.type('/think\r')
      expect(await screen.shows(/thinking is o[nf]+[\s\S]*> $/)).not.toContain('Warning')
    }
  })

  test('breaks lines between words', async () => {
    await start('--max-tokens', '60')
    screen.resize(30, 20)
    screen.type('Tell me a story about a little dog\r')
    const seen = await screen.shows(/tok\/s · \d+ tokens[\s\S]*> $/)
    const story = seen.slice(seen.indexOf('Once'), seen.search(/\n(the answer was cut|[\d.]+ tok\/s)/))
    const lines = story.split('\n').slice(0, -1)
    expect(lines.length).toBeGreaterThan(4)
    for (const line of lines) expect(line.length).toBeLessThan(30)
    const { stdout } = await moeflux([...CHAT, '--temp', '0', '-n', '60', '-q'], {
      input: 'Tell me a story about a little dog\n',
    })
    expect(story.split(/\s+/)).toEqual(stdout.trim().split(/\s+/))
  })

  test('answers each line of a pipe, with the answers alone on stdout', async () => {
    const options = [...CHAT, '--temp', '0', '--max-tokens', '12', '--quiet']
    const { code, stdout, stderr } = await moeflux(options, { input: 'Who are you?\n\n/think off\nWho are you?\n' })
    expect(code).toBe(0)
    expect(stderr).toBe('')
    expect(stdout.split('\n').filter(line => line.startsWith('I am '))).toHaveLength(2)
  })

  test('takes a line of a pipe as it is, with a backslash at its end', async () => {
    const file = join(home, 'pipe.json')
    const input = `C:\\\nWho are you?\\\n/save ${file}\n`
    expect(await moeflux([...CHAT, '--temp', '0', '-n', '4', '-q'], { input })).toMatchObject({ code: 0, stderr: '' })
    const { turns } = JSON.parse(readFileSync(file, 'utf8'))
    expect([turns[0].content, turns[2].content]).toEqual(['C:\\', 'Who are you?\\'])
  })

  test('counts the tokens of answers as the lines after them do', async () => {
    const { stderr } = await moeflux([...CHAT, '--seed', '1', '-n', '8'], { input: 'Hi\nHello\n/clear\n/stats\n' })
    const lines = [...stderr.matchAll(/^[\d.]+ tok\/s · (\d+) tokens/gm)].map(([, tokens]) => Number(tokens))
    expect(lines).toHaveLength(2)
    expect(stderr).toMatch(new RegExp(`^ *tokens +\\d+ of prompts, ${lines[0] + lines[1]} of answers$`, 'm'))
  })

  test('says before anything is lost that a conversation has outgrown the context', async () => {
    const options = [...CHAT, '--temp', '0', '--max-tokens', '12', '--context', '48']
    const input = `Who are you?\n${'Tell me more. '.repeat(20)}\n/clear\nWho are you?\n`
    const { code, stdout, stderr } = await moeflux(options, { input })
    expect(code).toBe(0)
    expect(stderr).toMatch(/error: [^\n]*context limit of 48 tokens; the message was not added; \/save [^\n]*\/clear/)
    expect(stdout.split('\n').filter(line => line.startsWith('I am '))).toHaveLength(2)
  })
})
