// Feedback on tags: stored in the browser, exported as a training corpus.

import { announce, byId, formatCount, download, el } from "./dom.js";

const KEY = "xmtc-feedback";
let model = ""; // feedback is stored per model
let entries = []; // {text, right: [{label, name}], wrong: [{label, name}]}
let onFeedbackChange = () => {};

export function startFeedback(onChange) {
  onFeedbackChange = onChange;
  byId("open-feedback").addEventListener("click", () => {
    list();
    byId("feedback").showModal();
  });
  byId("export").addEventListener("click", exportCorpus);
  byId("forget").addEventListener("click", forget);
}

/** Deletes all feedback on the second click, which confirms. */
function forget() {
  const question = `Delete ${formatCount(entries.length, "text")} permanently?`;
  if (byId("forget").textContent === question) replace([]);
  else byId("forget").textContent = question;
}

export function loadFeedback(name) {
  model = name;
  entries = readStored()[model] ?? [];
  count();
}

function readStored() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}

/** Stores new entries. Throws if the browser's storage is full; the old entries remain. */
function replace(next) {
  localStorage.setItem(KEY, JSON.stringify({ ...readStored(), [model]: next }));
  entries = next;
  count();
  list();
  onFeedbackChange();
}

export const rightTagsOf = (text) => entries.find((entry) => entry.text === text)?.right ?? [];

/** Returns "right", "wrong" or undefined. */
export function opinion(text, label) {
  const entry = entries.find((each) => each.text === text);
  return ["right", "wrong"].find((side) => entry?.[side].some((tag) => tag.label === label));
}

/** Marks a tag as right or wrong; a second click removes the mark. */
export function say(side, text, { label, name }) {
  const before = entries.find((entry) => entry.text === text) ?? { text, right: [], wrong: [] };
  const isRemoved = opinion(text, label) === side;
  const others = (tags) => tags.filter((tag) => tag.label !== label);
  const entry = { text, right: others(before.right), wrong: others(before.wrong) };
  if (!isRemoved) entry[side] = [...entry[side], { label, name }];
  const rest = entries.filter((each) => each.text !== text);
  replace(entry.right.length + entry.wrong.length ? [...rest, entry] : rest);
  announce(isRemoved ? `${name}: mark removed` : `${name}: marked as ${side}`);
}

function count() {
  byId("n-feedback").hidden = !entries.length;
  byId("n-feedback").textContent = entries.length;
}

const hasRightTag = (entry) => entry.right.length > 0;

function list() {
  byId("feedback-list").replaceChildren(...entries.map(item));
  byId("no-feedback").hidden = entries.length > 0;
  byId("export").disabled = !entries.some(hasRightTag);
  byId("forget").hidden = !entries.length;
  byId("forget").textContent = "Delete all";
  const left = entries.filter((entry) => !hasRightTag(entry)).length;
  byId("feedback-note").hidden = !left;
  byId("feedback-note").textContent = `${formatCount(left, "text")} without a right tag will not be exported.`;
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

/** Exports JSON lines for `xmtc train`; wrong tags are in the field `rejected`, which training ignores. */
function exportCorpus() {
  const lines = entries.filter(hasRightTag).map(({ text, right, wrong }) => {
    const labels = (tags) => tags.map((tag) => tag.label);
    const rejected = wrong.length ? { rejected: labels(wrong) } : {};
    return JSON.stringify({ text, labels: labels(right), ...rejected }) + "\n";
  });
  download(new Blob(lines, { type: "application/jsonl" }), `feedback-${model.replace(/[^\w.-]+/g, "-")}.jsonl`);
  announce(`${formatCount(lines.length, "text")} exported.`);
}
