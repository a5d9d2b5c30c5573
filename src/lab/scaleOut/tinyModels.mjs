// Packs tiny models of two families that chat, as tests make them: `node src/lab/scaleOut/tinyModels.mjs <folder>`. A process of its own,
// because what loads the tests' sources takes more memory than they do.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createServer } from 'vite'

const folder = process.argv[2]
const vite = await createServer({
  root: fileURLToPath(new URL('../../..', import.meta.url)),
  configFile: false,
  logLevel: 'error',
  appType: 'custom',
  optimizeDeps: { noDiscovery: true },
  server: { middlewareMode: true, watch: null, ws: false },
})
const { packTinyChat } = await vite.ssrLoadModule('/test/support/models/tinyChats.ts')
await packTinyChat('qwen3_moe', 'hermes', join(folder, 'second'))
await packTinyChat('qwen3_next', 'qwen3_coder', join(folder, 'third'))
await vite.close()
