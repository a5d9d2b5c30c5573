// Whether an answer fits the JSON schema that it was asked with, by a validator that knows nothing of how answers are made.
import { Ajv2020 } from 'ajv/dist/2020.js'

const ajv = new Ajv2020({
  strict: false,
  logger: false,
  validateSchema: false,
  addUsedSchema: false,
  ownProperties: true,
})
const validators = new Map() // by the schema's text

/** Null where it fits or the validator cannot tell, else what is wrong. */
export function schemaMisfit(schema, text) {
  let value
  try {
    value = JSON.parse(text)
  } catch (error) {
    return `is not JSON: ${error.message}`
  }
  const validate = validatorOf(schema)
  return validate === null || validate(value) ? null : ajv.errorsText(validate.errors)
}

function validatorOf(schema) {
  const key = JSON.stringify(schema)
  if (!validators.has(key)) validators.set(key, compiled(schema))
  return validators.get(key)
}

function compiled(schema) {
  try {
    return ajv.compile(schema)
  } catch {
    return null // not a schema by its book
  }
}
