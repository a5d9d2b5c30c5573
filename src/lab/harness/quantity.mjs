/** An option that must be a positive number; anything else ends the program with exit code 2. */
export function quantity(values, name) {
  const value = Number(values[name])
  if (value > 0) return value
  console.error(`--${name}: got '${values[name]}', want a number above 0`)
  process.exit(2)
}
