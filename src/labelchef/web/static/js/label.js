// The Label page: one key stores a vote and shows the next item.
import { call, campaignPath } from "./api.js";
import { clock } from "./clock.js";
import { $, $$, el, toast, typing } from "./dom.js";
import { neighbour, showItem } from "./item.js";
import { classKeys } from "./keys.js";
import { watch } from "./live.js";
import { Outbox } from "./outbox.js";

const root = $("#label");
const campaign = root.dataset.campaign;
const HELD = 3; // items reserved at once: the one on the screen and the next ones
let queue = [];
let current = null;
let drawnFor = null; // the class list the buttons were drawn for
let hidden = readHidden();
let undoing = false;
let undoId = null; // the same until the server has answered, so that only one vote is taken back
let sleeping = null;

const outbox = new Outbox({
  report: (state) => {
    $("#saved").textContent = { saving: "saving…", saved: "saved", retrying: "no connection – trying again" }[state];
    $("#saved").classList.toggle("bad", state === "retrying");
  },
  answered: (answer) => take(answer.next ?? answer),
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
  for (const address of [task, ...task.neighbours].map((one) => one.content.image)) {
    if (!address || preloaded.has(address)) continue;
    const image = new Image();
    image.src = address;
    preloaded.set(address, image);
    if (preloaded.size > 100) preloaded.delete(preloaded.keys().next().value);
  }
}

function advance() {
  current = null;
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
  drawClasses(task);
  showItem($("#item"), task);
  const suggestion = suggested();
  for (const button of $$(".class")) {
    const position = Number(button.dataset.position);
    button.classList.toggle("suggested", position === suggestion);
    button.classList.toggle("mine", task.own_vote !== null && position === task.own_vote.label);
    button.classList.remove("flash");
  }
  $("#accept").disabled = suggestion === null;
  $("#round").textContent = task.origin === "ahead" ? `Ahead of round ${task.round + 1}` : `Round ${task.round}`;
  $("#rank").textContent = task.origin === "reopened" ? "asked again" : `${ordinal(task.rank + 1)} ${task.influence === null ? "in line" : "in influence"}`;
  if (task.own_vote?.note) { $("#note").value = task.own_vote.note; $("#note-form").hidden = false; }
  drawReason(task);
  $("#heard").textContent = suggestion === null ? "Next item." : `Next item. Suggestion: ${task.classes[suggestion]}.`;
}

const ordinal = (n) => `${n}${["th", "st", "nd", "rd"][(n % 100 > 10 && n % 100 < 14) || n % 10 > 3 ? 0 : n % 10]}`;
const suggested = () => (hidden || !current || current.blind ? null : current.suggestion);

function drawClasses(task) {
  const names = task.classes.join("\u0000");
  if (drawnFor === names) return;
  drawnFor = names;
  const keys = classKeys(task.classes);
  $("#classes").classList.toggle("short", task.classes.every((name) => name.length <= 3));
  $("#classes").replaceChildren(...task.classes.map((name, position) =>
    el("button", { class: "class", type: "button", "data-position": position, "aria-keyshortcuts": keys[position], onclick: () => vote(position) },
      keys[position] ? el("kbd", { "aria-hidden": true }, keys[position]) : null, el("span", {}, name))));
  $("#find-box").hidden = task.classes.length <= 10;
}

function drawReason(task) {
  const blind = task.blind || hidden;
  $("#why-blind").hidden = !blind;
  $("#blind").hidden = task.blind;
  $("#why-shown").hidden = blind;
  $("#why-blind").textContent = task.blind
    ? "This item is shown blind. Nothing is suggested, so that your answer shows what suggestions change, or how often the model is right."
    : "You have hidden the suggestion (b shows it again).";
  if (blind) return;
  $("#suggestion").textContent = task.suggestion === null ? "none" : task.classes[task.suggestion];
  $("#effect").textContent = effect(task);
  const order = task.classes.map((_, position) => position).sort((a, b) => task.weak[b] - task.weak[a]).slice(0, 5);
  const bars = [];
  for (const position of order) {
    const share = task.weak[position];
    bars.push(el("dt", { title: task.classes[position] }, task.classes[position]),
      el("dd", {}, el("progress", { max: 1, value: share, "aria-label": `${task.classes[position]}: ${Math.round(100 * share)} %` }),
        el("span", { class: "share" }, `${Math.round(100 * share)} %`)));
  }
  $("#weak").replaceChildren(...bars);
  $("#near").classList.toggle("pictures", task.neighbours.length > 0 && task.neighbours.every((near) => near.content.image));
  $("#near").replaceChildren(...task.neighbours.slice(0, 5).map(neighbour));
  $("#near-box").hidden = !task.neighbours.length;
}

function effect(task) {
  if (task.influence === null) return "";
  const size = Math.abs(task.influence).toPrecision(2);
  return task.influence < 0
    ? `This label is expected to lower the validation loss (influence −${size}).`
    : `Little change is expected (influence ${size}).`;
}

function accept() {
  if (suggested() !== null) vote(suggested());
  else if (current) toast("There is no suggestion to accept here: choose a class.");
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
    toast("Taken back. Vote again, or skip it.");
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
  $("#blind-word").textContent = hidden ? "Show suggestion" : "Hide suggestion";
  if (current) { const since = clock.seconds(); show(current); clock.start(since); }
}

/** Nothing to do: show why, and continue automatically when there is. */
function wait(why) {
  current = null;
  root.classList.add("idle");
  $("#waiting").hidden = false;
  $("#waiting-title").textContent = {
    preparing: "Getting ready", waiting_for_others: "Others are still labelling", updating: "The model is learning from your labels",
    paused: "Paused", finished: "Finished", stopped: "Stopped", failed: "Something needs the lead", offline: "No connection",
  }[why.reason] ?? "Waiting";
  $("#waiting-text").textContent = sentence(why.message);
  const over = ["finished", "stopped", "failed"].includes(why.reason);
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
  try {
    const now = await call("GET", campaignPath(campaign));
    $("#budget").hidden = now.budget === null;
    if (now.budget !== null) {
      $("#budget-bar").max = now.budget;
      $("#budget-bar").value = now.spent;
      $("#budget-text").textContent = `${now.spent} of ${now.budget} asked`;
    }
    return now;
  } catch { return null; }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
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
  const position = current ? classKeys(current.classes).indexOf(event.key) : -1;
  const act = position >= 0 ? () => vote(position)
    : event.key === "Enter" && !onButton ? accept
    : { u: undo, Backspace: undo, s: skip, a: () => vote(null), n: openNote, b: toggleHidden, "/": () => $("#find").focus(), "?": () => $("#help").showModal() }[event.key];
  if (!act) return;
  event.preventDefault();
  if (event.repeat && (position >= 0 || event.key === "Enter")) return; // a key that is held down is one vote
  act();
});

