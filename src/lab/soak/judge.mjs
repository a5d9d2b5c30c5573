// Whether a reply is right for its request: its status, its shape, its end, and its text where that is known. Says what
// is wrong in a line, or null.
import { ANSWER_PATHS, answerKey, readAnswer, readRefusal } from '../harness/answers.mjs'
import { schemaMisfit } from '../harness/schemaFit.mjs'

/**
 * What the engine may say of an expert that it cannot read, or whose bytes are not those that the folder's checksums name.
 * OpenAI's errors have the code; Anthropic's have only the words.
 */
const READ_FAULT_CODE = /^(expert_|read_failed)/
const READ_FAULT_WORDS = /^expert \d+ of layer \d+:/

const STATUS_OF_TYPE = { invalid_request_error: 400, rate_limit_error: 429 }

/**
 * `during`: isFileBroken (a model file was cut or overwritten at some time of the exchange), isStopping, secretPath (must
 * be in no reply). Returns `{ label, problem, isCompared }`.
 */
export function judge(request, reply, during) {
  const { end, status } = reply
  const verdict = (label, problem = null, more = {}) => ({ label, problem, isCompared: false, ...more })
  const isWrong = problem => verdict('wrong', problem)
  if (end === 'given up') return verdict('given up')
  if (end === 'late') return isWrong(`no end after ${Math.round(reply.milliseconds)} ms`)
  try {
    if (reply.text.includes(during.secretPath)) return isWrong('the reply tells a path of this machine')
    // A stream that has begun can still end in what should have been its status.
    const isStream = reply.headers['content-type']?.startsWith('text/event-stream') === true
    const isExpected = request.statuses.includes(status) || (status === 200 && isStream)
    if (end === 'left') {
      const isExcused = (status === 500 && during.isFileBroken) || (status === 503 && during.isStopping)
      const isRight = status === null || isExcused || isExpected
      return isRight ? verdict('left') : isWrong(`status ${status}: ${reply.text.slice(0, 200)}`)
    }
    if (during.isStopping && (end !== 'whole' || status === 503)) return verdict('stopped')
    if (end !== 'whole') {
      if (request.mayBreak || (request.readsModelFile && during.isFileBroken)) return verdict('broken off')
      return isWrong(status === null ? `closed without a reply (${reply.error})` : `broken off (${reply.error})`)
    }
    if (!isExpected) {
      if (isReadFault(request, reply, during)) return verdict('read fault')
      return isWrong(`status ${status}: ${reply.text.slice(0, 200)}`)
    }
    if (status >= 400) return refusal(request, reply, verdict, isWrong)
    if (request.wantBytes !== undefined) {
      const isRight = during.isFileBroken || request.wantBytes.equals(reply.bytes)
      return isRight ? verdict(String(status)) : isWrong('other bytes than the file has')
    }
    if (!ANSWER_PATHS.includes(request.path)) return verdict(String(status))
    const answer = readAnswer(request.path, reply)
    if (!answer.isEnded)
      return during.isStopping ? verdict('stopped') : isWrong('the stream ends without its end event')
    if (answer.error !== null) {
      if (during.isStopping) return verdict('stopped')
      if (isReadFault(request, reply, during, answer.error)) return verdict('read fault')
      // What took longer than the headers can wait is told by an event; it must be what the status would have been.
      const code = STATUS_OF_TYPE[answer.error.type]
      if (request.statuses.includes(code)) return verdict(`${code} in the stream`)
      return isWrong(`an error in the stream: ${JSON.stringify(answer.error).slice(0, 200)}`)
    }
    if (!request.statuses.includes(200)) return isWrong('answered, and should have been refused')
    return answerVerdict(request, answer, verdict, isWrong)
  } catch (error) {
    return isWrong(`the reply cannot be read: ${error.message}`)
  }
}

function refusal(request, reply, verdict, isWrong) {
  if (reply.status === 429 && reply.headers['retry-after'] === undefined) return isWrong('429 without retry-after')
  readRefusal(request.path, reply)
  return verdict(String(reply.status))
}

function answerVerdict({ entry, schema = entry?.schema }, answer, verdict, isWrong) {
  const [{ text, finish }] = answer.choices
  if (schema !== undefined && (finish === 'stop' || finish === 'end_turn')) {
    const misfit = schemaMisfit(schema, text)
    if (misfit !== null) return isWrong(`the answer does not fit its schema: ${misfit}: ${text.slice(0, 200)}`)
  }
  if (entry?.right === undefined) return verdict('200')
  const key = answerKey(answer)
  if (key === entry.right) return verdict('200', null, { isCompared: true })
  return verdict('wrong answer', `answered ${key.slice(0, 300)}, right is ${entry.right.slice(0, 300)}`)
}

/** A 500, or an error in a stream, that says that an expert could not be read, while its file was broken. */
function isReadFault(request, reply, during, inStream = null) {
  if (!during.isFileBroken || (inStream === null && reply.status !== 500)) return false
  if (request.readsModelFile) return true
  const { code, message } = inStream ?? readRefusal(request.path, reply)
  return READ_FAULT_CODE.test(code ?? '') || READ_FAULT_WORDS.test(message)
}
