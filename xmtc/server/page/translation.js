// Texts of the review desk in several languages, from one file.

import { address } from "./api.js";

const KEY = "xmtc-page-language";
export const LANGUAGES = { en: "English", fi: "Suomi", sv: "Svenska", de: "Deutsch" };
let texts = {};
export let code = "en";

/** Loads the texts and translates the page to the stored language, or to that of the browser. */
export async function startTranslation() {
  texts = await (await fetch(address("static/translations.json"))).json();
  const wanted = [localStorage.getItem(KEY), ...navigator.languages.map((tag) => tag.split("-")[0])];
  translatePage(wanted.find((each) => each in LANGUAGES) ?? "en");
}

/** Returns a text with its values filled in. */
export function t(key, values = {}) {
  const text = texts[key]?.[code] ?? texts[key]?.en ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

export function translatePage(language) {
  code = language;
  localStorage.setItem(KEY, code);
  document.documentElement.lang = code;
  document.title = `xmtc: ${t("title")}`;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) node.ariaLabel = t(node.dataset.tLabel);
  for (const node of document.querySelectorAll("[data-t-placeholder]")) node.placeholder = t(node.dataset.tPlaceholder);
}
