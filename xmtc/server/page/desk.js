// Review desk: a document of the queue with its suggestions, decided with the keyboard or the pointer.

import { ask, fetchJson } from "./api.js";
import { startAdministration } from "./administration.js";
import { announce, byId, cloneTemplate, el, hide, show } from "./dom.js";
import { hideError, showError } from "./errors.js";
import { scoreOf } from "./tags.js";
import { startToken } from "./token.js";
import { code, LANGUAGES, startTranslation, t, translatePage } from "./translation.js";
import { startSearch } from "./vocabulary.js";

const CONCEPT = /^https?:\/\//; // labels that are links
const SETTINGS = "xmtc-desk-settings";
let models = [];
let current = null; // {document, suggestions, version, decisions, names} of the server
let items = []; // {label, name, uri, score, side: "right" | "wrong" | null, kind: "shown" | "added" | "proposed"}
let visited = []; // numbers of documents, in the order of the review
let since = 0; // time at which the document was shown
let key = ""; // of the decision, for retries
let isBusy = false;

const model = () => models.find(({ name }) => name === byId("model").value);
const deskPath = (verb) => `v1/desk/${encodeURIComponent(model().name)}/${verb}`;
const allowed = () => byId("filter").value.trim();

async function start() {
  try {
    await startTranslation();
    const person = await fetchJson("v1/desk/me");
    ({ models } = await fetchJson("v1/models"));
    startSettings();
    await startModel();
    if (person.role === "administrator") startAdministration({ deskPath, model, openDocument, refreshSummary });
    document.body.classList.add("ready");
  } catch (error) {
    showError(error, start);
  }
}

async function startModel() {
  const { recent, orders } = await refreshSummary();
  const before = byId("order").value || restored.order;
  byId("order").replaceChildren(...orders.map((order) => el("option", { value: order }, t(`order-${order}`))));
  if (orders.includes(before)) byId("order").value = before;
  const names = new Intl.DisplayNames(code, { type: "language", fallback: "code" });
  const options = model().languages.map((each) => el("option", { value: each }, names.of(each)));
  const language = byId("language").value || restored.language || code;
  byId("language").replaceChildren(...options);
  byId("language-field").hidden = options.length < 2;
  if (model().languages.includes(language)) byId("language").value = language;
  visited = recent;
  await next();
}

async function refreshSummary() {
  const summary = await fetchJson(deskPath("summary"));
  byId("facts").textContent = t("progress", { ...summary, name: model().name });
  return summary;
}

// Settings

let restored = {};

function startSettings() {
  try {
    restored = JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    restored = {};
  }
  byId("model").replaceChildren(...models.map(({ name }) => el("option", { value: name }, name)));
  byId("model-field").hidden = models.length < 2;
  byId("shortcuts").checked = restored.shortcuts ?? true;
  byId("threshold").value = restored.threshold ?? byId("threshold").defaultValue;
  byId("page-language").replaceChildren(
    ...Object.entries(LANGUAGES).map(([each, name]) => el("option", { value: each, lang: each }, name)),
  );
  byId("page-language").value = code;
  byId("page-language").onchange = () => {
    translatePage(byId("page-language").value);
    for (const option of byId("order").options) option.textContent = t(`order-${option.value}`);
    queued(refreshSummary)();
    if (current) showItems();
  };
  byId("settings").onsubmit = (event) => event.preventDefault();
  byId("settings").onchange = (event) => {
    const { value: order } = byId("order");
    const stored = { order, shortcuts: byId("shortcuts").checked };
    for (const field of ["language", "threshold"]) stored[field] = byId(field).value;
    localStorage.setItem(SETTINGS, JSON.stringify(stored));
    if (event.target.id === "model") queued(startModel)();
    else if (["filter", "language", "threshold"].includes(event.target.id) && current) queued(reload)();
    else if (event.target.id === "order") queued(next)();
  };
  const wide = matchMedia("(min-width: 54rem)");
  const details = byId("settings").querySelector("details");
  details.open = wide.matches;
  wide.onchange = () => (details.open = wide.matches);
}

function options(more = {}) {
  const words = new URLSearchParams(more);
  if (byId("language").value) words.set("language", byId("language").value);
  if (byId("threshold").checkValidity() && byId("threshold").value) words.set("threshold", byId("threshold").value);
  if (allowed()) words.append("allow", allowed());
  return words;
}

// Documents

let running = Promise.resolve(); // the last action

/** Returns an action of the user that is ignored while another one runs, and shows its errors. */
function guarded(action) {
  return (...values) => {
    if (!isBusy) running = run(action, values);
    return running;
  };
}

