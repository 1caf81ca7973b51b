/**
 * Fills in the defaults of options, or throws a TypeError that names all that is wrong. known has each option's
 * default, which it has the type of unless that is undefined, and what else it has to be: what is false, or throws,
 * says that it is not.
 */
export function fill(known, ...given) {
  const o = {};
  for (const name in known) o[name] = known[name][0];
  for (const [name, value] of given.flatMap(Object.entries)) if (value !== undefined) o[name] = value;
  const wrong = Object.keys(o).filter((name) => {
    try {
      const [like, check] = known[name];
      const v = o[name];
      return (
        (like !== undefined && typeof v !== typeof like) ||
        v < 0 ||
        v === Infinity ||
        v !== v ||
        (check && !check(v, o))
      );
    } catch {
      return true;
    }
  });
  if (wrong[0]) throw new TypeError(`not an option: ${wrong}`);
  return o;
}
