// One text: its tags, why they are given, and what people say about them.

import { asked, ofModel } from "./api.js";
import { announce, at, counted, el, hide, show } from "./dom.js";
import { failed, noError } from "./errors.js";
import { opinion, say } from "./feedback.js";
import { markedText } from "./highlight.js";
import { language, model, wanted } from "./settings.js";
import { tagItems, withAdded, wordsOf } from "./tags.js";

const text = at("text");
let answer = null; // {text, tags} of the text that was tagged last
let asking = new AbortController(); // of the last question

export function startText() {
  at("tag").addEventListener("click", tag);
  at("again").addEventListener("click", tag);
  at("clear").addEventListener("click", clear);
  at("edit").addEventListener("click", edit);
  text.addEventListener("input", freshOrStale);
  at("tags").addEventListener("keydown", move);
}

export const isTagged = () => answer !== null;

/** Another text takes the place of the one before. */
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
    return failed(new Error("There is no text yet: paste one, or open a file."));
  }
  begin();
  try {
    const body = { text: words, ...wanted() };
    const { results } = await asked(ofModel(model().name, "predict"), { body, signal: asking.signal });
    answer = { text: words, tags: results[0].tags };
    showAnswer();
  } catch (error) {
    if (error.name === "AbortError") return; // another question has been asked
    forget();
    show(at("empty"));
    failed(error, tag);
  }
}

/** What was answered before stays until the next answer, so that nothing flickers; but it cannot be used. */
function begin() {
  noError();
  stopAsking();
  closeWhy();
  hide(at("empty"), at("none"), at("stale"));
  at("answer").ariaBusy = "true";
  at("tags").inert = at("add").inert = true;
  at("loading").hidden = at("tags").children.length > 0;
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
  at("tags").replaceChildren();
  at("kind-of-score").textContent = at("printed").textContent = "";
  hide(at("none"), at("add"), at("keys"));
  settle();
}

function settle() {
  at("answer").ariaBusy = "false";
  hide(at("loading"));
  freshOrStale();
}

function showAnswer() {
  at("kind-of-score").textContent = model().calibrated ? "probability" : "score";
  at("tags").replaceChildren(...items());
  at("none").textContent = noTag();
  at("none").hidden = withAdded(answer).length > 0;
  at("printed").textContent = answer.text;
  at("keys").hidden = !model().explains || !answer.tags.length;
  show(at("add"));
  settle();
  announce(answer.tags.length ? `${counted(answer.tags.length, "tag")} found` : noTag());
}

const items = () => tagItems(answer, model(), { why, say: express });

function noTag() {
  const { threshold } = wanted();
  if (threshold === "tuned") return "No tag has a score above its tuned threshold.";
  if (threshold !== null) return `No tag has a score above ${threshold}.`;
  return "No tag: the model knows no word of this text.";
}

/** Tags of a text that has changed are shown, and cannot be used. */
function freshOrStale() {
  at("clear").hidden = !text.value;
  if (at("answer").ariaBusy === "true") return;
  const isStale = answer !== null && text.value !== answer.text;
  at("stale").hidden = !isStale;
  at("tags").inert = at("add").inert = isStale;
}

function clear() {
  text.value = "";
  forget();
  noError();
  show(at("empty"));
  text.focus();
}

function edit() {
  closeWhy();
  text.focus();
}

// Why a tag

async function why(tag, item) {
  const wasOpen = item.classList.contains("open");
  closeWhy();
  if (wasOpen) return;
  item.classList.add("open");
  item.firstChild.setAttribute("aria-expanded", "true");
  try {
    const body = { text: answer.text, label: tag.label, language: language() };
    const found = await asked(ofModel(model().name, "explain"), { body, signal: asking.signal });
    if (item.classList.contains("open")) showWhy(found, tag, item);
  } catch (error) {
    if (item.classList.contains("open")) closeWhy();
    failed(error, () => why(tag, item));
  }
}

function showWhy(found, tag, item) {
  const panel = item.querySelector(".why");
  panel.replaceChildren(...wordsOf(found, tag));
  hide(text);
  show(panel, at("marked"), at("marked-title"), at("edit"));
  const name = el("strong", { lang: "", dir: "auto" }, tag.name || tag.label);
  at("marked-title").replaceChildren("marked: what speaks for ", name);
  at("marked").replaceChildren(markedText(answer.text, found.words));
  at("marked").scrollTop = (at("marked").querySelector("mark")?.offsetTop ?? 0) - at("marked").offsetTop - 60;
  const words = found.words.filter(({ weight }) => weight > 0).slice(0, 5);
  announce(`Words that speak for it: ${words.map(({ word }) => word).join(", ") || "none"}`);
}

export function closeWhy() {
  for (const item of at("tags").querySelectorAll(".open")) {
    item.classList.remove("open");
    item.firstChild.setAttribute("aria-expanded", "false");
    hide(item.querySelector(".why"));
  }
  hide(at("marked"), at("marked-title"), at("edit"));
  at("marked").replaceChildren();
  show(text);
}

/** Arrows go from tag to tag. */
function move(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const item = event.target.closest("#tags > li");
  if (!step || !item) return;
  event.preventDefault();
  const next = step > 0 ? item.nextElementSibling : item.previousElementSibling;
  next?.querySelector("button")?.focus();
}

// Opinions

function express(side, tag) {
  try {
    say(side, answer.text, tag);
  } catch {
    failed(new Error("The browser has no room for more feedback: export what there is, then delete it."));
  }
}

/** What was said may have been taken back elsewhere, in the list of all feedback. */
export function refreshThumbs() {
  for (const thumb of at("tags").querySelectorAll(".thumb")) {
    const { label } = thumb.closest("li").dataset;
    thumb.setAttribute("aria-pressed", opinion(answer.text, label) === thumb.dataset.side);
  }
}

/** A tag of the vocabulary, chosen by a person. */
export function addTag(found) {
  const isListed = [...at("tags").children].some((item) => item.dataset.label === found.label);
  if (opinion(answer.text, found.label) !== "right") express("right", found);
  if (!isListed) at("tags").append(...items().slice(at("tags").children.length));
  hide(at("none"));
}
