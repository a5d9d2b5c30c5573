// What a name means: a model of the hub, one of the store, a well-known one.
import { describe, expect, test } from 'vitest'
import { folderNameFor, hubReference, meantModels, nearModels } from '#moeflux/files/models/modelName.js'
import { didYouMean } from '#moeflux/files/models/nearNames.js'
import { fourBitBytes } from '#moeflux/model/estimate.js'
import { presets } from '#moeflux/model/presets.js'
import {
  findWellKnown,
  SUGGESTED_MODEL,
  WELL_KNOWN_MODELS,
  type WellKnownModel,
} from '#moeflux/model/wellKnownModels.js'

const stored = (...names: string[]) => names.map(name => ({ id: folderNameFor(name), name }))
const meant = (text: string, ...names: string[]) => meantModels(text, stored(...names)).map(({ name }) => name)

describe('what a name means on the hub', () => {
  test.each([
    ['acme/tiny-moe', 'acme/tiny-moe', null],
    ['acme/tiny-moe:Q4_K_M', 'acme/tiny-moe:Q4_K_M', null],
    ['https://huggingface.co/acme/tiny-moe', 'acme/tiny-moe', null],
    ['https://huggingface.co/acme/tiny-moe/tree/main?not-for-all-audiences=true', 'acme/tiny-moe', null],
    ['https://huggingface.co/acme/tiny-moe/tree/v2', 'acme/tiny-moe', 'v2'],
    ['hf.co/acme/tiny-moe:Q8_0', 'acme/tiny-moe:Q8_0', null],
    ['hf://acme/tiny-moe/', 'acme/tiny-moe', null],
    ['https://huggingface.co/acme/t-GGUF/blob/main/sub/t-Q4_K_M.gguf', 'acme/t-GGUF:sub/t-Q4_K_M.gguf', null],
    ['Qwen3.6-35B', 'mlx-community/Qwen3.6-35B-A3B-4bit', null],
    ['a17b', 'mlx-community/Qwen3.5-397B-A17B-4bit', null],
    ['qwen3.5-0.8b', 'mlx-community/Qwen3.5-0.8B-4bit', null],
    ['Qwen3.5-4B', 'mlx-community/Qwen3.5-4B-4bit', null],
    ['qwen3.5:9b', 'mlx-community/Qwen3.5-9B-4bit', null],
    ['qwen3.8-27b', 'mlx-community/Qwen3.8-27B-4bit', null],
    [' Qwen3.6:35B ', 'mlx-community/Qwen3.6-35B-A3B-4bit', null],
  ])('%s', (text, id, revision) => expect(hubReference(text)).toEqual({ id, revision }))

  test.each([
    'tiny-moe',
    './acme/tiny',
    '../tiny',
    '/models/tiny',
    'models/tiny.gguf',
    'a/b/c',
    'https://x.org/a/b',
    'https://huggingface.co/a/b/tree/%zz',
    '',
  ])('%s names nothing there', text => expect(hubReference(text)).toBeNull())
})

describe('which stored model a name means', () => {
  test('is the one of that name before those that end so', () => {
    expect(meant('tiny-moe', 'acme/tiny-moe', 'tiny-moe')).toEqual(['tiny-moe'])
    expect(meant('tiny-moe', 'acme/tiny-moe', 'acme/other')).toEqual(['acme/tiny-moe'])
    expect(meant('Tiny-MoE', 'acme/tiny-moe')).toEqual(['acme/tiny-moe'])
    expect(meant('acme--tiny-moe', 'acme/tiny-moe')).toEqual(['acme/tiny-moe'])
    expect(meant('moe', 'acme/tiny-moe')).toEqual([])
  })

  test('is both where both end so', () => {
    expect(meant('tiny-moe', 'acme/tiny-moe', 'other/tiny-moe')).toEqual(['acme/tiny-moe', 'other/tiny-moe'])
  })

  test('is by a short name what is pulled for it, or what somebody else packed of it', () => {
    const own = 'mlx-community/Qwen3.6-35B-A3B-4bit'
    const other = 'unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M'
    expect(meant('a3b', own, other)).toEqual([own])
    expect(meant('qwen3.6-35b', other, 'acme/tiny-moe')).toEqual([other])
    expect(meant('hf.co/unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M', own, other)).toEqual([other])
  })
})

describe('names that are similar', () => {
  test.each([
    ['qwen3.6', ['qwen3.6-35b']],
    ['qwen3.6-35', ['qwen3.6-35b']],
    ['gptoss', ['gpt-oss']],
    ['gpt-oss-1', ['gpt-oss-120b']],
    ['qwen3.5', ['qwen3.5-4b', 'qwen3.5-9b', 'qwen3.5-0.8b']],
    ['coder', ['qwen3-coder', 'qwen3-coder-next']],
    ['qwne3.5-4b', ['qwen3.5-4b']],
    ['a3', ['a3b']],
    ['mlx-community/Qwen3.5-4B-4bits', ['mlx-community/Qwen3.5-4B-4bit']],
    ['stor', ['story', 'story-moe']],
    ['x', []],
    ['???', []],
    ['mistral-7b', []],
    ['/models/qwen3.6', []],
    ['./a3', []],
    ['a3.gguf', []],
    ['q'.repeat(100_000), []],
  ])('%.40s', (text, want) => expect(nearModels(text, ['acme/story-moe', 'people/story'])).toEqual(want))

  test('are said in words', () => {
    expect(didYouMean([])).toBe('')
    expect(didYouMean(['a'])).toBe('; did you mean a?')
    expect(didYouMean(['a', 'b', 'c'])).toBe('; did you mean a, b or c?')
  })
})

test('each well-known model has names of its own and shapes, and each preset is one of them by its name', () => {
  const names = WELL_KNOWN_MODELS.flatMap(model => model.names)
  expect(new Set(names).size).toBe(names.length)
  for (const { title, hub, preset } of WELL_KNOWN_MODELS) {
    expect(hub).toContain(title)
    expect(Object.keys(presets)).toContain(preset)
  }
  for (const preset of Object.values(presets)) {
    expect(findWellKnown(preset.name)).toMatchObject({ preset: preset.name, title: preset.title })
  }
})

test('the first model that is suggested is a small one', () => {
  const { preset } = findWellKnown(SUGGESTED_MODEL) as WellKnownModel
  const { allExperts, resident } = fourBitBytes(presets[preset].config)
  expect(allExperts + resident).toBeGreaterThan(0.5e9)
  expect(allExperts + resident).toBeLessThan(2.5e9)
})
