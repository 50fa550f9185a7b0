// Weights of words, laid over the text as marks.

import { el } from "./dom.js";

export const FAINTEST = 0.15; // of the strongest weight: what is weaker would only be in the way

/** The text with the words marked, each as strongly as it weighs. */
export function markedText(text, words) {
  const pieces = cut(text, words);
  const strongest = Math.max(...pieces.map((piece) => Math.abs(piece.weight)), 0);
  const parts = pieces.map(({ begin, end, weight }) => {
    const piece = text.slice(begin, end);
    return Math.abs(weight) > FAINTEST * strongest ? mark(piece, weight, strongest) : piece;
  });
  const whole = document.createDocumentFragment();
  whole.append(...parts);
  return whole;
}

export function mark(piece, weight, strongest) {
  const element = el("mark", { class: weight < 0 && "against", title: weightOf(weight) }, piece);
  element.style.setProperty("--w", (Math.abs(weight) / strongest).toFixed(2));
  return element;
}

/** With a minus sign, which is read aloud, and not a hyphen, which is not. */
export function weightOf(weight) {
  const digits = Math.abs(weight) < 0.1 ? weight.toPrecision(2) : weight.toFixed(2);
  return digits.replaceAll("-", "−");
}

/** The text in stretches of one weight each. Where words overlap, as pairs of words do, their weights add. */
function cut(text, words) {
  const place = places(text);
  const changes = new Map([[0, 0]]);
  const change = (where, by) => changes.set(where, (changes.get(where) ?? 0) + by);
  for (const { weight, spans } of words) {
    for (const [begin, end] of spans) {
      change(place(begin), weight);
      change(place(end), -weight);
    }
  }
  const bounds = [...changes.keys()].filter((where) => where < text.length).sort((a, b) => a - b);
  let weight = 0;
  return bounds.map((begin, number) => {
    weight += changes.get(begin);
    const rest = Math.abs(weight) < 1e-12 ? 0 : weight; // what adding and taking away leaves
    return { begin, end: bounds[number + 1] ?? text.length, weight: rest };
  });
}

/** The server counts code points, JavaScript counts UTF-16 units: they part where a text has emoji, say. */
function places(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (where) => where;
  const starts = [];
  let unit = 0;
  for (const character of text) {
    starts.push(unit);
    unit += character.length;
  }
  return (where) => starts[where] ?? text.length;
}
