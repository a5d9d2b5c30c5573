// Host names, origins and keys that may talk to a server.
import { hostname } from 'node:os'
import { describe, expect, test } from 'vitest'
import { Guard, type GuardOptions } from '#moeflux/apps/server/guard.js'

function allows(options: Partial<GuardOptions>, headers: Record<string, string>): boolean {
  const guard = new Guard({ host: '127.0.0.1', ...options })
  try {
    guard.check(new Request('http://x/', { headers }), false)
    return true
  } catch {
    return false
  }
}

describe('names', () => {
  test.each([
    [
      '127.0.0.1',
      {},
      ['localhost', 'LOCALHOST:80', '127.0.0.1:1', '[::1]:5'],
      ['evil.example', '10.0.0.1', '0.0.0.0', ''],
    ],
    [
      '0.0.0.0',
      {},
      ['192.168.1.5:80', '[fe80::1]', hostname(), `${hostname()}.local:1`],
      ['evil.example', '1.2.3.4.evil.example'],
    ],
    ['::', {}, ['10.1.1.1', 'localhost'], ['evil.example']],
    ['192.168.1.5', {}, ['192.168.1.5:80', 'localhost'], ['192.168.1.6', 'evil.example']],
    ['127.0.0.1', { allowedHosts: ['ai.example'] }, ['ai.example', 'AI.example:443', 'localhost'], ['evil.example']],
    ['127.0.0.1', { allowedHosts: ['*'] }, ['anything.example', ''], []],
  ] as const)('of a server on %s %j', (host, options, good, bad) => {
    expect(good.filter(name => !allows({ host, ...options }, { host: name }))).toEqual([])
    expect(bad.filter(name => allows({ host, ...options }, { host: name }))).toEqual([])
  })
})

describe('origins', () => {
  const host = 'localhost:8080'

  test('other than the own one must be allowed', () => {
    expect(allows({}, { host, origin: 'http://localhost:8080' })).toBe(true)
    for (const origin of ['http://evil.example', 'null', 'http://localhost:81', 'nonsense']) {
      expect(allows({}, { host, origin })).toBe(false)
    }
    expect(allows({ corsOrigins: ['http://good.example'] }, { host, origin: 'http://good.example' })).toBe(true)
    expect(allows({ corsOrigins: ['http://good.example'] }, { host, origin: 'http://evil.example' })).toBe(false)
    expect(allows({ corsOrigins: ['*'] }, { host, origin: 'http://any.example' })).toBe(true)
  })

  test('are named in the answer only where they are allowed', () => {
    const guard = new Guard({ host: '127.0.0.1', corsOrigins: ['http://good.example'] })
    expect(guard.corsOrigin('http://good.example')).toBe('http://good.example')
    expect(guard.corsOrigin('http://evil.example')).toBeNull()
    expect(guard.corsOrigin(null)).toBeNull()
  })
})

describe('keys', () => {
  test('are taken from either header', () => {
    const apiKey = 'secret'
    const host = 'localhost'
    expect(allows({ apiKey }, { host })).toBe(false)
    expect(allows({ apiKey }, { host, authorization: 'Bearer secret' })).toBe(true)
    expect(allows({ apiKey }, { host, authorization: 'bearer  secret' })).toBe(true)
    expect(allows({ apiKey }, { host, authorization: 'secret' })).toBe(false)
    expect(allows({ apiKey }, { host, 'x-api-key': 'secret' })).toBe(true)
    expect(allows({ apiKey }, { host, 'x-api-key': 'secre' })).toBe(false)
  })
})
