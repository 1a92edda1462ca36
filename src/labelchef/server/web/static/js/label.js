// The Label page: one key stores a vote and shows the next item.
import { call, campaignPath } from "./api.js";
import { fitNames, nameOf } from "./classes.js";
import { clock } from "./clock.js";
import { $, $$, el, toast, typing } from "./dom.js";
import { Guidance } from "./guidance.js";
import { neighbour, showItem } from "./item.js";
import { CodeReader } from "./keys.js";
import { watch } from "./live.js";
import { Outbox } from "./outbox.js";
import { t } from "./texts.js";

const root = $("#label");
const campaign = root.dataset.campaign;
const HELD = 3; // items reserved at once: the one on the screen and the next ones
let queue = [];
let current = null;
let drawnFor = null; // the class list the buttons were drawn for
let codes = new CodeReader([]);
let images = null; // the viewer of the item's images
let descriptions = new Map(); // class → what it means, in a line
let hidden = readHidden();
let undoing = false;
let undoId = null; // the same until the server has answered, so that only one vote is taken back
let sleeping = null;

const outbox = new Outbox({
  report: (state) => {
    $("#saved").textContent = { saving: t("saving…"), saved: t("saved"), retrying: t("no connection – trying again") }[state];
    $("#saved").classList.toggle("bad", state === "retrying");
  },
  answered: (answer) => {
    if (answer.vote?.changed && !answer.vote.repeated) toast(t("This vote replaced an earlier one of yours on the same item, perhaps from another tab."), { seconds: 6 });
    take(answer.next ?? answer);
  },
  refused: (problem) => {
    toast(problem.message, { bad: true, seconds: 6 });
    if (!outbox.entries.length) refill();
  },
});

function readHidden() {
  try { return localStorage.getItem(`labelchef-blind-${campaign}`) === "yes"; } catch { return false; }
}

/** The items that the server has reserved for this person. */
function take(answer) {
  const sent = outbox.items;
  queue = answer.tasks.filter((task) => task.item !== current?.item && !sent.has(task.item));
  for (const task of queue) preload(task);
  standingOf((answer.tasks[0] ?? answer.waiting)?.batch);
  if (current) return;
  if (queue.length) advance();
  else if (!outbox.entries.length && answer.waiting) wait(answer.waiting);
  else if (!outbox.entries.length) refill();
}

let refilling = null;
function refill() {
  refilling ??= call("POST", campaignPath(campaign, "/next"), { n: HELD })
    .then(take)
    .catch((problem) => wait({ reason: "offline", message: problem.message, retry_after: 5 }))
    .finally(() => { refilling = null; });
  return refilling;
}

const preloaded = new Map();
function preload(task) {
  for (const address of [...task.content.images, ...task.neighbours.map((one) => one.content.image)]) {
    if (!address || preloaded.has(address)) continue;
    const image = new Image();
    image.src = address;
    preloaded.set(address, image);
    if (preloaded.size > 100) preloaded.delete(preloaded.keys().next().value);
  }
}

function advance() {
  current = null;
  codes.clear();
  $("#note").value = "";
  $("#note-form").hidden = true;
  const next = queue.shift();
  if (next) show(next);
  else if (!outbox.entries.length) refill();
  else $("#item").classList.add("stale");
}

function show(task) {
  wake();
  current = task;
  clock.start();
  root.classList.remove("idle");
  $("#item").classList.remove("stale");
  images = showItem($("#item"), task);
  position();
  redraw();
  const suggestion = suggested();
  $("#accept").hidden = suggestion === null;
  $("#round").textContent = task.origin === "ahead" ? t("Ahead of round {n}", { n: task.round + 1 }) : t("Round {n}", { n: task.round });
  $("#rank").textContent = task.origin === "reopened" ? t("asked again") : task.influence === null ? t("number {n} in line", { n: task.rank + 1 }) : t("number {n} in influence", { n: task.rank + 1 });
  comments(task.comments);
  if (task.own_vote?.note) { $("#note").value = task.own_vote.note; $("#note-form").hidden = false; }
  drawReason(task);
  $("#heard").textContent = suggestion === null ? t("Next item.") : t("Next item. Suggestion: {name}.", { name: task.classes[suggestion] });
}

