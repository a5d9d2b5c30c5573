// What the web UI keeps and shows, without a browser: branches of conversations, files of them, the engine's history.
import { signal } from '@preact/signals'
import fc from 'fast-check'
import { Marked } from 'marked'
import { describe, expect, test } from 'vitest'
import type { ModelStats } from '#moeflux/backends/stats.js'
import { type EngineFrame, mergeFrames } from '#moeflux/engine/engineFrame.js'
import { decodeFrame, encodeFrame } from '#moeflux/engine/frameCodec.js'
import { BoundedLexer } from '../../../src/apps/web/chat/boundedLexer.js'
import { mathExtension } from '../../../src/apps/web/chat/math.js'
import type { ChatEngine, ChatEvent, ChatRequest } from '../../../src/apps/web/engines/chatEngine.js'
import { nextStage, secondsLeft } from '../../../src/apps/web/state/answerStage.js'
import { Answers } from '../../../src/apps/web/state/answers.js'
import { type Attachment, attachFiles, decodeText, promptText } from '../../../src/apps/web/state/attachments.js'
import {
  append,
  branch,
  type Conversation,
  change,
  joined,
  type Message,
  matches,
  newConversation,
  showBranch,
  siblings,
} from '../../../src/apps/web/state/conversation.js'
import { fromJson, ImportError, toJson, toMarkdown } from '../../../src/apps/web/state/conversationFile.js'
import type { ConversationStore } from '../../../src/apps/web/state/conversationStore.js'
import { Conversations } from '../../../src/apps/web/state/conversations.js'
import { EngineHistory, latencyShare } from '../../../src/apps/web/state/engineHistory.js'
import { HeatRecorder, readStrip } from '../../../src/apps/web/state/heatStrip.js'
import { findStorage, type PageStorage, withoutFailing } from '../../../src/apps/web/state/pageStorage.js'
import type { Settings } from '../../../src/apps/web/state/settings.js'
import { Drafts } from '../../../src/apps/web/state/unsentDrafts.js'
import { processorMs } from '../../support/processorMs.js'
import { seededRandom } from '../../support/random.js'

const message = (id: string, parent: string | null, role: Message['role'] = 'user'): Message => ({
  id,
  parent,
  role,
  text: `text of ${id}`,
  createdAt: 1,
})

/** Every message answers one that is there already; roles alternate. */
const conversations = fc.array(fc.nat(), { maxLength: 30 }).map(choices => {
  let conversation = newConversation('be brief', 1)
  choices.forEach((choice, i) => {
    const parent =
      choice % 4 === 0 ? undefined : conversation.messages[choice % Math.max(1, conversation.messages.length)]
    const role = parent?.role === 'user' ? 'assistant' : 'user'
    conversation = append(conversation, message(`m${i}`, parent?.id ?? null, role))
  })
  return conversation
})

describe('conversations', () => {
  test('every message can be shown, and showing one loses none', () => {
    fc.assert(
      fc.property(conversations, conversation => {
        for (const each of conversation.messages) {
          const shown = showBranch(conversation, each.id)
          const path = branch(shown)
          expect(path.map(({ id }) => id)).toContain(each.id)
          path.forEach((step, i) => {
            expect(step.parent).toBe(i === 0 ? null : path[i - 1].id)
          })
          expect(shown.messages).toBe(conversation.messages)
          expect(siblings(conversation, each)).toContain(each)
        }
      }),
    )
  })

  test('go through a file unchanged, under new names', () => {
    fc.assert(
      fc.property(conversations, conversation => {
        const [read] = fromJson(toJson([conversation]))
        expect(read.id).not.toBe(conversation.id)
        const shape = (one: Conversation) => branch(one).map(({ role, text }) => ({ role, text }))
        expect(shape(read)).toEqual(shape(conversation))
        expect(read.messages.map(({ text }) => text)).toEqual(conversation.messages.map(({ text }) => text))
        expect({ ...read, id: '', messages: [], head: '' }).toEqual({ ...conversation, id: '', messages: [], head: '' })
      }),
    )
  })

  test('anything that is no export is refused, with a reason', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), text => {
        expect(() => fromJson(text)).toThrow(ImportError)
      }),
    )
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        const text = JSON.stringify({ format: 'moeflux-conversations', version: 1, conversations: [value] })
        try {
          fromJson(text)
        } catch (error) {
          expect(error).toBeInstanceOf(ImportError)
        }
      }),
    )
  })

  test('are found by their words and told in Markdown', () => {
    const conversation = append(newConversation('be\nbrief', 1), message('a', null))
    expect(conversation.title).toBe('text of a')
    expect(matches(conversation, ' OF text ')).toBe(true)
    expect(matches(conversation, 'elephant')).toBe(false)
    expect(toMarkdown(conversation)).toBe('# text of a\n\n> be\n> brief\n\n## You\n\ntext of a\n')
  })
})