function filter() {
  const words = $("#find").value.trim().toLowerCase();
  for (const button of $$(".class")) button.hidden = words !== "" && !button.lastElementChild.textContent.toLowerCase().includes(words);
}

$("#find").addEventListener("input", filter);
const BUTTONS = { accept, undo, "waiting-undo": undo, skip, ambiguous: () => vote(null), "note-open": openNote, blind: toggleHidden };
for (const [id, act] of Object.entries(BUTTONS)) $(`#${id}`).addEventListener("click", () => act());
$("#note-form").addEventListener("submit", (event) => { event.preventDefault(); $("#item").focus(); });
$("#blind").setAttribute("aria-pressed", String(hidden));
if (hidden) $("#blind-word").textContent = "Show suggestion";
const small = matchMedia("(max-width: 52rem)");
if (small.matches) $("#why").open = false;

let round = Number(root.dataset.round);
let score = Number(root.dataset.score);
await Promise.all([refill(), standing()]);
watch(campaign, Number(root.dataset.version), async () => {
  if (!current && !outbox.entries.length) refill();
  const now = await standing();
  if (!now || now.round === round) return;
  round = now.round;
  const rounds = await call("GET", campaignPath(campaign, "/rounds")).catch(() => null);
  const closed = rounds?.entries.find((one) => one.validation); // newest first
  if (!closed) return;
  const value = closed.validation[root.dataset.metric];
  if (value !== undefined && value !== score) {
    const change = value - score;
    $("#score").textContent = value.toFixed(3);
    if (!Number.isNaN(score)) toast(`The model learned: ${root.dataset.metricName} ${score.toFixed(3)} → ${value.toFixed(3)}${change >= 0 ? " ▲" : " ▼"}`);
    score = value;
  }
});
