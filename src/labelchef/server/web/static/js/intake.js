// A new campaign from files: upload, see how they are used, correct it, create.
import { call, Problem, sleep } from "./api.js";
import { $, $$, el } from "./dom.js";
import { askName } from "./names.js";
import { values, withTitles } from "./page.js";
import { startRules } from "./rules.js";
import { number, t, when } from "./texts.js";

const FILE_ROLES = {
  items: t("Items: one row each"), trusted: t("Labels you trust"), test: t("Test labels, for the last measurement"), votes: t("Votes of sources"),
  weak: t("Probabilities by class"), features: t("Embeddings"), rules: t("Rules"), llm: t("LLM labels"), media: t("Images"), ignored: t("Not used"),
};
const COLUMN_ROLES = {
  id: t("id"), text: t("text"), image: t("image"), feature: t("feature of the model"), shown: t("shown only"), label: t("label you trust"), source: t("a source’s vote"),
  class: t("probability of this class"), voter: t("who votes"), vote: t("the vote"), probability: t("probability of the vote"), split: t("training, trusted or test"), ignored: t("not used"),
};
const CONTENT = ["id", "text", "image", "feature", "shown", "label", "source", "class", "split", "ignored"];
const FITTING = {
  items: CONTENT, trusted: CONTENT, test: CONTENT, votes: ["id", "source", "voter", "vote", "probability", "ignored"],
  weak: ["id", "class", "ignored"], features: ["id", "feature", "ignored"],
};
const SPLITS = { train: t("training"), trusted: t("trusted"), test: t("test") };
const SEVERITIES = { error: t("To mend"), warning: t("Please check"), note: t("Note") };
const COLUMNS_AT_ONCE = 300;
const SWITCHES = { "by-position": "by_position", "id-from-rows": "rows_are_ids", "fold-case": "fold_case" };
/** Roles of a column and of a file by the option of the command line that gives them. */
const BY_COLUMN = { id: "id", text: "text", image: "image", columns: "feature", labels: "source", "truth-column": "label", split: "split", shown: "shown", use: "shown", ignore: "ignored" };
const BY_FILE = { votes: "votes", trusted: "trusted", rules: "rules", features: "features", images: "media" };
const page = $("#main"), box = $("#intake"), sent = $("#sent"), create = $("#create");
const path = (id, rest = "") => `/api/intakes/${encodeURIComponent(id)}${rest}`;
let now = null; // the intake as it was answered last
let newest = 0; // a later request makes earlier answers void

function tell(node, message, kind = "") {
  node.textContent = message;
  node.className = `told ${kind}`;
}

const ticked = (id) => t("tick “{what}”", { what: $(`label:has(#${id}) > span`).firstChild.textContent });

/** A message of the server, whose remedies are options of the command line, with the remedies of this page. */
function inWords(message) {
  return message.replaceAll(/(?:labelchef init NAME data\.csv )?(?<![\w-])--([a-z][a-z-]+)((?: (?!--|or |and )[^\s;)]+)*)/g, (found, option, given) => {
    const name = given.trim(), end = /[.,]$/.exec(name)?.[0] ?? "";
    const which = name.slice(0, name.length - end.length).replaceAll(",", ", ");
    if (found.includes("--functions")) return t("labelchef init NAME data.csv --functions FILE.py on the command line{end}", { end });
    if (found.startsWith("labelchef")) return t("choose “{role}” for a file{end}", { role: FILE_ROLES.items, end });
    if (option === "classes") return t("under “Classes” below{end}", { end });
    if (SWITCHES[option]) return ticked(option) + end;
    const [role, any] = BY_FILE[option] ? [FILE_ROLES[BY_FILE[option]], t("the file")] : [COLUMN_ROLES[BY_COLUMN[option]], t("the column")];
    return role ? t("choose “{role}” for {which}{end}", { role, which: !which || /^[A-Z]+$|^A, B$|^gold\.csv$/.test(which) ? any : which, end }) : found;
  });
}

/* Upload */

