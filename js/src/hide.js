/** Gives an object properties that are not enumerable. */
export function hide(object, properties) {
  for (const name in properties) Object.defineProperty(object, name, { value: properties[name] });
  return object;
}
