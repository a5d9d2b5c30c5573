// The web UI with a model that answers by script, behind a real server: what people write and read, what a hostile model,
// prompt or file could try, and what the page does when the server fails it.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import {
  type LoadHooks,
  type ModelOffer,
  type RunningServer,
  type ServeOptions,
  serve,
} from '#moeflux/apps/server/serve.js'
import { OptionError } from '#moeflux/base/errors.js'
import { repository } from '../../support/models/packedFiles.js'
import { answering, END_TOKEN, type ScriptedOptions, scriptedModel } from '../../support/models/scriptedModel.js'
import { type Browser, launchChromium } from '../../support/servers/chromium.js'
import { demoTokenizer } from '../../support/textTools.js'
import { findings } from './accessibility.js'
import { answered, ask, lastAnswer, ready, useSettings } from './uiPage.js'
import { arePicturesWanted, missingPictures, SIZES, takePictures } from './uiPictures.js'

const HOSTILE = [
  '<script>pwn(1)</script>',
  '<img src=x onerror=pwn(2)> <img src="https://evil.example/pixel.png">',
  '<svg onload=pwn(3)><animate onbegin=pwn(4) attributeName=x></svg>',
  '<iframe srcdoc="<script>parent.pwn(5)</script>"></iframe><iframe src="https://evil.example"></iframe>',
  '[click](javascript:pwn(6)) [tab](java\tscript:pwn(7)) [data](data:text/html,<script>pwn(8)</script>) [vb](vbscript:pwn(9))',
  '![alt](https://evil.example/tracker.png) ![x](javascript:pwn(10)) ![y](data:image/svg+xml,<svg onload=pwn(11)>)',
  '<a href="javascript:pwn(12)" onmouseover="pwn(13)">hover</a> <a href="https://evil.example" ping="https://evil.example">p</a>',
  '<style>*{background:url(https://evil.example/css)} body{display:none}</style><link rel=stylesheet href=https://evil.example/a.css>',
  '<div style="position:fixed;inset:0;background:url(https://evil.example/bg)" class="dialog">cover</div>',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=pwn(14)&gt;">',
  '<svg></p><style><a id="</style><img src=1 onerror=pwn(15)>">',
  '<form action="https://evil.example"><input name=x><button formaction="javascript:pwn(16)">go</button></form>',
  '<base href="https://evil.example/"><meta http-equiv=refresh content="0;url=https://evil.example">',
  '<object data="javascript:pwn(17)"></object><embed src="https://evil.example"><video src=x onerror=pwn(18)></video>',
  '<details open ontoggle=pwn(19)><summary>s</summary></details><input autofocus onfocus=pwn(20)>',
  '```"><img src=x onerror=pwn(21)>\n</code></pre><script>pwn(22)</script>\n```',
  '[ref]\n\n[ref]: javascript:pwn(23) "onmouseover=pwn(24)"',
  '<noscript><p title="</noscript><img src=x onerror=pwn(25)>"></noscript>',
  'https://evil.example/auto" onmouseover="pwn(26) <https://evil.example/angle>',
  '| a | <img src=x onerror=pwn(27)> |\n| - | - |\n| [x](javascript:pwn(28)) | `<script>pwn(29)</script>` |',
  '<a href="&#106;avascript:pwn(30)">e</a> [e](&#106;avascript:pwn(31)) <template><script>pwn(32)</script></template>',
].join('\n\n')

vi.setConfig({ testTimeout: 120_000 }) // a busy machine draws slowly

let browser: Browser
const running: (RunningServer | { close(): Promise<void> })[] = []
const foreign: string[] = []
beforeAll(async () => {
  browser = await launchChromium()
  browser.context.on('request', request => {
    const url = new URL(request.url())
    if (url.hostname !== '127.0.0.1' && url.protocol !== 'blob:' && url.protocol !== 'data:')
      foreign.push(request.url())
  })
})
afterAll(() => browser.close())
afterEach(async () => {
  for (const each of running.splice(0)) await ('stop' in each ? each.stop(0) : each.close())
})

interface Scene extends Partial<ScriptedOptions> {
  readonly answer?: (prompt: string) => string
  readonly serve?: ServeOptions
}

