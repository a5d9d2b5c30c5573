// A store that several processes share: what travels, what is found, and what a store that fails, hangs or lies can do to an
// answer, which is nothing but to cost it the budget.
import { afterEach, describe, expect, test } from 'vitest'
import type { StoreOptions } from '#moeflux/chat/stateStores.js'
import { Breaker } from '#moeflux/stores/breaker.js'
import { workAhead } from '#moeflux/stores/pagedStates.js'
import type { ChatMessage } from '#moeflux/text/template/messages.js'
import { MemoryStore, never } from '../support/memoryStore.js'
import { answering, type ScriptedOptions, scriptedModel } from '../support/models/scriptedModel.js'
import { demoTokenizer } from '../support/textTools.js'

const tokenizer = await demoTokenizer()
const script = answering(tokenizer, prompt => `An answer about ${prompt.length} things. `.repeat(3))
const user = (content: string): ChatMessage => ({ role: 'user', content })
const system: ChatMessage = { role: 'system', content: 'You are patient and answer all that people ask. '.repeat(20) }

const opened: { close(): Promise<void> }[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map(model => model.close()))
})

/** A process of its own: a model, a session, and the store that it shares with others. */
async function replica(store: MemoryStore, options: Partial<StoreOptions> = {}, own: Partial<ScriptedOptions> = {}) {
  const { model, alive } = await scriptedModel({ script, ...own })
  opened.push(model)
  const warnings: string[] = []
  const session = model.createSession({
    store: { store, budgetMs: 5_000, ...options },
    onWarning: line => warnings.push(line),
  })
  const tier = () => session.state.tiers[0]
  return {
    session,
    close: () => model.close(),
    alive,
    warnings,
    tier,
    written: () => expect.poll(() => tier().pending).toBe(0),
    async chat(messages: ChatMessage[], cacheScope?: string) {
      const { text, usage } = await session.chat({ messages, cacheScope }).answer()
      return { text, cached: usage.cachedTokens, fresh: usage.newTokens }
    },
  }
}

type Replica = Awaited<ReturnType<typeof replica>>

/** Twelve turns, each answered by the next of `replicas`. */
async function converse(replicas: readonly Replica[], turns = 12) {
  const answers: { text: string; cached: number; fresh: number }[] = []
  for (let turn = 0; turn < turns; turn++) {
    const at = replicas[turn % replicas.length]
    answers.push(await at.chat(conversation(answers)))
    await at.written()
  }
  return answers
}

/** The messages after so many answers. */
function conversation(answers: readonly { text: string }[]): ChatMessage[] {
  const turns = answers.flatMap(({ text }, turn): ChatMessage[] => [
    { role: 'assistant', content: text },
    user(`And then, in part ${turn}?`),
  ])
  return [system, user('How does it begin?'), ...turns]
}