test('what another tab has kept never takes the place of what is being written here', async () => {
  let kept: Conversation[] = []
  const turn = () => new Promise(resolve => setTimeout(resolve, 1))
  const store = {
    // A slow store: what is read is as old as the asking.
    async all() {
      const then = kept
      await turn()
      return then
    },
    async put(changed: readonly Conversation[]) {
      await turn()
      const ids = new Set(changed.map(({ id }) => id))
      kept = [...kept.filter(({ id }) => !ids.has(id)), ...changed]
    },
    async remove() {},
  } as unknown as ConversationStore
  const storage = { getItem: () => null, setItem: () => {}, removeItem: () => {} } as unknown as Storage
  const conversations = new Conversations(storage, storage, () => {})
  await conversations.load(store)
  const { id } = conversations.begin('')
  for (let i = 0; i < 40; i++) {
    conversations.update(id, current => append(current, message(`m${i}`, i === 0 ? null : `m${i - 1}`)))
    void conversations.refresh()
    if (i % 3 === 0) void conversations.flush()
    if (i % 4 === 0) await turn()
    expect(conversations.get(id)?.messages).toHaveLength(i + 1)
  }
  await conversations.flush()
  await conversations.refresh()
  expect(conversations.get(id)?.messages).toHaveLength(40)
  expect(kept[0].messages).toHaveLength(40)
})

