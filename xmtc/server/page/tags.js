// Ranked tags of a text: names, scores, feedback buttons and explanations.

import { cloneTemplate, el } from "./dom.js";
import { rightTagsOf, opinion } from "./feedback.js";
import { FAINTEST, mark, weightOf } from "./highlight.js";

const N_WORDS = 12;

/** Formats a score; calibrated scores are probabilities in percent. */
export function scoreOf(score, calibrated) {
  if (calibrated) return score < 0.01 ? "< 1 %" : `${Math.round(100 * score)} %`;
  return score > 0 && score < 0.01 ? "< 0.01" : score.toFixed(2).replace("-", "−");
}

/** Returns the bar length of a score: the score itself if all are in [0, 1], otherwise scaled to their range. */
export function barOf(score, tags) {
  const scores = tags.map((tag) => tag.score);
  const [least, best] = [Math.min(...scores), Math.max(...scores)];
  if (least >= 0 && best <= 1) return score;
  return best > least ? 0.1 + (0.9 * (score - least)) / (best - least) : 1;
}

/** Returns the predicted tags, followed by the tags that the user added. */
export function withAddedTags({ text, tags }) {
  const predicted = new Set(tags.map((tag) => tag.label));
  return [...tags, ...rightTagsOf(text).filter((tag) => !predicted.has(tag.label))];
}

/** Returns the list items; `why(tag, item)` explains a tag, `say(side, tag)` marks it as right or wrong. */
export function tagItems(answer, model, { why, say }) {
  return withAddedTags(answer).map((tag, number) => {
    const panel = el("div", { class: "why", id: `why-${number}`, hidden: true });
    const item = el("li", { "data-label": tag.label });
    const on = { click: () => why(tag, item) };
    const button = { type: "button", "aria-expanded": "false", "aria-controls": panel.id, on };
    const parts = headOf(tag, answer, model);
    const head = el(model.explains ? "button" : "div", { class: "tag", ...(model.explains && button) }, ...parts);
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
    return el("button", { type: "button", class: `thumb ${side}`, "data-side": side, ...named, on }, cloneTemplate("thumb"));
  };
  return el("div", { class: "thumbs" }, thumb("right"), thumb("wrong"));
}

/** Returns the words of an explanation with their weights, in decreasing order. */
export function wordsOf({ words, members, bias }, { label, name }) {
  const strongest = Math.max(...words.map(({ weight }) => Math.abs(weight)), 0);
  if (!strongest) return [el("p", {}, "No word of this text contributes to this tag.")];
  const ranked = words.filter(({ weight }) => Math.abs(weight) > FAINTEST * strongest);
  ranked.sort((a, b) => b.weight - a.weight);
  const items = ranked.slice(0, N_WORDS).map(({ word, weight }) => {
    const against = weight < 0 ? el("span", { class: "unseen" }, " lowers the score") : null;
    return el("li", {}, el("bdi", { lang: "" }, mark(word, weight, strongest)), ` ${weightOf(weight)}`, against);
  });
  const hasAgainst = ranked.some((word) => word.weight < 0);
  const key = hasAgainst ? el("p", { class: "soft" }, "Words with a dotted line lower the score.") : null;
  const id = !name || label === name ? null : el("p", { class: "soft" }, label);
  return [el("ul", { class: "words" }, ...items), key, ...notesOf(members, bias), id].filter(Boolean);
}

/** Returns which members of a combination found the tag, and the base of a linear model. */
function notesOf(members, bias) {
  const shares = members.map(({ name, share }) => `${name} ${Math.round(100 * share)} %`).join(", ");
  const found = shares && el("p", { class: "soft" }, `Found by ${shares}.`);
  return [found, bias !== null && el("p", { class: "soft" }, `Base, without any word: ${weightOf(bias)}`)];
}
