// Matrix units for GPUs without them: rewrites shaders that use subgroup matrices and half floats into plain WGSL. A thread keeps
// what it needs of a matrix by itself: a row of a left one, eight columns of a right one, and the eight sums where these meet; a
// product then asks nobody. Half floats are rounded as they would be, and lie two to a word, so that workgroup memory is as full as
// it would be. Knows as much of the language as ops/*/tensor*.wgsl use, and throws where something is left.
const HELPERS = `
struct Left { row: array<f32, 16> }
struct Right { columns: array<f32, 128> } // eight, one behind the other
struct Sums { columns: array<f32, 8> }
var<private> emulatedLane: u32;
fn emulatedRow() -> u32 { return emulatedLane / 2u; }
fn emulatedColumn() -> u32 { return emulatedLane % 2u * 8u; }
fn halfBits(value: f32) -> u32 { return pack2x16float(vec2<f32>(value, 0.0)); }
fn asFloat(half: u32) -> f32 { return unpack2x16float(half).x; }
fn rounded(value: f32) -> f32 { return asFloat(halfBits(value)); }
fn multiplyAdd(left: Left, right: Right, sums: Sums) -> Sums {
  var result = sums;
  for (var n = 0u; n < 8u; n++) {
    for (var k = 0u; k < 16u; k++) { result.columns[n] += left.row[k] * right.columns[n * 16u + k]; }
  }
  return result;
}
`

/** Shaders of this device may use matrices from now on. */
export function emulateMatrices(device: GPUDevice): void {
  const create = device.createShaderModule.bind(device)
  device.createShaderModule = descriptor => create({ ...descriptor, code: withoutMatrices(descriptor.code) })
}

function withoutMatrices(code: string): string {
  if (!code.includes('subgroup_matrix')) return code
  const halves = [...code.matchAll(/var<workgroup> (\w+): array<f16, /g)].map(([, name]) => name)
  const eights = [...code.matchAll(/var<workgroup> (\w+): array<vec4<u32>, /g)].map(([, name]) => name)
  const floats = [
    ...code.matchAll(/var<workgroup> (\w+): array<f32, /g),
    ...code.matchAll(/var<storage, read_write> (\w+): array<f32>;/g),
  ].map(([, name]) => name)
  let plain = code
    .replace(/^enable (f16|chromium_experimental_subgroup_matrix);$/gm, '')
    .replace(/^diagnostic\(off, chromium.*$/gm, '')
    .replace(/^alias (Left|Right|Sums) = .*$/gm, '')
    .replace(/(var<workgroup> \w+: )array<f16, ([^>]+)>;/g, '$1array<u32, ($2) / 2u>;')
    .replace(/subgroupMatrixLoad<(\w+), (\w+)>\(&(\w+), /g, 'load$1_$2_$3(')
    .replace(/subgroupMatrixStore<row_major>\(&(\w+), /g, 'store_$1(')
    .replace(/subgroupMatrixMultiplyAccumulate/g, 'multiplyAdd')
    .replace(/bitcast<vec2<f16>>\(/g, 'unpack2x16float(')
    .replace(/bitcast<u32>\(fma\(/g, 'pack2x16float(fma(')
    .replace(/\bvec2<f16>/g, 'vec2<f32>')
    .replace(/(\d\.\d)h\b/g, '$1')
    .replace(/-> f16 /g, '-> f32 ')
    .replace(/\bf16\(/g, 'rounded(')
    .replace(/^fn main\(.*thread: u32\) \{$/m, '$&\n  emulatedLane = thread % 32u;')
  for (const name of halves)
    plain = plain.replace(new RegExp(`\\b${name}\\[(.+)\\] = (.+);`, 'g'), `put_${name}($1, $2);`)
  if (/subgroupMatrix|\bf16\b/.test(plain)) throw new Error('a shader uses matrices in a way that is not emulated')
  return [plain, HELPERS, ...halves.map(halfAccess), ...eights.map(eightsAccess), ...floats.map(floatAccess)].join('\n')
}

function halfAccess(name: string): string {
  return `
fn get_${name}(at: u32) -> f32 { return asFloat((${name}[at / 2u] >> (at % 2u * 16u)) & 0xffffu); }
${loads(name, 1)}
fn put_${name}(at: u32, value: f32) {
  let shift = at % 2u * 16u;
  ${name}[at / 2u] = (${name}[at / 2u] & ~(0xffffu << shift)) | (halfBits(value) << shift);
}`
}

/** Eight half floats to an element. */
function eightsAccess(name: string): string {
  return `
fn get_${name}(at: u32) -> f32 { return asFloat((${name}[at / 8u][at % 8u / 2u] >> (at % 2u * 16u)) & 0xffffu); }
${loads(name, 8)}`
}

/** `size`: half floats of an element, in which places and strides are counted. */
function loads(name: string, size: number): string {
  return `
fn loadLeft_row_major_${name}(at: u32, stride: u32) -> Left {
  var left: Left;
  for (var k = 0u; k < 16u; k++) { left.row[k] = get_${name}((at + emulatedRow() * stride) * ${size}u + k); }
  return left;
}
fn loadRight_row_major_${name}(at: u32, stride: u32) -> Right {
  var right: Right;
  for (var i = 0u; i < 128u; i++) { right.columns[i] = get_${name}((at + i % 16u * stride) * ${size}u + emulatedColumn() + i / 16u); }
  return right;
}
fn loadRight_col_major_${name}(at: u32, stride: u32) -> Right {
  var right: Right;
  for (var i = 0u; i < 128u; i++) { right.columns[i] = get_${name}((at + (emulatedColumn() + i / 16u) * stride) * ${size}u + i % 16u); }
  return right;
}`
}

function floatAccess(name: string): string {
  return `
fn loadSums_row_major_${name}(at: u32, stride: u32) -> Sums {
  var sums: Sums;
  for (var n = 0u; n < 8u; n++) { sums.columns[n] = ${name}[at + emulatedRow() * stride + emulatedColumn() + n]; }
  return sums;
}
fn store_${name}(at: u32, sums: Sums, stride: u32) {
  for (var n = 0u; n < 8u; n++) { ${name}[at + emulatedRow() * stride + emulatedColumn() + n] = sums.columns[n]; }
}`
}
