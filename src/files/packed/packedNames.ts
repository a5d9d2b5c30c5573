// The names of the files in a packed folder.

export const CONFIG_NAME = 'config.json'
export const GENERATION_CONFIG_NAME = 'generation_config.json'
export const WEIGHTS_NAME = 'model_weights.bin'
export const MANIFEST_NAME = 'model_weights.json'
export const METADATA_NAME = 'moeflux.json'
/** There while a conversion is under way; moeflux.json is there once it is done. */
export const JOURNAL_NAME = 'converting.json'

/** Held by the process that converts. */
export const LOCK_NAME = 'converting.lock'

export type ExpertSetName = 'packed_experts' | 'packed_experts_2bit'

/** Checksums of blocks of model_weights.bin, and of the experts of a set. */
export const WEIGHTS_CHECKSUMS_NAME = 'model_weights.sums'

export function expertChecksumsName(set: ExpertSetName): string {
  return `${set}.sums`
}

/** Small files that are copied as they are, where a source has them. config.json may get a quantization block. */
export const COPIED_NAMES: readonly string[] = [
  'tokenizer.json',
  'tokenizer_config.json',
  GENERATION_CONFIG_NAME,
  'chat_template.jinja',
  'chat_template.json',
]

export function expertFileName(set: ExpertSetName, layer: number): string {
  return `${set}/layer_${String(layer).padStart(2, '0')}.bin`
}

/** Whether a conversion writes files of this name. */
export function isPackedName(name: string): boolean {
  const plain = [CONFIG_NAME, WEIGHTS_NAME, WEIGHTS_CHECKSUMS_NAME, MANIFEST_NAME, METADATA_NAME, ...COPIED_NAMES]
  return plain.includes(name) || /^packed_experts(_2bit)?(\/layer_\d{2,}\.bin|\.sums)$/.test(name)
}
