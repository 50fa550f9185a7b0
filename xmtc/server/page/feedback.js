// What people say about tags: kept in the browser, exported as a corpus for the next training.

import { announce, at, counted, download, el } from "./dom.js";

const KEY = "xmtc-feedback";
let model = ""; // labels of one model mean nothing to another
let entries = []; // of this model: {text, right: [{label, name}], wrong: [{label, name}]}
let changed = () => {};

export function startFeedback(onChange) {
  changed = onChange;
  at("open-feedback").addEventListener("click", () => {
    list();
    at("feedback").showModal();
  });
  at("export").addEventListener("click", exportCorpus);
  at("forget").addEventListener("click", forget);
}

/** Asked once more: there is no way back. */
function forget() {
  const question = `Delete ${counted(entries.length, "text")} for good?`;
  if (at("forget").textContent === question) replace([]);
  else at("forget").textContent = question;
}

export function openFeedback(name) {
  model = name;
  entries = stored()[model] ?? [];
  count();
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}

/** Throws where the browser has no room left; what was said before stays. */
function replace(next) {
  localStorage.setItem(KEY, JSON.stringify({ ...stored(), [model]: next }));
  entries = next;
  count();
  list();
  changed();
}

export const addedTo = (text) => entries.find((entry) => entry.text === text)?.right ?? [];

/** "right", "wrong" or nothing. */
export function opinion(text, label) {
  const entry = entries.find((each) => each.text === text);
  return ["right", "wrong"].find((side) => entry?.[side].some((tag) => tag.label === label));
}

/** Says so of a tag; said twice, it is taken back. */
export function say(side, text, { label, name }) {
  const before = entries.find((entry) => entry.text === text) ?? { text, right: [], wrong: [] };
  const isTakenBack = opinion(text, label) === side;
  const others = (tags) => tags.filter((tag) => tag.label !== label);
  const entry = { text, right: others(before.right), wrong: others(before.wrong) };
  if (!isTakenBack) entry[side] = [...entry[side], { label, name }];
  const rest = entries.filter((each) => each.text !== text);
  replace(entry.right.length + entry.wrong.length ? [...rest, entry] : rest);
  announce(isTakenBack ? `${name}: taken back` : `${name}: marked as ${side}`);
}

function count() {
  at("n-feedback").hidden = !entries.length;
  at("n-feedback").textContent = entries.length;
}

const isTold = (entry) => entry.right.length > 0;

function list() {
  at("feedback-list").replaceChildren(...entries.map(item));
  at("no-feedback").hidden = entries.length > 0;
  at("export").disabled = !entries.some(isTold);
  at("forget").hidden = !entries.length;
  at("forget").textContent = "Delete all";
  const left = entries.filter((entry) => !isTold(entry)).length;
  at("feedback-note").hidden = !left;
  at("feedback-note").textContent = `${counted(left, "text")} without a right tag will not be exported.`;
}

function item(entry) {
  const remove = () => replace(entries.filter((each) => each !== entry));
  const tags = (side) => entry[side].map((tag) => el("li", { class: side, lang: "", dir: "auto" }, tag.name));
  return el(
    "li",
    {},
    el("p", { class: "excerpt", lang: "", dir: "auto" }, entry.text.slice(0, 200)),
    el("ul", { class: "chips" }, ...tags("right"), ...tags("wrong")),
    el("button", { type: "button", class: "link", "aria-label": "Remove this text", on: { click: remove } }, "Remove"),
  );
}

/** JSON lines, as `xmtc train` reads them; what is wrong stands beside, for whoever can use it. */
function exportCorpus() {
  const lines = entries.filter(isTold).map(({ text, right, wrong }) => {
    const labels = (tags) => tags.map((tag) => tag.label);
    const rejected = wrong.length ? { rejected: labels(wrong) } : {};
    return JSON.stringify({ text, labels: labels(right), ...rejected }) + "\n";
  });
  download(new Blob(lines, { type: "application/jsonl" }), `feedback-${model.replace(/[^\w.-]+/g, "-")}.jsonl`);
  announce(`${counted(lines.length, "text")} exported.`);
}