/** Returns an action that waits for the running one, for settings. */
const queued = (action) => async (...values) => {
  while (isBusy) await running;
  return guarded(action)(...values);
};

async function run(action, values) {
  isBusy = true;
  byId("answer").ariaBusy = "true";
  hideError();
  try {
    await action(...values);
  } catch (error) {
    showError(error, () => guarded(action)(...values));
  } finally {
    isBusy = false;
    byId("answer").ariaBusy = "false";
  }
}

async function next() {
  const position = current ? visited.indexOf(current.document.number) : -1;
  if (position >= 0 && position < visited.length - 1) return open(visited[position + 1]);
  const answer = await fetchJson(`${deskPath("next")}?${options({ order: byId("order").value })}`);
  if (answer.document) showDocument(answer);
  else showNothing();
}

async function previous() {
  const position = current ? visited.indexOf(current.document.number) : visited.length;
  if (position > 0) await open(visited[position - 1]);
}

const open = async (number) => showDocument(await fetchJson(`${deskPath(`documents/${number}`)}?${options()}`));
const openDocument = (number) => queued(open)(number);

/** Asks for the suggestions again, after the filter or the language changed; marks stay. */
async function reload() {
  const before = items.filter(({ side }) => side);
  await open(current.document.number);
  for (const item of before) mark(item, item.side);
  showItems();
}

function showNothing() {
  current = null;
  hide(byId("one"));
  show(byId("nothing"));
  announce(t("nothing"));
}

function showDocument(answer) {
  current = answer;
  const { number, id, text } = answer.document;
  if (!visited.includes(number)) visited.push(number);
  const own = answer.decisions.find((decision) => decision.is_own);
  items = answer.suggestions.map((tag) => ({ ...tag, side: null, kind: "shown" }));
  if (own) restore(own);
  byId("text-title").textContent = t("document", { id });
  byId("text").textContent = text;
  byId("text").scrollTop = 0;
  showOthers(answer.decisions.filter((decision) => !decision.is_own));
  show(byId("one"));
  hide(byId("nothing"));
  showItems();
  byId("previous").disabled = visited.indexOf(number) < 1;
  since = performance.now();
  key = "";
  byId("text-title").focus({ preventScroll: true });
  announce(byId("text-title").textContent);
}

/** Marks the labels of an earlier decision. */
function restore({ accepted, added, rejected, proposed }) {
  const named = (label) => ({ label, ...current.names[label] });
  for (const label of accepted) mark(named(label), "right");
  for (const label of rejected) mark(named(label), "wrong");
  for (const label of added) mark({ ...named(label), kind: "added" }, "right");
  for (const name of proposed) mark({ label: name, name, kind: "proposed" }, "right");
}

function showOthers(decisions) {
  byId("reviewed").hidden = !decisions.length;
  const labels = ({ accepted, added }) =>
    [...accepted, ...added].map((label) => current.names[label]?.name ?? label).join(", ") || t("no-labels");
  byId("reviewed").replaceChildren(
    ...decisions.map((each) => el("span", {}, t("reviewed-by", { person: each.person, labels: labels(each) }))),
  );
}

// Labels

function mark(tag, side) {
  let item = items.find(({ label, kind }) => label === tag.label && (kind === "proposed") === (tag.kind === "proposed"));
  if (!item) items.push((item = { kind: "added", ...tag }));
  item.side = side;
  key = "";
  return item;
}

function showItems() {
  byId("tags").replaceChildren(...items.map(listItem));
  byId("accept-all").disabled = !items.some(({ kind }) => kind === "shown");
}

function listItem(item) {
  const { label, name, uri, score, kind, known } = item;
  const notes = [kind === "shown" ? null : t(kind), known === false ? t("unknown") : null].filter(Boolean).join(", ");
  const link = CONCEPT.test(uri ?? "") && { href: uri, target: "_blank", rel: "noopener noreferrer" };
  const head = el(
    "div",
    { class: "name" },
    el("span", { lang: "", dir: "auto" }, name || label),
    link ? el("a", link, t("concept"), el("span", { class: "unseen" }, t("concept-of", { name: name || label }))) : null,
    notes ? el("small", {}, notes) : null,
  );
  const value = score === undefined ? null : el("span", { class: "score" }, scoreOf(score, model().calibrated));
  const node = el("li", { tabindex: "-1", "data-label": label }, head, el("div", { class: "thumbs" }, value, ...buttons(item)));
  node.addEventListener("keydown", (event) => {
    const side = { "+": "right", "-": "wrong", "−": "wrong" }[event.key];
    if (side) toggle(item, side);
  });
  return node;
}

