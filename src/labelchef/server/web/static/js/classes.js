// Names of classes, whatever their length.
import { el } from "./dom.js";

/** A name with places where a line may end after _ / and . */
export const nameOf = (name) => el("span", { class: "name" }, ...name.split(/(?<=[_/.])/).flatMap((part, k) => (k ? [el("wbr"), part] : [part])));

/** Let the columns of a list of classes be as wide as the longest word, so that no word is broken. */
export function fitNames(box, names) {
  const words = names.flatMap((name) => name.split(/(?<=[_/.])|[\s-]+/)).map((word) => word.length);
  box.classList.toggle("short", names.every((name) => name.length <= 3));
  box.classList.toggle("wordy", names.some((name) => name.length > 28));
  box.style.setProperty("--word", `${Math.min(Math.max(...words, 1), 30)}ch`);
}
