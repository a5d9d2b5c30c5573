// A GPU that says it has matrix units and subgroups of 32. It has neither: for models none of whose matrices and heads have a shape that
// goes there, which get the buffers that such a GPU gets and the kernels of any other.
import { createNodeGpu } from '#moeflux/gpu/device/nodeGpu.js'
import '../gpu/swiftShader.js'

const CLAIMED = ['chromium-experimental-subgroup-matrix', 'shader-f16']
const matrix = { componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16 }

/** Whoever looks for a GPU while `work` runs finds this one. */
export async function withClaimedTensors<T>(work: () => Promise<T>): Promise<T> {
  const created = await createNodeGpu(false)
  if ('reason' in created) throw new Error(created.reason)
  const { gpu } = created
  const requestAdapter = async (options?: GPURequestAdapterOptions) => {
    const adapter = await gpu.requestAdapter(options)
    if (adapter === null) throw new Error('no adapter')
    return claiming(adapter)
  }
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator')
  const found = { requestAdapter, wgslLanguageFeatures: gpu.wgslLanguageFeatures }
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { gpu: found } })
  try {
    return await work()
  } finally {
    if (before) Object.defineProperty(globalThis, 'navigator', before)
    else Reflect.deleteProperty(globalThis, 'navigator')
  }
}

function claiming(adapter: GPUAdapter): GPUAdapter {
  const { maxComputeWorkgroupStorageSize: room } = adapter.limits
  const limits: Record<string, number> = {}
  for (const name in adapter.limits) limits[name] = (adapter.limits as unknown as Record<string, number>)[name]
  const { vendor, architecture, device, description } = adapter.info
  const sizes = { subgroupMinSize: 32, subgroupMaxSize: 32, subgroupMatrixConfigs: [matrix] }
  return {
    features: new Set([...adapter.features, ...CLAIMED]),
    limits: { ...limits, maxComputeWorkgroupStorageSize: 49152 },
    info: { vendor, architecture, device, description, ...sizes },
    async requestDevice({ requiredFeatures = [], requiredLimits = {}, ...rest }: GPUDeviceDescriptor = {}) {
      const made = await adapter.requestDevice({
        ...rest,
        requiredFeatures: [...requiredFeatures].filter(feature => !CLAIMED.includes(feature)),
        requiredLimits: { ...requiredLimits, maxComputeWorkgroupStorageSize: room },
      })
      // Kernels that count on the lanes of a subgroup are told the truth.
      const create = made.createShaderModule.bind(made)
      const { subgroupMaxSize } = adapter.info as GPUAdapterInfo & { subgroupMaxSize: number }
      made.createShaderModule = ({ code, ...module }) =>
        create({ ...module, code: code.replace('const LANES = 32u;', `const LANES = ${subgroupMaxSize}u;`) })
      return made
    },
  } as unknown as GPUAdapter
}
