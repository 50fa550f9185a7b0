// The page: a text or files in, ranked tags out, with the words that speak for them.

import { address, ask, asked, ofModel, token } from "./api.js";
import { announce, at, download, hide, show } from "./dom.js";
import { forgetDocuments, hasDocuments, readFiles, startDocuments, tagAnew } from "./documents.js";
import { failed, noError } from "./errors.js";
import { openFeedback, startFeedback } from "./feedback.js";
import { model, startSettings } from "./settings.js";
import { addTag, closeWhy, isTagged, openText, refreshThumbs, startText, tag } from "./text.js";
import { startSearch } from "./vocabulary.js";

const NOT_ACCEPTED = "This token is not accepted: look for a missing letter, or ask for another.";
let isOutdated = false; // the table, tagged with other settings than those that were chosen since

async function start() {
  try {
    const { models } = await asked("v1/models");
    if (!models.length) throw new Error("The server has no model: start it as xmtc serve MODEL.");
    startSettings(models, settled);
    opened();
    document.body.classList.add("ready");
  } catch (error) {
    failed(error, start);
  }
}

/** The chosen model is another, or the first one. */
function opened() {
  openFeedback(model().name);
  at("report").hidden = !model().report;
  at("report").href = address(ofModel(model().name, "report"));
}

function settled(field) {
  if (field === "model") opened();
  isOutdated = at("many").hidden && hasDocuments();
  if (!at("many").hidden) tagAnew();
  else if (isTagged()) tag();
}

// Views: one text, or a table of many

function showTable() {
  hide(at("one"));
  show(at("many"));
  at("many-title").focus();
}

function backToTable() {
  showTable();
  if (isOutdated) tagAnew();
  isOutdated = false;
}

function showText() {
  hide(at("many"));
  show(at("one"));
  at("back").hidden = !hasDocuments();
}

function openDocument({ text }) {
  showText();
  window.scrollTo(0, 0);
  return openText(text);
}

function leaveTable() {
  forgetDocuments();
  showText();
  at("text").focus();
}

// Files, chosen or dropped

async function read(files) {
  if (!files.length) return;
  noError();
  announce("Reading");
  document.body.classList.add("reading");
  await readFiles(files);
  document.body.classList.remove("reading");
}

function startFiles() {
  at("open-file").addEventListener("click", () => at("file").click());
  at("file").addEventListener("change", async () => {
    const files = [...at("file").files];
    at("file").value = ""; // so that the same file can be opened again
    await read(files);
  });
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => hasFiles(event) && show(at("drop")));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("dragleave", (event) => event.relatedTarget || hide(at("drop")));
  addEventListener("drop", (event) => {
    hide(at("drop"));
    if (!hasFiles(event)) return;
    event.preventDefault();
    read([...event.dataTransfer.files]);
  });
}

// The token

/** Resolves when a token was given; with `again`, one was given before, and was not accepted. */
ask.forToken = (again) =>
  new Promise((resolve) => {
    if (again) at("token-note").textContent = NOT_ACCEPTED;
    const given = () => {
      token.set(at("token-value").value);
      at("token-value").value = "";
      resolve();
    };
    at("token").addEventListener("close", given, { once: true });
    if (!at("token").open) at("token").showModal();
  });

/** A link cannot carry a token: the report is then fetched, and saved. */
async function openReport(event) {
  if (!token.get()) return;
  event.preventDefault();
  try {
    const response = await ask(ofModel(model().name, "report"));
    download(await response.blob(), "report.html");
  } catch (error) {
    failed(error);
  }
}

// Keys

function key(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && at("many").hidden) tag();
  else if (event.key === "Escape" && !document.querySelector("dialog[open]")) closeWhy();
}

startText();
startFiles();
startFeedback(refreshThumbs);
startDocuments({ open: openDocument, showTable });
startSearch({ choose: addTag });
at("back").addEventListener("click", backToTable);
at("close-many").addEventListener("click", leaveTable);
at("dismiss").addEventListener("click", noError);
at("report").addEventListener("click", openReport);
at("token").addEventListener("cancel", (event) => event.preventDefault());
at("tag-keys").textContent = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ ↵" : "Ctrl ↵";
addEventListener("keydown", key);
start();
