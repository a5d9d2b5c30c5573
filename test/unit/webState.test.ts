// What the web UI keeps and shows, without a browser: branches of conversations, files of them, the engine's history.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { ModelStats } from '#moeflux/compute/stats.js'
import type { EngineFrame } from '#moeflux/engine/engineMonitor.js'
import { decodeFrame, encodeFrame } from '#moeflux/engine/frameCodec.js'
import { mergeFrames } from '#moeflux/engine/mergeFrames.js'
import {
  append,
  branch,
  type Conversation,
  type Message,
  matches,
  newConversation,
  showBranch,
  siblings,
} from '../../src/web/state/conversation.js'
import { fromJson, ImportError, toJson, toMarkdown } from '../../src/web/state/conversationFile.js'
import type { ConversationStore } from '../../src/web/state/conversationStore.js'
import { Conversations } from '../../src/web/state/conversations.js'
import { EngineHistory } from '../../src/web/state/engineHistory.js'
import { latencyShare } from '../../src/web/state/latency.js'

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

const LAYERS = 2
const EXPERTS = 3
const shape = {
  model: 'm',
  backend: 'wasm',
  description: 'wasm, 1 thread',
  layers: LAYERS,
  experts: EXPERTS,
  expertsPerToken: 1,
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
    expect(history.times.length).toBeLessThanOrEqual(240)
    expect(history.times.at(-1)! - history.times[0]).toBeLessThanOrEqual(120)
  })
})

describe('times of reads', () => {
  test('a share of them took no longer than the end of its step', () => {
    const latency = [0, 0, 3, 4, 0, 1] // up to 0.125, 0.25, 0.5, 1, 2, 4 ms
    expect([0.1, 0.375, 0.5, 0.875, 0.99].map(share => latencyShare(latency, share))).toEqual([0.5, 0.5, 1, 1, 4])
  })
})
