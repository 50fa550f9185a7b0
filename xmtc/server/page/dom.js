// What the page is made of. Texts and names of tags are never read as HTML: strings become text nodes.

export const at = (id) => document.getElementById(id);

/** An element with attributes, listeners (`on`) and children; what is false or null is left out. */
export function el(name, { on = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(key, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.filter((child) => child != null));
  return element;
}

export const copyOf = (id) => at(id).content.cloneNode(true);

export function show(...elements) {
  for (const element of elements) element.hidden = false;
}

export function hide(...elements) {
  for (const element of elements) element.hidden = true;
}

/** Said by a screen reader, seen by nobody. */
export function announce(sentence) {
  at("status").textContent = sentence;
}

/** Hands a file to the browser's downloads. */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const plural = new Intl.PluralRules("en");
const digits = new Intl.NumberFormat("en");
export const figure = (number) => digits.format(number);
export const counted = (n, noun) => `${figure(n)} ${noun}${plural.select(n) === "one" ? "" : "s"}`;