async function start({ answer = () => 'All is well.', serve: options, ...model }: Scene = {}): Promise<RunningServer> {
  const tokenizer = await demoTokenizer()
  const scripted = await scriptedModel({ script: answering(tokenizer, answer), ...model })
  const server = await serve(scripted.model, { port: 0, webFolder: join(repository, 'dist/apps/web'), ...options })
  running.push(server, scripted.model)
  return server
}

/** A model that says hostile things, token by token, to the first prompt that it gets. */
async function hostileModel(ending = ''): Promise<RunningServer> {
  const ids = (await demoTokenizer()).encode(`${HOSTILE}${ending}`)
  let promptEnd = 0
  return await start({
    script: tokens => {
      promptEnd ||= tokens.length
      return ids[tokens.length - promptEnd] ?? END_TOKEN
    },
  })
}

async function open({ url }: RunningServer, settings: Record<string, unknown> = {}): Promise<Page> {
  const page = await browser.open()
  await useSettings(page, settings)
  await page.addInitScript(() => {
    const calls: unknown[] = []
    Object.assign(globalThis, { pwned: calls, pwn: (which: unknown) => calls.push(which) })
    globalThis.alert = () => calls.push('alert')
  })
  await page.goto(url)
  return page
}

const failure = (page: Page, words: string) => page.locator('.failure', { hasText: words })

/** Nothing ran, nothing was asked for elsewhere, and messages hold plain elements only. */
async function expectHarmless(page: Page): Promise<void> {
  await page.evaluate(() => {
    for (const element of document.querySelectorAll('.messages *')) {
      for (const type of ['mouseover', 'mouseenter', 'focus', 'toggle']) element.dispatchEvent(new Event(type))
    }
  })
  await page.waitForTimeout(200)
  expect(await page.evaluate(() => (globalThis as unknown as { pwned: unknown[] }).pwned)).toEqual([])
  expect(foreign).toEqual([])
  const found = await page.evaluate(() => {
    const elements = [...document.querySelectorAll('.messages .markdown *')]
    return {
      tags: [...new Set(elements.map(element => element.tagName))],
      attributes: [...new Set(elements.flatMap(element => element.getAttributeNames()))],
      schemes: [...new Set([...document.querySelectorAll('.messages a')].map(a => (a as HTMLAnchorElement).protocol))],
      isCovered: document.elementFromPoint(innerWidth - 40, 20)?.closest('.topbar') === null,
    }
  })
  const allowed =
    'DIV P BR HR H1 H2 H3 H4 H5 H6 UL OL LI BLOCKQUOTE STRONG EM DEL CODE PRE A TABLE THEAD TBODY TR TH TD SPAN BUTTON'
  expect(found.tags.filter(tag => !allowed.split(' ').includes(tag))).toEqual([])
  expect(found.attributes.filter(name => name.startsWith('on') || name === 'style' || name === 'src')).toEqual([])
  expect(found.schemes.filter(scheme => !['http:', 'https:', 'mailto:'].includes(scheme))).toEqual([])
  expect(found.isCovered).toBe(false)
  expect(new URL(page.url()).hostname).toBe('127.0.0.1')
}

