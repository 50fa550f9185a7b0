// Many documents: read from files, tagged in parts, shown as a table, downloaded.

import { ask, asked, ofModel, patiently } from "./api.js";
import { announce, at, counted, download, el, figure, hide, show } from "./dom.js";
import { failed } from "./errors.js";
import { model, wanted } from "./settings.js";
import { scoreOf } from "./tags.js";

const PART = 32; // documents a request
const ROWS = 100; // shown at once, and with each "show more"
const EXCERPT = 240; // characters

let host; // {open(document), showTable()}
let files = [];
let documents = []; // {id, text, tags once there are any}
let nDone = 0;
let nShown = 0;
let running = null; // the AbortController of a run

export function startDocuments(given) {
  host = given;
  at("cancel").addEventListener("click", () => running?.abort());
  at("resume").addEventListener("click", tagAll);
  at("more-rows").addEventListener("click", showMore);
  at("column").addEventListener("change", () => readFiles(files, at("column").value));
  for (const button of at("downloads").querySelectorAll("button")) {
    button.addEventListener("click", () => downloadAs(button.dataset.format));
  }
}

export const hasDocuments = () => documents.length > 0;

export function forgetDocuments() {
  running?.abort();
  documents = [];
}

/** Files of a user: one document is opened as a text, many become a table. */
export async function readFiles(chosen, column = null) {
  const read = [];
  try {
    for (const file of chosen) read.push(await readFile(file, column));
  } catch (error) {
    return failed(error, () => readFiles(chosen, column));
  }
  forgetDocuments();
  const found = read.flatMap((each) => each.documents);
  if (found.length === 1) return host.open(found[0]);
  if (!found.length) return failed(new Error(`There is no document in ${chosen.map((file) => file.name).join(", ")}.`));
  [files, documents] = [chosen, found];
  openTable(read);
  return tagAll();
}

function readFile(file, column) {
  const form = new FormData();
  form.append("file", file, file.name);
  if (column) form.append("text", column);
  return asked(ofModel(model().name, "file"), { body: form });
}

function openTable(read) {
  const notes = read.map((each) => each.note).filter(Boolean);
  at("many-note").textContent = notes.join(" ");
  at("many-note").hidden = !notes.length;
  at("many-title").textContent = files.length === 1 ? files[0].name : counted(files.length, "file");
  offerColumns(read.length === 1 ? read[0] : { columns: [] });
  nDone = 0;
  showFirst();
  host.showTable();
}

/** The one that was read may be several, as in "title,abstract". */
function offerColumns({ columns, column }) {
  const names = column && !columns.includes(column) ? [column, ...columns] : columns;
  at("column").replaceChildren(...names.map((name) => el("option", { selected: name === column }, name)));
  at("column-field").hidden = names.length < 2;
}

function showFirst() {
  at("rows").replaceChildren();
  nShown = 0;
  showMore();
}

function showMore() {
  const next = documents.slice(nShown, nShown + ROWS);
  at("rows").append(...next.map((document, number) => row(document, nShown + number)));
  nShown += next.length;
  at("more-rows").hidden = nShown >= documents.length;
  at("more-rows").textContent = `Show more of ${counted(documents.length, "document")}`;
}

function row(document, number) {
  const text = document.text.trim();
  const excerpt = text.length > EXCERPT ? `${text.slice(0, EXCERPT)}…` : text || "(empty)";
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

/** Tags what is not yet tagged, from the first such document on. */
export async function tagAll() {
  running?.abort();
  const run = (running = new AbortController());
  hide(at("resume"), at("downloads"));
  show(at("cancel"), at("progress"));
  try {
    while (nDone < documents.length) {
      tell(`${figure(nDone)} of ${counted(documents.length, "document")}`);
      await tagPart(run.signal);
    }
    tell(`${counted(documents.length, "document")} tagged`);
    hide(at("progress"));
    announce(at("progress-text").textContent);
  } catch (error) {
    if (running !== run) return; // another run has begun
    tell(`Stopped at ${figure(nDone)} of ${counted(documents.length, "document")}`);
    show(at("resume"));
    if (error.name === "AbortError") announce(at("progress-text").textContent);
    else failed(error, tagAll);
  }
  if (running !== run) return;
  running = null;
  hide(at("cancel"));
  at("downloads").hidden = nDone === 0;
}

async function tagPart(signal) {
  const part = documents.slice(nDone, nDone + PART);
  const body = { texts: part.map((document) => document.text), ...wanted() };
  const question = () => asked(ofModel(model().name, "predict"), { body, signal });
  const waiting = (seconds) => tell(`The server is busy: going on in ${counted(seconds, "second")}`);
  const { results } = await patiently(question, { signal, waiting });
  signal.throwIfAborted();
  results.forEach(({ tags }, number) => {
    part[number].tags = tags;
    const shown = at("rows").children[nDone + number];
    shown?.replaceChild(el("td", { role: "cell" }, tagsOf(part[number])), shown.lastChild);
  });
  nDone += part.length;
}

/** With other settings, all is tagged again. */
export function tagAnew() {
  for (const document of documents) delete document.tags;
  nDone = 0;
  showFirst();
  return tagAll();
}

function tell(sentence) {
  at("progress").max = documents.length || 1;
  at("progress").value = nDone;
  at("progress-text").textContent = sentence;
}

async function downloadAs(format) {
  const rows = documents.slice(0, nDone).map(({ id, text, tags }) => ({ id, text, tags }));
  try {
    const response = await ask(ofModel(model().name, "table"), { body: { rows, format } });
    download(await response.blob(), `tags.${format}`);
    announce(`${counted(rows.length, "document")} downloaded as ${format}.`);
  } catch (error) {
    failed(error, () => downloadAs(format));
  }
}
