// Writes the parts of the documents that follow from the program: tables of models and of flags. Each stands between
// `<!-- written: NAME -->` and `<!-- end -->`. The build comes first.
//   node scripts/writeDocs.mjs [--check]      --check writes nothing, names documents that differ, and ends with 1 if there are any
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { flagTables } from './flagTables.mjs'
import { modelTables } from './modelTables.mjs'
import { writeChanged } from './writeChanged.mjs'

const PART = /(<!-- written: ([^>]*) -->\n)[\s\S]*?(<!-- end -->)/g

/** The document with its parts as they should be. Each part must have its place, and each place its part. */
function rewritten(name, text, parts) {
  const missing = new Set(Object.keys(parts))
  const after = text.replace(PART, (_, begin, part, end) => {
    if (!missing.delete(part)) throw new Error(`${name}: there is no part '${part}', or it is there twice`)
    return `${begin}\n${parts[part]}\n${end}`
  })
  if (missing.size > 0) throw new Error(`${name}: no place for ${[...missing].map(each => `'${each}'`).join(', ')}`)
  return after
}

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
for (const [name, parts] of Object.entries({ ...modelTables(), 'docs/cli.md': flagTables() })) {
  const file = join(root, name)
  const text = readFileSync(file, 'utf8')
  const after = rewritten(name, text, parts)
  if (!process.argv.includes('--check')) writeChanged(file, after)
  else if (after !== text) {
    console.error(`${name} is not what the program says: node scripts/writeDocs.mjs writes it anew`)
    process.exitCode = 1
  }
}
