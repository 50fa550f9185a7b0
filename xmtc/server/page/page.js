// Entry point of the page: start, views, files, token and keys.

import { address, ask, fetchJson, modelPath, token } from "./api.js";
import { announce, byId, download, hide, show } from "./dom.js";
import { discardDocuments, hasDocuments, readFiles, startDocuments, retagAll } from "./documents.js";
import { showError, hideError } from "./errors.js";
import { loadFeedback, startFeedback } from "./feedback.js";
import { model, startSettings, updateModels } from "./settings.js";
import { addTag, closeWhy, isTagged, openText, refreshThumbs, startText, tag } from "./text.js";
import { startToken } from "./token.js";
import { startSearch } from "./vocabulary.js";

const NOT_ACCEPTED = "This token is not accepted. Check it for typing errors, or ask the administrator for another one.";
let isOutdated = false; // the table was tagged before the settings changed

async function start() {
  try {
    const { models } = await fetchJson("v1/models");
    if (!models.length) throw new Error("The server has no model. Start it with `xmtc serve MODEL`.");
    startSettings(models, onSettingsChange);
    showModel();
    document.body.classList.add("ready");
  } catch (error) {
    showError(error, start);
  }
}

/** Shows the feedback and the report of the selected model. */
function showModel() {
  loadFeedback(model().name);
  showReport();
}

function showReport() {
  byId("report").hidden = !model().report;
  byId("report").href = address(modelPath(model().name, "report"));
}

/** Asks for the models again, because the server may have replaced one; returns whether the selected one was. */
async function refreshModel() {
  const { models } = await fetchJson("v1/models");
  const isReplaced = updateModels(models);
  showReport();
  return isReplaced;
}

function onSettingsChange(field) {
  if (field === "model") showModel();
  isOutdated = byId("many").hidden && hasDocuments();
  if (!byId("many").hidden) retagAll();
  else if (isTagged()) tag();
}

// Views: a text, or a table of documents

function showTable() {
  hide(byId("one"));
  show(byId("many"));
  byId("many-title").focus();
}

function backToTable() {
  showTable();
  if (isOutdated) retagAll();
  isOutdated = false;
}

function showText() {
  hide(byId("many"));
  show(byId("one"));
  byId("back").hidden = !hasDocuments();
}

function openDocument({ text }) {
  showText();
  window.scrollTo(0, 0);
  return openText(text);
}

function leaveTable() {
  discardDocuments();
  hide(byId("read-as"));
  showText();
  byId("text").focus();
}

// Files, selected or dropped

async function read(files) {
  if (!files.length) return;
  hideError();
  announce("Reading");
  document.body.classList.add("reading");
  await readFiles(files);
  document.body.classList.remove("reading");
}

function startFiles() {
  byId("open-file").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async () => {
    const files = [...byId("file").files];
    byId("file").value = ""; // so that the same file can be opened again
    await read(files);
  });
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => hasFiles(event) && show(byId("drop")));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("dragleave", (event) => event.relatedTarget || hide(byId("drop")));
  addEventListener("drop", (event) => {
    hide(byId("drop"));
    if (!hasFiles(event)) return;
    event.preventDefault();
    read([...event.dataTransfer.files]);
  });
}

// Token

/** Downloads the report if a token is needed, because a link cannot send it. */
async function openReport(event) {
  if (!token.get()) return;
  event.preventDefault();
  try {
    const response = await ask(modelPath(model().name, "report"));
    download(await response.blob(), "report.html");
  } catch (error) {
    showError(error);
  }
}

// Keys

function key(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && byId("many").hidden) tag();
  else if (event.key === "Escape" && !document.querySelector("dialog[open]")) closeWhy();
}

startText({ refreshModel });
startFiles();
startFeedback(refreshThumbs);
startDocuments({ open: openDocument, showTable });
startSearch({ choose: addTag });
byId("back").addEventListener("click", backToTable);
byId("close-many").addEventListener("click", leaveTable);
byId("dismiss").addEventListener("click", hideError);
byId("report").addEventListener("click", openReport);
startToken(() => NOT_ACCEPTED);
byId("tag-keys").textContent = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ ↵" : "Ctrl ↵";
addEventListener("keydown", key);
start();
