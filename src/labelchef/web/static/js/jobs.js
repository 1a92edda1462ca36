// Long work in the background: started here, followed by polling, cancelled, and its result shown where it was started.
import { call, campaignPath, sleep } from "./api.js";
import { $, $$, el, toast } from "./dom.js";
import { t, when } from "./texts.js";

const POLL = 1000;
const NAMES = { replay: t("Replay"), dataset: t("Data set"), predictions: t("Predictions"), model: t("Model"), report: t("Report") };
const STATES = { waiting: t("waits"), running: t("running"), done: t("done"), failed: t("failed"), cancelled: t("cancelled"), interrupted: t("interrupted") };
const BADGES = { waiting: "preparing", running: "preparing", done: "finished", failed: "failed", cancelled: "stopped", interrupted: "stopped" };

export const isOver = (job) => job.state !== "waiting" && job.state !== "running";
const path = (campaign, job, rest = "") => campaignPath(campaign, `/jobs/${encodeURIComponent(job.id)}${rest}`);
const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`);
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const named = (job) => [NAMES[job.kind] ?? job.kind, job.options.format].filter(Boolean).join(", ");

function link(campaign, job) {
  return el("a", { class: "button little main", href: path(campaign, job, "/file"), download: job.file }, t("Download {file} ({size})", { file: job.file, size: size(job.bytes) }));
}

async function act(method, address, then) {
  try { await then(await call(method, address, method === "POST" ? {} : undefined)); } catch (problem) { toast(problem.message, { bad: true }); }
}

/** Show a job in a box. While only its progress changes, its elements stay: a button keeps the focus. */
export function show(box, campaign, job, again = null) {
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
    job.file ? link(campaign, job) : null,
    isOver(job) ? null : el("button", { class: "button little", type: "button", onclick: () => act("POST", path(campaign, job, "/cancel"), (now) => show(box, campaign, now, again)) }, t("Cancel")),
    again && isOver(job) && job.state !== "done" ? el("button", { class: "button little", type: "button", onclick: () => act("POST", path(campaign, job, "/again"), again) }, t("Start again")) : null,
  ];
  const about = isOver(job) && job.ended_at ? el("span", { class: "soft small" }, t("{state} {when}, started by {who}", { state: STATES[job.state], when: when(job.ended_at), who: job.by })) : null;
  box.replaceChildren(...[progress, told, el("div", { class: "row" }, ...buttons, about)].filter(Boolean));
  box.hidden = false;
}

/** Follow a job until it is over; `told` is called with it now and then. */
export async function follow(campaign, job, told) {
  told(job);
  while (!isOver(job)) {
    await sleep(POLL);
    try { job = await call("GET", path(campaign, job)); } catch (problem) { if (problem.status) throw problem; continue; }
    told(job);
  }
  return job;
}

/** Start a job and follow it in a box; resolves with the job once it is over. */
export async function run(campaign, body, box, done = () => {}) {
  const again = (job) => followIn(campaign, job, box, again, done);
  return again(await call("POST", campaignPath(campaign, "/jobs"), body));
}

async function followIn(campaign, job, box, again, done) {
  const over = await follow(campaign, job, (now) => show(box, campaign, now, again));
  done(over);
  return over;
}

/** Show the newest job of each kind in its box, and go on to follow it if it is not over. */
export async function resume(campaign, boxes, done = () => {}) {
  const { entries } = await call("GET", campaignPath(campaign, "/jobs"));
  for (const box of boxes) {
    const newest = entries.find((job) => job.kind === box.dataset.kind);
    if (!newest) continue;
    const again = (job) => followIn(campaign, job, box, again, done);
    again(isOver(newest) ? await call("GET", path(campaign, newest)) : newest);
  }
}

function row(campaign, job) {
  const box = el("div", { class: "job" });
  const item = el("li", { class: "card job-row stack" },
    el("div", { class: "head" }, el("h2", {}, named(job)), el("span", { class: `badge ${BADGES[job.state]}` }, STATES[job.state])),
    isOver(job) ? null : el("p", { class: "soft small" }, t("Started {when} by {who}", { when: when(job.created_at), who: job.by })), box);
  show(box, campaign, job, list);
  if (isOver(job)) $(".row", box).append(el("button", { class: "button little danger", type: "button", onclick: () => act("DELETE", path(campaign, job), list) }, t("Remove")));
  return item;
}

let listing = null;
async function list() {
  listing ??= (async () => {
    try {
      const place = $("#jobs"), campaign = place.dataset.campaign;
      const { entries } = await call("GET", campaignPath(campaign, "/jobs"));
      $("#no-jobs").hidden = entries.length > 0;
      const shown = new Map($$(":scope > li", place).map((one) => [one.dataset.key, one]));
      const rows = entries.map((job) => {
        const key = `${job.id} ${job.state}`, there = shown.get(key);
        if (there) { show($(".job", there), campaign, job, list); return there; }
        const made = row(campaign, job);
        made.dataset.key = key;
        return made;
      });
      if (rows.length !== place.children.length || rows.some((one, k) => one !== place.children[k])) place.replaceChildren(...rows);
      return entries.some((job) => !isOver(job));
    } finally { listing = null; }
  })();
  return listing;
}

async function watchList() {
  while (true) {
    const busy = await list().catch(() => true);
    await sleep(busy ? POLL : 5 * POLL);
  }
}

for (const form of $$("form[data-job]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { job: kind, campaign } = form.dataset, format = event.submitter?.value;
    const buttons = $$("button", form);
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await run(campaign, { kind, ...(format ? { format } : {}) }, $(`.job[data-kind="${kind}"]`));
    } catch (problem) { toast(problem.message, { bad: true }); } finally { buttons.forEach((button) => { button.disabled = false; }); }
  });
}
const first = $("form[data-job]");
if (first) resume(first.dataset.campaign, $$(".job[data-kind]")).catch(() => null);
if ($("#jobs")) watchList();