function buttons(item) {
  const name = item.name || item.label;
  if (item.kind !== "shown") {
    const on = { click: () => removeItem(item) };
    return [el("button", { type: "button", class: "icon", "aria-label": t("remove", { name }), on }, "×")];
  }
  return ["right", "wrong"].map((side) => {
    const named = { "aria-label": t(`is-${side}`, { name }), "aria-pressed": String(item.side === side) };
    const on = { click: () => toggle(item, side) };
    return el("button", { type: "button", class: `thumb ${side}`, "data-side": side, ...named, on }, cloneTemplate("thumb"));
  });
}

function toggle(item, side) {
  if (item.kind !== "shown") return side === "wrong" ? removeItem(item) : undefined;
  item.side = item.side === side ? null : side;
  key = "";
  const node = byId("tags").children[items.indexOf(item)];
  for (const button of node.querySelectorAll(".thumb")) button.ariaPressed = String(button.dataset.side === item.side);
  announce(item.side ? t(`is-${item.side}`, { name: item.name || item.label }) : item.name || item.label);
}

function removeItem(item) {
  items = items.filter((each) => each !== item);
  key = "";
  showItems();
  byId("search").focus();
}

function acceptAll() {
  for (const item of items) if (item.kind === "shown") item.side = "right";
  key = "";
  showItems();
  announce(t("all-accepted"));
}

function addLabel({ label, name, uri, is_known: known, isProposal }) {
  mark({ label, name, uri, known, ...(isProposal && { kind: "proposed" }) }, "right");
  showItems();
  announce(name);
}

async function findLabels(search, signal) {
  const { labels } = await fetchJson(`${deskPath("search")}?${options({ search })}`, { signal });
  const proposal = { label: search, name: search, others: [t("propose", { name: search })], isProposal: true };
  return [...labels, proposal];
}

// Decision

const finalItems = () => items.filter(({ side }) => side === "right");

async function save() {
  if (!current) return;
  const { document: shownDocument, version } = current;
  key ||= randomKey();
  const of = (side, kind) => items.filter((item) => item.side === side && item.kind === kind).map(({ label }) => label);
  const body = {
    key,
    version,
    seconds: Math.min((performance.now() - since) / 1000, 86_400),
    shown: current.suggestions.map(({ label, score }) => ({ label, score })),
    accepted: of("right", "shown"),
    added: of("right", "added"),
    rejected: of("wrong", "shown"),
    proposed: of("right", "proposed"),
  };
  await ask(deskPath(`documents/${shownDocument.number}/decision`), { body });
  await refreshSummary();
  await next();
  announce(t("saved"));
}

const randomKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Copies the names and links of the accepted subjects; without the clipboard of secure pages, through a selection. */
async function copy() {
  const lines = finalItems().map(({ name, label }) => (name && name !== label ? `${name}\t${label}` : label));
  const text = lines.join("\n");
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(t("copied", { n: lines.length }));
}

// Keys

const actions = {
  a: acceptAll,
  s: guarded(save),
  n: guarded(next),
  p: guarded(previous),
  c: copy,
  "/": () => byId("search").focus(),
};

function move(step) {
  const nodes = [...byId("tags").children];
  const position = nodes.indexOf(document.activeElement.closest("#tags > li"));
  nodes[Math.min(Math.max(position + step, 0), nodes.length - 1)]?.focus();
}

function press(event) {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return actions.s();
  if (event.key === "Escape" && event.target.id === "search") return byId("tags").focus();
  const isField = event.target.closest("input, select, textarea");
  if (isField || event.ctrlKey || event.metaKey || event.altKey || !byId("shortcuts").checked) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const action = step && event.target.id !== "text" ? () => move(step) : actions[event.key.toLowerCase()];
  if (!action || !current) return;
  event.preventDefault();
  action();
}

startToken(() => t("token-wrong"));
startSearch({ choose: addLabel, find: findLabels, texts: { nothing: () => t("no-match"), count: (n) => t("n-found", { n }) } });
byId("accept-all").addEventListener("click", acceptAll);
byId("save").addEventListener("click", actions.s);
byId("next").addEventListener("click", actions.n);
byId("previous").addEventListener("click", actions.p);
byId("copy").addEventListener("click", copy);
byId("dismiss").addEventListener("click", hideError);
addEventListener("keydown", press);
start();
