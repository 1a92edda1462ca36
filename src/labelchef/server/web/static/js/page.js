// On every page: theme, sign-out, forms that call the API, local times, parts that are updated.
import { call, Problem } from "./api.js";
import { $, $$, el, toast } from "./dom.js";
import { watch } from "./live.js";
import { askName } from "./names.js";
import { t, when, whenExactly } from "./texts.js";

$("#theme")?.addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("labelchef-theme", next); } catch { /* for this page only */ }
});

// A menu closes with Escape, which gives the focus back, and when the focus leaves it.
for (const menu of $$("details.menu")) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    $("summary", menu).focus();
  });
  menu.addEventListener("focusout", (event) => { if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false; });
}

document.addEventListener("click", (event) => {
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const opener = event.target.closest?.("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog).showModal();
});

/**
 * The values of a form as JSON: numbers as numbers, ticks as true and false. An empty field is left out, or sends what its
 * data-empty holds. A name with a dot, such as settings.budget, is a value inside an object.
 */
export function values(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || field.type === "file" || (field.type === "radio" && !field.checked)) continue;
    let value = field.value;
    if (field.type === "checkbox") value = field.checked;
    else if (value === "" && "empty" in field.dataset) value = JSON.parse(field.dataset.empty);
    else if (value === "" && !field.required) continue;
    else if (field.type === "number") value = Number(value);
    else if (field.dataset.type === "boolean") value = value === "true";
    const path = field.name.split(".");
    let at = body;
    for (const step of path.slice(0, -1)) at = at[step] ??= {};
    at[path.at(-1)] = value;
  }
  return body;
}

/** A form with files as parts: its settings are one part of JSON, and files that were not chosen are left out. */
function parts(form, submitter) {
  const data = new FormData(form, submitter);
  for (const key of new Set(data.keys())) {
    const kept = data.getAll(key).filter((value) => (value instanceof File ? value.size || value.name : value !== ""));
    data.delete(key);
    if (!key.startsWith("settings.")) for (const value of kept) data.append(key, value);
  }
  const { settings } = values(form);
  if (settings) data.set("settings", JSON.stringify(settings));
  return data;
}

// Forms of settings send only what was changed on them, with the values that were there before, so that two leads who
// save at the same time do not undo each other's changes.
const shown = new Map($$("form[data-changed]").map((form) => [form, values(form)[form.dataset.body]]));

function changed(form, now) {
  const before = shown.get(form);
  const names = Object.keys(now).filter((name) => now[name] !== before[name]);
  const pick = (from) => Object.fromEntries(names.map((name) => [name, from[name]]));
  return { ...pick(now), seen: pick(before) };
}

/** Put values of the server into the fields of a form that were not changed on it. */
function fill(form, fresh) {
  const before = shown.get(form), now = values(form)[form.dataset.body];
  for (const [name, value] of Object.entries(now)) {
    if (!(name in fresh) || value !== before[name]) continue;
    const field = form.elements[`${form.dataset.body}.${name}`];
    if (field.type === "checkbox") field.checked = fresh[name];
    else field.value = fresh[name] === null || fresh[name] === "auto" ? "" : fresh[name];
  }
}

/** The body of a form's request; data-body names the part of its values that is sent. */
function bodyOf(form, submitter) {
  if (form.enctype === "multipart/form-data") return parts(form, submitter);
  const all = values(form);
  const body = form.dataset.body ? all[form.dataset.body] : all;
  if (shown.has(form)) return changed(form, body);
  if (submitter?.name) body[submitter.name] = submitter.dataset.number !== undefined ? Number(submitter.value) : submitter.value;
  return body;
}

function tell(form, message, kind) {
  const told = $(".told", form);
  if (!told) { if (message && message !== "…") toast(message, { bad: kind === "bad" }); return; }
  told.textContent = message;
  told.className = `told ${kind}`;
}

const AFTER = {
  reload: () => location.reload(),
  renew: () => renew(),
  tell: (form, answer) => {
    if (shown.has(form)) {
      const sent = values(form)[form.dataset.body];
      for (const name of Object.keys(sent)) if (name in answer.settings && sent[name] !== shown.get(form)[name]) shown.get(form)[name] = sent[name];
      fill(form, answer.settings);
      shown.set(form, values(form)[form.dataset.body]);
    }
    tell(form, form.dataset.done ?? t("Saved."), "good");
  },
  go: (form, answer) => location.assign(form.dataset.go.replace("{slug}", encodeURIComponent(answer?.slug ?? ""))),
  secret: (form, answer) => {
    const box = document.getElementById(form.dataset.secret);
    $(".secret", box).textContent = answer.secret;
    box.hidden = false;
    form.reset();
    renew();
  },
  import: (form, answer) => {
    const { read, ...became } = answer.counts;
    const parts = Object.entries(became).map(([name, n]) => `${n} ${name}`).join(", ") || t("nothing to do");
    tell(form, answer.dry_run ? t("Nothing is stored yet. Of {n} lines: {parts}.", { n: read, parts }) : t("Of {n} lines: {parts}.", { n: read, parts }), "good");
    const cells = ({ line, item, annotator, outcome }) => [line, item, annotator, outcome].map((value, k) => el("td", { class: k ? "short" : "right" }, String(value)));
    const rows = answer.lines.map((one) => el("tr", {}, ...cells(one)));
    const head = [t("Line"), t("Item"), t("Who"), answer.dry_run ? t("Would be") : t("Became")].map((word, k) => el("th", { scope: "col", class: k ? null : "right" }, word));
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
    const more = read > answer.lines.length ? el("p", { class: "soft small" }, t("The first {shown} of {n} lines are shown.", { shown: answer.lines.length, n: read })) : null;
    $("#imported").replaceChildren(...[...answer.notes.map((note) => el("p", { class: "soft small" }, note)), el("div", { class: "scroll rows", tabindex: "0", role: "region", "aria-label": t("What became of each line") }, table), more].filter(Boolean));
  },
};

