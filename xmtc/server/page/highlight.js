// Text with words marked by their weights.

import { el } from "./dom.js";

export const FAINTEST = 0.15; // share of the strongest weight; weaker words are not marked

/** Returns the text as a fragment in which words are marked as strongly as their weights. */
export function markedText(text, words) {
  const toUnit = codeUnitOffsets(text);
  const found = words.flatMap(({ spans, weights, parts }) =>
    spans.map((span, i) => ({ span: span.map(toUnit), weight: weights[i], part: parts[i]?.map(toUnit) })),
  );
  found.sort((a, b) => a.span[0] - b.span[0]);
  const strongest = Math.max(...found.map(({ weight }) => Math.abs(weight)), 0);
  const fragment = document.createDocumentFragment();
  let at = 0;
  for (const { span, weight, part } of found) {
    if (Math.abs(weight) <= FAINTEST * strongest) continue;
    const [begin, end] = span;
    const [first, last] = part ?? [begin, begin];
    const strong = part ? el("b", {}, text.slice(first, last)) : "";
    fragment.append(text.slice(at, begin));
    fragment.append(mark([text.slice(begin, first), strong, text.slice(last, end)], weight, strongest));
    at = end;
  }
  fragment.append(text.slice(at));
  return fragment;
}

export function mark(content, weight, strongest) {
  const element = el("mark", { class: weight < 0 && "against", title: weightOf(weight) }, ...[content].flat());
  element.style.setProperty("--w", (Math.abs(weight) / strongest).toFixed(2));
  return element;
}

/** Formats a weight with a minus sign, because screen readers skip a hyphen. */
export function weightOf(weight) {
  const digits = Math.abs(weight) < 0.1 ? weight.toPrecision(2) : weight.toFixed(2);
  return digits.replaceAll("-", "−");
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
