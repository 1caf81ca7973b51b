/**
 * Fills in the defaults of options, those of others first, or throws a TypeError that names all that is wrong. known
 * has each option's default, which it has the type of unless that is undefined, and what else it has to be: what is
 * false, or throws, says that it is not.
 */
export function fill(known, given, others = {}) {
  const options = {};
  const wrong = Object.keys({ ...known, ...others, ...given }).filter((name) => {
    try {
      const [like, check] = known[name];
      const { [name]: v = others[name] ?? like } = given;
      options[name] = v;
      return (
        (like !== undefined && typeof v !== typeof like) ||
        v < 0 ||
        v === Infinity ||
        v !== v ||
        (check && !check(v, options))
      );
    } catch {
      return true;
    }
  });
  if (wrong[0]) throw new TypeError(`not an option: ${wrong}`);
  return options;
}
