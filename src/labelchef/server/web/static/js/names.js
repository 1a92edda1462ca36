// A name that another campaign has: ask what to do, never choose silently.
import { $, el } from "./dom.js";
import { t } from "./texts.js";

/** Show the question below a form; choosing the free name puts it into the field `name` and sends the form again. */
export function askName(form, problem) {
  const told = $(".told", form) ?? form.appendChild(el("p", { class: "told", role: "status" }));
  $(".taken", form)?.remove();
  told.className = "told bad";
  told.textContent = t("A campaign of this name exists.");
  const take = () => {
    const field = $("[name=name]", form) ?? form.appendChild(el("input", { type: "hidden", name: "name" }));
    field.value = problem.suggestion;
    box.remove();
    form.requestSubmit($("button[type=submit]", form));
  };
  const box = el("div", { class: "taken" },
    el("a", { class: "button little", href: `/c/${encodeURIComponent(problem.campaign)}/label` }, t("Open it")),
    el("button", { class: "button little main", type: "button", onclick: take }, t("Call this one “{name}”", { name: problem.suggestion })));
  told.after(box);
}
