#!/usr/bin/env node
// Records the traces that policies are chosen by (performance-log.md): some hundred tokens of several kinds of text, from the
// built-in model.
//
//   node src/lab/traces/recordTraces.mjs FOLDER
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [folder] = process.argv.slice(2)
const cli = fileURLToPath(new URL('../../../dist/apps/cli/main.js', import.meta.url))

const line = text => text.replaceAll('\n', ' ')
const user = text => `<|im_start|>user\n${text}<|im_end|>\n`
const answer = '<|im_start|>assistant\n<think>\n\n</think>\n\n'
const think = '<|im_start|>assistant\n<think>\n'
const tools =
  '<|im_start|>system\n# Tools\n\nYou may call functions to help the user.\n\n<tools>\n' +
  '{"type":"function","function":{"name":"get_weather","description":"Get the weather of a city","parameters":' +
  '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}\n</tools>\n\n' +
  'To call a function, answer with:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n' +
  '</tool_call><|im_end|>\n'
const shells =
  line(`Once upon a time there was a small village by the sea. In the village lived a boy named Ben and his sister Lily.
Every morning they walked to the beach to look for shells. One day they found a big blue shell with a hole in it. "Listen," said
Lily, "it sings!" Ben put the shell to his ear. He heard the waves and the wind. They took the shell home and showed it to their
grandma. Grandma smiled and said, "That is a very old shell. It belonged to a kind crab. You should bring it back, because he will
miss it." Ben was sad, because he liked the shell. But Lily said, "We can make a new friend." So they went back to the beach. They
called, "Crab, crab, we have your shell!" A little red crab came out of the sand. He was shy at first. Then he saw the shell and
danced with joy. "Thank you," he said. "You are good children. I will show you my secret cave." They followed the crab to a cave full
of shiny stones. The children were amazed. They played until the sun went down. Then they said goodbye and went home. `)
const manual =
  line(`The model does not fit into memory, and per token only a few of its experts are needed. Everything else is resident.
A reader thread takes the next request from the ring and reads one record at a time. Numbers are given in bytes, and a budget that
cannot hold all of them works too, only slower. If a read fails three times then the evaluation ends with an error that names the
layer, the expert, the file and the offset; the next call works if the disk does. `)
const ball = user('Tell me a story about a red ball.') + answer

/** Name → prompt, tokens, temperature. */
const recordings = {
  'story-dog': ['Once upon a time there was a little dog who', 600, 1],
  'story-tim': ['One day, a little boy named Tim', 600, 0.7],
  'story-fox': ['Once there was a fox who lived in a big forest. He', 600, 1],
  'story-wild': ['The queen looked at the dragon and', 600, 1.5],
  'story-greedy': ['Lily and Ben went to the park', 400, 0],
  'chat-mia': [user('Tell me a story about a girl named Mia.') + answer, 400, 0.7],
  'chat-who': [user('Who are you?') + answer, 200, 0.7],
  'chat-turns': [
    `${user('Hello!')}${answer}Hello! How can I help you?<|im_end|>\n${user('Tell me a story about a boat and a storm.')}${answer}`,
    400,
    1,
  ],
  'think-cat': [user('Tell me a story about a cat named Tom.') + think, 400, 0.7],
  'think-rain': [user('Write a story in which it rains.') + think, 400, 1],
  'tools-weather': [tools + user('What is the weather in Paris?') + answer, 200, 0.7],
  'long-prompt': [`${shells.repeat(3)}The next day`, 400, 1],
  'manual-prompt': [manual.repeat(4), 400, 1],
  'repeat-1': [ball, 250, 0.7],
  'repeat-2': [ball, 250, 0.7],
  'repeat-3': [ball, 250, 0.7],
}

mkdirSync(folder, { recursive: true })
for (const [i, [name, [prompt, tokens, temperature]]] of Object.entries(recordings).entries()) {
  const promptFile = join(folder, `${name}.txt`)
  writeFileSync(promptFile, prompt)
  const out = join(folder, `${name}.trace`)
  const flags = ['--tokens', tokens, '--temp', temperature, '--seed', i + 1].map(String)
  execFileSync(process.execPath, [cli, 'trace', '--prompt-file', promptFile, '-o', out, ...flags], { stdio: 'inherit' })
}
