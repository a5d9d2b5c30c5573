// Opens the model that the flags name, with a progress bar and the notices of what was chosen on the way.
import { type Model, type OpenModelOptions, UsageError } from '../../index.js'
import { DEMO_NAME, openModelWith } from '../../internal.js'
import type { Cli } from './action.js'
import { forgetAdapter, reasonAgainstGpu } from './adapterHere.js'
import { findOrPull } from './findOrPull.js'
import type { ModelOptions } from './modelOptions.js'

export async function openCliModel(
  cli: Cli,
  options: ModelOptions,
  more: Pick<OpenModelOptions, 'planFor' | 'onProgress' | 'signal'> = {},
): Promise<Model> {
  refuseIdleFlags(options)
  const path = await findOrPull(cli, options.model ?? DEMO_NAME, options.yes === true)
  const bar = cli.progressBar()
  try {
    const known: OpenModelOptions = {
      backend: options.backend,
      precision: options.precision,
      threads: options.threads,
      expertMemory: options.expertMemory,
      gpuMemory: options.gpuMemory,
      expertsPerToken: options.expertsPerToken,
      expertBits: options.expertBits,
      contextLength: options.context,
      expertReads: options.expertReads,
      prefetch: options.prefetch,
      checksums: options.checksums,
      modelCache: options.modelCache,
      drafts: options.drafts,
      planFor: more.planFor,
      onProgress: progress => {
        bar.update(progress)
        more.onProgress?.(progress)
      },
      onNotice: line => cli.notice(line),
      signal: more.signal === undefined ? cli.signal : AbortSignal.any([cli.signal, more.signal]),
    }
    const { backend } = options
    const mayUseGpu = backend === 'auto' || backend === 'webgpu'
    const noGpu = (mayUseGpu && (await reasonAgainstGpu(cli, backend))) || undefined
    const model = await openModelWith(path, known, { profile: options.profile, noGpu })
    if (noGpu === undefined && options.backend === 'auto' && model.backend !== 'webgpu') await forgetAdapter()
    cli.detail(`${model.name}: ${model.backendDescription}`)
    return model
  } finally {
    bar.clear()
  }
}

/** A flag that cannot act is a mistake better told than ignored. */
function refuseIdleFlags({ backend, precision, threads, expertReads, prefetch }: ModelOptions): void {
  if (backend !== 'reference') return
  if (precision === 'fast') throw new UsageError('--precision fast: the reference backend computes in float32 only')
  if (threads !== undefined) throw new UsageError('--threads: the reference backend uses no threads')
  if (expertReads !== undefined) throw new UsageError('--expert-reads: the reference backend reads buffered only')
  if (!prefetch) throw new UsageError('--no-prefetch: the reference backend never reads ahead')
}
