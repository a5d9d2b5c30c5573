// For what opens the webgpu backend with `way`: experts that are not on the GPU are brought there, and the processors compute none.
export const uploadWay = threads => ({
  way: 'upload',
  threads,
  usesToPay: 4,
  prompts: { uploadFromTokens: 2 },
  line: '',
})