describe('conversations of two tabs', () => {
  const storage = { getItem: () => null, setItem: () => {}, removeItem: () => {} }
  const turn = () => new Promise(resolve => setTimeout(resolve, 0))

  /** What IndexedDB does for them, and what they hear of it. */
  class SharedStore {
    readonly kept = new Map<string, Conversation>()
    readonly listeners: (() => void)[] = []
    isFull = false
    async all() {
      const then = [...this.kept.values()]
      await turn()
      return then
    }
    async put(changed: readonly Conversation[], own?: () => void) {
      await turn()
      if (this.isFull) throw new Error('QuotaExceededError')
      for (const each of changed) this.kept.set(each.id, joined(each, this.kept.get(each.id)))
      for (const tell of this.listeners) if (tell !== own) tell()
    }
  }
  const open = async (store: SharedStore, kept: PageStorage = storage) => {
    const tab = new Conversations(kept, storage, () => {})
    const tell = () => void tab.refresh()
    const own = {
      all: () => store.all(),
      put: (changed: readonly Conversation[]) => store.put(changed, tell),
      remove: async (ids: readonly string[]) => ids.forEach(id => void store.kept.delete(id)),
    }
    await tab.load(own as unknown as ConversationStore)
    store.listeners.push(tell)
    return tab
  }

  test('have the messages of both, whoever writes when', async () => {
    const store = new SharedStore()
    const [one, two] = [await open(store), await open(store)]
    const { id } = one.begin('')
    one.update(id, current => append(current, message('root', null)))
    await one.flush()
    await expect.poll(() => two.get(id)?.messages.length).toBe(1)
    const random = seededRandom(11)
    for (let i = 0; i < 60; i++) {
      const tab = random() < 0.5 ? one : two
      tab.update(id, current => append(current, { ...message(`m${i}`, 'root'), role: 'assistant' }))
      if (random() < 0.3) tab.update(id, current => change(current, `m${i}`, { text: `whole ${i}`, end: 'stop' }))
      else tab.update(id, current => change(current, `m${i}`, { end: 'length' }))
      if (random() < 0.4) void tab.flush()
      if (random() < 0.3) await turn()
    }
    await Promise.all([one.flush(), two.flush()])
    for (const tab of [one, two]) await expect.poll(() => tab.get(id)?.messages.length).toBe(61)
    const seen = [...(store.kept.get(id)?.messages ?? [])].sort((a, b) => a.id.localeCompare(b.id))
    expect(seen).toHaveLength(61)
    expect(seen.filter(({ id, end }) => id !== 'root' && end === undefined)).toEqual([])
    for (const tab of [one, two]) {
      expect([...(tab.get(id)?.messages ?? [])].sort((a, b) => a.id.localeCompare(b.id))).toEqual(seen)
    }
  })

  test('stay where the store is full, and are kept when it has room', async () => {
    const store = new SharedStore()
    const tab = await open(store)
    const { id } = tab.begin('')
    tab.update(id, current => append(current, message('a', null)))
    await tab.flush()
    store.isFull = true
    tab.update(id, current => append(current, message('b', 'a')))
    await tab.flush()
    await tab.refresh() // another tab has written something
    expect(tab.get(id)?.messages).toHaveLength(2)
    store.isFull = false
    await tab.flush()
    expect(store.kept.get(id)?.messages).toHaveLength(2)
  })

  test('are whole in the next tab though this one went while it wrote', async () => {
    const store = new SharedStore()
    const items = new Map<string, string>()
    const kept: PageStorage = {
      getItem: key => items.get(key) ?? null,
      setItem: (key, value) => void items.set(key, value),
      removeItem: key => void items.delete(key),
    }
    const { put } = store
    const gone = await open(store, kept)
    const old = gone.begin('')
    gone.update(old.id, current => append(current, message('a', null)))
    await gone.flush()
    store.put = () => new Promise(() => {}) // never comes to its end
    const { id } = gone.begin('')
    gone.update(old.id, current => append(current, message('b', 'a')))
    void gone.flush()
    gone.update(id, current => append(current, message('c', null)))
    gone.leave()

    store.put = put
    const next = await open(store, kept)
    expect(next.get(old.id)?.messages.map(each => each.id)).toEqual(['a', 'b'])
    expect(next.get(id)?.messages.map(each => each.id)).toEqual(['c'])
    await next.flush()
    expect([...store.kept.values()].map(({ messages }) => messages.length).sort()).toEqual([1, 2])
    expect(items.size).toBe(0) // and nobody takes it over once more

    // What was deleted does not come back, and a storage that is full costs nothing else.
    const update = (tab: Conversations) => tab.update(id, current => append(current, message('d', 'c')))
    update(next)
    next.leave()
    expect(items.size).toBe(1)
    await next.flush()
    expect(items.size).toBe(0)
    store.put = () => new Promise(() => {})
    next.update(old.id, current => append(current, message('e', 'b')))
    next.leave()
    store.put = put
    const last = await open(store, kept)
    await last.remove([old.id])
    expect(items.size).toBe(0)
    const full = {
      ...kept,
      setItem: () => {
        throw new DOMException('full', 'QuotaExceededError')
      },
    }
    const tab = await open(store, full)
    tab.update(id, current => append(current, message('f', 'd')))
    tab.leave()
    await tab.flush()
    expect(store.kept.get(id)?.messages.at(-1)?.id).toBe('f')
    for (const spoilt of ['null', '5', '{', '[5, null, {}, {"id":1}]']) {
      items.set('moeflux.unsaved', spoilt)
      expect((await open(store, kept)).all.value).toHaveLength(2)
    }
  })
})

test('storage that is full or refused costs nothing but what would have lasted', () => {
  const refused = findStorage(() => {
    throw new DOMException('denied', 'SecurityError')
  })
  refused.setItem('a', '1')
  expect([refused.getItem('a'), refused.getItem('b')]).toEqual(['1', null])
  const items = new Map([['a', 'old']])
  const full = withoutFailing({
    getItem: key => items.get(key) ?? null,
    setItem: () => {
      throw new DOMException('full', 'QuotaExceededError')
    },
    removeItem: key => void items.delete(key),
  })
  full.setItem('a', 'new')
  expect([full.getItem('a'), items.get('a')]).toEqual(['new', 'old'])
  full.removeItem('a')
  expect(full.getItem('a')).toBeNull()
  for (const spoilt of ['null', '5', '[1]', '{"x":{"y":1}}', '{"x":[5]}', '{"x":5}', '{']) {
    const drafts = new Drafts({ ...refused, getItem: () => spoilt })
    expect([typeof drafts.text('x'), drafts.files('x')], spoilt).toEqual(['string', []])
  }
})