describe('hostile text does nothing', () => {
  test('in an answer', async () => {
    const page = await open(await hostileModel())
    await ready(page)
    await ask(page, 'Say it')
    await answered(page)
    expect(await lastAnswer(page)).toContain('<script>pwn(1)</script>') // shown as text
    const links = page.locator('.markdown a')
    const safe = page.locator('.markdown a[target=_blank][rel="noopener noreferrer nofollow"]')
    expect(await links.count()).toBeGreaterThan(0)
    expect(await safe.count()).toBe(await links.count())
    await expectHarmless(page)
    await page.close()
  })

  test('in thinking, in a message of the user and in the system prompt', async () => {
    const page = await open(await hostileModel('\n</think>\n\nDone.'))
    await ready(page)
    await page.getByRole('button', { name: 'Think', exact: true }).click()
    await page.getByRole('button', { name: 'New chat' }).click()
    await page.keyboard.press('Alt+S')
    await page.getByLabel('System prompt of this chat').fill(HOSTILE)
    await page.keyboard.press('Escape')
    await page.locator('dialog').waitFor({ state: 'detached' })
    await ask(page, HOSTILE)
    await answered(page)
    await page.getByText(/^Thought for/).click()
    await page.getByText('System prompt', { exact: true }).click()
    expect(await page.locator('.thinking-text').textContent()).toContain('<script>pwn(1)</script>')
    await expectHarmless(page)
    await page.close()
  })

  test('in an imported conversation, and a broken import changes nothing', async () => {
    const page = await open(await start())
    await ready(page)
    const folder = mkdtempSync(join(tmpdir(), 'moeflux-import-'))
    const file = (value: unknown) => {
      const path = join(folder, 'import.json')
      writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value))
      return path
    }
    const message = (fields: object) => ({ id: 'a', parent: null, role: 'assistant', text: HOSTILE, ...fields })
    const wrap = (conversation: object) => ({
      format: 'moeflux-conversations',
      version: 1,
      conversations: [conversation],
    })
    const input = page.getByLabel('File to import')
    await input.setInputFiles(
      file(
        wrap({
          title: HOSTILE,
          system: HOSTILE,
          head: 'a',
          messages: [
            message({ by: HOSTILE, thinking: HOSTILE, usage: { answerTokens: HOSTILE }, __proto__: { polluted: 1 } }),
          ],
        }),
      ),
    )
    await page.locator('.message.assistant').waitFor()
    await expectHarmless(page)
    const before = await page.locator('.conversation').count()
    const bad: [unknown, string][] = [
      ['{', 'not JSON'],
      [{ format: 'other' }, 'not an export'],
      [wrap({ title: 'x' }), 'no messages'],
      [wrap({ messages: [message({ role: 'system' })] }), 'role'],
      [wrap({ messages: [message({ text: 7 })] }), 'no text'],
      [wrap({ messages: [message({ parent: 'nowhere' })] }), 'not there'],
    ]
    for (const [value, words] of bad) {
      await input.setInputFiles(file(value))
      await page.getByText(new RegExp(`was not imported: .*${words}`)).waitFor()
    }
    expect(await page.locator('.conversation').count()).toBe(before)
    rmSync(folder, { recursive: true })
    await page.close()
  })
})

const PAPER = [
  'The area under a bell curve is known: \\(\\int_{-\\infty}^{\\infty} e^{-x^2}\\,dx = \\sqrt{\\pi}\\).',
  'A router gives each expert \\(i\\) a weight:',
  '\\[\ng_i(x) = \\frac{e^{w_i \\cdot x}}{\\sum_{j \\in \\mathrm{TopK}} e^{w_j \\cdot x}}\n\\]',
  'and with \\(\\vec{y}\\) for what they say together',
  '$$\n\\vec{y} = \\sum_{i=1}^{K} g_i(x)\\, E_i(x)\n$$',
  '- [x] read the paper\n- [ ] check its numbers\n- and write it up',
  '| experts | read | share |\n| :-- | --: | :-: |\n| 8 | 1,024 | 3% |\n| 128 | 64 | 50% |',
  'It costs \\$5, not \\$6. Bad: \\(\\notacommand{\\)',
].join('\n\n')