/** The classes, with what is suggested and what this person said before. */
function redraw() {
  drawClasses(current);
  const suggestion = suggested();
  for (const button of $$(".class")) {
    const k = Number(button.dataset.position);
    button.classList.toggle("suggested", k === suggestion);
    button.classList.toggle("mine", current.own_vote !== null && k === current.own_vote.label);
    button.classList.remove("flash");
    if (k === suggestion) intoView(button);
  }
}

/** How far the batch is; it comes with every answer of the server. */
function standingOf(batch) {
  $("#batch").hidden = !batch;
  if (!batch) return;
  $("#batch-text").textContent = t("yours: {mine} · batch: {n} of {all} answered", { mine: batch.mine, n: batch.answered, all: batch.wanted });
  $("#batch-bar").max = Math.max(batch.wanted, 1);
  $("#batch-bar").value = batch.answered;
}

function comments(n) {
  $("#thread-count").hidden = !n;
  $("#thread-count").textContent = String(n);
}

/** Scroll the list of classes, and only that, until a class is in view. */
function intoView(button) {
  const box = $("#classes").getBoundingClientRect();
  const one = button.getBoundingClientRect();
  if (one.top < box.top || one.bottom > box.bottom) $("#classes").scrollTop += one.top - box.top - (box.height - one.height) / 2;
}

/** Where one is in a text that does not fit. */
function position() {
  const box = $("#item");
  const left = box.scrollHeight - box.clientHeight;
  const long = left > 8 && current?.content.text;
  $("#reading").hidden = !long;
  if (!long) return;
  const share = Math.min(1, box.scrollTop / left);
  $("#reading-bar").value = share;
  $("#reading-text").textContent = `${Math.round(100 * share)} %`;
}

const suggested = () => (hidden || !current || current.blind ? null : current.suggestion);

function drawClasses(task) {
  const names = task.classes.join("\u0000");
  if (drawnFor === names) return;
  drawnFor = names;
  const classes = task.classes;
  codes.clear();
  codes = new CodeReader(classes, pending);
  const many = classes.length > 10;
  fitNames($("#classes"), classes);
  $("#classes").replaceChildren(...classes.map((name, k) => {
    const told = descriptions.get(name) ?? "";
    const code = codes.codes[k];
    return el("button", { class: "class", type: "button", "data-position": k, "aria-keyshortcuts": code?.length === 1 ? code : null, title: told ? `${name}: ${told}` : name, onclick: () => vote(k) },
      code ? el("kbd", { "aria-hidden": true }, code) : null,
      el("span", {}, nameOf(name), told && !many ? el("small", { class: "about" }, told) : null));
  }));
  $("#find-box").hidden = !many;
  $("#help-codes").hidden = !many;
  $("#help-classes").replaceChildren(...classes.flatMap((name, k) => [
    el("dt", {}, ...(codes.codes[k] ? [...codes.codes[k]].flatMap((key, n) => (n ? [" ", el("kbd", {}, key)] : [el("kbd", {}, key)])) : ["–"])), el("dd", {}, name)]));
}

/** Show which classes a code that is not complete may still mean. */
function pending(first) {
  $("#classes").classList.toggle("pending", first !== "");
  let seen = false;
  for (const button of $$(".class")) {
    const fits = first !== "" && codes.codes[Number(button.dataset.position)]?.startsWith(first);
    button.classList.toggle("fits", fits);
    if (fits && !seen) { seen = true; intoView(button); }
  }
  $("#code").textContent = first === "" ? "" : t("Code {first}_ · Escape ends it", { first });
}

