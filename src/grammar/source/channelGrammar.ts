// The grammar of a whole answer that is messages on channels: thinking first, if the model likes, then one message that is text
// or a call. The control tokens between them are part of the grammar, so that there is nothing beside it to keep track of.

import { MAX_CODE } from '../automaton/byteAutomaton.js'
import type { GrammarBuilder, Node } from './grammarBuilder.js'
import type { ChannelSource, TextSource } from './sourceKinds.js'

const MOST_THOUGHTS = 4 // messages: a model could go on with them for ever

export function channelGrammar(
  builder: GrammarBuilder,
  { layout, text, marks }: ChannelSource,
  textGrammar: (source: TextSource) => Node,
  call: Node | null,
): Node {
  const anything = builder.repeat(builder.charClass([[0, MAX_CODE]]), 0)
  const { open, close } = layout.thinking
  const thought = builder.sequence([builder.marked(open, marks), anything, builder.marked(close, marks)])
  const answers = call === null ? [] : [call]
  if (text !== null) {
    const words = text.grammar === null ? anything : textGrammar(text.grammar)
    answers.push(builder.sequence([builder.marked(layout.text, marks), words]))
  }
  return builder.sequence([builder.repeat(thought, 0, MOST_THOUGHTS), builder.choice(answers)])
}
