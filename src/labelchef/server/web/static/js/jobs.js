// Long work in the background: started here, followed, cancelled, and its result to download.
import { call, campaignPath } from "./api.js";
import { $, $$, el, toast } from "./dom.js";
import { t, when } from "./texts.js";

const POLL = 1000;
const NAMES = { replay: t("Replay"), dataset: t("Data set"), predictions: t("Predictions"), model: t("Model"), report: t("Report") };
const STATES = { waiting: t("waits"), running: t("running"), done: t("done"), failed: t("failed"), cancelled: t("cancelled"), interrupted: t("interrupted") };
const BADGES = { waiting: "preparing", running: "preparing", done: "finished", failed: "failed", cancelled: "stopped", interrupted: "stopped" };

const isOver = (job) => job.state !== "waiting" && job.state !== "running";
const place = $("#jobs"), campaign = place.dataset.campaign;
const path = (job, rest = "") => campaignPath(campaign, `/jobs/${encodeURIComponent(job.id)}${rest}`);
const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`);
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const named = (job) => [NAMES[job.kind] ?? job.kind, job.options.format].filter(Boolean).join(", ");

function link(job) {
  return el("a", { class: "button little main", href: path(job, "/file"), download: job.file }, t("Download {file} ({size})", { file: job.file, size: size(job.bytes) }));
}

async function act(method, address) {
  try {
    await call(method, address, method === "POST" ? {} : undefined);
    await round();
  } catch (problem) { toast(problem.message, { bad: true }); }
}

/** Show a job in a box. While only its progress changes, its elements stay: a button keeps the focus. */
function show(box, job) {
  const bar = $("progress", box);
  if (box.dataset.job === job.id && box.dataset.state === job.state && bar) {
    if (job.done === null) bar.removeAttribute("value"); else bar.value = job.done;
    $(".job-told", box).textContent = sentence(job.sentence);
    return;
  }
  Object.assign(box.dataset, { job: job.id, state: job.state });
  const progress = isOver(job) ? null : el("progress", { max: 1, value: job.done, "aria-label": t("Progress of the job") });
  const told = el("p", { class: `job-told small${job.state === "failed" || job.result?.agrees === false ? " bad" : " soft"}`, role: "status" }, sentence(job.sentence));
  const buttons = [
    job.file ? link(job) : null,
    isOver(job) ? null : el("button", { class: "button little", type: "button", onclick: () => act("POST", path(job, "/cancel")) }, t("Cancel")),
    isOver(job) && job.state !== "done" ? el("button", { class: "button little", type: "button", onclick: () => act("POST", path(job, "/again")) }, t("Start again")) : null,
  ];
  const about = isOver(job) && job.ended_at ? el("span", { class: "soft small" }, t("{state} {when}, started by {who}", { state: STATES[job.state], when: when(job.ended_at), who: job.by })) : null;
  box.replaceChildren(...[progress, told, el("div", { class: "row" }, ...buttons, about)].filter(Boolean));
  box.hidden = false;
}

function row(job) {
  const box = el("div", { class: "job", "data-kind": job.kind });
  const item = el("li", { class: "card job-row stack" },
    el("div", { class: "head" }, el("h3", {}, named(job)), el("span", { class: `badge ${BADGES[job.state]}` }, STATES[job.state])),
    isOver(job) ? null : el("p", { class: "soft small" }, t("Started {when} by {who}", { when: when(job.created_at), who: job.by })), box);
  show(box, job);
  if (isOver(job)) $(".row", box).append(el("button", { class: "button little danger", type: "button", onclick: () => act("DELETE", path(job)) }, t("Remove")));
  return item;
}

/** Show all jobs, the newest first; whether one of them is not over. */
async function list() {
  const { entries } = await call("GET", campaignPath(campaign, "/jobs"));
  const shown = new Map($$(":scope > li", place).map((one) => [one.dataset.key, one]));
  const rows = await Promise.all(entries.map(async (job) => {
    const key = `${job.id} ${job.state}`, there = shown.get(key);
    if (there && !isOver(job)) show($(".job", there), job);
    if (there) return there;
    const made = row(job.kind === "replay" && job.state === "done" ? await call("GET", path(job)) : job); // with what it found
    made.dataset.key = key;
    return made;
  }));
  if (rows.length !== place.children.length || rows.some((one, k) => one !== place.children[k])) place.replaceChildren(...rows);
  $("#made").hidden = !rows.length;
  return entries.some((job) => !isOver(job));
}

let timer, turn = 0;
/** Show the jobs now, and again after a while: soon while one is under way. */
async function round() {
  const mine = ++turn;
  clearTimeout(timer);
  const busy = await list().catch(() => true);
  if (mine === turn) timer = setTimeout(round, busy ? POLL : 5 * POLL);
}

for (const form of $$("form[data-job]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const format = event.submitter?.value, buttons = $$("button", form);
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await call("POST", campaignPath(campaign, "/jobs"), { kind: form.dataset.job, ...(format ? { format } : {}) });
      await round();
      place.firstElementChild?.scrollIntoView({ block: "nearest" });
    } catch (problem) { toast(problem.message, { bad: true }); } finally { buttons.forEach((button) => { button.disabled = false; }); }
  });
}
round();