describe('what people write and read', () => {
  test('files go with a message, formulas are typeset, an answer that was cut off goes on', async () => {
    const prompts: string[] = []
    const answer = (prompt: string) => {
      if (prompts.at(-1) !== prompt) prompts.push(prompt)
      return PAPER
    }
    const page = await open(await start({ answer }), { maxTokens: 170 })
    await page.setViewportSize(SIZES.desktop)
    await ready(page)
    const scripts = () =>
      page.evaluate(() => performance.getEntriesByType('resource').filter(({ name }) => /katex/i.test(name)).length)
    expect(await scripts()).toBe(0)

    // By the button, by dropping and by pasting; what is no text is refused.
    await page.getByLabel('Files to attach').setInputFiles([
      { name: 'notes.md', mimeType: 'text/markdown', buffer: Buffer.from('# Notes\n\nThe owl sleeps.\n') },
      { name: 'photo.jpg', mimeType: 'image/jpeg', buffer: Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 1]) },
    ])
    await page.getByText('photo.jpg is not a text file: the model reads text only.').waitFor()
    for (const [type, name] of [
      ['drop', 'dropped.csv'],
      ['paste', 'pasted.txt'],
    ]) {
      await page.locator('#composer').evaluate(
        (field, [type, name]) => {
          const data = new DataTransfer()
          data.items.add(new File([`from ${name}`], name))
          const how = { bubbles: true, cancelable: true }
          const event =
            type === 'drop'
              ? new DragEvent('drop', { ...how, dataTransfer: data })
              : new ClipboardEvent('paste', { ...how, clipboardData: data })
          field.dispatchEvent(event)
        },
        [type, name],
      )
      await page.getByText(name, { exact: true }).waitFor()
    }
    await page.getByRole('button', { name: 'Remove dropped.csv' }).click()
    await page.reload()
    await ready(page)
    expect(await page.locator('.composer .attachment-name').allTextContents()).toEqual(['notes.md', 'pasted.txt'])
    const long = `Explain it to me. ${'It is about experts and routers. '.repeat(60)}`.trim()
    await ask(page, long)
    await answered(page)
    expect(prompts[0]).toContain(
      'File: notes.md\n```\n# Notes\n\nThe owl sleeps.\n```\n\nFile: pasted.txt\n```\nfrom pasted.txt\n```\n\nExplain it',
    )
    expect(await page.locator('.composer .attachment').count()).toBe(0)
    expect((await page.locator('.bubble').innerText()).length).toBeLessThan(long.length)
    await page.getByRole('button', { name: `Show all ${long.length.toLocaleString('en')} characters` }).click()
    expect(await page.locator('.bubble').innerText()).toContain(long)
    await page.getByText('notes.md', { exact: true }).click()
    await page.getByRole('region', { name: 'Text of notes.md' }).getByText('The owl sleeps.').waitFor()
    await page.getByText('notes.md', { exact: true }).click()
    await page.getByRole('button', { name: 'Show less' }).click()

    // The rest of the answer comes in the same message, and the whole is what the model says in one go.
    expect(await page.locator('.usage').textContent()).toMatch(/^170 tokens/)
    await page.getByRole('button', { name: 'Continue', exact: true }).click()
    await page.locator('.cut-off').waitFor({ state: 'detached' })
    await answered(page)
    expect(Number.parseInt((await page.locator('.usage').textContent()) ?? '', 10)).toBeGreaterThan(300)
    expect(await page.locator('.message.assistant').count()).toBe(1)
    expect(prompts).toHaveLength(1)
    const markdown = page.locator('.message.assistant .markdown')
    await markdown.locator('.math.drawn .katex').first().waitFor()
    expect(await scripts()).toBeGreaterThan(0)
    expect(await markdown.locator('.math.drawn.displayed').count()).toBe(2)
    expect(await markdown.locator('.math.drawn:not(.displayed)').count()).toBe(3)
    expect(await markdown.locator('.math.plain').allTextContents()).toEqual(['\\notacommand{'])
    expect(await markdown.locator('annotation').first().textContent()).toContain('\\int_{-\\infty}')
    expect(await markdown.innerText()).toContain('It costs $5, not $6.')
    // The arrow of a vector, whose width is a style of its own.
    const arrow = await markdown.locator('.math.displayed .vec svg, .math.displayed .accent svg').boundingBox()
    expect(arrow?.width).toBeGreaterThan(4)
    expect(arrow?.width).toBeLessThan(16)
    // Typeset: the sum's limits stand above and below it, at a size of their own.
    expect(
      await markdown
        .locator('.katex-display')
        .first()
        .evaluate(each => each.clientHeight),
    ).toBeGreaterThan(40)
    expect(await markdown.locator('.box').evaluateAll(all => all.map(each => each.ariaLabel))).toEqual([
      'done',
      'to do',
    ])
    const cells = await markdown.locator('td').evaluateAll(all => all.map(each => getComputedStyle(each).textAlign))
    expect(cells.slice(0, 3)).toEqual(['left', 'right', 'center'])

    await page.getByRole('button', { name: /^More for Explain/ }).click()
    await page.getByRole('menuitem', { name: 'Pin', exact: true }).click()
    await page.getByRole('button', { name: 'New chat' }).click()
    await ask(page, 'Another one')
    await answered(page)
    const titles = () => page.locator('.conversation-title').allInnerTexts()
    await expect
      .poll(async () => (await titles()).map(title => title.trim().slice(0, 7)))
      .toEqual(['Explain', 'Another'])
    expect(await page.getByRole('region', { name: 'Pinned' }).locator('li').count()).toBe(1)
    await page.locator('.conversation-title').first().click()

    for (const scheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' })
      expect(await findings(page), scheme).toEqual([])
    }
    if (arePicturesWanted('attachments', 'formulas')) {
      await takePictures(page, 'formulas')
      await page
        .getByLabel('Files to attach')
        .setInputFiles([
          { name: 'routing.ts', mimeType: 'text/plain', buffer: Buffer.from('export const topK = 8\n'.repeat(60)) },
        ])
      await page.locator('#composer').fill('And what does this file do?')
      const top = () => page.locator('.messages').evaluate(element => void (element.scrollTop = 0))
      await takePictures(page, 'attachments', top)
    }
    expect(missingPictures('attachments', 'formulas')).toEqual([])
    expect(browser.problems).toEqual([])
    await page.close()
  })

  test('a formula can do nothing but be drawn', async () => {
    const hostile = [
      '\\(\\href{javascript:pwn(40)}{x} \\url{https://evil.example}\\)',
      '\\(\\includegraphics[height=1em]{https://evil.example/a.png}\\)',
      '\\(\\htmlStyle{background:url(https://evil.example/b)}{x} \\htmlClass{dialog}{y} \\htmlData{on=pwn}{z}\\)',
      '\\(\\text{<img src=x onerror=pwn(41)>}\\) \\(\\rule{10000em}{10000em}\\)',
      '\\[\\def\\a{\\a\\a}\\a\\]',
    ].join('\n\n')
    const page = await open(await start({ answer: () => hostile }))
    await ready(page)
    await ask(page, 'Formulas')
    await answered(page)
    await page.locator('.math.drawn').first().waitFor()
    expect(await page.locator('.markdown a, .markdown img').count()).toBe(0)
    expect(await page.evaluate(() => (globalThis as unknown as { pwned: unknown[] }).pwned)).toEqual([])
    expect(foreign).toEqual([])
    // As wide as it may be, and within its line.
    const width = await page.locator('.column').evaluate(element => element.scrollWidth - element.clientWidth)
    expect(width).toBeLessThanOrEqual(0)
    await page.close()
  })
})

