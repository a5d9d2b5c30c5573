// Several servers as one: a conversation whose turns land on different processes, with a real store between them, before real
// balancers with the configurations of deploy/.
import { afterAll, describe, expect, test } from 'vitest'
import { type Started, startHaproxy, startNginx, startRedis, startS3 } from '../../../src/lab/scaleOut/servers.mjs'
import { withServers } from '../../support/servers/realServers.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { postJson, sentEvents } from './sse.js'

const stops: (() => Promise<unknown>)[] = []
afterAll(async () => {
  await Promise.all(stops.splice(0).map(stop => stop()))
})

// Of a shared machine: a budget that only a dead store exceeds.
const PATIENT = ['--store-budget', '10s', '--parallel', '4']

async function replicas(count: number, store: string, env: Record<string, string> = {}, more: readonly string[] = []) {
  const started = await Promise.all(
    Array.from({ length: count }, () => startServer(['--store', store, ...PATIENT, ...more], env)),
  )
  for (const server of started) stops.push(() => server.stop())
  return started
}

interface Turn {
  readonly text: string
  readonly cached: number
  readonly fresh: number
}

async function ask(url: string, messages: object[], headers: Record<string, string> = {}): Promise<Turn> {
  const body = { messages, max_tokens: 6, temperature: 0 }
  const response = await postJson(`${url}/v1/chat/completions`, body, headers)
  const answer = await response.json()
  if (response.status !== 200) throw new Error(`${response.status}: ${JSON.stringify(answer)}`)
  const { prompt_tokens: tokens, prompt_tokens_details: details } = answer.usage
  const { cached_tokens: cached } = details
  return { text: answer.choices[0].message.content, cached, fresh: tokens - cached }
}

/** All that is to be written is written: another turn would take a person longer. */
async function written(servers: readonly ServerProcess[]): Promise<void> {
  for (const server of servers) {
    await expect.poll(() => server.metric('moeflux_store_pending\\{tier="shared"\\}')).toBe(0)
  }
}

async function converse(urlOf: (turn: number) => string, turns: number, between: () => Promise<void>): Promise<Turn[]> {
  const messages: object[] = [
    { role: 'system', content: 'You tell stories to small children, and never tire of it. '.repeat(4) },
    { role: 'user', content: 'Tell me a story about a little dog.' },
  ]
  const answers: Turn[] = []
  for (let turn = 0; turn < turns; turn++) {
    const answer = await ask(urlOf(turn), messages)
    await between()
    answers.push(answer)
    messages.push({ role: 'assistant', content: answer.text }, { role: 'user', content: `And then, in part ${turn}?` })
  }
  return answers
}

