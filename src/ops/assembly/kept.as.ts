// Constants that stay in a register. V8 makes a vector that it knows anew wherever it is used, with three instructions, since its
// version 13 (Node 24): one that depends on a variable it makes once. Nobody writes the variable; it is exported, so that no
// compiler can know that.

export let nothing: i32 = 0

/** The same value, made where this is called. Outside of the loop that uses it, that is. */
// @ts-ignore: decorator
@inline
export function kept(constant: v128): v128 {
  return v128.or(constant, i32x4.splat(nothing))
}
