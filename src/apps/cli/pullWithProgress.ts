// Pulls a model with a progress bar, and says what comes next: after it is done, and when it was stopped on the way.
import { type PullOptions, type PullResult, pullModel } from '../../index.js'
import type { PullPlan } from '../../internal.js'
import type { Cli } from './action.js'
import { formatBytes, formatDuration } from './format.js'

/** `again`: the command line that goes on with it. */
export async function pullWithProgress(
  cli: Cli,
  plan: PullPlan,
  again: string,
  options: PullOptions = {},
): Promise<PullResult> {
  const bar = cli.progressBar()
  const started = performance.now()
  try {
    const result = await pullModel(plan, {
      ...options,
      signal: cli.signal,
      onProgress: progress => {
        bar.update(progress)
        options.onProgress?.(progress)
      },
      onNotice: line => cli.notice(line),
    })
    bar.clear()
    const { model: name } = result.metadata
    if (result.bytesReused === result.bytes) cli.notice(`${name} is already in the store: ${result.folder}`)
    else {
      const seconds = (performance.now() - started) / 1000
      cli.notice(
        `pulled ${name} (${formatBytes(result.bytes)} packed) in ${formatDuration(seconds)} into ${result.folder}`,
      )
    }
    return result
  } catch (error) {
    bar.clear()
    if (cli.signal.aborted) cli.notice(`stopped; the download so far is kept, and '${again}' resumes it`)
    throw error
  }
}
