// Subgroups of 32 for GPUs whose own are smaller: shuffles of a shader go through workgroup memory. Its threads must all come to each
// of them.

/** What `make` compiles shuffles so. */
export async function withShuffles<T>(device: GPUDevice, make: () => Promise<T>): Promise<T> {
  const create = device.createShaderModule.bind(device)
  device.createShaderModule = descriptor => create({ ...descriptor, code: withoutShuffles(descriptor.code) })
  try {
    return await make()
  } finally {
    device.createShaderModule = create
  }
}

function withoutShuffles(code: string): string {
  const plain = code
    .replace(/subgroupShuffleXor\(/g, 'exchanged(')
    .replace(/^fn main\(.*thread: u32\) \{$/m, '$&\n  emulatedThread = thread;')
  if (/\bsubgroup[A-Z]/.test(plain)) throw new Error('a shader uses subgroups in a way that is not emulated')
  return `${plain}
var<private> emulatedThread: u32;
var<workgroup> exchange: array<vec2<f32>, WG>;
fn exchanged(value: vec2<f32>, mask: u32) -> vec2<f32> {
  workgroupBarrier();
  exchange[emulatedThread] = value;
  workgroupBarrier();
  return exchange[emulatedThread ^ mask];
}`
}
