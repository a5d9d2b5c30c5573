// Finds an adapter and opens a device on it, the same for Dawn in Node and for browsers. Describes
// the adapter (for `doctor` and `auto`), and requests the limits and features that kernels can use;
// works with the WebGPU defaults too.
import { BackendUnavailableError, DeviceLostError, messageOf } from '../../base/errors.js'
import type { SubgroupSizes } from './gpuContext.js'

export interface AdapterDescription {
  readonly name: string // 'NVIDIA H200'
  readonly vendor: string
  readonly architecture: string
  readonly driver: string
  readonly software: boolean // runs on the CPU: `auto` never takes it
  /** It has memory that is not the machine's, as far as names tell. */
  readonly ownMemory: boolean
  readonly subgroupSizes: readonly [number, number] | null // [min, max], null without subgroups
  readonly packedDot: boolean
  readonly features: readonly string[]
  readonly limits: Readonly<Record<string, number>>
}

export interface DeviceOptions {
  /** Leave all limits at the WebGPU minimum, as the smallest adapters have them. */
  readonly defaultLimits?: boolean
  /** false: use the portable kernels even where the adapter has subgroups. */
  readonly subgroups?: boolean
  /** false: unpack int8 products by hand even where WGSL has packed dot products. */
  readonly packedDot?: boolean
  /** true: let Dawn check every access of a shader, as browsers always do. */
  readonly checks?: boolean
  /** false: leave the GPU's matrix units alone. */
  readonly tensors?: boolean
  /** For tests: gets the device before anything is made on it. */
  readonly onDevice?: (device: GPUDevice) => void
}

export interface GpuDevice {
  readonly device: GPUDevice
  readonly description: AdapterDescription
  /** Threads that share a row's sum in mat-vec kernels; no smaller than the largest subgroup. */
  readonly subgroups: SubgroupSizes | null
  readonly packedDot: boolean
  readonly checks: boolean
  readonly tensors: boolean // matrix units, as tensorMul wants them
  /** Stops the thread, where waiting for the GPU is asking it in every turn of the event loop; else null. */
  readonly sleep: ((ms: number) => void) | null
  readonly timestamps: boolean
  readonly limits: GPUSupportedLimits
  /** Why the device is gone, once it is. */
  readonly failure: DeviceLostError | null
  /** Throws DeviceLostError once the device is gone. */
  check(): void
  /** Rejects when the device is lost; never resolves. */
  readonly lost: Promise<never>
  close(): void
}

export interface ProbedAdapter {
  readonly usable: boolean
  readonly reason: string
  readonly adapter: AdapterDescription | null
}

/**
 * Whether `auto` should take the GPU, and why in a few words. Opens no device; null: no adapter.
 */
export async function probeAdapters(): Promise<ProbedAdapter> {
  const found = await findAdapter()
  if ('reason' in found) return { usable: false, reason: found.reason, adapter: null }
  const adapter = describe(found.gpu, found.adapter)
  if (adapter.software) return { usable: false, reason: `${adapter.name} is a software adapter`, adapter }
  return { usable: true, reason: `${adapter.name} is a GPU`, adapter }
}

/** What kernels make use of beyond what WebGPU promises. */
const MOST = { maxStorageBuffersPerShaderStage: 10, maxComputeWorkgroupStorageSize: 49152 }

export async function openDevice(options: DeviceOptions = {}): Promise<GpuDevice> {
  const found = await findAdapter(options.checks)
  if ('reason' in found) throw new BackendUnavailableError('webgpu', found.reason, { absent: true })
  let gpu: GPU | null = found.gpu
  const { adapter } = found
  const description = describe(gpu, adapter)
  const useSubgroups = options.subgroups !== false && description.subgroupSizes !== null
  const timestamps = adapter.features.has('timestamp-query')
  const requiredFeatures: GPUFeatureName[] = []
  if (useSubgroups) requiredFeatures.push('subgroups')
  if (timestamps) requiredFeatures.push('timestamp-query')
  const requiredLimits: Record<string, number> = {}
  const tensors =
    useSubgroups && options.tensors !== false && !options.defaultLimits && hasTensors(adapter, description)
  if (tensors) requiredFeatures.push(...(TENSOR_FEATURES as GPUFeatureName[]))
  if (!options.defaultLimits) {
    for (const name of ['maxBufferSize', 'maxStorageBufferBindingSize'] as const) {
      requiredLimits[name] = adapter.limits[name]
    }
    for (const [name, most] of Object.entries(MOST) as [keyof typeof MOST, number][]) {
      requiredLimits[name] = Math.min(adapter.limits[name], most)
    }
  }
  let device: GPUDevice
  try {
    device = await adapter.requestDevice({ label: 'moeflux', requiredFeatures, requiredLimits })
  } catch (error) {
    throw new BackendUnavailableError('webgpu', `${description.name} gives no device: ${messageOf(error)}`, {
      cause: error,
    })
  }
  options.onDevice?.(device)
  let lostWith: DeviceLostError | null = null
  let closed = false
  const lost = device.lost.then(info => {
    lostWith ??= new DeviceLostError('webgpu', closed ? 'the device was closed' : info.message || 'the device was lost')
    throw lostWith
  })
  lost.catch(() => {}) // whoever waits for it sees it
  // A refused command would leave wrong numbers behind: nothing that follows it is to be trusted.
  device.addEventListener('uncapturederror', event => {
    const { message } = (event as GPUUncapturedErrorEvent).error
    lostWith ??= new DeviceLostError('webgpu', `the GPU refused a command: ${message}`)
  })
  return {
    device,
    description,
    subgroups: useSubgroups ? { minSize: description.subgroupSizes![0], maxSize: description.subgroupSizes![1] } : null,
    packedDot: description.packedDot && options.packedDot !== false,
    checks: found.checks,
    sleep: found.sleep,
    tensors,
    timestamps,
    limits: device.limits,
    get failure() {
      return lostWith
    },
    check() {
      if (lostWith !== null) throw lostWith
      if (gpu === null) throw new DeviceLostError('webgpu', 'the device was closed')
    },
    lost,
    close() {
      if (closed) return
      closed = true
      device.destroy()
      gpu = null
    },
  }
}

