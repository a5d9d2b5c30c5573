// Which GGUF file of a repository is meant.
import { describe, expect, test } from 'vitest'
import { chooseGguf, splitModelId } from '#moeflux/files/hub/ggufChoice.js'

const files = (...paths: string[]) => new Map(paths.map(path => [path, { path, size: 1, checksum: null }]))
const several = files(
  'config.json',
  'Model-Q4_K_M.gguf',
  'Model-UD-Q4_K_XL.gguf',
  'Model-Q8_0.gguf',
  'BF16/Model-BF16-00002-of-00002.gguf',
  'BF16/Model-BF16-00001-of-00002.gguf',
  'mmproj-F16.gguf',
  'imatrix_unsloth.gguf',
)

test('an id may name a precision', () => {
  expect(splitModelId('a/b')).toEqual({ id: 'a/b', precision: null })
  expect(splitModelId('a/b:Q4_K_M')).toEqual({ id: 'a/b', precision: 'Q4_K_M' })
})

test.each([
  ['Q4_K_M', ['Model-Q4_K_M.gguf']],
  ['q8_0', ['Model-Q8_0.gguf']],
  ['UD-Q4_K_XL', ['Model-UD-Q4_K_XL.gguf']],
  ['Q4_K_XL', ['Model-UD-Q4_K_XL.gguf']],
  ['Model-Q8_0.gguf', ['Model-Q8_0.gguf']],
  ['BF16', ['BF16/Model-BF16-00001-of-00002.gguf', 'BF16/Model-BF16-00002-of-00002.gguf']],
])('%s', (precision, paths) => {
  expect(chooseGguf('a/b', precision, several)?.parts.map(({ path }) => path)).toEqual(paths)
})

describe('what is not clear is said, with what is there', () => {
  const all = 'a/b:Q4_K_M, a/b:UD-Q4_K_XL, a/b:Q8_0, a/b:BF16'
  test.each<readonly [string, string | null, Map<string, never> | ReturnType<typeof files>, string]>([
    ['no precision', null, several, `say which: ${all}`],
    ['one that is not there', 'Q5_K_M', several, `there are: ${all}`],
    ['part of a name', '4_K_M', several, 'there are'],
    ['two of one precision', 'Q8_0', files('A-Q8_0.gguf', 'B-Q8_0.gguf'), 'say which: a/b:A-Q8_0, a/b:B-Q8_0'],
    ['safetensors alone', 'Q8_0', files('model.safetensors'), 'has no GGUF files'],
  ])('%s', (_, precision, among, message) => {
    expect(() => chooseGguf('a/b', precision, among)).toThrow(message)
  })

  test('safetensors go first where no precision is named', () => {
    expect(chooseGguf('a/b', null, files('model.safetensors', 'M-Q8_0.gguf'))).toBeNull()
    expect(chooseGguf('a/b', null, files('config.json'))).toBeNull()
  })
})
