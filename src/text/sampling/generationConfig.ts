// How a model's makers want its tokens to be chosen: generation_config.json. Values that make no sense are left out, as
// the file is only advice.
import type { Folder } from '../../files/source.js'
import { parseJson } from '../tokenizer/tokenizer.js'
import type { SamplerOptions } from './sampler.js'

export async function readGenerationConfig(folder: Folder): Promise<SamplerOptions> {
  const text = await folder.readText('generation_config.json')
  return text === null ? {} : parseGenerationConfig(parseJson(text, 'generation_config.json'))
}

export function parseGenerationConfig(json: unknown): SamplerOptions {
  if (json === null || typeof json !== 'object') return {}
  const fields = new Map(Object.entries(json))
  const number = (name: string, low: number, high: number) => {
    const value = fields.get(name)
    return typeof value === 'number' && value >= low && value <= high ? value : undefined
  }
  const topK = number('top_k', 0, 2 ** 31)
  return {
    temperature: fields.get('do_sample') === false ? 0 : number('temperature', 0, 100),
    topK: topK === undefined ? undefined : Math.floor(topK),
    topP: number('top_p', 0, 1),
    minP: number('min_p', 0, 1),
    repetitionPenalty: number('repetition_penalty', 0.01, 100),
  }
}
