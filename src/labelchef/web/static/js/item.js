// An item on the screen: text, image, table row, or any mix.
import { el } from "./dom.js";

/** Fill `box` with the content of an item. */
export function showItem(box, item) {
  const parts = [];
  const alone = !item.text && !Object.keys(item.fields ?? {}).length;
  if (item.image) {
    const picture = el("img", { class: alone ? "picture alone" : "picture", src: item.image, alt: item.text ? "" : `Item ${item.key}`, decoding: "async" });
    picture.addEventListener("load", () => {
      picture.classList.toggle("small", picture.naturalWidth < 320);
      picture.classList.toggle("tiny", picture.naturalWidth < 64);
    });
    picture.addEventListener("error", () => picture.replaceWith(el("p", { class: "soft" }, "The image of this item cannot be shown.")));
    parts.push(picture);
  }
  if (item.text) parts.push(el("p", { class: item.text.length > 600 ? "text long" : "text", dir: "auto" }, item.text));
  const fields = Object.entries(item.fields ?? {});
  if (fields.length) {
    const rows = fields.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { dir: "auto" }, value === null ? "–" : String(value))));
    parts.push(el("table", { class: "columns" }, el("tbody", {}, ...rows)));
  }
  if (!parts.length) parts.push(el("p", { class: "text soft" }, `Item ${item.key}`));
  box.replaceChildren(...parts);
  box.scrollTop = 0;
}

/** A validation item with its label, small. */
export function neighbour(near) {
  const title = near.text || near.key;
  if (near.image) return el("li", {}, el("img", { src: near.image, alt: `Validation item ${near.key}`, loading: "lazy", title }), el("b", {}, near.label));
  const words = near.text || Object.entries(near.fields ?? {}).map(([name, value]) => `${name} ${value}`).join(", ") || near.key;
  return el("li", {}, el("span", { class: "quote", title: words }, words), el("b", {}, near.label));
}
