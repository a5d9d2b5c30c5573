// The tables of flags in docs/cli.md: one for each command, and one for the flags that all commands with a model share.
import { Command } from 'commander'
import { wrapWords } from '../dist/apps/cli/format.js'
import { addDraftsOption, addModelOptions } from '../dist/apps/cli/modelOptions.js'
import { createProgram } from '../dist/apps/cli/program.js'
import { addSamplingOptions } from '../dist/apps/cli/samplingOptions.js'
import { table } from './modelTables.mjs'

const WIDTH = 100 // of the documents
const EVERYWHERE = ['--help', '--quiet', '--verbose']

export function flagTables() {
  const program = createProgram()
  const groups = [
    { link: '[flags of a model](#flags-of-a-model)', options: addDraftsOption(addModelOptions(new Command())).options },
    { link: '[flags of sampling](#flags-of-sampling)', options: addSamplingOptions(new Command()).options },
  ]
  const [model, sampling] = groups.map(({ options }) => tableOf(options))
  const tables = { 'flags of a model': model, 'flags of sampling': sampling }
  for (const command of program.commands.filter(each => each.name() !== 'help')) {
    tables[`flags of ${command.name()}`] = ownTable(command, groups)
  }
  return tables
}

/** What only this command has, and which of the shared flags it takes. */
function ownTable(command, groups) {
  const isIn = (options, option) => options.some(other => rowOf(other).join() === rowOf(option).join())
  const own = command.options.filter(
    option => !EVERYWHERE.includes(option.long) && !groups.some(({ options }) => isIn(options, option)),
  )
  const also = groups.flatMap(({ link, options }) => {
    const missing = options.filter(option => !isIn(command.options, option))
    if (missing.length === options.length) return []
    const names = missing
      .filter(option => !own.some(({ long }) => long === option.long))
      .map(({ long }) => `\`${long}\``)
    return names.length === 0 ? link : `${link} (without ${names.join(', ')})`
  })
  const rest = also.length === 0 ? '' : paragraph(`The command also takes the ${also.join(' and the ')}.`)
  if (own.length === 0) return rest === '' ? 'This command has no flags of its own.\n' : rest
  return rest === '' ? tableOf(own) : `${tableOf(own)}\n${rest}`
}

function paragraph(text) {
  return `${wrapWords(text, WIDTH).join('\n')}\n`
}

function tableOf(options) {
  return table(['flag', 'means'], options.map(rowOf))
}

function rowOf(option) {
  const means = new Command().createHelp().optionDescription(option)
  return [`\`${option.flags}\``, means].map(cell => cell.replaceAll('|', '\\|'))
}