function drawReason(task) {
  const blind = task.blind || hidden;
  $("#why-blind").hidden = !blind;
  $("#blind").hidden = task.blind;
  $("#why-shown").hidden = blind;
  $("#why-blind").textContent = task.blind && Number.isNaN(score)
    ? t("This item was drawn by chance. There are no trusted labels yet: the first answers become them. Nothing is suggested, so that they are people’s alone.")
    : task.blind ? t("This item is shown blind. Nothing is suggested, so that your answer shows what suggestions change, or how often the model is right.")
    : t("You have hidden the suggestion (b shows it again).");
  if (blind) return;
  $("#suggestion").textContent = task.suggestion === null ? t("none") : task.classes[task.suggestion];
  $("#effect").textContent = effect(task);
  $("#margin").textContent = task.margin === null ? "" : t("The model’s two most probable classes are {points} points apart.", { points: (100 * task.margin).toFixed(task.margin < 0.1 ? 1 : 0) });
  $("#sources-say").replaceChildren(...task.sources.map(([who, label]) => el("li", {}, t("{who} says {label}", { who, label }))));
  const order = task.classes.map((_, position) => position).sort((a, b) => task.weak[b] - task.weak[a]).slice(0, 5);
  const bars = [];
  for (const position of order) {
    const share = task.weak[position];
    bars.push(el("dt", { title: task.classes[position] }, task.classes[position]),
      el("dd", {}, el("progress", { max: 1, value: share, "aria-label": `${task.classes[position]}: ${Math.round(100 * share)} %` }),
        el("span", { class: "share" }, `${Math.round(100 * share)} %`)));
  }
  $("#weak").replaceChildren(...bars);
  $("#weak-box").hidden = Math.min(...task.weak) === Math.max(...task.weak); // nothing is known of it
  $("#near").classList.toggle("pictures", task.neighbours.length > 0 && task.neighbours.every((near) => near.content.image));
  $("#near").replaceChildren(...task.neighbours.slice(0, 5).map(neighbour));
  $("#near-box").hidden = !task.neighbours.length;
}

function effect(task) {
  if (task.influence === null) return "";
  const size = Math.abs(task.influence).toPrecision(2);
  return task.influence < 0
    ? t("This label is expected to lower the validation loss (influence −{size}).", { size })
    : t("Little change is expected (influence {size}).", { size });
}

function accept() {
  if (suggested() !== null) vote(suggested());
  else if (current) toast(t("There is no suggestion to accept here: choose a class."));
}

function vote(label) {
  if (!current || undoing) return;
  const button = $$(".class").find((candidate) => Number(candidate.dataset.position) === label);
  if (button) flash(button);
  if (document.activeElement?.closest("#classes, .actions")) $("#item").focus({ preventScroll: true }); // Enter accepts the suggestion again
  const body = { item: current.item, label, seconds: clock.seconds(), request_id: requestId(), blind: hidden, n: HELD };
  if ($("#note").value.trim()) body.note = $("#note").value.trim();
  body.seconds = Math.min(body.seconds, 3600);
  undoId = null; // an undo after this vote is another one
  outbox.push(campaignPath(campaign, "/votes"), body);
  advance();
}

function flash(button) {
  button.classList.add("flash");
  setTimeout(() => button.classList.remove("flash"), 120);
}

/** crypto.randomUUID is missing where a server is reached by plain http and a name. */
function requestId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function skip() {
  if (!current || undoing) return;
  if (document.activeElement?.closest(".actions")) $("#item").focus({ preventScroll: true });
  outbox.push(campaignPath(campaign, "/skip"), { item: current.item, n: HELD });
  advance();
}