let left = null; // the place in a live part where the focus was when its form was sent

// A field that is not valid cannot get the focus inside a closed box: open the boxes around it.
document.addEventListener("invalid", (event) => {
  for (let box = event.target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
}, true);

/** A message that names settings as files and Python do, with the names that the fields of this form have. */
export function withTitles(form, message) {
  const names = $$("[name^='settings.']", form).map((field) => [field.name.slice("settings.".length), field.labels[0].textContent.trim()]);
  return names.reduce((said, [name, title]) => said.replaceAll(new RegExp(name.includes("_") ? `\\b${name}\\b` : `(?<=^|and )${name}(?= is )`, "g"), `“${title}”`), message);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.api) return;
  event.preventDefault();
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const [method, path] = form.dataset.api.split(" ");
  const buttons = $$("button", form).filter((button) => !button.disabled);
  const body = bodyOf(form, event.submitter);
  const focused = document.activeElement, part = form.closest("[data-live]");
  left = part ? { part, place: reachable(part).indexOf(focused) } : null; // a button that is disabled loses the focus
  buttons.forEach((button) => { button.disabled = true; });
  tell(form, form.dataset.busy ?? "…", "");
  try {
    const answer = await call(method, path, body);
    tell(form, "", "");
    AFTER[form.dataset.then ?? "reload"](form, answer);
  } catch (problem) {
    if (problem.code === "name_taken") { askName(form, problem); return; }
    if (problem.code === "changed" && shown.has(form)) Object.assign(shown.get(form), problem.now); // the next Save is based on these
    tell(form, withTitles(form, problem.message), "bad");
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
    if (document.activeElement === document.body && focused.isConnected) focused.focus({ preventScroll: true });
  }
});

$("#sign-out")?.addEventListener("click", async () => {
  await call("DELETE", "/api/session").catch(() => null);
  location.assign("/sign-in");
});

/** Times come as UTC; each is shown in the reader's zone, with the zone in its title. */
function localTimes(root = document) {
  for (const time of $$("time[datetime]", root)) {
    time.textContent = when(time.dateTime);
    time.title = whenExactly(time.dateTime);
  }
}

/** A table that can be scrolled by keys is a stop of the Tab key: it gets the name of its section. */
function nameScrolled(root = document) {
  for (const box of $$(".scroll[tabindex]:not([role])", root)) {
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", box.closest("section, details")?.querySelector("h2, h3, summary")?.textContent ?? t("Table"));
  }
}

/** Fetch this page again and replace the parts marked data-live, except a part in which the user is typing. */
let renewing = null, again = null;
export const renew = () => renewed().catch(() => null);

/** The same; rejected where the page could not be fetched. What is fetched now may be older than the change: then once more. */
function renewed() {
  if (renewing) return again ??= renewing.catch(() => null).then(() => { again = null; return renewed(); });
  renewing = (async () => {
    try {
      const response = await fetch(location.href, { credentials: "same-origin" });
      if (!response.ok) throw new Problem(response.status, null);
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of $$("[data-live]")) {
        const next = fresh.getElementById(part.id);
        if (!next || part.contains(document.activeElement?.closest("input, select, textarea"))) continue;
        for (const image of $$("img[data-name]", next)) keepShown(part, image);
        const lost = document.activeElement === document.body && left?.part === part;
        const focused = lost ? left.place : reachable(part).indexOf(document.activeElement);
        const open = new Set($$("details[open]", part).map((box) => box.id));
        part.replaceChildren(...next.childNodes);
        for (const box of $$("details", part)) if (open.has(box.id)) box.open = true;
        localTimes(part);
        nameScrolled(part);
        if (focused >= 0) (reachable(part)[focused] ?? reachable(part).at(-1))?.focus({ preventScroll: true });
      }
      document.dispatchEvent(new Event("renewed"));
    } finally { renewing = null; }
  })();
  return renewing;
}

/** What the Tab key reaches, in its order. */
const reachable = (root) => $$("a[href], button, input, select, textarea, summary, [tabindex='0']", root).filter((node) => !node.disabled && node.offsetParent);

/** A chart that did not change keeps its element, so that it does not flicker. */
function keepShown(part, image) {
  const shown = $(`img[data-name="${CSS.escape(image.dataset.name)}"]`, part);
  if (shown && shown.getAttribute("src") === image.getAttribute("src")) image.replaceWith(shown);
}

// The campaign of this page was deleted, or the reader was taken out of it: nothing here works any more.
document.addEventListener("gone", () => {
  const said = el("p", { class: "notice bad", role: "alert" }, t("This campaign was deleted, or you are not a member of it any more."), " ", el("a", { href: "/" }, t("All campaigns")));
  $("main").prepend(said);
  for (const button of $$("main button")) button.disabled = true;
}, { once: true });

localTimes();
nameScrolled();
for (const tab of $$("nav [aria-current]")) tab.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone the tabs scroll
const campaign = document.body.dataset.watch;
if (campaign) watch(campaign, Number(document.body.dataset.version), renewed);

function chooseWay() {
  for (const radio of $$("input[name=way]")) $(`#from-${radio.value}`).hidden = !radio.checked;
}
for (const radio of $$("input[name=way]")) radio.addEventListener("change", chooseWay);
chooseWay();