test('an answer that was cut off in its thinking goes on there, and in its text after that', async () => {
  const storage = { getItem: () => null, setItem: () => {}, removeItem: () => {} } as unknown as Storage
  const conversations = new Conversations(storage, storage, () => {})
  const { id } = conversations.begin('')
  const asked: ChatRequest[] = []
  const parts: ChatEvent[][] = [
    [{ type: 'thinking', text: 'First' }],
    [
      { type: 'thinking', text: ' this' },
      { type: 'text', text: 'So' },
    ],
    [{ type: 'text', text: ' be it.' }],
  ]
  const engine = {
    ...{ place: 'server', shape: { model: 'm' } },
    async *chat(request: ChatRequest) {
      asked.push(request)
      yield* parts[asked.length - 1]
      yield { type: 'end', reason: asked.length < 3 ? 'length' : 'stop' }
    },
  } as unknown as ChatEngine
  const settings = signal({ thinking: true } as Settings)
  const nothing = () => {}
  const watch = () => ({ end: async () => null })
  const answers = new Answers(conversations, settings, () => engine, nothing, nothing, watch)
  await answers.send(id, 'Hi', null)
  const last = () => conversations.get(id)?.messages.at(-1) as Message
  expect(last()).toMatchObject({ text: '', thinking: 'First', end: 'length' })
  await answers.goOn(id, last())
  expect(last()).toMatchObject({ text: 'So', thinking: 'First this', end: 'length' })
  await answers.goOn(id, last())
  expect(last()).toMatchObject({ text: 'So be it.', thinking: 'First this', end: 'stop' })
  expect(asked.map(({ begun, begunThinking }) => [begun, begunThinking])).toEqual([
    ['', ''],
    ['', 'First'],
    ['So', 'First this'],
  ])
})

const LAYERS = 2
const EXPERTS = 3
const shape = {
  model: 'm',
  backend: 'wasm',
  description: 'wasm, 1 thread',
  isLoaded: true,
  layers: LAYERS,
  experts: EXPERTS,
  expertsPerToken: 1,
  layerNumbers: [0, 1],
  layerKinds: ['linear_attention', 'full_attention'],
  contextLength: 100,
}

function frame(fields: Partial<EngineFrame>, stats: Partial<ModelStats> = {}): EngineFrame {
  return {
    sequence: 1,
    time: 1_000_000,
    seconds: 0.1,
    busySeconds: 0.1,
    phase: 'decode',
    promptTokens: 0,
    decodeTokens: 0,
    routed: new Uint32Array(LAYERS * EXPERTS),
    resident: new Uint8Array(LAYERS * EXPERTS),
    phaseSeconds: {},
    stallSeconds: 0,
    bytesRead: 0,
    ...fields,
    stats: { expertHits: 0, expertMisses: 0, ...stats } as ModelStats,
  }
}

