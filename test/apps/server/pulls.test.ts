// Pulls beside the answers: one per model, however many ask, stopped by name and with the server.
import { describe, expect, test } from 'vitest'
import { Pulls } from '#moeflux/apps/server/hub/pulls.js'
import type { LoadHooks } from '#moeflux/apps/server/modelPool.js'

interface World {
  readonly pulls: Pulls
  readonly running: Map<string, LoadHooks & { end(error?: Error): void }>
}

function world(): World {
  const running: World['running'] = new Map()
  const bring = (name: string, hooks: LoadHooks) =>
    new Promise<void>((resolve, reject) => {
      running.set(name, { ...hooks, end: error => (error ? reject(error) : resolve()) })
      hooks.signal.addEventListener('abort', () => reject(hooks.signal.reason))
    })
  return { pulls: new Pulls(bring, error => `told: ${(error as Error).message}`), running }
}

describe('pulls', () => {
  test('are one per model, and tell how far they are and how they ended', async () => {
    const { pulls, running } = world()
    for (let i = 0; i < 10; i++) expect(pulls.begin('a')?.state).toBe('running')
    expect(running.size).toBe(1)
    running.get('a')?.onProgress({ phase: 'download', loaded: 5, total: 9 })
    expect(pulls.get('a')).toMatchObject({ state: 'running', progress: { loaded: 5, total: 9 } })
    running.get('a')?.end()
    expect(await pulls.ended('a')).toMatchObject({ state: 'done', problem: null })

    pulls.begin('b')
    running.get('b')?.end(new Error('no room'))
    expect(await pulls.ended('b')).toMatchObject({ state: 'failed', problem: 'told: no room' })
    expect(pulls.begin('b')).toMatchObject({ state: 'running', problem: null }) // again
  })

  test('that ended are told for a while, not for ever', async () => {
    const { pulls, running } = world()
    pulls.begin('stays')
    for (let i = 0; i < 100; i++) {
      pulls.begin(`nobody/${i}`)
      running.get(`nobody/${i}`)?.end(new Error('no such model'))
      await pulls.ended(`nobody/${i}`)
    }
    expect(pulls.list.length).toBeLessThan(20)
    expect([pulls.get('stays')?.state, pulls.get('nobody/99')?.state]).toEqual(['running', 'failed'])
    expect(pulls.get('nobody/0')).toBeNull()
    await pulls.close()
  })

  test('are stopped by name, are few at once, and end with the server', async () => {
    const { pulls, running } = world()
    for (const name of ['a', 'b', 'c', 'd']) pulls.begin(name)
    expect(pulls.begin('e')).toBeNull()
    expect([pulls.stop('a'), pulls.stop('nobody')]).toEqual([true, false])
    expect(await pulls.ended('a')).toMatchObject({ state: 'stopped' })
    expect(pulls.stop('a')).toBe(false)
    expect(pulls.begin('e')?.state).toBe('running')
    await pulls.close()
    expect(pulls.list.map(({ state }) => state)).toEqual(Array(5).fill('stopped'))
    expect([...running.values()].every(({ signal }) => signal.aborted)).toBe(true)
    expect(pulls.begin('f')).toBeNull()
  })
})