/** All files of what was dropped, with their paths: folders are walked. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => [file, file.name]);
  const found = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      found.push([await new Promise((done, failed) => entry.file(done, failed)), entry.fullPath.replace(/^\//, "")]);
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((done, failed) => reader.readEntries(done, failed));
      if (!some.length) return;
      for (const one of some) await walk(one);
    }
  };
  for (const entry of entries) await walk(entry);
  return found;
}

/** Send files; unlike fetch, XMLHttpRequest says how much has arrived. */
function send(address, files, shown) {
  const form = new FormData();
  for (const [file, name] of files) form.append("files", file, name);
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", address);
    request.responseType = "json";
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("X-CSRF-Token", $('meta[name="csrf"]').content);
    request.upload.onprogress = (event) => { if (event.lengthComputable) shown(event.loaded / event.total); };
    request.onerror = () => failed(new Problem(0, null));
    request.onload = () => {
      if (request.status < 400) done(request.response);
      else failed(new Problem(request.status, request.response ?? { detail: t("The server answered {status}.", { status: request.status }), code: "http" }));
    };
    request.send(form);
  });
}

async function upload(files) {
  const kept = files.filter(([, name]) => !name.split("/").some((part) => part.startsWith(".") || part === "__MACOSX"));
  if (!kept.length) return;
  const bytes = kept.reduce((sum, [file]) => sum + file.size, 0);
  if (bytes > Number(page.dataset.most) * 2 ** 20) {
    tell(sent, t("These are {size}; the server takes {most} MiB. Use a folder on the server, or labelchef init.", { size: size(bytes), most: page.dataset.most }), "bad");
    return;
  }
  const bar = $("#sending");
  bar.hidden = false;
  bar.value = 0;
  tell(sent, kept.length === 1 ? t("Uploading {name}…", { name: kept[0][1] }) : t("Uploading {n} files…", { n: number(kept.length) }));
  try {
    const address = now && now.state !== "made" ? path(now.id, "/files") : "/api/intakes";
    const shown = (share) => { bar.value = share; };
    let answer;
    try {
      answer = await send(address, kept, shown);
    } catch (problem) {
      if (problem.code !== "file_exists" || !window.confirm(`${problem.message}\n\n${t("Replace it?")}`)) throw problem;
      answer = await send(`${address}?replace=true`, kept, shown);
    }
    await follow(answer);
    tell(sent, "");
  } catch (problem) {
    tell(sent, inWords(problem.message), "bad");
  } finally {
    bar.hidden = true;
  }
}

const zone = $("#from-files");
for (const name of ["dragenter", "dragover"]) zone.addEventListener(name, (event) => { event.preventDefault(); zone.classList.add("over"); });
for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
zone.addEventListener("drop", async (event) => { event.preventDefault(); upload(await dropped(event.dataTransfer)); });
for (const input of $$("input[type=file]", zone)) {
  input.addEventListener("change", () => {
    upload([...input.files].map((file) => [file, file.webkitRelativePath || file.name]));
    input.value = "";
  });
}
for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault()); // a missed drop does not leave the page

$("#from-folder").addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = $(".told", event.target);
  tell(told, t("Reading the folder…"));
  try {
    await follow(await call("POST", "/api/intakes/from-folder", { folder: $("#folder").value }));
    tell(told, "");
  } catch (problem) {
    tell(told, inWords(problem.message), "bad");
  }
});

/* What is being done */

/** Show an intake and, while the server works on it, ask how far it is. */
async function follow(first) {
  const turn = (newest += 1);
  for (let intake = first; turn === newest; intake = await call("GET", path(first.id))) {
    show(intake);
    if (!["reading", "creating"].includes(intake.state)) return;
    await sleep(400);
    if (turn !== newest) return;
  }
}

async function change(body) {
  newest += 1;
  tell($("#working"), t("Reading…"));
  try {
    await follow(await call("PATCH", path(now.id), body));
  } catch (problem) {
    show(now);
    tell($("#working"), inWords(problem.message), "bad");
  }
}

function progress(bar, working) {
  bar.hidden = !working;
  if (!working) return;
  if (working.total) { bar.max = working.total; bar.value = working.done; } else bar.removeAttribute("value");
}

const count = (working) => (working.total ? t("{what}: {n} of {all}", { what: working.what, n: number(working.done), all: number(working.total) }) : `${working.what}…`);

