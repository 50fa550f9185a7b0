// Documents from files: tagged in batches, shown as a table, downloaded.

import { ask, fetchJson, modelPath, retryWhileBusy } from "./api.js";
import { announce, byId, formatCount, download, el, formatNumber, hide, show } from "./dom.js";
import { showError } from "./errors.js";
import { model, predictOptions } from "./settings.js";
import { scoreOf } from "./tags.js";

const BATCH_SIZE = 32; // documents per request
const PAGE_ROWS = 100; // rows shown first, and added by "Show more"
const EXCERPT_LENGTH = 240; // characters
const ENCODINGS = ["windows-1252", "windows-1250", "windows-1251", "iso-8859-2", "mac-roman", "cp850", "utf-8"];

let host; // {open(document), showTable()}
let files = [];
let column = null; // selected by the user, as the encoding
let encoding = null;
let documents = []; // {id, text, tags}; tags are missing until predicted
let nDone = 0;
let nShown = 0;
let running = null; // AbortController of the current run

export function startDocuments(callbacks) {
  host = callbacks;
  byId("cancel").addEventListener("click", () => running?.abort());
  byId("resume").addEventListener("click", tagAll);
  byId("more-rows").addEventListener("click", showMore);
  byId("column").addEventListener("change", () => readFiles(files, { column: byId("column").value, encoding }));
  byId("encoding").addEventListener("change", () => readFiles(files, { column, encoding: byId("encoding").value }));
  for (const button of byId("downloads").querySelectorAll("button")) {
    button.addEventListener("click", () => downloadAs(button.dataset.format));
  }
}

export const hasDocuments = () => documents.length > 0;

export function discardDocuments() {
  running?.abort();
  documents = [];
}

/** Reads files: a single document is opened as a text, several become a table. */
export async function readFiles(chosen, options = {}) {
  const read = [];
  try {
    for (const file of chosen) read.push(await readFile(file, options));
  } catch (error) {
    return showError(error, () => readFiles(chosen, options));
  }
  discardDocuments();
  const contents = read.flatMap((file) => file.documents);
  if (!contents.length) return showError(new Error(`There is no document in ${chosen.map((file) => file.name).join(", ")}.`));
  ({ column = null, encoding = null } = options);
  files = chosen;
  if (contents.length === 1) {
    const opened = host.open(contents[0]);
    offerEncodings(read, read[0].note);
    return opened;
  }
  documents = contents;
  openTable(read);
  offerEncodings(read);
  return tagAll();
}

function readFile(file, options) {
  const form = new FormData();
  form.append("file", file, file.name);
  if (options.column) form.append("text", options.column);
  if (options.encoding) form.append("encoding", options.encoding);
  return fetchJson(modelPath(model().name, "file"), { body: form });
}

function openTable(read) {
  const notes = read.map((file) => file.note).filter(Boolean);
  byId("many-note").textContent = notes.join(" ");
  byId("many-note").hidden = !notes.length;
  byId("many-title").textContent = files.length === 1 ? files[0].name : formatCount(files.length, "file");
  offerColumns(read.length === 1 ? read[0] : { columns: [] });
  nDone = 0;
  showFirst();
  host.showTable();
}

/** Lists the columns; the one in use may be a combination such as "title,abstract". */
function offerColumns({ columns, column }) {
  const names = column && !columns.includes(column) ? [column, ...columns] : columns;
  byId("column").replaceChildren(...names.map((name) => el("option", { selected: name === column }, name)));
  byId("column-field").hidden = names.length < 2;
}

/** Shows how texts that are not in UTF-8 were read, and lets the user change it. */
function offerEncodings(read, note = "") {
  const assumed = read.map((file) => file.encoding).find(Boolean);
  const names = [...new Set([assumed, ...ENCODINGS])];
  byId("encoding").replaceChildren(...names.map((name) => el("option", { selected: name === assumed }, name)));
  byId("read-as-note").textContent = note;
  byId("read-as").hidden = !assumed;
}

