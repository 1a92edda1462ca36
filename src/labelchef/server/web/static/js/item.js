// An item on the screen: text, images, table row, or any mix.
import { el } from "./dom.js";
import { legend, marked } from "./highlight.js";
import { itemPath } from "./links.js";
import { t } from "./texts.js";
import { viewer } from "./viewer.js";

/** A link to the page of an item, for leads. */
export const itemLink = (campaign, item) => el("a", { href: itemPath(campaign, item) }, item);

/** Fill `box` with the content of an item; returns the viewer of its images, null where there is none. */
export function showItem(box, { item, content, highlights = [], classes = [] }) {
  const parts = [];
  const fields = Object.entries(content.fields);
  const images = content.images.length
    ? viewer(content.images, { alt: content.text ? "" : t("Item {item}", { item }), alone: !content.text && !fields.length })
    : null;
  if (images) parts.push(images.node);
  if (content.text) parts.push(el("p", { class: content.text.length > 600 ? "text long" : "text", dir: "auto" }, ...marked(content.text, highlights, classes)), ...[legend(highlights, classes)].filter(Boolean));
  if (fields.length) {
    const rows = fields.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { dir: "auto" }, value === null ? "–" : String(value))));
    parts.push(el("table", { class: "columns" }, el("tbody", {}, ...rows)));
  }
  if (!parts.length) parts.push(el("p", { class: "text soft" }, t("Item {item}", { item })));
  box.replaceChildren(...parts);
  box.scrollTop = 0;
  return images;
}

/** A validation item with its label, small. */
export function neighbour({ key, label, content }) {
  const words = content.text || Object.entries(content.fields).map(([name, value]) => `${name} ${value}`).join(", ") || key;
  const shown = content.image
    ? el("img", { src: content.image, alt: t("Validation item {key}", { key }), loading: "lazy", title: content.text || key })
    : el("span", { class: "quote", title: words }, words);
  return el("li", {}, shown, el("b", {}, label));
}