function show(intake) {
  now = intake;
  if (intake.state === "made") {
    location.assign(`/c/${encodeURIComponent(intake.campaign)}/lead`);
    return;
  }
  history.replaceState(null, "", `/new?intake=${encodeURIComponent(intake.id)}`);
  box.hidden = false;
  $("#waiting").hidden = true;
  zone.classList.add("less");
  $("#drop-title").textContent = t("Drop more files here, or the same ones again");
  const focused = document.activeElement?.id, making = intake.state === "creating", reading = intake.state === "reading";
  if (reading) tell($("#working"), intake.working ? count(intake.working) : t("Reading…"));
  else tell($("#working"), intake.preview ? "" : inWords(intake.problem ?? ""), "bad"); // what hinders the making is told beside its button
  progress($("#reading"), reading ? intake.working ?? { total: 0 } : null);
  progress($("#making"), making ? intake.working ?? { total: 0 } : null);
  if (making && intake.working) tell($(".told", create), count(intake.working));
  if (!reading) {
    $("#files").replaceChildren(...intake.files.map(file));
    for (const [id, name] of Object.entries(SWITCHES)) $(`#${id}`).checked = intake[name];
    look(intake);
    rules.show(intake);
  }
  for (const field of $$("select, input", create)) field.disabled = making;
  $("button[type=submit]", create).disabled = making || !intake.preview?.usable;
  for (const field of [...$$("#files select"), ...Object.keys(SWITCHES).map((id) => $(`#${id}`))]) field.disabled = making;
  box.classList.toggle("busy", reading);
  box.setAttribute("aria-busy", String(reading || making));
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
}

/* Roles */

const size = (bytes) => (bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`);

function choice(id, label, words, fitting, chosen, changed) {
  const keys = fitting.includes(chosen) ? fitting : [chosen, ...fitting];
  const select = el("select", { id, "aria-label": label, onchange: () => changed(select.value) },
    ...keys.map((key) => el("option", { value: key, selected: key === chosen }, words[key] ?? key)));
  return select;
}

/** A path for people: '.' is the folder itself, '#train' a part of it. */
const named = (name) => (name === "." ? t("The whole folder") : name.startsWith("#") ? t("The folder, {part}", { part: name.slice(1) }) : name);

function file(one, k) {
  const roles = choice(`role-${k}`, t("Use of {file}", { file: named(one.path) }), FILE_ROLES, Object.keys(FILE_ROLES), one.role, (role) => change({ files: [{ path: one.path, role }] }));
  const head = el("div", { class: "file-head" },
    el("div", {}, el("h3", { class: "file-name" }, named(one.path)), el("p", { class: "soft small" }, inWords(one.why))), roles);
  const columns = Object.entries(one.columns);
  if (!columns.length || one.role === "ignored") return el("div", { class: "card file" }, head);
  const fields = columns.map(([name, role], j) => {
    const select = choice(`column-${k}-${j}`, t("Use of the column {column} of {file}", { column: name, file: one.path }), COLUMN_ROLES, FITTING[one.role] ?? Object.keys(COLUMN_ROLES), role,
      (chosen) => change({ files: [{ path: one.path, columns: { [name]: chosen } }] }));
    return el("div", { class: `field column role-${role}` }, el("span", { class: "legend", title: name }, name), select);
  });
  const grid = el("div", { class: "columns-of" }, ...fields.slice(0, COLUMNS_AT_ONCE));
  const rest = fields.slice(COLUMNS_AT_ONCE);
  const more = rest.length ? el("div", {}, el("button", { class: "button little", type: "button", onclick: () => { grid.append(...rest); more.remove(); } }, t("{n} more columns", { n: number(rest.length) }))) : null;
  return el("div", { class: "card file stack" }, head, grid, more);
}

for (const [id, name] of Object.entries(SWITCHES)) $(`#${id}`).addEventListener("change", (event) => change({ [name]: event.target.checked }));
$("#keep-classes").addEventListener("click", () => {
  const given = (lines) => lines.map((line) => line.trim()).filter(Boolean);
  const lines = given($("#classes").value.split("\n"));
  change({ classes: lines.length === 1 ? given(lines[0].split(",")) : lines }); // one line: names with commas between them
});
$("#start-over").addEventListener("click", async () => {
  newest += 1;
  await call("DELETE", path(now.id)).catch(() => null);
  location.assign("/new");
});

/* What will be made */

const tile = (value, word, more = "") => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, word), more ? el("small", { title: more }, more) : null);

function finding(one) {
  const examples = one.examples.length ? el("span", { class: "soft small examples" }, t("For example {examples}", { examples: one.examples.join(", ") })) : null;
  return el("li", { class: `finding ${one.severity}` }, el("b", {}, SEVERITIES[one.severity]), el("div", {}, el("span", {}, inWords(one.message)), examples));
}