interface FoundAdapter {
  readonly gpu: GPU
  readonly adapter: GPUAdapter
  readonly checks: boolean // accesses of shaders are
  readonly sleep: ((ms: number) => void) | null
}

async function findAdapter(wantsChecks = false): Promise<FoundAdapter | { reason: string }> {
  let gpu: GPU | undefined = globalThis.navigator?.gpu
  const checks = wantsChecks || gpu !== undefined
  let sleep: FoundAdapter['sleep'] = null
  if (gpu === undefined && globalThis.process?.versions?.node !== undefined) {
    const { createNodeGpu } = await import('./nodeGpu.js')
    const created = await createNodeGpu(checks)
    if ('reason' in created) return created
    gpu = created.gpu
    sleep = created.sleep
  }
  if (gpu === undefined) return { reason: 'this browser has no WebGPU (navigator.gpu is missing)' }
  let adapter: GPUAdapter | null
  try {
    adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' })
  } catch (error) {
    return { reason: `asking for an adapter failed: ${messageOf(error)}` }
  }
  if (adapter === null) return { reason: 'no GPU adapter (no driver, or one that WebGPU cannot use)' }
  return { gpu, adapter, checks, sleep }
}

const TENSOR_FEATURES = ['chromium-experimental-subgroup-matrix', 'shader-f16']

interface MatrixConfig {
  readonly componentType: string
  readonly resultComponentType: string
  readonly M: number
  readonly N: number
  readonly K: number
}

/** Half floats multiplied and float32 added up by matrices of 16 x 16, in subgroups of 32. */
function hasTensors({ features, limits, info }: GPUAdapter, { subgroupSizes }: AdapterDescription): boolean {
  const { subgroupMatrixConfigs = [] } = info as { subgroupMatrixConfigs?: Iterable<MatrixConfig> }
  const isApt = ({ componentType, resultComponentType, M, N, K }: MatrixConfig) =>
    componentType === 'f16' && resultComponentType === 'f32' && M === 16 && N === 16 && K === 16
  return (
    TENSOR_FEATURES.every(feature => features.has(feature)) &&
    limits.maxComputeWorkgroupStorageSize >= MOST.maxComputeWorkgroupStorageSize &&
    subgroupSizes?.every(size => size === 32) === true &&
    [...subgroupMatrixConfigs].some(isApt)
  )
}

function describe(gpu: GPU, adapter: GPUAdapter): AdapterDescription {
  const info = adapter.info as GPUAdapterInfo & { subgroupMinSize?: number; subgroupMaxSize?: number }
  const limits: Record<string, number> = {}
  for (const name in adapter.limits) {
    const value = (adapter.limits as unknown as Record<string, unknown>)[name]
    if (typeof value === 'number') limits[name] = value
  }
  const features = [...adapter.features].sort()
  const min = info.subgroupMinSize ?? 0
  const max = info.subgroupMaxSize ?? 0
  const software =
    info.isFallbackAdapter === true ||
    /swiftshader|llvmpipe|lavapipe|basic render|warp/i.test(`${info.architecture} ${info.device} ${info.description}`)
  return {
    name:
      info.device && !/^0x/.test(info.device)
        ? info.device
        : info.description || info.architecture || info.vendor || 'unnamed adapter',
    vendor: info.vendor,
    architecture: info.architecture,
    driver: info.description,
    software,
    ownMemory: !software && hasOwnMemory(info),
    // 4 to 128 is what WGSL allows; anything else is a driver that does not know its own size.
    subgroupSizes: features.includes('subgroups') && min >= 4 && max <= 128 && max >= min ? [min, max] : null,
    packedDot: gpu.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product') ?? false,
    features,
    limits,
  }
}

/**
 * Whether a GPU has memory of its own, by its names: WebGPU does not say. Only what is surely a
 * card counts as one: on a GPU that shares the machine's memory, taking all of it would starve
 * everything else; the other mistake costs some room.
 */
export function hasOwnMemory(
  info: Pick<GPUAdapterInfo, 'vendor' | 'architecture' | 'device' | 'description'>,
): boolean {
  const name = `${info.device} ${info.description}`
  if (/nvidia/i.test(info.vendor)) return !/tegra|jetson|orin|xavier|thor|gb10/i.test(name)
  if (/amd|ati/i.test(info.vendor)) return /radeon (rx|vii|pro (w|v|vii|duo))|instinct|firepro/i.test(name)
  if (/intel/i.test(info.vendor)) return /hpg|hpc/i.test(info.architecture) || /arc\W.*\b[ab]\d{2,3}\b/i.test(name)
  return false
}
