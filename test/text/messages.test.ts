// Messages and tools in the forms that clients send, as templates get them.
import { expect, test } from 'vitest'
import { plainMessages, plainTools } from '#moeflux/text/template/messages.js'

test('takes the calls of an answer into a message as the answer names them', () => {
  const toolCalls = [{ id: 'call_1', name: 'add', arguments: '{"a": 1}' }]
  const calls = [{ id: 'call_1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } }]
  const [own] = plainMessages([{ role: 'assistant', content: 'So.', toolCalls }]).messages
  const [common] = plainMessages([{ role: 'assistant', content: 'So.', tool_calls: calls }]).messages
  expect(own).toEqual(common)
  expect(own.tool_calls).toEqual([{ id: 'call_1', type: 'function', function: { name: 'add', arguments: { a: 1 } } }])
})

test('takes tools in both forms, and no cache marks to the template', () => {
  const tool = { name: 'add', description: 'Adds', parameters: { type: 'object' } }
  const marked = { type: 'function', function: { ...tool, cache_control: { type: 'ephemeral' } } }
  expect(plainTools([tool, marked])).toEqual([
    { type: 'function', function: tool },
    { type: 'function', function: tool },
  ])
  for (const broken of [{}, { function: null }, { function: { name: '' } }, null]) {
    expect(() => plainTools([broken as never])).toThrow(/tools\[0\]/)
  }
})
