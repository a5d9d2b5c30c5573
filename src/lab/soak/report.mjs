// The report of a soak for people.

export function printReport(report) {
  const { healthMs, gauges, stop } = report
  const mib = bytes => `${Math.round(bytes / 2 ** 20)} MiB`
  const health = ({ count, p50, p99, p999, max }) =>
    `${count} polls, p50 ${p50} ms, p99 ${p99} ms, p99.9 ${p999} ms, max ${max} ms`
  const gauge = (name, show = String) => {
    const { second, last, peak } = gauges[name]
    return `${show(second)} in the second quarter, ${show(last)} in the last, peak ${show(peak)}`
  }
  const lines = [
    `seed ${report.seed}: ${report.clients} clients for ${report.seconds} s, ${report.threads} threads, ${report.requests} requests`,
    ...Object.entries(report.outcomes).map(([kind, labels]) => `  ${kind}: ${counts(labels)}`),
    `compared with right answers: ${report.compared}, all the same unless listed below`,
    `answers: p50 ${report.answerMs.p50} ms, p99 ${report.answerMs.p99} ms, max ${report.answerMs.max} ms`,
    `/health: ${health(healthMs.server)}`,
    `  without the time that it waited for a processor: ${health(healthMs.own)}`,
    `  a server that does nothing, beside it: ${health(healthMs.idle)}`,
    `its main thread waited for a processor ${Math.round(100 * report.processorWait.share)} % of the time, at most ${report.processorWait.mostMsInASecond} ms in a second`,
    `memory: ${gauge('memoryBytes', mib)}`,
    `handles: ${gauge('handles')}`,
    `threads: ${gauge('threads')}`,
    `faults: ${counts(report.faults)}`,
    `SIGTERM: ${stop === null ? 'not sent' : `exit code ${stop.code} after ${stop.milliseconds} ms`}`,
    `${report.problems.length} problems`,
    ...report.problems.slice(0, 50).map(({ kind, problem, what, again }) => {
      return `  ${kind}${what ? ` (${what})` : ''}: ${problem}${again ? `\n    ${again}` : ''}`
    }),
  ]
  if (report.folder !== null) lines.push(`problems.jsonl and server.log are in ${report.folder}`)
  console.log(lines.join('\n'))
}

function counts(labels) {
  return Object.entries(labels)
    .map(([label, count]) => `${label} ${count}`)
    .join(', ')
}