test('a page over plain HTTP in a local network can do without what browsers then withhold', async () => {
  const server = await start({ answer: () => 'Here:\n\n```js\nlet x = 1\n```' })
  const page = await browser.open()
  await page.addInitScript(() => {
    for (const [owner, name] of [
      [Crypto.prototype, 'randomUUID'],
      [Navigator.prototype, 'clipboard'],
      [Navigator.prototype, 'serviceWorker'],
      [Navigator.prototype, 'storage'],
    ] as const) {
      Object.defineProperty(owner, name, { value: undefined })
    }
  })
  await page.goto(server.url)
  await ready(page)
  await ask(page, 'Some code')
  await answered(page)
  await page.getByRole('button', { name: 'Copy', exact: true }).last().click()
  await page.locator('.code .copy').click()
  await page.getByText('Copied').first().waitFor()
  expect(await page.evaluate(() => document.querySelector('.tok-keyword')?.textContent)).toBe('let')
  await page.close()
})

const DIARY =
  'On Monday we went to the sea. Tom found a shell, and Anna built a tower of sand that the waves took at noon. On Tuesday it rained, so we read stories by the fire and ate soup. '

/** What is held on to must not hold on to a test that has failed. */
const orAborted = (held: Promise<void>, signal?: AbortSignal) =>
  Promise.race([held, new Promise<void>(resolve => signal?.addEventListener('abort', () => resolve(), { once: true }))])