const PLAIN_TEMPLATE = `{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

const THINKING_TEMPLATE = PLAIN_TEMPLATE.replace(
  '{{ message.content }}',
  `{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}`,
)

/** Within a chain of calls all is repeated; with the next question the thinking is gone. */
const FORGETTING_TEMPLATE = `{% set ns = namespace(last=0) %}{% for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}${THINKING_TEMPLATE.replace(
  '{% if message.reasoning_content %}',
  '{% if message.reasoning_content and loop.index0 > ns.last %}',
)}`

describe('three replicas with one store', () => {
  for (const [name, template] of [
    ['whose histories leave thinking out', undefined],
    ['whose histories are what was said', PLAIN_TEMPLATE],
  ] as const) {
    test(`evaluate no more than one process does, of chats ${name}`, async () => {
      const alone = await converse([await replica(new MemoryStore(), {}, { template })])
      const store = new MemoryStore()
      const replicas = await Promise.all([1, 2, 3].map(() => replica(store, {}, { template })))
      expect(await converse(replicas)).toEqual(alone)
      expect(replicas.map(({ session }) => session.state.found.shared)).toEqual([3, 4, 4])
      expect(replicas.flatMap(({ warnings }) => warnings)).toEqual([])
    })
  }

  test('ask for all places of a prompt in one round trip, and write only what is new', async () => {
    const store = new MemoryStore()
    const [first, second] = [await replica(store), await replica(store)]
    const messages = [system, user('Hello?')]
    const { text } = await first.chat(messages)
    await first.written()
    const pages = [...store.objects.keys()].filter(name => name.includes('/kv-'))
    expect(pages.length).toBeGreaterThan(0)
    const before = store.calls.length
    await second.chat([...messages, { role: 'assistant', content: text }, user('Go on.')])
    await second.written()
    const calls = store.calls.slice(before)
    // One look, one state, its pages, and behind the answer one look and what is new.
    expect(calls.map(({ kind }) => kind)).toEqual([
      'has',
      'get',
      'get',
      'has',
      ...calls.slice(4).map(() => expect.anything()),
    ])
    expect(
      calls.flatMap(({ kind, names }) => (kind === 'put' ? names : [])).filter(name => pages.includes(name)),
    ).toEqual([])
    const { objects, objectsShared, bytesWritten } = second.tier().counters
    expect({ objects, objectsShared }).toEqual({
      objects: calls.filter(({ kind }) => kind === 'put').length,
      objectsShared: expect.any(Number),
    })
    const sizes = calls
      .flatMap(({ kind, names }) => (kind === 'put' ? names : []))
      .map(name => store.objects.get(name)?.length ?? 0)
    expect(bytesWritten).toBe(sizes.reduce((sum, size) => sum + size, 0))
  })

  test('make the same prompts where the model wrote other tokens than its text is encoded as', async () => {
    // Letter by letter in the first answer; all later ones go on from it.
    const letters = [...'Once upon a time, far away'].flatMap(letter => tokenizer.encode(letter))
    const odd = answering(tokenizer, prompt => (prompt.includes('part 0') ? `Then ${prompt.length}.` : letters))
    const own = { template: PLAIN_TEMPLATE, script: odd }
    const alone = await converse([await replica(new MemoryStore(), {}, own)], 6)
    expect(alone[0].text).toBe('Once upon a time, far away')
    const store = new MemoryStore()
    const replicas = await Promise.all([1, 2, 3].map(() => replica(store, {}, own)))
    expect(await converse(replicas, 6)).toEqual(alone)
    // One who has seen nothing of it, five turns later.
    const late = await replica(store, {}, own)
    const all = conversation(alone)
    const lateTurn = await late.chat(all)
    expect(lateTurn.fresh).toBeLessThan(30)
    expect([...store.objects.keys()].filter(name => name.includes('/note-'))).toHaveLength(6)
    // Without the notes it is another prompt, which the answer tells: that is what they are for.
    for (const name of [...store.objects.keys()]) if (name.includes('/note-')) store.objects.delete(name)
    const without = await (await replica(store, {}, own)).chat(all)
    expect(without.cached + without.fresh).toBeLessThan(lateTurn.cached + lateTurn.fresh)
    // Nor is another scope told.
    expect((await late.chat(all, 'somebody else')).fresh).toBe(without.cached + without.fresh)
  })

  test('know how each other’s models wrote their calls, and what they thought before, but not another scope’s', async () => {
    const call =
      '<think>\nI must add.\n</think>\n\n<tool_call>\n{ "name":"add",  "arguments": {"b":2, "a":1}}\n</tool_call>'
    const script = answering(tokenizer, prompt => (prompt.includes('>tool') ? `Three of ${prompt.length}.` : call))
    const own = { template: THINKING_TEMPLATE, script }
    const tools = [{ name: 'add', parameters: { type: 'object' } }]
    const first = [system, user('What is 1 + 2?')]
    const said: ChatMessage = {
      role: 'assistant',
      content: null,
      tool_calls: [{ function: { name: 'add', arguments: '{"a":1,"b":2}' } }],
    }
    const next = [...first, said, { role: 'tool', content: '3' }]
    const ask = async (at: Replica, messages: ChatMessage[], cacheScope = 'alice') => {
      const { text, usage } = await at.session.chat({ messages, tools, thinking: true, cacheScope }).answer()
      await at.written()
      return { text, tokens: usage.promptTokens }
    }
    const one = await replica(new MemoryStore(), {}, own)
    await ask(one, first)
    const alone = await ask(one, next)
    const store = new MemoryStore()
    const [here, there] = [await replica(store, {}, own), await replica(store, {}, own)]
    await ask(here, first)
    expect(await ask(there, next)).toEqual(alone)
    for (const at of [here, there]) expect((await ask(at, next, 'bob')).tokens).not.toBe(alone.tokens)
  })

  for (const [name, template] of [
    ['go on repeating what was thought', THINKING_TEMPLATE],
    ['leave out what was thought before the last question', FORGETTING_TEMPLATE],
  ] as const) {
    test(`evaluate only new tokens of chains of calls whose templates ${name}`, async () => {
      // A question, three calls one after the other, an answer; then another question.
      const call = (n: number) =>
        `<think>\nI must add ${n}.\n</think>\n\n<tool_call>\n{ "name":"add",  "arguments": {"b":2, "a":${n}}}\n</tool_call>`
      const script = answering(tokenizer, prompt => {
        const results = prompt.split('>tool').length - 1
        return results % 3 === 0 && results > 0 ? `It is ${prompt.length}.` : call(results)
      })
      const tools = [{ name: 'add', parameters: { type: 'object' } }]
      const chain = async (replicas: readonly Replica[]) => {
        const messages: ChatMessage[] = [system, user('Add it all up, one after the other.')]
        const turns: { cached: number; fresh: number; text: string }[] = []
        for (let turn = 0; turn < 5; turn++) {
          const at = replicas[turn % replicas.length]
          const { text, toolCalls, usage } = await at.session.chat({ messages, tools, thinking: true }).answer()
          await at.written()
          turns.push({ cached: usage.cachedTokens, fresh: usage.newTokens, text })
          const calls = toolCalls.map(({ name, arguments: json }) => ({ function: { name, arguments: json } }))
          messages.push({ role: 'assistant', content: text, ...(calls.length > 0 && { tool_calls: calls }) })
          messages.push(calls.length > 0 ? { role: 'tool', content: '3' } : user('And now once more.'))
        }
        return turns
      }
      const alone = await chain([await replica(new MemoryStore(), {}, { template, script })])
      // The results of the calls are new and nothing else.
      for (const { fresh } of alone.slice(1, 4)) expect(fresh).toBeLessThan(20)
      const store = new MemoryStore()
      const replicas = await Promise.all([1, 2, 3].map(() => replica(store, {}, { template, script })))
      expect(await chain(replicas)).toEqual(alone)
    })
  }

  test('keep scopes apart, in memory and in the store', async () => {
    const store = new MemoryStore()
    const [here, there] = [await replica(store), await replica(store)]
    const messages = [system, user('A secret?')]
    await here.chat(messages, 'alice')
    await here.written()
    expect((await here.chat(messages, 'bob')).cached).toBe(0)
    expect((await there.chat(messages, 'carol')).cached).toBe(0)
    expect((await here.chat(messages)).cached).toBe(0)
    expect((await there.chat(messages, 'alice')).cached).toBeGreaterThan(100)
    expect(there.tier().counters).toMatchObject({ hits: 1, lookups: 2 })
  })

  test('share half the bytes where they are told to, but not with those who want them exact', async () => {
    const store = new MemoryStore()
    const messages = [system, user('How many bytes?')]
    const [exact, half, other] = [
      await replica(store),
      await replica(store, { keysAndValues: 'bf16' }),
      await replica(store, { keysAndValues: 'bf16' }),
    ]
    await exact.chat(messages)
    await exact.written()
    expect((await half.chat(messages)).cached).toBe(0)
    await half.written()
    expect(half.tier().counters.bytesWritten).toBeLessThan(exact.tier().counters.bytesWritten)
    expect(other.tier().counters.bytesRead).toBe(0)
  })
})

describe('a store in trouble', () => {
  const messages = [system, user('Is somebody there?')]

  /** What is asked of a replica whose store is `store`, after another one has filled it. */
  async function ask(store: MemoryStore, options: Partial<StoreOptions>) {
    const asked = await replica(store, options)
    const started = performance.now()
    const answer = await asked.chat(messages)
    return { asked, answer, ms: performance.now() - started }
  }

  async function filled(): Promise<{ store: MemoryStore; text: string }> {
    const store = new MemoryStore()
    const writer = await replica(store)
    const { text } = await writer.chat(messages)
    await writer.written()
    store.calls.length = 0
    return { store, text }
  }

  test('that fails at any call costs nothing but what it had', async () => {
    for (let call = 0; call < 5; call++) {
      const { store, text } = await filled()
      store.before = number => {
        if (number >= call) throw new Error('connection reset')
      }
      const { asked, answer } = await ask(store, {})
      expect(answer.text).toBe(text)
      await asked.written()
      const { errors, hits, writeErrors } = asked.tier().counters
      expect(errors + hits).toBe(1)
      expect(writeErrors).toBe(call < 3 || hits === 1 ? writeErrors : 0)
      expect(asked.alive().sequences).toBe(0)
    }
  })

  test('that hangs at any call costs the budget and no more', async () => {
    for (let call = 0; call < 3; call++) {
      const { store, text } = await filled()
      store.before = number => (number >= call ? never() : undefined)
      const { asked, answer, ms } = await ask(store, { budgetMs: 80 })
      expect(answer).toMatchObject({ text, cached: 0 })
      expect(asked.tier().counters).toMatchObject({ slow: 1, hits: 0 })
      expect(asked.tier().isSkipped).toBe(true)
      expect(ms).toBeLessThan(1_500) // the machine may be busy; the store would take for ever
      const again = performance.now()
      await asked.chat([system, user('And now, something else?')])
      expect(asked.tier().counters.slow).toBe(1)
      expect(performance.now() - again).toBeLessThan(1_000)
    }
  })

  test('that hangs when it is asked how an answer was written costs the budget once, and is counted', async () => {
    const store = new MemoryStore()
    const own = { template: PLAIN_TEMPLATE }
    const writer = await replica(store, {}, own)
    const [first, second] = await converse([writer], 2)
    const before = store.calls.length
    store.before = () => never()
    const asked = await replica(store, { budgetMs: 80 }, own)
    expect((await asked.chat(conversation([first]))).text).toBe(second.text)
    expect(store.calls.slice(before).map(({ kind }) => kind)).toEqual(['get']) // no more was asked
    const { slow, skipped, waits, longestWaitSeconds } = asked.tier().counters
    expect({ slow, skipped, waits: waits.reduce((sum, count) => sum + count, 0) }).toEqual({
      slow: 1,
      skipped: 1,
      waits: 1,
    })
    expect(longestWaitSeconds).toBeGreaterThan(0.07)
    expect(longestWaitSeconds).toBeLessThan(1.5)
  })

  test('is asked again when it is back, beside the answers', async () => {
    const { store } = await filled()
    let isDown = true
    store.before = () => {
      if (isDown) throw new Error('connection refused')
    }
    const { asked, answer } = await ask(store, {})
    expect(answer.cached).toBe(0)
    isDown = false
    await expect
      .poll(async () => {
        await asked.chat([system, user(`Are you back at ${performance.now()}?`)])
        return asked.tier().isSkipped
      })
      .toBe(false)
    expect(asked.tier().counters.skipped).toBeGreaterThan(0)
    const other = await replica(store)
    expect((await other.chat(messages)).cached).toBeGreaterThan(100)
  })

  test('with a flipped byte, a cut or a swapped object anywhere gives right answers, and is mended', async () => {
    const damages: ((bytes: Uint8Array) => Uint8Array)[] = [
      flipped,
      bytes => bytes.subarray(0, bytes.length - 3),
      bytes => new Uint8Array(bytes.length),
    ]
    for (const damage of damages) {
      const { store, text } = await filled()
      for (const [name, bytes] of store.objects) store.objects.set(name, damage(bytes))
      const { asked, answer } = await ask(store, {})
      expect(answer).toMatchObject({ text, cached: 0 })
      expect(asked.tier().counters.damaged).toBeGreaterThan(0)
      expect(asked.warnings[0]).toMatch(/a stored state of \d+ tokens was dropped/)
      await asked.written()
      const next = await ask(store, {})
      expect(next.answer).toMatchObject({ text, cached: expect.any(Number) })
    }
    const { store, text } = await filled()
    const names = [...store.objects.keys()]
    const bodies = [...store.objects.values()]
    for (const [i, name] of names.entries()) store.objects.set(name, bodies[(i + 1) % bodies.length])
    expect((await ask(store, {})).answer).toMatchObject({ text, cached: 0 })
  })

  test('that lost a page is the same as one that has nothing', async () => {
    const { store, text } = await filled()
    for (const name of [...store.objects.keys()]) if (name.includes('/kv-')) store.objects.delete(name)
    const { asked, answer } = await ask(store, {})
    expect(answer).toMatchObject({ text, cached: 0 })
    await asked.written()
    expect((await ask(store, {})).answer.cached).toBeGreaterThan(100)
  })

  test('that takes no writes lets few states wait, and drops and counts the others', async () => {
    const store = new MemoryStore()
    let release = () => {}
    const gate = new Promise<void>(resolve => (release = resolve))
    store.before = (_, kind) => (kind === 'put' ? gate : undefined)
    const asked = await replica(store)
    for (let i = 0; i < 14; i++) await asked.chat([user(`Question number ${i}, about something long enough to keep?`)])
    expect(asked.tier().pending).toBeLessThanOrEqual(9)
    expect(asked.tier().counters.dropped).toBeGreaterThan(0)
    release()
    await asked.written()
    expect(asked.tier().counters.statesWritten).toBeLessThanOrEqual(9)
  })
})

describe('replicas whose store fails at counted calls, closed and opened anew under load,', () => {
  // src/lab/scaleOut/faults.mjs does the same to processes, with a real store and a balancer.
  const faulty = (store: MemoryStore) => replica(store, { budgetMs: 60 })
  const storyOf = (topic: number, answers: readonly string[]): ChatMessage[] => [
    system,
    user(`Tell me story number ${topic}.`),
    ...answers.flatMap((content, turn): ChatMessage[] => [{ role: 'assistant', content }, user(`And then, ${turn}?`)]),
  ]

  async function rightAnswers(topics: number): Promise<string[][]> {
    const alone = await replica(new MemoryStore())
    const all: string[][] = Array.from({ length: topics }, () => [])
    for (const [topic, answers] of all.entries()) {
      for (let turn = 0; turn < 3; turn++) answers.push((await alone.chat(storyOf(topic, answers))).text)
    }
    return all
  }

  test('lose nothing but what was in flight on the one that is closed, and answer rightly, whatever the store does', async () => {
    const right = await rightAnswers(4)
    const store = new MemoryStore()
    // Each fault begins at so many calls and ends with the next one.
    const faults: [from: number, act: (kind: string) => void | Promise<void>][] = [
      [0, () => {}],
      [20, () => Promise.reject(new Error('connection refused'))],
      [24, () => store.objects.clear()], // back, and empty
      [45, () => never()],
      [48, () => {}],
      [60, kind => (kind === 'put' ? Promise.reject(new Error('OOM command not allowed')) : undefined)],
      [
        64,
        () => {
          for (const [name, bytes] of store.objects) store.objects.set(name, flipped(bytes))
        },
      ],
      [68, () => {}],
    ]
    const met = new Set<number>()
    store.before = (call, kind) => {
      const fault = faults.findLastIndex(([from]) => call >= from)
      met.add(fault)
      return faults[fault][1](kind)
    }
    const replicas = await Promise.all([1, 2, 3].map(() => faulty(store)))
    const closed: Awaited<ReturnType<typeof replica>>[] = []
    let asked = 0
    let answered = 0
    const lost: { code?: string; wasClosed: boolean }[] = []
    const client = async (number: number) => {
      // Sessions leave a store alone for a while that has failed: until all faults were met.
      for (let round = 0; round < 2 || met.size < faults.length; round++) {
        if (round >= 2) await new Promise(resolve => setTimeout(resolve, 50))
        const topic = (number + round) % right.length
        for (let turn = 0; turn < 3; turn++) {
          const at = replicas[(number + round + turn) % 3]
          asked++
          try {
            const { text } = await at.chat(storyOf(topic, right[topic].slice(0, turn)))
            expect(text).toBe(right[topic][turn])
            answered++
          } catch (error) {
            lost.push({ code: (error as { code?: string }).code, wasClosed: closed.includes(at) })
          }
          await replace(answered)
        }
      }
    }
    /** At the tenth and twentieth answer one is closed in the middle of others' answers, and another takes its place. */
    const replace = async (count: number) => {
      if ((count !== 10 && count !== 20) || closed.length >= count / 10) return
      const old = replicas[closed.length]
      closed.push(old)
      const place = replicas.indexOf(old)
      const [next] = await Promise.all([faulty(store), old.close()])
      replicas[place] = next
    }
    await Promise.all(Array.from({ length: 6 }, (_, number) => client(number)))
    expect(closed).toHaveLength(2)
    expect(lost.filter(({ code, wasClosed }) => code !== 'CLOSED' || !wasClosed)).toEqual([])
    expect(answered + lost.length).toBe(asked)
    expect([...met].sort()).toEqual(faults.map((_, i) => i))
    await Promise.all(replicas.map(({ close }) => close()))
    for (const { alive } of [...replicas, ...closed]) expect(alive()).toEqual({ sequences: 0, held: 0 })
  })
})

function flipped(bytes: Uint8Array): Uint8Array {
  return bytes.map((byte, i) => (i === bytes.length >> 1 ? byte ^ 1 : byte))
}

describe('work that is begun ahead of its turn', () => {
  test('comes in order, so much at once, and has ended when its taker gives up', async () => {
    let running = 0
    let most = 0
    const work = async (item: number) => {
      most = Math.max(most, ++running)
      for (let pause = 6 - item; pause > 0; pause--) await new Promise(resolve => setImmediate(resolve))
      running--
      if (item === 4) throw new Error('the fourth')
      return item
    }
    const taken: number[] = []
    const take = async () => {
      for await (const item of workAhead([1, 2, 3, 4, 5, 6], 3, work)) taken.push(item)
    }
    await expect(take()).rejects.toThrow('the fourth')
    expect({ taken, running, most }).toEqual({ taken: [1, 2, 3], running: 0, most: 3 })
  })
})

describe('a breaker', () => {
  test('waits longer after each failure, and lets one question through when it is time', async () => {
    let now = 0
    const breaker = new Breaker(() => now)
    let probes = 0
    let works = false
    const probe = async () => {
      probes++
      if (!works) throw new Error('no')
    }
    expect(breaker.allows(probe)).toBe(true)
    for (let asked = 0; asked < 10; asked++) breaker.failed() // all of them asked before it was known: one failure
    expect(breaker.allows(probe)).toBe(false)
    expect(probes).toBe(0)
    for (const pause of [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]) {
      now += pause - 1
      expect(breaker.allows(probe)).toBe(false)
      const before = probes
      now += 1
      expect([breaker.allows(probe), breaker.allows(probe)]).toEqual([false, false])
      expect(probes).toBe(before + 1)
      await Promise.resolve()
      await new Promise(resolve => setImmediate(resolve))
    }
    works = true
    now += 30_000
    breaker.allows(probe)
    await new Promise(resolve => setImmediate(resolve))
    expect(breaker.allows(probe)).toBe(true)
  })
})
