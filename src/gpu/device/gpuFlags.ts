// WebGPU's numeric flags. Browsers have them as globals, Dawn in Node keeps them in its module: we use our own copy.

export const bufferUsage = {
  mapRead: 0x1,
  mapWrite: 0x2,
  copySrc: 0x4,
  copyDst: 0x8,
  uniform: 0x40,
  storage: 0x80,
  queryResolve: 0x200,
} as const

export const mapMode = { read: 1, write: 2 } as const

export const SHADER_STAGE_COMPUTE = 4

/** Of buffers that experts lie in. */
export const POOL_USAGE = bufferUsage.storage | bufferUsage.copyDst
