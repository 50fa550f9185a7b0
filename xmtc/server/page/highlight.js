// Text with words marked by their weights.

import { el } from "./dom.js";

export const FAINTEST = 0.15; // share of the strongest weight; weaker words are not marked

/** Returns the text as a fragment in which words are marked as strongly as their weights. */
export function markedText(text, words) {
  const pieces = splitByWeight(text, words);
  const strongest = Math.max(...pieces.map((piece) => Math.abs(piece.weight)), 0);
  const parts = pieces.map(({ begin, end, weight }) => {
    const piece = text.slice(begin, end);
    return Math.abs(weight) > FAINTEST * strongest ? mark(piece, weight, strongest) : piece;
  });
  const fragment = document.createDocumentFragment();
  fragment.append(...parts);
  return fragment;
}

export function mark(piece, weight, strongest) {
  const element = el("mark", { class: weight < 0 && "against", title: weightOf(weight) }, piece);
  element.style.setProperty("--w", (Math.abs(weight) / strongest).toFixed(2));
  return element;
}

/** Formats a weight with a minus sign, because screen readers skip a hyphen. */
export function weightOf(weight) {
  const digits = Math.abs(weight) < 0.1 ? weight.toPrecision(2) : weight.toFixed(2);
  return digits.replaceAll("-", "−");
}

/** Splits the text into pieces of constant weight. The weights of overlapping words add up. */
function splitByWeight(text, words) {
  const toUnit = codeUnitOffsets(text);
  const changes = new Map([[0, 0]]);
  const change = (where, by) => changes.set(where, (changes.get(where) ?? 0) + by);
  for (const { weight, spans } of words) {
    for (const [begin, end] of spans) {
      change(toUnit(begin), weight);
      change(toUnit(end), -weight);
    }
  }
  const bounds = [...changes.keys()].filter((where) => where < text.length).sort((a, b) => a - b);
  let weight = 0;
  return bounds.map((begin, number) => {
    weight += changes.get(begin);
    const rest = Math.abs(weight) < 1e-12 ? 0 : weight; // rounding error
    return { begin, end: bounds[number + 1] ?? text.length, weight: rest };
  });
}

/** Returns a function from the server's offsets (code points) to JavaScript's (UTF-16 code units). */
function codeUnitOffsets(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (where) => where;
  const starts = [];
  let unit = 0;
  for (const character of text) {
    starts.push(unit);
    unit += character.length;
  }
  return (where) => starts[where] ?? text.length;
}
