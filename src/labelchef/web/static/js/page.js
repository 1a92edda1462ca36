// What every page has: theme, sign-out, forms that call the API, times in local words, parts that renew themselves.
import { call } from "./api.js";
import { $, $$, el, toast } from "./dom.js";
import { watch } from "./live.js";

$("#theme")?.addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("labelchef-theme", next); } catch { /* for this page only */ }
});

document.addEventListener("click", (event) => {
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const opener = event.target.closest?.("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog).showModal();
});

/** The values of a form as the API takes them: numbers as numbers, ticks as true and false, nothing for what is empty. */
function values(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "radio" && !field.checked)) continue;
    let value = field.value;
    if (field.type === "checkbox") value = field.checked;
    else if (field.type === "number" || field.dataset.type === "number") value = value === "" ? null : Number(value);
    else if (field.dataset.type === "boolean") value = value === "true";
    else if (value === "" && !field.required) continue;
    if (value === null && !("clears" in field.dataset)) continue;
    const path = field.name.split(".");
    let at = body;
    for (const step of path.slice(0, -1)) at = at[step] ??= {};
    at[path.at(-1)] = value;
  }
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
  tell: (form) => tell(form, form.dataset.done ?? "Saved.", "good"),
  go: (form, answer) => location.assign(form.dataset.go.replace("{slug}", encodeURIComponent(answer?.slug ?? ""))),
  secret: (form, answer) => {
    const box = document.getElementById(form.dataset.secret);
    $(".secret", box).textContent = answer.secret;
    box.hidden = false;
    form.reset();
    renew();
  },
  import: (form, answer) => tell(form, `${answer.dry_run ? "Would store" : "Stored"}: ${Object.entries(answer.counts).map(([name, n]) => `${n} ${name}`).join(", ")}.`, "good"),
  replay: (form, answer) => tell(form, answer.message, answer.agrees ? "good" : "bad"),
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.api) return;
  event.preventDefault();
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const [method, path] = form.dataset.api.split(" ");
  const buttons = $$("button", form).filter((button) => !button.disabled);
  const body = form.enctype === "multipart/form-data" ? filled(new FormData(form, event.submitter)) : values(form);
  if (event.submitter?.name && !(body instanceof FormData)) body[event.submitter.name] = event.submitter.dataset.number !== undefined ? Number(event.submitter.value) : event.submitter.value;
  buttons.forEach((button) => { button.disabled = true; });
  tell(form, form.dataset.busy ?? "…", "");
  try {
    const answer = await call(method, path, body);
    tell(form, "", "");
    AFTER[form.dataset.then ?? "reload"](form, answer);
  } catch (problem) {
    tell(form, problem.message, "bad");
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
});

/** A form without the files that were not chosen. */
function filled(data) {
  for (const key of new Set(data.keys())) {
    const kept = data.getAll(key).filter((value) => (value instanceof File ? value.size || value.name : value !== ""));
    data.delete(key);
    for (const value of kept) data.append(key, value);
  }
  return data;
}

$("#sign-out")?.addEventListener("click", async () => {
  await call("DELETE", "/api/session").catch(() => null);
  location.assign("/sign-in");
});

function localTimes(root = document) {
  const words = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  for (const time of $$("time[datetime]", root)) time.textContent = words.format(new Date(time.dateTime));
}

/** Fetch this page again and swap the parts marked data-live; what is being typed in stays. */
let renewing = null;
export function renew() {
  renewing ??= (async () => {
    try {
      const response = await fetch(location.href, { credentials: "same-origin" });
      if (!response.ok) return;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of $$("[data-live]")) {
        const next = fresh.getElementById(part.id);
        if (!next || part.contains(document.activeElement?.closest("input, select, textarea"))) continue;
        for (const image of $$("img[data-name]", next)) keepShown(part, image);
        const open = new Set($$("details[open]", part).map((box) => box.id));
        part.replaceChildren(...next.childNodes);
        for (const box of $$("details", part)) if (open.has(box.id)) box.open = true;
        localTimes(part);
      }
      document.dispatchEvent(new Event("renewed"));
    } finally { renewing = null; }
  })();
  return renewing;
}

/** A chart that did not change keeps its element, so that nothing blinks. */
function keepShown(part, image) {
  const shown = $(`img[data-name="${CSS.escape(image.dataset.name)}"]`, part);
  if (shown && shown.getAttribute("src") === image.getAttribute("src")) image.replaceWith(shown);
}

localTimes();
$(".sub a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
const campaign = document.body.dataset.watch;
if (campaign) watch(campaign, () => renew(), { since: Number(document.body.dataset.version) });

const folder = $("#from-folder");
if (folder) {
  const choose = () => {
    const way = $("input[name=way]:checked")?.value;
    $("#from-folder").hidden = way !== "folder";
    $("#from-files").hidden = way !== "files";
  };
  for (const radio of $$("input[name=way]")) radio.addEventListener("change", choose);
  choose();
}