async function undo() {
  if (undoing) return;
  undoing = true;
  try {
    await outbox.idle();
    undoId ??= requestId();
    const task = await call("POST", campaignPath(campaign, "/undo"), { request_id: undoId });
    undoId = null;
    if (current && current.item !== task.item) queue.unshift(current);
    queue = queue.filter((other) => other.item !== task.item);
    show(task);
    standingOf(task.batch);
    toast(t("Taken back. Vote again, or skip it."));
  } catch (problem) {
    if (problem.status && problem.status < 500 && problem.status !== 429) undoId = null;
    toast(problem.message, { bad: problem.status === 0 });
  } finally {
    undoing = false;
  }
}

function openNote() {
  $("#note-form").hidden = false;
  $("#note").focus();
}

function toggleHidden() {
  hidden = !hidden;
  try { localStorage.setItem(`labelchef-blind-${campaign}`, hidden ? "yes" : "no"); } catch { /* for this page only */ }
  $("#blind").setAttribute("aria-pressed", String(hidden));
  $("#blind-word").textContent = hidden ? t("Show suggestion") : t("Hide suggestion");
  if (current) { const since = clock.seconds(); show(current); clock.start(since); }
}

/** Nothing to do: show why, and continue automatically when there is. */
function wait(why) {
  current = null;
  root.classList.add("idle");
  $("#waiting").hidden = false;
  $("#waiting-title").textContent = {
    preparing: t("Getting ready"), waiting_for_others: why.batch?.mine === 0 ? t("No item is free just now") : t("Others are still labelling"), updating: t("The model is learning from your labels"),
    paused: t("Paused"), finished: t("Finished"), stopped: t("Stopped"), archived: t("In the archive"), failed: t("Something needs the lead"), offline: t("No connection"),
  }[why.reason] ?? t("Waiting");
  $("#waiting-text").textContent = sentence(why.message);
  const over = ["finished", "stopped", "failed", "archived"].includes(why.reason);
  $("#waiting-undo").hidden = !why.undo;
  $("#pulse").hidden = over;
  $("#waiting-auto").hidden = over;
  $("#waiting-more").hidden = !over;
  $("#heard").textContent = `${$("#waiting-title").textContent}. ${why.message}`;
  clearTimeout(sleeping);
  sleeping = over ? null : setTimeout(refill, 1000 * Math.min(Math.max(why.retry_after || 20, 2), 30));
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

function wake() {
  clearTimeout(sleeping);
  sleeping = null;
  $("#waiting").hidden = true;
}

async function standing() {
  const now = await call("GET", campaignPath(campaign));
  $("#budget").hidden = now.budget === null;
  if (now.budget !== null) $("#budget").textContent = t("{n} of {all} asked", { n: now.spent, all: now.budget });
  return now;
}

/** Turn a page of an item that does not fit; whether there was something to turn. */
function turn(by) {
  const box = $("#item");
  if (box.scrollHeight - box.clientHeight <= 8) return false;
  box.scrollBy({ top: by * 0.85 * box.clientHeight });
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const dialog = $("dialog[open]");
  if (dialog) {
    if (!typing(event) && { guide: "g", help: "?" }[dialog.id] === event.key) { event.preventDefault(); dialog.close(); }
    return;
  }
  if (event.target === $("#note")) {
    if (event.key === "Enter" || event.key === "Escape") { event.preventDefault(); $("#item").focus(); }
    return;
  }
  if (event.target === $("#find")) {
    if (event.key === "Escape") { $("#find").value = ""; filter(); $("#item").focus(); }
    if (event.key === "Enter") { event.preventDefault(); const first = $(".class:not([hidden])"); if (first) { $("#find").value = ""; filter(); $("#item").focus(); first.click(); } }
    return;
  }
  if (typing(event)) return;
  const onButton = event.target instanceof HTMLElement && event.target.closest("button, a, summary");
  const meant = !current ? null : event.repeat && /^\w$/.test(event.key) && codes.first ? -1 : codes.press(event.key);
  if (meant !== null) {
    event.preventDefault();
    if (meant >= 0 && !event.repeat) vote(meant); // a key that is held down is one vote
    return;
  }
  if (current && images?.key(event)) { event.preventDefault(); return; }
  const act = event.key === "Enter" && !onButton ? accept
    : { u: undo, Backspace: undo, s: skip, a: () => vote(null), n: openNote, b: toggleHidden, c: openThread, g: () => guidance.openGuide(),
        "/": () => $("#find").focus(), "?": openHelp }[event.key];
  if (act) {
    event.preventDefault();
    if (event.repeat && event.key !== "u" && event.key !== "Backspace") return;
    act();
  } else if (current && (event.key === "PageDown" || event.key === "PageUp" || (event.key === " " && !onButton))) {
    if (turn(event.key === "PageUp" || event.shiftKey ? -1 : 1)) event.preventDefault();
  }
});