function cell(content, role, row) {
  if (content === null || content === undefined) return el("td", { class: "soft" }, "–");
  if (role !== "image") return el("td", { class: role === "text" ? "wrap" : "short", dir: "auto" }, content);
  const image = el("img", { class: "thumb", src: path(now.id, `/image?path=${encodeURIComponent(content)}`), alt: t("Image of {item}", { item: row.id }), title: content, loading: "lazy" });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "soft small" }, content)));
  return el("td", {}, image);
}

function look({ preview }) {
  $("#look").hidden = !preview;
  create.hidden = !preview;
  if (!preview) return;
  $("#counts").replaceChildren(...[
    tile(number(preview.n_train), t("rows to learn from")), tile(number(preview.n_trusted), t("rows with labels you trust")),
    preview.n_test ? tile(number(preview.n_test), t("test rows")) : null,
    tile(number(preview.classes.length), t("classes"), preview.classes.join(", ")), tile(number(preview.sources.length), t("sources"), preview.sources.join(", "))].filter(Boolean));
  const order = Object.keys(SEVERITIES);
  const found = [...preview.findings].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  $("#findings").replaceChildren(...found.map(finding));
  const content = Object.entries(preview.content);
  const heads = [t("id"), t("used for"), ...content.map(([name]) => name), t("label"), ...(preview.sources.length ? [t("votes")] : [])];
  const rows = preview.rows.map((row) => el("tr", {}, el("th", { scope: "row", class: "short" }, row.id), el("td", {}, el("span", { class: `badge ${row.split}` }, SPLITS[row.split] ?? row.split)),
    ...content.map(([name, role]) => cell(row.content[name], role, row)), el("td", { class: "short" }, row.label ?? "–"),
    preview.sources.length ? el("td", { class: "votes-of" }, ...Object.entries(row.votes).map(([source, label]) => el("span", { class: "badge" }, `${source}: ${label}`))) : null));
  $("#rows").replaceChildren(el("thead", {}, el("tr", {}, ...heads.map((word) => el("th", { scope: "col" }, word)))), el("tbody", {}, ...rows));
  for (const field of $$(".encoders .field", create)) field.hidden = !Object.values(preview.content).includes(field.dataset.role);
  const items = now.files.find((one) => one.role === "items" && !/^[.#]/.test(one.path));
  if (!$("#name").value && items) $("#name").value = items.path.split("/").at(-1).replace(/\.[^.]*$/, "").slice(0, 100);
  if (found.some((one) => one.code === "few-classes")) $("#classes-box").open = true;
  if (document.activeElement?.id !== "classes") $("#classes").value = preview.classes.join("\n");
  const hindrance = preview.usable ? inWords(now.problem ?? "") : t("First mend what is marked “To mend” above.");
  if (now.state === "ready") tell($(".told", create), hindrance, "bad");
}

/* Create */

create.addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = $(".told", create);
  tell(told, t("Checking…"));
  try {
    const { name, settings } = values(create);
    const encoders = $$(".encoders select", create).filter((select) => !select.closest(".field").hidden && select.value).map((select) => select.value);
    await follow(await call("POST", path(now.id, "/create"), { name, settings, ...(encoders.length ? { encoders } : {}) }));
  } catch (problem) {
    if (problem.code === "name_taken") askName(create, problem);
    else tell(told, withTitles(create, inWords(problem.message)), "bad");
  }
});

const rules = startRules({ path, follow, intake: () => now });

async function begin() {
  if (page.dataset.intake) {
    try { await follow(await call("GET", path(page.dataset.intake))); return; } catch (problem) { tell(sent, problem.message, "bad"); }
  }
  const { entries } = await call("GET", "/api/intakes");
  const open = entries.filter((one) => one.state !== "made");
  $("#waiting").hidden = !open.length;
  $("#waiting-list").replaceChildren(...open.map((one) => el("li", { class: "card campaign" },
    el("div", {}, el("a", { href: `/new?intake=${encodeURIComponent(one.id)}` }, one.names.join(", ") || t("files")), el("p", { class: "soft small" }, when(one.created_at))),
    el("button", { class: "button little", type: "button", onclick: async () => { await call("DELETE", path(one.id)).catch(() => null); begin(); } }, t("Delete")))));
}
begin().catch((problem) => tell(sent, problem.message, "bad"));