describe('three replicas', () => {
  const TURNS = 12
  let alone: Promise<Turn[]> | null = null

  /** What one process answers, which evaluates only what is new. */
  async function oneProcess(): Promise<Turn[]> {
    const server = await startServer(['--parallel', '4'])
    const turns = await converse(
      () => server.url,
      TURNS,
      async () => {},
    )
    await server.stop()
    return turns
  }

  async function sharesConversations(store: Started, env: Record<string, string> = {}): Promise<void> {
    alone ??= oneProcess()
    const servers = await replicas(3, store.url, env)
    const turns = await converse(
      turn => servers[turn % 3].url,
      TURNS,
      () => written(servers),
    )
    expect(turns).toEqual(await alone)
    // From the second turn on, each begins where another process had ended.
    for (const server of servers) {
      expect(await server.metric('moeflux_prefix_lookups_total\\{tier="shared"\\}')).toBeGreaterThanOrEqual(3)
      expect(await server.metric('moeflux_store_trouble_total\\{tier="shared",kind="damaged"\\}')).toBe(0)
    }
    await Promise.all(servers.map(server => server.stop()))
  }

  withServers(['redis'])(
    'go on with each other’s conversations, through Redis',
    async () => {
      const redis = await startRedis()
      stops.push(redis.stop)
      await sharesConversations(redis)
    },
    120_000,
  )

  test('go on with each other’s conversations, through S3', async () => {
    const s3 = await startS3()
    stops.push(s3.stop)
    await sharesConversations(s3, s3.env)
  }, 120_000)

  withServers(['redis'])('keep tenants apart who have keys of their own', async () => {
    const redis = await startRedis()
    stops.push(redis.stop)
    const scoped = ['--store-scope', 'key', '--api-key', 'alice', '--api-key', 'bob', '--api-key', 'carol']
    const servers = await Promise.all(
      [1, 2].map(() => startServer(['--store', redis.url, ...PATIENT, ...scoped], { MOEFLUX_API_KEY: 'alice' })),
    )
    for (const server of servers) stops.push(() => server.stop())
    const secret = [{ role: 'user', content: 'A long secret that nobody else may know. '.repeat(8) }]
    const as = (key: string) => ({ authorization: `Bearer ${key}` })
    await ask(servers[0].url, secret, as('alice'))
    await written(servers)
    // Not from the store, not from the memory of the process that has it.
    expect((await ask(servers[0].url, secret, as('bob'))).cached).toBe(0)
    expect((await ask(servers[1].url, secret, as('carol'))).cached).toBe(0)
    expect(await servers[1].metric('moeflux_store_lookups_total\\{tier="shared",result="hit"\\}')).toBe(0)
    expect((await ask(servers[1].url, secret, as('alice'))).cached).toBeGreaterThan(50)
    expect(await servers[1].metric('moeflux_store_lookups_total\\{tier="shared",result="hit"\\}')).toBe(1)
    expect((await postJson(`${servers[0].url}/v1/models`, {}, as('eve'))).status).toBe(401)
  })
})

describe('a balancer', () => {
  for (const [name, start] of [
    ['nginx', startNginx],
    ['haproxy', startHaproxy],
  ] as const) {
    withServers(['redis', name])(
      `${name}: keeps conversations where they are, and a rolling restart loses none`,
      async () => {
        const redis = await startRedis()
        stops.push(redis.stop)
        const more = ['--grace', '20s', '--drain', '2500ms']
        const servers = await replicas(2, redis.url, {}, more)
        const balancer = await start(servers.map(({ port }) => port))
        stops.push(balancer.stop)
        await expect.poll(async () => (await fetch(`${balancer.url}/ready`)).status).toBe(200)
        const headers = { 'x-session-id': 'one conversation' }
        const messages = [{ role: 'user', content: 'Tell me something about the weather in the mountains. '.repeat(4) }]
        for (let i = 0; i < 4; i++) await ask(balancer.url, messages, headers)
        const hits = await Promise.all(
          servers.map(server => server.metric('moeflux_prefix_lookups_total\\{tier="memory"\\}')),
        )
        expect(hits.toSorted()).toEqual([0, 3])

        // Eight clients stream while one replica after the other is stopped.
        const outcomes: string[] = []
        let isOver = false
        const client = async (number: number) => {
          for (let i = 0; !isOver; i++) {
            const body = {
              messages: [{ role: 'user', content: `Client ${number}, question ${i}` }],
              max_tokens: 4,
              stream: true,
              // More than HAProxy keeps to send again.
              user: number % 2 === 0 ? 'x'.repeat(40_000) : 'x',
            }
            const response = await postJson(`${balancer.url}/v1/chat/completions`, body, {
              'x-session-id': `client ${number}`,
            })
            const events = response.status === 200 ? await sentEvents(response) : []
            outcomes.push(events.at(-1)?.data === '[DONE]' ? 'answered' : `${response.status}`)
          }
        }
        const clients = Array.from({ length: 8 }, (_, number) => client(number))
        await expect.poll(() => outcomes.length).toBeGreaterThan(8)
        const stopped = servers[0].stop()
        await expect
          .poll(async () => (await fetch(`${servers[0].url}/ready`).catch(() => null))?.status ?? 503)
          .toBe(503)
        expect(await stopped).toMatchObject({ code: 0 })
        const [sofar] = [outcomes.length]
        await expect.poll(() => outcomes.length).toBeGreaterThan(sofar + 8)
        isOver = true
        await Promise.all(clients)
        expect(outcomes.filter(outcome => outcome !== 'answered')).toEqual([])
      },
      120_000,
    )
  }
})
