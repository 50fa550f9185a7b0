// DOM helpers. Strings become text nodes, so that texts and tag names are never parsed as HTML.

export const byId = (id) => document.getElementById(id);

/** Returns an element with attributes, listeners (`on`) and children; false and null values are skipped. */
export function el(name, { on = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(key, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.filter((child) => child != null));
  return element;
}

export const cloneTemplate = (id) => byId(id).content.cloneNode(true);

export function show(...elements) {
  for (const element of elements) element.hidden = false;
}

export function hide(...elements) {
  for (const element of elements) element.hidden = true;
}

/** Announces a message to screen readers only. */
export function announce(message) {
  byId("status").textContent = message;
}

/** Downloads a blob as a file. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const plural = new Intl.PluralRules("en");
const digits = new Intl.NumberFormat("en");
export const formatNumber = (number) => digits.format(number);
export const formatCount = (n, noun) => `${formatNumber(n)} ${noun}${plural.select(n) === "one" ? "" : "s"}`;
