// Model, language, how many tags and which: chosen by hand, remembered by the browser.

import { at, counted, el } from "./dom.js";

const KEY = "xmtc-settings";
const FIELDS = ["model", "language", "decision", "k", "threshold"];
let models = [];

export const model = () => models.find((each) => each.name === at("model").value);
export const language = () => at("language").value || null;

/** What of the settings a prediction is asked with. */
export function wanted() {
  const decision = at("decision").value;
  return {
    k: at("k").valueAsNumber,
    threshold: { best: null, above: at("threshold").valueAsNumber, tuned: "tuned" }[decision],
    language: language(),
  };
}

/** `changed(field)` is called with the id of the field. */
export function startSettings(served, changed) {
  models = served;
  at("model").replaceChildren(...models.map(({ name }) => el("option", { value: name }, name)));
  remembered();
  suit();
  at("settings").addEventListener("change", (event) => {
    mend(event.target);
    suit();
    remember();
    changed(event.target.id);
  });
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  folded();
}

/** A number out of range becomes the nearest that is allowed; none at all, the usual one. */
function mend(field) {
  if (field.type !== "number" || field.checkValidity()) return;
  const number = Number.isNaN(field.valueAsNumber) ? field.defaultValue : field.valueAsNumber;
  const inRange = Math.min(Math.max(number, field.min), field.max);
  field.value = field.step ? inRange : Math.round(inRange);
}

/** On a narrow screen the settings are folded; on a wide one they always stand there. */
function folded() {
  const wide = matchMedia("(min-width: 54rem)");
  const details = at("settings").querySelector("details");
  details.open = wide.matches;
  wide.addEventListener("change", () => (details.open = wide.matches));
}

function remembered() {
  let values = {};
  try {
    values = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    // begun anew
  }
  const isServed = models.some(({ name }) => name === values.model);
  if (isServed) at("model").value = values.model;
  listLanguages();
  for (const field of FIELDS.slice(1)) if (values[field]) at(field).value = values[field];
  for (const field of ["k", "threshold"]) mend(at(field));
}

function remember() {
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(FIELDS.map((field) => [field, at(field).value]))));
  } catch {
    // a full or closed store: the settings hold for this visit
  }
}

function listLanguages() {
  const names = new Intl.DisplayNames("en", { type: "language", fallback: "code" });
  const before = [at("language").value, ...navigator.languages.map((tag) => tag.split("-")[0])];
  const options = model().languages.map((code) => el("option", { value: code }, nameOf(code, names)));
  at("language").replaceChildren(...options);
  at("language-field").hidden = options.length < 2;
  const known = before.find((code) => model().languages.includes(code));
  if (known) at("language").value = known;
}

function nameOf(code, names) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

/** Shows what the chosen model can do, and no more. */
function suit() {
  const chosen = model();
  listLanguages();
  const tuned = at("decision").querySelector("[value=tuned]");
  tuned.hidden = tuned.disabled = !chosen.decision;
  if (chosen.decision) tuned.textContent = `tags above thresholds tuned for ${chosen.decision.goal.replace(/f1$/i, "F1")}`;
  if (tuned.disabled && tuned.selected || at("decision").selectedIndex < 0) at("decision").value = "best";
  const decision = at("decision").value;
  at("model-field").hidden = models.length < 2;
  at("threshold-field").hidden = decision !== "above";
  at("k-field").hidden = decision === "tuned";
  at("k-field").firstChild.data = decision === "above" ? "At most " : "How many ";
  const given = { best: `best ${at("k").value}`, above: `above ${at("threshold").value}`, tuned: "tuned" };
  at("settings-summary").textContent = given[decision];
  const names = models.length > 1 ? [] : [chosen.name];
  at("facts").textContent = [...names, chosen.method, counted(chosen.n_labels, "tag")].filter(Boolean).join(" · ");
}
