// Which keys vote for which class.

const SECOND = "1234567890qwertyuiop"; // second keys beyond 99 classes: the two upper rows of a keyboard
const SECONDS = 3;

/**
 * The code of each class, in the order of the classes: one key for up to ten classes (digits name themselves, else 1–9 and 0),
 * two digits for up to 99, a digit and a key of the upper rows for up to 200; classes beyond have none (null).
 */
export function classKeys(names) {
  if (names.length <= 10 && names.every((name) => /^[0-9]$/.test(name))) return [...names];
  if (names.length <= 10) return names.map((_, position) => String((position + 1) % 10));
  if (names.length <= 99) return names.map((_, position) => String(position + 1).padStart(2, "0"));
  return names.map((_, position) => (position < 200 ? String((Math.floor(position / 20) + 1) % 10) + SECOND[position % 20] : null));
}

/** Reads the codes of classes, one key after the other. */
export class CodeReader {
  /** `pending(first)` is told the first key of a code that is not complete, and "" when it is over. */
  constructor(names, pending = () => {}) {
    this.codes = classKeys(names);
    this.first = "";
    this.pending = pending;
    this.timer = null;
  }

  /** What a key means: the position of a class, -1 if it belongs to a code but votes for nothing (yet), null if to none. */
  press(key) {
    if (this.first) {
      if (["Shift", "CapsLock"].includes(key)) return -1;
      const position = this.codes.indexOf(this.first + key.toLowerCase());
      this.clear();
      return position;
    }
    const position = this.codes.indexOf(key);
    if (position >= 0) return position;
    if (!this.codes.some((code) => code?.length === 2 && code[0] === key)) return null;
    this.first = key;
    this.timer = setTimeout(() => this.clear(), 1000 * SECONDS);
    this.pending(key);
    return -1;
  }

  clear() {
    clearTimeout(this.timer);
    if (!this.first) return;
    this.first = "";
    this.pending("");
  }
}
