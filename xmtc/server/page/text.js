// View of one text: tags, explanations and feedback.

import { fetchJson, modelPath } from "./api.js";
import { announce, byId, formatCount, el, hide, show } from "./dom.js";
import { showError, hideError } from "./errors.js";
import { opinion, say } from "./feedback.js";
import { markedText } from "./highlight.js";
import { language, model, predictOptions } from "./settings.js";
import { tagItems, withAddedTags, wordsOf } from "./tags.js";

const text = byId("text");
let answer = null; // {text, tags} of the last prediction
let asking = new AbortController(); // of the last request

let refreshModel; // returns whether the server has replaced the model

export function startText(actions) {
  ({ refreshModel } = actions);
  byId("tag").addEventListener("click", tag);
  byId("again").addEventListener("click", tag);
  byId("clear").addEventListener("click", clear);
  byId("edit").addEventListener("click", edit);
  text.addEventListener("input", updateStale);
  byId("tags").addEventListener("keydown", move);
}

export const isTagged = () => answer !== null;

/** Replaces the text and tags it. */
export function openText(words) {
  clear();
  text.value = words;
  text.scrollTop = 0;
  return tag();
}

export async function tag() {
  const words = text.value;
  if (!words.trim()) {
    text.focus();
    return showError(new Error("There is no text yet. Paste a text or open a file."));
  }
  begin();
  const { signal } = asking;
  try {
    const body = { text: words, ...predictOptions() };
    const { results } = await fetchJson(modelPath(model().name, "predict"), { body, signal });
    answer = { text: words, tags: results[0].tags };
    await refreshModel();
    if (!signal.aborted) showAnswer(); // else a newer request shows its answer
  } catch (error) {
    if (error.name === "AbortError") return; // replaced by a newer request
    forget();
    show(byId("empty"));
    showError(error, tag);
  }
}

/** Starts a request; the old tags stay visible but inert until the new ones arrive, to avoid flicker. */
function begin() {
  hideError();
  stopAsking();
  closeWhy();
  hide(byId("empty"), byId("none"), byId("stale"));
  byId("answer").ariaBusy = "true";
  byId("tags").inert = byId("add").inert = true;
  byId("loading").hidden = byId("tags").children.length > 0;
  announce("Tagging");
}

function stopAsking() {
  asking.abort();
  asking = new AbortController();
}

function forget() {
  stopAsking();
  answer = null;
  closeWhy();
  byId("tags").replaceChildren();
  byId("kind-of-score").textContent = byId("printed").textContent = "";
  hide(byId("none"), byId("add"), byId("keys"));
  settle();
}

function settle() {
  byId("answer").ariaBusy = "false";
  hide(byId("loading"));
  updateStale();
}

function showAnswer() {
  byId("kind-of-score").textContent = model().calibrated ? "probability" : "score";
  byId("tags").replaceChildren(...items());
  byId("none").textContent = noTag();
  byId("none").hidden = withAddedTags(answer).length > 0;
  byId("printed").textContent = answer.text;
  byId("keys").hidden = !model().explains || !answer.tags.length;
  show(byId("add"));
  settle();
  announce(answer.tags.length ? `${formatCount(answer.tags.length, "tag")} found` : noTag());
}

const items = () => tagItems(answer, model(), { why, say: express });

function noTag() {
  const { threshold } = predictOptions();
  if (threshold === "tuned") return "No tag has a score above its tuned threshold.";
  if (threshold !== null) return `No tag has a score above ${threshold}.`;
  return "No tags: the model knows no word of this text.";
}

/** Disables the tags if the text has changed since it was tagged. */
function updateStale() {
  byId("clear").hidden = !text.value;
  if (byId("answer").ariaBusy === "true") return;
  const isStale = answer !== null && text.value !== answer.text;
  byId("stale").hidden = !isStale;
  byId("tags").inert = byId("add").inert = isStale;
}

function clear() {
  text.value = "";
  forget();
  hideError();
  hide(byId("read-as"));
  show(byId("empty"));
  text.focus();
}

function edit() {
  closeWhy();
  text.focus();
}

// Explanations

async function why(tag, item) {
  const wasOpen = item.classList.contains("open");
  closeWhy();
  if (wasOpen) return;
  item.classList.add("open");
  item.firstChild.setAttribute("aria-expanded", "true");
  try {
    const body = { text: answer.text, label: tag.label, language: language() };
    const found = await fetchJson(modelPath(model().name, "explain"), { body, signal: asking.signal });
    if (await refreshModel()) return openText(answer.text); // the tags are those of the old model
    if (item.classList.contains("open")) showWhy(found, tag, item);
  } catch (error) {
    if (item.classList.contains("open")) closeWhy();
    showError(error, () => why(tag, item));
  }
}

function showWhy(found, tag, item) {
  const panel = item.querySelector(".why");
  panel.replaceChildren(...wordsOf(found, tag));
  hide(text);
  show(panel, byId("marked"), byId("marked-title"), byId("edit"));
  const name = el("strong", { lang: "", dir: "auto" }, tag.name || tag.label);
  byId("marked-title").replaceChildren("Words that count for ", name);
  byId("marked").replaceChildren(markedText(answer.text, found.words));
  byId("marked").scrollTop = (byId("marked").querySelector("mark")?.offsetTop ?? 0) - byId("marked").offsetTop - 60;
  const words = found.words.filter(({ weight }) => weight > 0).slice(0, 5);
  announce(`Words that raise the score: ${words.map(({ word }) => word).join(", ") || "none"}`);
}

export function closeWhy() {
  for (const item of byId("tags").querySelectorAll(".open")) {
    item.classList.remove("open");
    item.firstChild.setAttribute("aria-expanded", "false");
    hide(item.querySelector(".why"));
  }
  hide(byId("marked"), byId("marked-title"), byId("edit"));
  byId("marked").replaceChildren();
  show(text);
}

/** Moves the focus between tags with the arrow keys. */
function move(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const item = event.target.closest("#tags > li");
  if (!step || !item) return;
  event.preventDefault();
  const next = step > 0 ? item.nextElementSibling : item.previousElementSibling;
  next?.querySelector("button")?.focus();
}

// Feedback

function express(side, tag) {
  try {
    say(side, answer.text, tag);
  } catch {
    showError(new Error("The storage of the browser is full. Export the feedback, then delete it."));
  }
}

/** Updates the feedback buttons after changes in the feedback dialog. */
export function refreshThumbs() {
  for (const thumb of byId("tags").querySelectorAll(".thumb")) {
    const { label } = thumb.closest("li").dataset;
    thumb.setAttribute("aria-pressed", opinion(answer.text, label) === thumb.dataset.side);
  }
}

/** Adds a tag that the user selected from the vocabulary. */
export function addTag(found) {
  const isListed = [...byId("tags").children].some((item) => item.dataset.label === found.label);
  if (opinion(answer.text, found.label) !== "right") express("right", found);
  if (!isListed) byId("tags").append(...items().slice(byId("tags").children.length));
  hide(byId("none"));
}
