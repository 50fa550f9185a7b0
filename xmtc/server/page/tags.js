// The ranked tags of one text: names, scores as bars, thumbs, and the words that speak for each.

import { copyOf, el } from "./dom.js";
import { addedTo, opinion } from "./feedback.js";
import { FAINTEST, mark, weightOf } from "./highlight.js";

const N_WORDS = 12;

/** A calibrated score is a probability, and shown as one. */
export function scoreOf(score, calibrated) {
  if (calibrated) return score < 0.01 ? "< 1 %" : `${Math.round(100 * score)} %`;
  return score > 0 && score < 0.01 ? "< 0.01" : score.toFixed(2).replace("-", "−");
}

/** Between 0 and 1 a score is the length of its bar; any other is compared with the best one. */
export function barOf(score, tags) {
  const scores = tags.map((tag) => tag.score);
  const [least, best] = [Math.min(...scores), Math.max(...scores)];
  if (least >= 0 && best <= 1) return score;
  return best > least ? 0.1 + (0.9 * (score - least)) / (best - least) : 1;
}

/** Tags that people added, after those that the model gave. */
export function withAdded({ text, tags }) {
  const given = new Set(tags.map((tag) => tag.label));
  return [...tags, ...addedTo(text).filter((tag) => !given.has(tag.label))];
}

/** Items of the list; `why(tag, item)` explains, `say(side, tag)` takes an opinion. */
export function tagItems(answer, model, { why, say }) {
  return withAdded(answer).map((tag, number) => {
    const panel = el("div", { class: "why", id: `why-${number}`, hidden: true });
    const item = el("li", { "data-label": tag.label });
    const on = { click: () => why(tag, item) };
    const button = { type: "button", "aria-expanded": "false", "aria-controls": panel.id, on };
    const shown = headOf(tag, answer, model);
    const head = el(model.explains ? "button" : "div", { class: "tag", ...(model.explains && button) }, ...shown);
    item.append(head, thumbs(tag, answer.text, say), panel);
    item.addEventListener("keydown", (event) => {
      const side = { "+": "right", "-": "wrong", "−": "wrong" }[event.key];
      if (side) say(side, tag);
    });
    return item;
  });
}

function headOf(tag, answer, model) {
  const name = el("span", { class: "name", lang: "", dir: "auto" }, tag.name || tag.label);
  if (tag.score === undefined) return [name, el("span", { class: "score" }, "added")];
  const bar = el("span", { class: "meter", "aria-hidden": "true" }, el("i"));
  bar.style.setProperty("--score", barOf(tag.score, answer.tags).toFixed(3));
  return [name, el("span", { class: "score" }, scoreOf(tag.score, model.calibrated)), bar];
}

function thumbs(tag, text, say) {
  const name = tag.name || tag.label;
  const thumb = (side) => {
    const pressed = String(opinion(text, tag.label) === side);
    const named = { "aria-label": `${name} is ${side}`, title: `This tag is ${side}`, "aria-pressed": pressed };
    const on = { click: () => say(side, tag) };
    return el("button", { type: "button", class: `thumb ${side}`, "data-side": side, ...named, on }, copyOf("thumb"));
  };
  return el("div", { class: "thumbs" }, thumb("right"), thumb("wrong"));
}

/** The words of an explanation with their weights, the strongest first. */
export function wordsOf({ words }, { label, name }) {
  const strongest = Math.max(...words.map(({ weight }) => Math.abs(weight)), 0);
  if (!strongest) return [el("p", {}, "No word of this text weighs anything for this tag.")];
  const ranked = words.filter(({ weight }) => Math.abs(weight) > FAINTEST * strongest);
  ranked.sort((a, b) => b.weight - a.weight);
  const items = ranked.slice(0, N_WORDS).map(({ word, weight }) => {
    const against = weight < 0 ? el("span", { class: "unseen" }, " speaks against it") : null;
    return el("li", {}, el("bdi", { lang: "" }, mark(word, weight, strongest)), ` ${weightOf(weight)}`, against);
  });
  const hasAgainst = ranked.some((word) => word.weight < 0);
  const key = hasAgainst ? el("p", { class: "soft" }, "Words with a dotted line speak against it.") : null;
  const id = !name || label === name ? null : el("p", { class: "soft" }, label);
  return [el("ul", { class: "words" }, ...items), key, id].filter(Boolean);
}