function filter() {
  const words = $("#find").value.trim().toLowerCase();
  for (const button of $$(".class")) button.hidden = words !== "" && !$(".name", button).textContent.toLowerCase().includes(words);
}

function openThread() {
  if (current) guidance.openThread(current.item);
}

/** The keys that there are for this item and these classes. */
function openHelp() {
  const several = (current?.content.images.length ?? 0) > 1;
  for (const one of $$("#help [data-many]")) one.hidden = $("#find-box").hidden;
  for (const one of $$("#help [data-images]")) one.hidden = !images;
  for (const one of $$("#help [data-several]")) one.hidden = !several;
  for (const one of $$("#help [data-zero]")) one.hidden = codes.codes.some((code) => code?.[0] === "0");
  if (!$("#help").open) $("#help").showModal();
}

const guidance = new Guidance(campaign, {
  lead: "lead" in root.dataset,
  told: (found) => {
    descriptions = found;
    drawnFor = null;
    if (current) redraw();
  },
  talked: (thread) => { if (thread.item === current?.item) { current.comments = thread.comments.filter((one) => !one.note).length; comments(current.comments); } },
});
$("#item").addEventListener("scroll", position, { passive: true });
new ResizeObserver(position).observe($("#item"));
$("#find").addEventListener("input", filter);
const BUTTONS = { accept, undo, "waiting-undo": undo, skip, ambiguous: () => vote(null), "note-open": openNote, blind: toggleHidden, "thread-open": openThread, "guide-open": () => guidance.openGuide() };
for (const [id, act] of Object.entries(BUTTONS)) $(`#${id}`).addEventListener("click", () => act());
$("#note-form").addEventListener("submit", (event) => { event.preventDefault(); $("#item").focus(); });
$("#blind").setAttribute("aria-pressed", String(hidden));
if (hidden) $("#blind-word").textContent = t("Show suggestion");
const small = matchMedia("(max-width: 52rem)");
if (small.matches) $("#why").open = false;

let round = Number(root.dataset.round);
let score = root.dataset.score === "" ? NaN : Number(root.dataset.score);
await refill();
watch(campaign, -1, async () => { // no version yet: it is called at once
  if (!current && !outbox.entries.length) refill();
  const [now] = await Promise.all([standing(), guidance.refresh()]);
  if (now.round === round) return;
  const rounds = await call("GET", campaignPath(campaign, "/rounds"));
  round = now.round;
  const closed = rounds.entries.find((one) => one.validation); // newest first
  if (!closed) return;
  const value = closed.validation[root.dataset.metric];
  if (value !== undefined && value !== score) {
    const figure = closed.figures.validation?.[root.dataset.metric];
    $("#score").textContent = value.toFixed(3);
    $("#range").textContent = figure ? t("({low} to {high})", { low: figure.low.toFixed(3), high: figure.high.toFixed(3) }) : "";
    if (!Number.isNaN(score)) toast(t("The model learned: {metric} {before} → {now} {range}", { metric: root.dataset.metricName, before: score.toFixed(3), now: value.toFixed(3), range: $("#range").textContent }));
    score = value;
  }
});
