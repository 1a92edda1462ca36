// The lead writes the guidelines: a text for the campaign and one for each class, with a preview.
import { call, campaignPath } from "./api.js";
import { $, el } from "./dom.js";
import { fragment } from "./markup.js";
import { t, when } from "./texts.js";

const root = $("#guidelines");
const path = campaignPath(root.dataset.campaign, "/guidelines");
const [about, text, told] = [$("#about"), $("#text"), $("#guidelines-told")];
let held = null; // as the server has them
let drawing = null;

const saved = () => (about.value === "" ? held.text : held.classes.find((one) => `=${one.name}` === about.value).text);
const chosen = () => (about.value === "" ? null : about.value.slice(1));
const changed = () => held !== null && text.value !== saved();

function say(message, kind = "") {
  told.textContent = message;
  told.className = `told ${kind}`;
}

function list() {
  const now = about.value;
  const options = held.classes.map((one) => el("option", { value: `=${one.name}` }, one.text ? `${one.name} ✓` : one.name));
  about.replaceChildren(el("option", { value: "" }, t("The whole campaign")), el("optgroup", { label: t("Classes") }, ...options));
  about.value = now;
}

let shown = "";
function choose() {
  const next = about.value;
  about.value = shown;
  if (changed() && !confirm(t("The text is not saved. Leave it?"))) return;
  about.value = shown = next;
  text.value = saved();
  say("");
  preview();
}

async function preview() {
  clearTimeout(drawing);
  const wanted = text.value;
  $("#count").textContent = t("{n} of {all} characters", { n: wanted.length, all: text.maxLength });
  try {
    const { html } = await call("POST", `${path}/preview`, { text: wanted });
    if (wanted === text.value) $("#preview").replaceChildren(...(wanted.trim() ? fragment(html) : [el("p", { class: "soft" }, t("Nothing is written yet."))]));
  } catch (problem) { say(problem.message, "bad"); }
}

text.addEventListener("input", () => { clearTimeout(drawing); drawing = setTimeout(preview, 300); });
about.addEventListener("change", choose);
addEventListener("beforeunload", (event) => { if (changed()) event.preventDefault(); });

root.addEventListener("submit", async (event) => {
  event.preventDefault();
  $("#save").disabled = true;
  try {
    const before = held.version;
    held = await call("PUT", path, { about: chosen(), text: text.value });
    list();
    say(held.version === before ? t("Nothing has changed.") : t("Saved as version {n}. People see a mark on the button Guidelines.", { n: held.version }), "good");
    await versions();
  } catch (problem) { say(problem.message, "bad"); }
  $("#save").disabled = false;
});

async function versions() {
  const found = await call("GET", `${path}/versions?limit=100`);
  $("#versions").replaceChildren(...found.entries.map((one) => el("li", {},
    el("details", { class: "version" },
      el("summary", {}, t("Version {n}: {about}", { n: one.version, about: one.about ?? t("the whole campaign") }), el("span", { class: "soft small" }, ` ${one.who}, ${when(one.at)}`)),
      el("pre", { class: "old", tabindex: "0" }, one.text || t("(empty)")),
      el("button", { class: "button little", type: "button", onclick: () => { about.value = one.about === null ? "" : `=${one.about}`; shown = about.value; text.value = one.text; say(t("This is the text of version {n}. Save makes it the one that holds.", { n: one.version })); preview(); text.focus(); } }, t("Put it into the editor"))))));
  $("#no-versions").hidden = found.entries.length > 0;
}

held = await call("GET", path);
list();
text.value = saved();
await Promise.all([preview(), versions()]);
root.dataset.ready = "yes";
