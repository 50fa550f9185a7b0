// "Add a tag": a combobox that searches the vocabulary of the model.

import { fetchJson, modelPath } from "./api.js";
import { announce, byId, formatCount, el } from "./dom.js";
import { showError } from "./errors.js";
import { language, model } from "./settings.js";

const NOTHING = "No matching tag.";
const DEBOUNCE_MS = 150; // after the last key press

const ENGLISH = { nothing: () => NOTHING, count: (n) => `${formatCount(n, "tag")} found` };

/** Returns the labels of the model with a name that contains a text. */
async function findLabels(search, signal) {
  const words = new URLSearchParams({ search, limit: 20 });
  if (language()) words.set("language", language());
  return (await fetchJson(`${modelPath(model().name, "labels")}?${words}`, { signal })).labels;
}

const nothing = (texts) => el("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, texts.nothing());

/** Starts the combobox; `choose` is called with the selected tag, and `find` returns those that match a text. */
export function startSearch({ choose, find = findLabels, texts = ENGLISH }) {
  const input = byId("search");
  const list = byId("found");
  let found = [];
  let active = -1;
  let timer;
  let asking = new AbortController();

  const close = () => {
    clearTimeout(timer);
    asking.abort();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const take = (number) => {
    close();
    input.value = "";
    choose(found[number]);
  };

  const point = (number) => {
    active = (number + found.length) % found.length;
    [...list.children].forEach((option, each) => option.setAttribute("aria-selected", each === active));
    input.setAttribute("aria-activedescendant", `found-${active}`);
    list.children[active].scrollIntoView({ block: "nearest" });
  };

  const option = (tag, number) => {
    const called = (tag.others ?? []).slice(0, 3).join(", ");
    const others = called ? el("small", { lang: "", dir: "auto" }, called) : null;
    const name = el("span", { lang: "", dir: "auto" }, tag.name || tag.label);
    const on = {
      pointerdown: (event) => event.preventDefault(), // the input keeps the focus
      pointermove: () => number !== active && point(number),
      click: () => take(number),
    };
    return el("li", { role: "option", id: `found-${number}`, "aria-selected": "false", on }, name, others);
  };

  const search = async () => {
    asking.abort();
    asking = new AbortController();
    try {
      found = await find(input.value.trim(), asking.signal);
    } catch (error) {
      return showError(error);
    }
    list.replaceChildren(...(found.length ? found.map(option) : [nothing(texts)]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (found.length) point(0);
    list.scrollIntoView({ block: "nearest" });
    announce(found.length ? texts.count(found.length) : texts.nothing());
  };

  input.addEventListener("input", () => {
    close();
    if (input.value.trim()) timer = setTimeout(search, DEBOUNCE_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const isOpen = !list.hidden && found.length > 0;
    if (event.key === "ArrowDown" && isOpen) point(active + 1);
    else if (event.key === "ArrowUp" && isOpen) point(active - 1);
    else if (event.key === "ArrowDown" && input.value.trim()) search();
    else if (event.key === "Enter" && isOpen) take(active);
    else if (event.key === "Escape" && !list.hidden) close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