describe('files of a message', () => {
  const file = (name: string, content: string | Uint8Array<ArrayBuffer>) => new File([content], name)
  const attach = (files: File[], before: Attachment[] = []) => attachFiles(files, () => before)

  test('text is taken, whatever its encoding; anything else is refused in one line', async () => {
    const utf16 = Uint8Array.from([0xff, 0xfe, 0x68, 0, 0xe9, 0])
    const taken = await attach([file('a.md', '# A\r\nB'), file('b.txt', utf16)])
    expect(taken).toEqual({
      attachments: [
        { name: 'a.md', text: '# A\nB' },
        { name: 'b.txt', text: 'hé' },
      ],
      problem: null,
    })
    const before = [{ name: 'kept', text: 'kept' }]
    const refused: [File, string][] = [
      [file('picture.png', Uint8Array.from([0x89, 0x50, 0x4e, 0x47])), 'is not a text file'],
      [file('zeros.bin', Uint8Array.from([65, 0, 66])), 'is not a text file'],
      [file('nothing.txt', ' \n'), 'is empty'],
      [file('large.txt', 'x'.repeat(2 ** 20 + 1)), 'is too large'],
    ]
    for (const [each, reason] of refused) {
      const { attachments, problem } = await attach([each, file('fine.txt', 'fine')], before)
      expect(problem).toContain(`${each.name} ${reason}`)
      expect(attachments).toEqual([...before, { name: 'fine.txt', text: 'fine' }])
    }
    expect(decodeText(new Uint8Array(0))).toBe('')
  })

  test('ten of them, and two megabytes', async () => {
    const ten = await attach(Array.from({ length: 11 }, (_, i) => file(`${i}`, 'x')))
    expect(ten.attachments).toHaveLength(10)
    expect(ten.problem).toContain('10 was not added: a message takes 10 files')
    const large = await attach(Array.from({ length: 3 }, (_, i) => file(`${i}`, 'x'.repeat(2 ** 20))))
    expect(large.attachments).toHaveLength(2)
    expect(large.problem).toContain('2 MB together')
  })

  test('the model sees each under its name, in a fence that its text cannot end', () => {
    expect(promptText('What is it?', [{ name: 'a\nb.md', text: 'one\n' }])).toBe(
      'File: a b.md\n```\none\n```\n\nWhat is it?',
    )
    const text = fc.array(fc.constantFrom('`', '\n', 'x', '````')).map(parts => parts.join(''))
    fc.assert(
      fc.property(text, content => {
        const [, fence, ...lines] = promptText('', [{ name: 'f', text: content }]).split('\n')
        expect(lines.findIndex(line => line.startsWith(fence))).toBe(lines.length - 1)
        expect(lines.slice(0, -1).join('\n')).toBe(content.replace(/\n$/, ''))
      }),
    )
    expect(promptText('Just words.')).toBe('Just words.')
  })

  test('may hold more fences than a call takes arguments', () => {
    expect(promptText('', [{ name: 'a', text: '` '.repeat(400_000) }])).toMatch(/^File: a\n```\n/)
  })

  test('go through a file of conversations, with what is pinned', () => {
    const sent = { ...message('a', null), text: '', attachments: [{ name: 'n.txt', text: 'inside' }] }
    const conversation = { ...append(newConversation('', 1), sent), pinned: true }
    expect(conversation.title).toBe('n.txt')
    expect(matches(conversation, 'n.txt')).toBe(true)
    const [read] = fromJson(toJson([conversation]))
    expect(read.pinned).toBe(true)
    expect(read.messages[0].attachments).toEqual(sent.attachments)
    expect(toMarkdown(conversation)).toContain('File: n.txt\n```\ninside\n```')
    const odd = { ...sent, attachments: [{ name: 7, text: 'x' }, null, 'x', { name: 'y' }] }
    const text = toJson([{ ...conversation, messages: [odd as unknown as Message] }])
    expect(fromJson(text)[0].messages[0].attachments).toBeUndefined()
  })

  test('that are not sent yet stay, also where the storage is full', () => {
    const kept = new Map<string, string>()
    const storage = {
      getItem: (key: string) => kept.get(key) ?? null,
      setItem(key: string, value: string) {
        if (value.length > 100) throw new DOMException('full', 'QuotaExceededError')
        kept.set(key, value)
      },
    } as unknown as Storage
    const [small, large] = [[{ name: 's', text: 's' }], [{ name: 'l', text: 'l'.repeat(100) }]]
    const drafts = new Drafts(storage)
    drafts.setText('a', 'words')
    drafts.setFiles('a', small)
    drafts.setFiles('b', large)
    expect([drafts.files('a'), drafts.files('b'), drafts.files(null)]).toEqual([small, large, []])
    const reloaded = new Drafts(storage)
    expect([reloaded.text('a'), reloaded.files('a'), reloaded.files('b')]).toEqual(['words', small, []])
    for (const id of ['a', 'b']) drafts.clear(id)
    expect([drafts.text('a'), drafts.files('a'), drafts.files('b')]).toEqual(['', [], []])
  })
})

describe('formulas in Markdown', () => {
  const marked = new Marked(mathExtension)
  const formulas = (text: string) =>
    [...String(marked.parse(text)).matchAll(/<(div|span) class="math( displayed)?">([^<]*)</g)].map(
      ([, tag, displayed, tex]) => `${tag}${displayed ?? ''}: ${tex}`,
    )

  test('are found in lines and on their own, and nowhere else', () => {
    expect(formulas('An \\(x_1\\) and *an \\(a < b\\)*.')).toEqual(['span: x_1', 'span: a &lt; b'])
    expect(formulas('So\n\\[\na\n+ b\n- c\n\\]\nit is.')).toEqual(['div displayed: a\n+ b\n- c'])
    expect(formulas('$$\ny = x^2\n$$')).toEqual(['div displayed: y = x^2'])
    expect(formulas('Inside $$a$$ a line, and 1. \\[b\\] too')).toEqual(['span displayed: a', 'span displayed: b'])
    expect(formulas('1. first:\n   \\[\n   x\n   \\]\n2. second')).toEqual(['div displayed: x'])
    for (const plain of ['It costs $5 or $6.', '`\\(x\\)`', '```\n$$x$$\n```', '\\[ not closed', '$$$$', '\\(\\)']) {
      expect(formulas(plain), plain).toEqual([])
    }
  })

  test('that never end cost no more than their text', () => {
    const started = processorMs()
    expect(formulas('$$ \\[ \\( '.repeat(1000))).not.toBeNull()
    expect(processorMs() - started).toBeLessThan(3000)
  })
})

describe('Markdown that nobody would write', () => {
  const marked = new Marked({ gfm: true, breaks: true })
  const read = (text: string) => new BoundedLexer(marked.defaults).lex(text)
  /** A model that writes the same for ever. */
  const bombs: Record<string, string> = {
    quotes: '>'.repeat(20_000),
    lists: `${'- '.repeat(3_000)}x`,
    steps: Array.from({ length: 300 }, (_, i) => `${'  '.repeat(i)}- a`).join('\n'),
    both: `${'> - '.repeat(1_500)}x`,
    stars: `${'**'.repeat(10_000)}a`,
    underscores: '_a'.repeat(20_000),
    nested: `${'*'.repeat(3_000)}a${'*'.repeat(3_000)}`,
    links: '[a]('.repeat(10_000),
    word: `${'a'.repeat(40_000)}@`,
  }

  test.each(Object.keys(bombs))('costs no more than its text, and loses none of it: %s', name => {
    const started = processorMs()
    const tokens = read(bombs[name])
    expect(tokens.map(({ raw }) => raw).join('')).toBe(bombs[name])
    expect(String(marked.parser(tokens)).length).toBeGreaterThan(bombs[name].length / 10)
    expect(processorMs() - started).toBeLessThan(2500)
  })

  test('is read as ever where somebody might', () => {
    const deep = Array.from({ length: 12 }, (_, i) => `${'  '.repeat(i)}- *level* **${i}**`).join('\n')
    const text = `# a\n\n> > quoted\n\n${deep}\n\n| a | b |\n| - | - |\n| ${'*x* '.repeat(40)} | \`c\` |\n\n${'[l](http://x.y) '.repeat(100)}`
    expect(read(text)).toEqual(marked.lexer(text))
  })
})

describe('the engine in the page', () => {
  test('frames survive the wire', () => {
    const counts = fc.uint8Array({ minLength: 6, maxLength: 6 })
    fc.assert(
      fc.property(counts, counts, (routed, flags) => {
        const sent = frame({ routed: Uint32Array.from(routed), resident: flags.map(flag => flag & 1) })
        expect(decodeFrame(encodeFrame(sent), LAYERS * EXPERTS)).toEqual(sent)
      }),
    )
  })

  test('two frames in a row are one that covers both', () => {
    const one = frame({
      decodeTokens: 2,
      routed: Uint32Array.of(1, 0, 1, 0, 2, 0),
      phaseSeconds: { mixer: 1 },
      bytesRead: 5,
    })
    const two = frame({
      promptTokens: 3,
      routed: Uint32Array.of(0, 3, 0, 3, 0, 0),
      phaseSeconds: { mixer: 1, head: 2 },
    })
    const merged = mergeFrames(one, two)
    expect(merged).toMatchObject({ phase: 'mixed', decodeTokens: 2, promptTokens: 3, bytesRead: 5, busySeconds: 0.2 })
    expect([...merged.routed]).toEqual([1, 3, 1, 3, 2, 0])
    expect(merged.phaseSeconds).toEqual({ mixer: 2, head: 2 })
  })

  test('speed, hit rate and time per token come from what a frame adds', () => {
    const history = new EngineHistory(shape)
    history.push(frame({ phase: 'idle' }, { expertHits: 100, expertMisses: 50 }))
    history.push(
      frame(
        {
          time: 1_002_000,
          decodeTokens: 20,
          routed: Uint32Array.of(20, 0, 0, 0, 15, 5),
          resident: Uint8Array.of(1, 0, 0, 0, 1, 1),
          phaseSeconds: { mixer: 0.04, stall: 0.02 },
          bytesRead: 1000,
        },
        { expertHits: 130, expertMisses: 60 },
      ),
    )
    expect(history.speed.at(-1)).toBe(200)
    expect(history.lastSpeed).toBe(200)
    expect(history.speed.at(-2)).toBe(0) // no slope over the pause before it
    expect(history.hitRate.at(-1)).toBe(0.75)
    expect(history.readRate.at(-1)).toBe(10_000)
    expect(history.phases.get('mixer')?.at(-1)).toBeCloseTo(2)
    expect(history.phases.get('stall')?.at(-1)).toBeCloseTo(1)
    expect([...history.routed]).toEqual([20, 0, 0, 0, 15, 5])
    history.push(frame({ phase: 'idle', time: 1_003_000, busySeconds: 0 }, { expertHits: 130, expertMisses: 60 }))
    expect(history.log.map(({ text }) => text)).toEqual([
      'Answer: 20 tokens at 200 tok/s',
      'Read 10 experts on demand (0.0 MB)',
      'Watching m: wasm, 1 thread',
    ])
    const lengths = [history.speed, history.hitRate, history.readRate, ...history.phases.values()].map(
      values => values.length,
    )
    expect(new Set(lengths)).toEqual(new Set([history.times.length]))
  })

  test('forgets what is older than the charts show', () => {
    const history = new EngineHistory(shape)
    for (let i = 0; i < 1000; i++) history.push(frame({ time: 1_000_000 + i * 1000, decodeTokens: 1 }))
    expect(history.times.at(-1)! - history.times[0]).toBe(300) // the last five minutes
    expect(history.isPrompt.length).toBe(history.times.length)
    for (let i = 0; i < 4000; i++) history.push(frame({ time: 2_000_000 + i, decodeTokens: 1 }))
    expect(history.times.length).toBe(3000)
  })
})

describe('the experts that an answer used', () => {
  test('are few cells, of which the most used is the hottest', () => {
    const small = new HeatRecorder({ layers: LAYERS, experts: EXPERTS })
    expect(small.strip()).toBeNull()
    small.add({ routed: Uint32Array.of(81, 0, 1, 0, 0, 0) })
    small.add({ routed: Uint32Array.of(0, 0, 0, 0, 9, 0) })
    expect(small.strip()).toEqual({ rows: 2, columns: 3, cells: '901010', used: 3, experts: 6 })
    const large = new HeatRecorder({ layers: 40, experts: 256 })
    large.add({ routed: new Uint32Array(40 * 256).fill(1, 5 * 256, 5 * 256 + 4) }) // four of layer 5
    const strip = large.strip()!
    expect([strip.rows, strip.columns, strip.used]).toEqual([16, 64, 4])
    expect(strip.cells.indexOf('9')).toBe(2 * 64)
    expect(readStrip(JSON.parse(JSON.stringify(strip)))).toEqual(strip)
  })

  test('are taken from a file only where they make sense', () => {
    const strip = { rows: 1, columns: 2, cells: '09', used: 1, experts: 2 }
    expect(readStrip(strip)).toEqual(strip)
    const wrong = [
      { cells: '0' },
      { cells: '0x' },
      { rows: 0 },
      { rows: 1e9 },
      { columns: -2 },
      { used: 3 },
      { experts: '2' },
    ]
    for (const fields of wrong) expect(readStrip({ ...strip, ...fields }), JSON.stringify(fields)).toBeNull()
    for (const value of [null, 7, 'x', []]) expect(readStrip(value)).toBeNull()
  })
})

describe('the time that is left', () => {
  test('follows the pace so far, and begins anew with another stage', () => {
    const begun = nextStage(null, { kind: 'prompt', done: 0, total: 400, cached: 9 }, 1000)
    expect(secondsLeft(begun, 1500)).toBeNull()
    const later = nextStage(begun, { kind: 'prompt', done: 100, total: 400, cached: 9 }, 3000)
    expect(secondsLeft(later, 3000)).toBe(6)
    expect(secondsLeft(later, 5000)).toBe(4)
    expect(secondsLeft(later, 99_000)).toBe(0)
    expect(nextStage(later, { kind: 'loading', done: 1, total: 2, cached: 0 }, 7000).begunAt).toBe(7000)
  })
})

describe('times of reads', () => {
  test('a share of them took no longer than the end of its step', () => {
    const latency = [0, 0, 3, 4, 0, 1] // up to 0.125, 0.25, 0.5, 1, 2, 4 ms
    expect([0.1, 0.375, 0.5, 0.875, 0.99].map(share => latencyShare(latency, share))).toEqual([0.5, 0.5, 1, 1, 4])
  })
})