test('a long prompt shows how far it is, from the first part of it on', async () => {
  let release = () => {}
  const held = new Promise<void>(resolve => (release = resolve))
  let steps = 0
  const page = await open(await start({ onStep: (_, signal) => (++steps === 3 ? orAborted(held, signal) : undefined) })) // 64 tokens a step
  await ready(page)
  await ask(page, `Say in one line what this is about:\n\n${DIARY.repeat(6)}`)
  const reading = page.locator('.reading')
  await expect.poll(() => reading.innerText()).toMatch(/[1-9]\d* of \d+ tokens/)
  const [, share, done, total] = /(\d+)%\s*([\d,]+) of ([\d,]+) tokens/.exec(await reading.innerText()) ?? []
  expect(Number(done)).toBeLessThan(Number(total))
  expect(Number(share)).toBe(Math.floor((Number(done) / Number(total)) * 100)) // of all that is to be read
  expect(await reading.innerText()).toMatch(/about \d+ s left/)
  expect(await page.getByRole('meter', { name: 'Context' }).getAttribute('aria-valuenow')).toBe(total)
  if (arePicturesWanted('prompt')) await takePictures(page, 'prompt')
  release()
  await answered(page)
  expect(await reading.count()).toBe(0)
  expect(missingPictures('prompt')).toEqual([])
  await page.close()
})

test('of several models, one is loaded when it is asked or chosen, which can be stopped, and one that fails says why', async () => {
  const tokenizer = await demoTokenizer()
  let finish = () => {}
  const offer = (id: string, load: (hooks?: LoadHooks) => Promise<void>): ModelOffer => ({
    id,
    async open(hooks) {
      await load(hooks)
      const { model } = await scriptedModel({ script: answering(tokenizer, () => `I am ${id}.`) })
      return model
    },
  })
  const held = (hooks?: LoadHooks) => {
    hooks?.onProgress({ phase: 'weights', loaded: 3, total: 4 })
    return new Promise<void>((resolve, reject) => {
      finish = resolve
      hooks?.signal.addEventListener('abort', () => reject(hooks.signal.reason), { once: true })
    })
  }
  const broken = () => Promise.reject(new OptionError('threads', 0, 'a number'))
  const models = [offer('one', held), offer('two', held), offer('bad', broken)]
  const server = await serve(models, { port: 0, webFolder: join(repository, 'dist/apps/web') })
  running.push(server)
  const page = await open(server)
  await ready(page)
  expect(await page.locator('.model-button').innerText()).toMatch(/one\s*not loaded yet/)
  await ask(page, 'Who are you?')
  await expect.poll(() => page.locator('.reading').innerText(), { timeout: 10_000 }).toMatch(/Loading the model\s*75%/)
  finish()
  await answered(page)
  expect(await lastAnswer(page)).toBe('I am one.')
  await expect.poll(() => page.locator('.model-button').innerText()).toMatch(/one\s*on the server/)

  await page.locator('.model-button').click()
  const row = (name: string) => page.getByRole('listitem').filter({ has: page.getByRole('heading', { name }) })
  await row('two').getByRole('button', { name: 'Use' }).click()
  await expect.poll(() => row('two').innerText()).toMatch(/being loaded[\s\S]*Weights 75%/)
  await row('two').getByRole('button', { name: 'Stop' }).click()
  await expect.poll(() => row('two').innerText()).not.toContain('being loaded')
  await row('bad').getByRole('button', { name: 'Use' }).click()
  await row('bad').getByRole('alert').filter({ hasText: 'threads' }).waitFor()
  await row('one').getByRole('button', { name: 'Use' }).click() // is there still
  await row('one').getByText('In use').waitFor()
  await page.close()
})

