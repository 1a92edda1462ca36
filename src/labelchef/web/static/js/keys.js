// Which key votes for which class.

/** Keys in the order of the classes. Digits name themselves; else 1–9 and 0; classes beyond the tenth have none. */
export function classKeys(names) {
  if (names.length <= 10 && names.every((name) => /^[0-9]$/.test(name))) return [...names];
  return names.map((_, position) => (position < 9 ? String(position + 1) : position === 9 ? "0" : null));
}
