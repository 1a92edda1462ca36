// An item on the screen: text, image, table row, or any mix.
import { el } from "./dom.js";

/** A link to the page of an item, for leads. */
export const itemLink = (campaign, item) => el("a", { href: `/c/${encodeURIComponent(campaign)}/lead/items/${encodeURIComponent(item)}` }, item);

/** Fill `box` with the content of an item. */
export function showItem(box, { item, content }) {
  const parts = [];
  const fields = Object.entries(content.fields);
  if (content.image) {
    const alone = !content.text && !fields.length;
    const picture = el("img", { class: alone ? "picture alone" : "picture", src: content.image, alt: content.text ? "" : `Item ${item}`, decoding: "async" });
    picture.addEventListener("load", () => {
      picture.classList.toggle("small", picture.naturalWidth < 320);
      picture.classList.toggle("tiny", picture.naturalWidth < 64);
    });
    picture.addEventListener("error", () => picture.replaceWith(el("p", { class: "soft" }, "The image of this item cannot be shown.")));
    parts.push(picture);
  }
  if (content.text) parts.push(el("p", { class: content.text.length > 600 ? "text long" : "text", dir: "auto" }, content.text));
  if (fields.length) {
    const rows = fields.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { dir: "auto" }, value === null ? "–" : String(value))));
    parts.push(el("table", { class: "columns" }, el("tbody", {}, ...rows)));
  }
  if (!parts.length) parts.push(el("p", { class: "text soft" }, `Item ${item}`));
  box.replaceChildren(...parts);
  box.scrollTop = 0;
}

/** A validation item with its label, small. */
export function neighbour({ key, label, content }) {
  const words = content.text || Object.entries(content.fields).map(([name, value]) => `${name} ${value}`).join(", ") || key;
  const shown = content.image
    ? el("img", { src: content.image, alt: `Validation item ${key}`, loading: "lazy", title: content.text || key })
    : el("span", { class: "quote", title: words }, words);
  return el("li", {}, shown, el("b", {}, label));
}
