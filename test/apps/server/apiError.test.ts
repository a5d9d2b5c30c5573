// Errors of the engine as clients of each API see them.
import { describe, expect, test } from 'vitest'
import { toApiError } from '#moeflux/apps/server/apiError.js'
import {
  DeviceLostError,
  ExpertReadError,
  FetchError,
  FormatError,
  GrammarError,
  MoefluxError,
  OutOfMemoryError,
  UnsupportedSchemaError,
} from '#moeflux/base/errors.js'

describe('an error as clients see it', () => {
  const own: [string, Error, string][] = [
    [
      'a path with spaces that the error carries',
      new ExpertReadError(3, 7, '/data/my models/q3/experts.bin', 64, 'EIO'),
      'expert 7 of layer 3: EIO (experts.bin at 64)',
    ],
    ['a folder', new MoefluxError('X', "cannot open '/var/lib/moeflux/'"), "cannot open 'moeflux'"],
    ['two paths', new MoefluxError('X', 'moved /a/b.bin to /c/d/e.bin: no'), 'moved b.bin to e.bin: no'],
    ['a path of Windows', new FormatError('X', 'C:\\Users\\me\\my models\\a.json', 'is no JSON'), 'a.json: is no JSON'],
    ['a file as an address', new MoefluxError('X', 'at file:///srv/app/dist/x.js'), 'at x.js'],
    [
      'an address on the web stays',
      new FetchError('UNREACHABLE', 'https://example.com/models/a.bin', 'no answer'),
      'https://example.com/models/a.bin: no answer',
    ],
    [
      'what has no path stays',
      new DeviceLostError('wasm', 'a worker died / or two'),
      'backend wasm: a worker died / or two',
    ],
  ]
  test.each(own)('of its own: %s', (_, error, message) => {
    const { kind, status, message: told } = toApiError(error)
    expect({ kind, status, told: told.slice(0, message.length) }).toEqual({
      kind: 'server',
      status: 500,
      told: message,
    })
    expect(told).not.toMatch(/\/(data|var|srv|a|c)\/|Users/)
  })

  test('without a name says nothing', () => {
    const error = toApiError(new TypeError("Cannot read '/srv/app/x.js'"))
    expect([error.status, error.message]).toEqual([500, 'internal error'])
  })

  test('that passes by itself says when to come back', () => {
    const { kind, status, message, details } = toApiError(new OutOfMemoryError('wasm bank 0', 4096, 'memory is full'))
    expect({ kind, status, details }).toEqual({
      kind: 'overloaded',
      status: 503,
      details: { code: 'out_of_memory', retryAfterSeconds: 5 },
    })
    expect(message).toContain('memory is full (4096 bytes wanted)')
  })

  test('that is their mistake is told as it is', () => {
    const schema = toApiError(
      new UnsupportedSchemaError('pattern', '#/properties/path', "'^/usr/lib/x$' uses look-around"),
    )
    expect([schema.status, schema.message]).toEqual([400, expect.stringContaining('at #/properties/path: pattern')])
    expect(schema.message).toContain('^/usr/lib/x$')
    expect(toApiError(new GrammarError('EBNF at line 1, column 2: no')).status).toBe(400)
  })
})
