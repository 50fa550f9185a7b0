// Settings (model, language, number and threshold of tags), stored in the browser.

import { byId, formatCount, el } from "./dom.js";

const KEY = "xmtc-settings";
const FIELDS = ["model", "language", "decision", "k", "threshold"];
let models = [];

export const model = () => models.find(({ name }) => name === byId("model").value);
export const language = () => byId("language").value || null;

/** Returns the fields of a prediction request. */
export function predictOptions() {
  const decision = byId("decision").value;
  return {
    k: byId("k").valueAsNumber,
    threshold: { best: null, above: byId("threshold").valueAsNumber, tuned: "tuned" }[decision],
    language: language(),
  };
}

/** Takes a newer list of the models; returns whether the selected model was replaced. */
export function updateModels(served) {
  const before = model();
  const after = served.find(({ name }) => name === before.name);
  if (!after) return false; // damaged: the server answers with an error
  models = served;
  if (after.version !== before.version) updateFields();
  return after.version !== before.version;
}

/** `onChange` is called with the id of the changed field. */
export function startSettings(served, onChange) {
  models = served;
  byId("model").replaceChildren(...models.map(({ name }) => el("option", { value: name }, name)));
  restoreSettings();
  updateFields();
  byId("settings").addEventListener("change", (event) => {
    clampValue(event.target);
    updateFields();
    saveSettings();
    onChange(event.target.id);
  });
  byId("settings").addEventListener("submit", (event) => event.preventDefault());
  foldOnNarrowScreen();
}

/** Replaces an invalid number by the nearest allowed one, or an empty field by its default. */
function clampValue(field) {
  if (field.type !== "number" || field.checkValidity()) return;
  const number = Number.isNaN(field.valueAsNumber) ? field.defaultValue : field.valueAsNumber;
  const inRange = Math.min(Math.max(number, field.min), field.max);
  field.value = field.step ? inRange : Math.round(inRange);
}

/** Folds the settings on narrow screens. */
function foldOnNarrowScreen() {
  const wide = matchMedia("(min-width: 54rem)");
  const details = byId("settings").querySelector("details");
  details.open = wide.matches;
  wide.addEventListener("change", () => (details.open = wide.matches));
}

function restoreSettings() {
  let values = {};
  try {
    values = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    // no or invalid stored settings: use the defaults
  }
  const isServed = models.some(({ name }) => name === values.model);
  if (isServed) byId("model").value = values.model;
  listLanguages();
  for (const field of FIELDS.slice(1)) if (values[field]) byId(field).value = values[field];
  for (const field of ["k", "threshold"]) clampValue(byId(field));
}

function saveSettings() {
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(FIELDS.map((field) => [field, byId(field).value]))));
  } catch {
    // storage is full or disabled: the settings are lost when the page is closed
  }
}

function listLanguages() {
  const names = new Intl.DisplayNames("en", { type: "language", fallback: "code" });
  const before = [byId("language").value, ...navigator.languages.map((tag) => tag.split("-")[0])];
  const options = model().languages.map((code) => el("option", { value: code }, nameOf(code, names)));
  byId("language").replaceChildren(...options);
  byId("language-field").hidden = options.length < 2;
  const known = before.find((code) => model().languages.includes(code));
  if (known) byId("language").value = known;
}

function nameOf(code, names) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

/** Shows the fields that the selected model supports. */
function updateFields() {
  const selected = model();
  listLanguages();
  const tuned = byId("decision").querySelector("[value=tuned]");
  tuned.hidden = tuned.disabled = !selected.decision;
  if (selected.decision) tuned.textContent = `tags above thresholds tuned for ${selected.decision.goal.replace(/f1$/i, "F1")}`;
  if (tuned.disabled && tuned.selected || byId("decision").selectedIndex < 0) byId("decision").value = "best";
  const decision = byId("decision").value;
  byId("model-field").hidden = models.length < 2;
  byId("threshold-field").hidden = decision !== "above";
  byId("k-field").hidden = decision === "tuned";
  byId("k-field").firstChild.data = decision === "above" ? "At most " : "Number of tags ";
  const summaries = { best: `best ${byId("k").value}`, above: `above ${byId("threshold").value}`, tuned: "tuned" };
  byId("settings-summary").textContent = summaries[decision];
  const names = models.length > 1 ? [] : [selected.name];
  byId("facts").textContent = [...names, selected.method, formatCount(selected.n_labels, "tag")].filter(Boolean).join(" · ");
}
