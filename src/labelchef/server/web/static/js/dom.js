// Elements from code. Text is always text: nothing here parses HTML.

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

/** An element with attributes and children; strings become text. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An element of a drawing, as `el` makes those of the page. */
export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** A cell with a number; the head of a table whose columns from `from` on have numbers; a box for a table that may be wider than the page. */
export const right = (...parts) => el("td", { class: "right" }, ...parts);
export const head = (words, from = 1) => el("thead", {}, el("tr", {}, ...words.map((word, k) => el("th", { scope: "col", class: k < from ? null : "right" }, word))));
export const scroll = (name, table) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, table);

let toastTimer;
/** A short message that goes by itself. Screen readers hear it from #said, which is on every page from the start. */
export function toast(message, { bad = false, seconds = 4 } = {}) {
  let node = $("#toast");
  if (!node) {
    node = el("div", { id: "toast", class: "toast", "aria-hidden": "true" });
    document.body.append(node);
  }
  node.classList.toggle("bad", bad);
  node.textContent = message;
  node.hidden = false;
  const said = $("#said");
  said.textContent = "";
  setTimeout(() => { said.textContent = message; }, 50); // the same message twice is told twice
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { node.hidden = true; }, seconds * 1000);
}

/** Whether a key press belongs to a field and not to the page. */
export const typing = (event) =>
  event.target instanceof HTMLElement && (event.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName));
