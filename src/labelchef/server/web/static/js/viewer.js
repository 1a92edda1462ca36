// Images of an item: zoom and pan by wheel, fingers, buttons and keys; several images in a strip below.
import { el } from "./dom.js";
import { t } from "./texts.js";

const MOST = 16;
const STEP = 1.5;

/**
 * `node` shows the images; `key(event)` uses a key press and tells whether it did: + − 0 zoom, [ ] change the image, arrows move
 * what is zoomed.
 */
export function viewer(addresses, { alt, alone }) {
  let shown = 0, scale = 1, x = 0, y = 0;
  const picture = el("img", { class: alone ? "picture alone" : "picture", alt, decoding: "async", draggable: "false" });
  const failed = el("p", { class: "soft", hidden: true }, t("The image of this item cannot be shown."));
  const view = el("div", { class: "view" }, picture, failed);
  const level = el("output", { class: "level num" });
  const button = (word, sign, act) => el("button", { class: "quiet", type: "button", title: word, "aria-label": word, onclick: act }, sign);
  const less = button(t("Zoom out (-)"), "−", () => zoom(1 / STEP));
  const more = button(t("Zoom in (+)"), "+", () => zoom(STEP));
  const whole = button(t("Whole image (double click)"), "↺", reset);
  const tools = el("div", { class: "tools", role: "group", "aria-label": t("Zoom") }, less, level, more, whole);
  const thumbs = addresses.map((address, k) => el("button", { class: "thumb-of", type: "button", "aria-label": t("Image {n} of {all}", { n: k + 1, all: addresses.length }), onclick: () => choose(k) },
    el("img", { src: address, alt: "", loading: "lazy" })));
  const strip = addresses.length > 1 ? el("div", { class: "thumbs", role: "group", "aria-label": t("Images") }, el("kbd", { "aria-hidden": true }, "["), ...thumbs, el("kbd", { "aria-hidden": true }, "]")) : null;
  const node = el("div", { class: alone ? "viewer alone" : "viewer" }, el("div", { class: "frame" }, view, tools), strip);

  function draw() {
    const most = [view.clientWidth, view.clientHeight].map((size) => Math.max(0, ((scale - 1) * size) / 2));
    x = Math.min(Math.max(x, -most[0]), most[0]);
    y = Math.min(Math.max(y, -most[1]), most[1]);
    picture.style.setProperty("transform", scale === 1 ? "none" : `translate(${x}px, ${y}px) scale(${scale})`);
    view.classList.toggle("zoomed", scale > 1);
    level.textContent = `${Math.round(100 * scale)} %`;
    whole.disabled = less.disabled = scale === 1;
    more.disabled = scale === MOST;
  }

  /** Make it larger by a factor, so that the point (px, py), measured from the middle, stays where it is. */
  function zoom(factor, px = 0, py = 0) {
    const next = Math.min(Math.max(scale * factor, 1), MOST);
    x = px - (px - x) * (next / scale);
    y = py - (py - y) * (next / scale);
    scale = next;
    draw();
  }

  function reset() { scale = 1; x = y = 0; draw(); }

  function choose(k) {
    shown = (k + addresses.length) % addresses.length;
    picture.hidden = false;
    failed.hidden = true;
    picture.src = addresses[shown];
    thumbs.forEach((thumb, one) => thumb.setAttribute("aria-pressed", String(one === shown)));
    reset();
  }

  const middle = (event) => {
    const box = view.getBoundingClientRect();
    return [event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2];
  };
  picture.addEventListener("load", () => {
    picture.classList.toggle("small", picture.naturalWidth < 320);
    picture.classList.toggle("tiny", picture.naturalWidth < 64);
  });
  picture.addEventListener("error", () => { picture.hidden = true; failed.hidden = false; });
  view.addEventListener("wheel", (event) => {
    if (!alone && !event.ctrlKey && scale === 1) return; // the text beside the image is scrolled
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), ...middle(event));
  }, { passive: false });
  view.addEventListener("dblclick", reset);
  const fingers = new Map();
  const spread = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY); };
  view.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, event);
    if (scale > 1 || fingers.size > 1) view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const before = fingers.size > 1 ? spread() : 0;
    fingers.set(event.pointerId, event);
    if (fingers.size > 1) zoom(spread() / Math.max(before, 1), ...middle(event));
    else if (scale > 1) { x += event.clientX - last.clientX; y += event.clientY - last.clientY; draw(); }
  });
  for (const over of ["pointerup", "pointercancel"]) view.addEventListener(over, (event) => fingers.delete(event.pointerId));

  const moved = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  function key(event) {
    if (["+", "="].includes(event.key)) zoom(STEP);
    else if (["-", "_"].includes(event.key)) zoom(1 / STEP);
    else if (event.key === "0") reset();
    else if (event.key === "[" && addresses.length > 1) choose(shown - 1);
    else if (event.key === "]" && addresses.length > 1) choose(shown + 1);
    else if (scale > 1 && event.key in moved) { x += moved[event.key][0]; y += moved[event.key][1]; draw(); }
    else return false;
    return true;
  }
  choose(0);
  return { node, key };
}