function showFirst() {
  byId("rows").replaceChildren();
  nShown = 0;
  showMore();
}

function showMore() {
  const next = documents.slice(nShown, nShown + PAGE_ROWS);
  byId("rows").append(...next.map((document, number) => row(document, nShown + number)));
  nShown += next.length;
  byId("more-rows").hidden = nShown >= documents.length;
  byId("more-rows").textContent = `Show more of ${formatCount(documents.length, "document")}`;
}

function row(document, number) {
  const text = document.text.trim();
  const excerpt = text.length > EXCERPT_LENGTH ? `${text.slice(0, EXCERPT_LENGTH)}…` : text || "(empty)";
  const on = { click: () => host.open(document) };
  const name = el("button", { type: "button", class: "link", id: `document-${number}`, on }, document.id);
  const cell = el("td", { role: "cell" }, name, el("p", { class: "excerpt", lang: "", dir: "auto" }, excerpt));
  return el("tr", { role: "row" }, cell, el("td", { role: "cell" }, tagsOf(document)));
}

function tagsOf({ tags }) {
  if (!tags) return el("span", { class: "soft" }, "…");
  if (!tags.length) return el("span", { class: "soft" }, "no tag");
  const score = (tag) => el("small", {}, ` ${scoreOf(tag.score, model().calibrated)}`);
  const chip = (tag) => el("li", {}, el("bdi", { lang: "" }, tag.name), score(tag));
  return el("ul", { class: "chips" }, ...tags.map(chip));
}

/** Tags the remaining documents. */
export async function tagAll() {
  running?.abort();
  const run = (running = new AbortController());
  hide(byId("resume"), byId("downloads"));
  show(byId("cancel"), byId("progress"));
  try {
    while (nDone < documents.length) {
      showProgress(`${formatNumber(nDone)} of ${formatCount(documents.length, "document")}`);
      await tagPart(run.signal);
    }
    showProgress(`${formatCount(documents.length, "document")} tagged`);
    hide(byId("progress"));
    announce(byId("progress-text").textContent);
  } catch (error) {
    if (running !== run) return; // a newer run has started
    showProgress(`Stopped at ${formatNumber(nDone)} of ${formatCount(documents.length, "document")}`);
    show(byId("resume"));
    if (error.name === "AbortError") announce(byId("progress-text").textContent);
    else showError(error, tagAll);
  }
  if (running !== run) return;
  running = null;
  hide(byId("cancel"));
  byId("downloads").hidden = nDone === 0;
}

async function tagPart(signal) {
  const part = documents.slice(nDone, nDone + BATCH_SIZE);
  const body = { texts: part.map((document) => document.text), ...predictOptions() };
  const request = () => fetchJson(modelPath(model().name, "predict"), { body, signal });
  const onWait = (seconds) => showProgress(`The server is busy: continuing in ${formatCount(seconds, "second")}`);
  const { results } = await retryWhileBusy(request, { signal, onWait });
  signal.throwIfAborted();
  results.forEach(({ tags }, number) => {
    part[number].tags = tags;
    const row = byId("rows").children[nDone + number];
    row?.replaceChild(el("td", { role: "cell" }, tagsOf(part[number])), row.lastChild);
  });
  nDone += part.length;
}

/** Tags all documents again, with new settings. */
export function retagAll() {
  for (const document of documents) delete document.tags;
  nDone = 0;
  showFirst();
  return tagAll();
}

function showProgress(message) {
  byId("progress").max = documents.length || 1;
  byId("progress").value = nDone;
  byId("progress-text").textContent = message;
}

async function downloadAs(format) {
  const rows = documents.slice(0, nDone).map(({ id, text, tags }) => ({ id, text, tags }));
  try {
    const response = await ask(modelPath(model().name, "table"), { body: { rows, format } });
    download(await response.blob(), `tags.${format}`);
    announce(`${formatCount(rows.length, "document")} downloaded as ${format}.`);
  } catch (error) {
    showError(error, () => downloadAs(format));
  }
}