describe('when the server fails', () => {
  test('a queue that is full is told, and trying again goes on', async () => {
    let release = () => {}
    const held = new Promise<void>(resolve => (release = resolve))
    const server = await start({ serve: { parallel: 1, maxQueue: 0 }, onStep: () => held })
    const page = await open(server)
    await ready(page)
    const first = fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'hold' }] }),
    })
    await new Promise(resolve => setTimeout(resolve, 100))
    await ask(page, 'Is there room?')
    await failure(page, 'The server is busy').waitFor()
    release()
    await (await first).json()
    await page.getByRole('button', { name: 'Try again' }).click()
    await expect.poll(() => lastAnswer(page)).toBe('All is well.')
    expect(await page.locator('.bubble').textContent()).toBe('Is there room?')
    await page.close()
  })

  test('a conversation that outgrows the context goes on in a new chat', async () => {
    const page = await open(await start({ contextLength: 60 }))
    await ready(page)
    const long = 'word '.repeat(80).trim()
    await ask(page, long)
    await failure(page, 'maximum context length').waitFor()
    await page.getByRole('button', { name: 'Ask in a new chat' }).click()
    await expect.poll(() => page.locator('#composer').inputValue()).toBe(long)
    await page.close()
  })

  test('a server that goes away in the middle of an answer is told; what was said stays, and it is asked again', async () => {
    let steps = 0
    const waitForever = (_: unknown, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        if (++steps < 8) return resolve()
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
      })
    const text = 'One two three four five six seven eight nine ten.'
    const server = await start({ answer: () => text, onStep: waitForever })
    const page = await open(server)
    await ready(page)
    await ask(page, 'Count')
    await page.locator('.message.assistant .markdown').waitFor() // streamed: the rest is still to come
    expect(await page.getByRole('button', { name: 'Stop the answer' }).count()).toBe(1)
    // Another tab waits for it as long as something comes.
    const other = await browser.open()
    await other.clock.install()
    await other.goto(server.url)
    await other.locator('.sidebar').getByText('Count').click()
    await other.getByText('Being written in another tab').waitFor()
    // A page that is loaded again has all that was seen, and knows that no more comes.
    const seen = await lastAnswer(page)
    await page.reload()
    await other.clock.fastForward(6000)
    await other.getByText('This answer was interrupted.').waitFor()
    await other.close()
    await page.getByText('This answer was interrupted.').waitFor()
    expect(await page.locator('.bubble').textContent()).toBe('Count')
    expect((await lastAnswer(page)).startsWith(seen)).toBe(true)
    expect(await page.getByRole('button', { name: 'Continue', exact: true }).count()).toBe(1)
    steps = 0
    await page.getByRole('button', { name: 'New chat' }).click()
    await ask(page, 'Count')
    await page.locator('.message.assistant .markdown').waitFor()
    await server.stop(0)
    await page.locator('.failure').waitFor()
    expect(await lastAnswer(page)).toMatch(/^One two/)
    await page.getByRole('button', { name: 'Try again' }).click()
    await failure(page, 'The server does not answer').waitFor()
    await page.getByText('Looking for it').waitFor()
    expect(await page.locator('.model-button .state').getAttribute('class')).toContain('bad')
    await start({ answer: () => text, serve: { port: server.port } })
    await ready(page) // by itself
    expect(await page.getByText('Looking for it').count()).toBe(0)
    await page.getByRole('button', { name: 'Try again' }).click()
    await expect.poll(() => lastAnswer(page)).toBe(text)
    // What had broken off goes on, too.
    for (let i = 0; i < 2; i++) await page.getByRole('button', { name: 'Previous answer' }).click()
    await page.getByText('The answer broke off.').waitFor()
    expect((await lastAnswer(page)).length).toBeLessThan(text.length)
    await page.getByRole('button', { name: 'Continue', exact: true }).click()
    await expect.poll(() => lastAnswer(page)).toBe(text)
    await page.locator('.failure').waitFor({ state: 'detached' })
    await page.close()
  })

  test('a key is asked for once and kept in the tab', async () => {
    const page = await open(await start({ serve: { apiKey: 'open sesame' } }))
    await page.getByRole('dialog', { name: 'API key' }).waitFor()
    await page.keyboard.type('wrong') // the cursor is in the field
    await page.keyboard.press('Enter')
    await page.getByText('This key is wrong.').waitFor()
    await page.getByLabel('Key', { exact: true }).fill('open sesame')
    await page.getByRole('button', { name: 'Use this key' }).click()
    await ready(page)
    await page.reload()
    await ready(page)
    await ask(page, 'Hello')
    await expect.poll(() => lastAnswer(page)).toBe('All is well.')
    await page.close()
  })
})
