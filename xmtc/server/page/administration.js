// Part of the review desk for administrators: texts, export, updates, agreement and conflicts.

import { ask, fetchJson, modelPath } from "./api.js";
import { announce, byId, download, el, show } from "./dom.js";
import { showError } from "./errors.js";
import { t } from "./translation.js";

const TEXTS_PER_REQUEST = 200;
const POLL_MS = 1000;
let actions; // deskPath, model, openDocument, refreshSummary
let timer;

export function startAdministration(given) {
  actions = given;
  show(byId("administration"));
  byId("import").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => importTexts([...byId("file").files]).catch(showError));
  byId("export").addEventListener("click", () => exportDecisions().catch(showError));
  byId("update").addEventListener("click", () => post("updates"));
  byId("model").addEventListener("change", refresh);
  byId("page-language").addEventListener("change", refresh);
  byId("save").addEventListener("click", () => setTimeout(refreshAgreement, POLL_MS));
  refresh();
}

function refresh() {
  refreshUpdates();
  refreshAgreement();
}

async function importTexts(files) {
  byId("file").value = "";
  let n = 0;
  for (const file of files) {
    const body = new FormData();
    body.append("file", file);
    const { documents } = await fetchJson(modelPath(actions.model().name, "file"), { body });
    const texts = documents.filter(({ text }) => text.trim());
    for (let start = 0; start < texts.length; start += TEXTS_PER_REQUEST) {
      const part = texts.slice(start, start + TEXTS_PER_REQUEST).map(({ id, text }) => ({ id, text }));
      await ask(actions.deskPath("documents"), { body: { documents: part } });
      n += part.length;
    }
  }
  announce(t("imported", { n }));
  await actions.refreshSummary();
}

async function exportDecisions() {
  const response = await ask(actions.deskPath("export"));
  download(await response.blob(), `feedback-${actions.model().name.replace(/[^\w.-]+/g, "-")}.jsonl`);
}

async function post(path) {
  try {
    await ask(actions.deskPath(path), { body: {} });
  } catch (error) {
    showError(error);
  }
  await refreshUpdates();
}

/** Shows the updates, and again every second while one is running. */
async function refreshUpdates() {
  clearTimeout(timer);
  try {
    const { updates } = await fetchJson(actions.deskPath("updates"));
    const items = updates.map((update) => updateItem(update, updates));
    byId("updates").replaceChildren(...(items.length ? items : [el("li", {}, t("no-updates"))]));
    if (updates.some(({ state }) => state === "running")) timer = setTimeout(refreshUpdates, POLL_MS);
  } catch (error) {
    showError(error, refreshUpdates);
  }
}

function updateItem({ number, state, message, report }, updates) {
  const served = updates.find((update) => update.state === "served");
  const button = (verb) => el("button", { type: "button", on: { click: () => post(`updates/${number}/${verb}`) } }, t(verb));
  const lines = [message, report.summary, report.summary && compare(report)].filter(Boolean);
  return el(
    "li",
    {},
    el("span", {}, t("update-title", { number, state: t(`state-${state}`) })),
    state === "ready" ? button("switch") : null,
    number === served?.number ? button("rollback") : null,
    ...lines.map((line) => el("p", {}, line)),
  );
}

function compare({ before, after, n_held_out: n }) {
  const metrics = Object.keys(before).map((name) => `${name} ${before[name].toFixed(3)} → ${after[name].toFixed(3)}`);
  return metrics.length ? t("held-out", { n, metrics: metrics.join(", ") }) : t("too-few", { n });
}

async function refreshAgreement() {
  try {
    const { pairs, conflicts, names } = await fetchJson(actions.deskPath("agreement"));
    const agreement = pairs.map(({ people, documents, consistency }) =>
      el("li", {}, t("agreement-of", { people: people.join(" – "), value: consistency.toFixed(2), n: documents })),
    );
    byId("agreement").replaceChildren(...(agreement.length ? agreement : [el("li", {}, t("no-agreement"))]));
    const items = conflicts.map((conflict) => conflictItem(conflict, names));
    byId("conflicts").replaceChildren(...(items.length ? items : [el("li", {}, t("no-conflicts"))]));
  } catch (error) {
    showError(error, refreshAgreement);
  }
}

function conflictItem({ document, labels }, names) {
  const on = { click: () => actions.openDocument(document) };
  const votes = labels.map(({ label, yes, no }) =>
    el("p", {}, t("conflict", { label: names[label], yes: yes.join(", "), no: no.join(", ") })),
  );
  return el("li", {}, el("button", { type: "button", class: "link", on }, t("open", { number: document })), ...votes);
}
